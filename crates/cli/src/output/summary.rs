//! The last line of a run.

use vswap_pager::Status;

use super::figures::{bytes, count, microseconds};

/// Less time lost than this is not worth a word.
const LOST_SECONDS_LEAST: f64 = 0.05;

/// What the line at the end of a run says.
pub fn summary_line(status: &Status, was_full: bool) -> String {
    let highest = status.highest_limit_bytes.max(status.limit_bytes);
    let mut peak = format!(
        "peak {} of {}",
        bytes(status.peak_total_bytes),
        bytes(highest)
    );
    let waited = waited(status, was_full);
    if highest > status.limit_bytes {
        peak += &format!(", {} at the end", bytes(status.limit_bytes));
    }
    if status.pages_out == 0 {
        return format!("{waited}{peak}; nothing was ever evicted");
    }
    let mut line = format!(
        "{waited}{peak} (needed {}); pages out {}, in {}",
        bytes(status.peak_needed_bytes),
        count(status.pages_out),
        count(status.pages_in)
    );
    if status.compressed_in_bytes > 0 {
        line += &format!(
            "; {} compressed to {} ({:.1}x)",
            bytes(status.compressed_in_bytes),
            bytes(status.compressed_out_bytes),
            status.compressed_in_bytes as f64 / (status.compressed_out_bytes.max(1)) as f64
        );
    }
    if status.pages_out_zero > 0 {
        line += &format!(", {} pages of zeros", count(status.pages_out_zero));
    }
    let (written, read) = status.areas.iter().fold((0, 0), |(written, read), area| {
        (written + area.written_bytes, read + area.read_bytes)
    });
    if written > 0 {
        line += &format!(
            "; {} written to areas, {} read",
            bytes(written),
            bytes(read)
        );
    }
    if status.pages_lost > 0 {
        line += &format!("; {} pages lost", count(status.pages_lost));
    }
    if status.alloc_reject > 0 {
        line += &format!("; {} times no slot for a page", count(status.alloc_reject));
    }
    let (some, full) = (status.pressure.some, status.pressure.full);
    if some.total_seconds >= LOST_SECONDS_LEAST {
        line += &format!(
            "; waited {:.1} s for pages, {:.1} s of it with nothing else to do",
            some.total_seconds, full.total_seconds
        );
    }
    line += &format!("; faults {}", count(status.faults));
    if status.fault_us_max > 0.0 {
        line += &format!(
            ", p50 {}, p99 {}",
            microseconds(status.fault_us_p50),
            microseconds(status.fault_us_p99)
        );
    }
    line
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

    #[test]
    fn summary_says_when_nothing_was_evicted() {
        let status = Status {
            limit_bytes: 512 << 20,
            peak_total_bytes: 210 << 20,
            ..Status::default()
        };
        assert_eq!(
            summary_line(&status, false),
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
            summary_line(&status, false),
            "peak 408 MiB of 512 MiB, 96 MiB at the end; nothing was ever evicted"
        );
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
        let words = "; waited 12.3 s for pages, 0.5 s of it with nothing else to do; faults 401k";
        assert!(summary_line(&slow, false).contains(words));
        assert!(
            summary_line(&rejected, false).contains("; 1.2k times no slot for a page; faults 401k")
        );
        let waited = Status {
            stalled_seconds: 61.8,
            ..status.clone()
        };
        assert!(summary_line(&waited, false).starts_with("waited 62 s for memory; peak 498 MiB"));
        assert!(summary_line(&waited, true).starts_with(
            "ended because it was full, after waiting 62 s (it has needed 1.5 GiB); peak"
        ));
        assert_eq!(
            summary_line(&status, false),
            "peak 498 MiB of 512 MiB (needed 1.5 GiB); pages out 412k, in 380k; \
             1.5 GiB compressed to 512 MiB (3.0x), 1.2k pages of zeros; faults 401k, p50 5.1 us, p99 23.4 us"
        );
    }
}
