//! The last lines of a run.

use vswap_pager::Status;

use super::figures::{bytes, count, microseconds};

/// Less time lost than this is not worth a word.
const LOST_SECONDS_LEAST: f64 = 0.05;

/// What the figures do not tell of the end of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Circumstances {
    /// It was ended because everything was full.
    pub was_full: bool,
    /// What the program had in memory when it was attached to.
    pub attached_bytes: Option<u64>,
}

/// What is said at the end of a run: how much memory it had, and, if it swapped, in a second line how that went.
pub fn summary_lines(status: &Status, of: Circumstances) -> Vec<String> {
    let first = waited(status, of.was_full) + &peak(status, of);
    if status.pages_out == 0 {
        return vec![format!("{first}; nothing was ever evicted")];
    }
    let mut first = format!(
        "{first} (needed {}); pages out {}, in {}",
        bytes(status.peak_needed_bytes),
        count(status.pages_out),
        count(status.pages_in)
    );
    if status.pages_lost > 0 {
        first += &format!("; {} pages lost", count(status.pages_lost));
    }
    if status.alloc_reject > 0 {
        first += &format!("; {} times no slot for a page", count(status.alloc_reject));
    }
    let (some, full) = (status.pressure.some, status.pressure.full);
    if some.total_seconds >= LOST_SECONDS_LEAST {
        first += &format!(
            "; waited {:.1} s for pages, {:.1} s of it with nothing else to do",
            some.total_seconds, full.total_seconds
        );
    }
    vec![first, paging(status)]
}

/// The most that it had, and the limit. A program that is attached to may have had more before.
fn peak(status: &Status, of: Circumstances) -> String {
    let highest = status.highest_limit_bytes.max(status.limit_bytes);
    let mut peak = format!(
        "peak {} of {}",
        bytes(status.peak_total_bytes),
        bytes(highest)
    );
    if let Some(before) = of.attached_bytes.filter(|before| *before > highest) {
        peak += &format!(", {} when it was attached", bytes(before));
    }
    if highest > status.limit_bytes {
        peak += &format!(", {} at the end", bytes(status.limit_bytes));
    }
    peak
}

/// Where pages went, and how fast they came back.
fn paging(status: &Status) -> String {
    let mut parts = Vec::new();
    if status.compressed_in_bytes > 0 {
        parts.push(format!(
            "{} compressed to {} ({:.1}x)",
            bytes(status.compressed_in_bytes),
            bytes(status.compressed_out_bytes),
            status.compressed_in_bytes as f64 / (status.compressed_out_bytes.max(1)) as f64
        ));
    }
    if status.pages_out_zero > 0 {
        parts.push(format!("{} pages of zeros", count(status.pages_out_zero)));
    }
    let (written, read) = status.areas.iter().fold((0, 0), |(written, read), area| {
        (written + area.written_bytes, read + area.read_bytes)
    });
    if written > 0 {
        parts.push(format!(
            "{} written to areas, {} read",
            bytes(written),
            bytes(read)
        ));
    }
    let mut faults = format!("faults {}", count(status.faults));
    if status.fault_us_max > 0.0 {
        faults += &format!(
            ", p50 {}, p99 {}",
            microseconds(status.fault_us_p50),
            microseconds(status.fault_us_p99)
        );
    }
    parts.push(faults);
    parts.join("; ")
}

/// What comes first, if it was so: that the run was ended, or at least kept waiting.
fn waited(status: &Status, was_full: bool) -> String {
    let seconds = status.stalled_seconds.round();
    if was_full {
        format!(
            "ended because it was full, after waiting {seconds} s (it has needed {}); ",
            bytes(status.peak_needed_bytes)
        )
    } else if seconds >= 1.0 {
        format!("waited {seconds} s for memory; ")
    } else {
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(status: &Status) -> String {
        summary_lines(status, Circumstances::default()).join("; ")
    }

    #[test]
    fn summary_says_when_nothing_was_evicted() {
        let status = Status {
            limit_bytes: 512 << 20,
            peak_total_bytes: 210 << 20,
            ..Status::default()
        };
        assert_eq!(
            line(&status),
            "peak 210 MiB of 512 MiB; nothing was ever evicted"
        );
    }

    #[test]
    fn a_peak_is_measured_against_the_highest_limit() {
        let status = Status {
            limit_bytes: 96 << 20,
            highest_limit_bytes: 512 << 20,
            peak_total_bytes: 408 << 20,
            ..Status::default()
        };
        assert_eq!(
            line(&status),
            "peak 408 MiB of 512 MiB, 96 MiB at the end; nothing was ever evicted"
        );
    }

    #[test]
    fn more_than_the_limit_before_it_was_attached_is_explained() {
        let status = Status {
            limit_bytes: 48 << 20,
            peak_total_bytes: 96 << 20,
            peak_needed_bytes: 96 << 20,
            pages_out: 10,
            ..Status::default()
        };
        let said = |attached_bytes| {
            let ended = Circumstances {
                attached_bytes,
                ..Circumstances::default()
            };
            summary_lines(&status, ended).remove(0)
        };
        assert!(
            said(Some(90 << 20))
                .starts_with("peak 96 MiB of 48 MiB, 90 MiB when it was attached (needed 96 MiB)"),
        );
        assert!(!said(Some(40 << 20)).contains("attached"));
        assert!(!said(None).contains("attached"));
    }

    #[test]
    fn summary_of_a_run_that_swapped() {
        let status = Status {
            limit_bytes: 512 << 20,
            peak_total_bytes: 498 << 20,
            peak_needed_bytes: 3 << 29,
            pages_out: 412_034,
            pages_in: 380_112,
            pages_out_zero: 1_200,
            compressed_in_bytes: 3 << 29,
            compressed_out_bytes: 1 << 29,
            faults: 401_233,
            fault_us_p50: 5.1,
            fault_us_p99: 23.4,
            fault_us_max: 900.0,
            ..Status::default()
        };
        let rejected = Status {
            alloc_reject: 1_200,
            ..status.clone()
        };
        let mut slow = status.clone();
        slow.pressure.some.total_seconds = 12.34;
        slow.pressure.full.total_seconds = 0.5;
        let words = "; waited 12.3 s for pages, 0.5 s of it with nothing else to do";
        assert!(summary_lines(&slow, Circumstances::default())[0].ends_with(words));
        assert!(line(&rejected).contains("; 1.2k times no slot for a page; 1.5 GiB compressed"));
        let waited = Status {
            stalled_seconds: 61.8,
            ..status.clone()
        };
        assert!(line(&waited).starts_with("waited 62 s for memory; peak 498 MiB"));
        let full = Circumstances {
            was_full: true,
            ..Circumstances::default()
        };
        assert!(summary_lines(&waited, full)[0].starts_with(
            "ended because it was full, after waiting 62 s (it has needed 1.5 GiB); peak"
        ));
        assert_eq!(
            summary_lines(&status, Circumstances::default()),
            [
                "peak 498 MiB of 512 MiB (needed 1.5 GiB); pages out 412k, in 380k",
                "1.5 GiB compressed to 512 MiB (3.0x); 1.2k pages of zeros; faults 401k, p50 5.1 us, p99 23.4 us"
            ]
        );
    }
}
