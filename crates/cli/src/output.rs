//! Figures as people read them, the summary line and the table of runs.

use std::io::{self, Write};
use std::process::ExitCode;

use serde_json::Value;
use vswap_pager::Status;

use crate::failure::Failure;
use crate::size::PAGE_BYTES;

/// A line on standard error. Where that is gone there is nobody to tell.
pub fn notice(text: &str) {
    let _ = writeln!(io::stderr(), "vswap: {text}");
}

/// The answer of a subcommand, on standard output.
pub fn print(text: &str) -> Result<ExitCode, Failure> {
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        // The reader, `head` perhaps, has had enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(error) => Err(Failure::own(format!(
            "cannot write to standard output: {error}"
        ))),
    }
}

/// Bytes with a binary unit and three digits that matter: `8 MiB`, `1.46 GiB`, `498 MiB`.
pub fn bytes(value: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut scaled = value as f64;
    let mut unit = 0;
    // 999.5 and more would be shown with four digits.
    while scaled >= 999.5 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    format!("{} {}", three_digits(scaled), UNITS[unit])
}

/// A count with a decimal suffix: `87`, `41.2k`, `1.2M`.
pub fn count(value: u64) -> String {
    const UNITS: [&str; 5] = ["", "k", "M", "G", "T"];
    let mut scaled = value as f64;
    let mut unit = 0;
    while scaled >= 999.5 && unit + 1 < UNITS.len() {
        scaled /= 1000.0;
        unit += 1;
    }
    format!("{}{}", three_digits(scaled), UNITS[unit])
}

/// Microseconds, or a longer unit where it reads better: `5.1 us`, `2.3 ms`.
pub fn microseconds(value: f64) -> String {
    if value < 999.5 {
        format!("{} us", three_digits(value))
    } else if value < 999_500.0 {
        format!("{} ms", three_digits(value / 1e3))
    } else {
        format!("{} s", three_digits(value / 1e6))
    }
}

/// At most three digits, and no zeros at the end of a fraction.
fn three_digits(value: f64) -> String {
    let places = if value >= 99.95 {
        0
    } else if value >= 9.995 {
        1
    } else {
        2
    };
    let text = format!("{value:.places$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// What the line at the end of a run says.
pub fn summary_line(status: &Status) -> String {
    let peak = format!(
        "peak {} of {}",
        bytes(status.peak_total_bytes),
        bytes(status.limit_bytes)
    );
    if status.pages_out == 0 {
        return format!("{peak}; nothing was ever evicted");
    }
    let mut line = format!(
        "{peak} (needed {}); pages out {}, in {}",
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

const HEADINGS: [&str; 10] = [
    "PID", "COMMAND", "LIMIT", "TOTAL", "RESIDENT", "POOL", "SWAPPED", "OUT", "IN", "P99",
];
/// Columns of text; the others are figures and stand to the right.
const TEXT_COLUMNS: [usize; 1] = [1];
/// Longest command that the table shows: the figures beside it fit a line of 120 characters then.
const COMMAND_CHARS_MAX: usize = 32;

/// The table of `vswap status`. Figures that a run of another version does not give are shown as `-`.
pub fn status_table(reports: &[Value]) -> String {
    table(&HEADINGS, &TEXT_COLUMNS, reports.iter().map(status_row))
}

const AREA_HEADINGS: [&str; 6] = ["NAME", "TYPE", "SIZE", "USED", "PRIO", "RUN"];
const AREA_TEXT_COLUMNS: [usize; 2] = [0, 1];

/// The table of `vswap status --areas`, with the columns of `swapon --show` and the run.
pub fn areas_table(reports: &[Value]) -> String {
    let rows = reports.iter().flat_map(|report| {
        let areas = report["areas"].as_array().into_iter().flatten();
        areas.map(|area| area_row(area, &report["pid"]))
    });
    table(&AREA_HEADINGS, &AREA_TEXT_COLUMNS, rows)
}

fn area_row(area: &Value, pid: &Value) -> [String; 6] {
    let text = |name: &str| area[name].as_str().unwrap_or("-").to_owned();
    let size = |name: &str| area[name].as_u64().map_or_else(|| "-".to_owned(), bytes);
    let failing = area["failing"].as_bool().unwrap_or_default();
    [
        printable(&text("name")),
        text("type"),
        size("size_bytes"),
        size("used_bytes") + if failing { " (failing)" } else { "" },
        area["priority"]
            .as_i64()
            .map_or_else(|| "-".to_owned(), |priority| priority.to_string()),
        pid.to_string(),
    ]
}

const GROUP_HEADINGS: [&str; 8] = [
    "NAME",
    "SWAP",
    "SWAP-MAX",
    "POOL",
    "POOL-MAX",
    "WRITEBACK",
    "EVENTS",
    "RUN",
];
const GROUP_TEXT_COLUMNS: [usize; 3] = [0, 5, 6];

/// The table of `vswap status --groups`.
pub fn groups_table(reports: &[Value]) -> String {
    let rows = reports.iter().flat_map(|report| {
        let groups = report["groups"].as_array().into_iter().flatten();
        groups.map(|group| group_row(group, &report["pid"]))
    });
    table(&GROUP_HEADINGS, &GROUP_TEXT_COLUMNS, rows)
}

fn group_row(group: &Value, pid: &Value) -> [String; 8] {
    let size = |name: &str| group[name].as_u64().map_or_else(|| "-".to_owned(), bytes);
    let events = group["events"].as_object().into_iter().flatten();
    let met = events.filter_map(|(name, pages)| {
        let pages = pages.as_u64().filter(|pages| *pages > 0)?;
        Some(format!("{name} {}", count(pages)))
    });
    let met: Vec<String> = met.collect();
    [
        printable(group["name"].as_str().unwrap_or("-")),
        size("swap_bytes"),
        size("swap_max_bytes"),
        size("pool_bytes"),
        size("pool_max_bytes"),
        match group["writeback"].as_bool() {
            Some(true) => "yes".to_owned(),
            Some(false) => "no".to_owned(),
            None => "-".to_owned(),
        },
        if met.is_empty() {
            "-".to_owned()
        } else {
            printable(&met.join(", "))
        },
        pid.to_string(),
    ]
}

/// Lines up rows under their headings: the columns named in `text` to the left, figures to the right.
fn table<const COLUMNS: usize>(
    headings: &[&str; COLUMNS],
    text: &[usize],
    content: impl Iterator<Item = [String; COLUMNS]>,
) -> String {
    let mut rows = vec![headings.map(str::to_owned)];
    rows.extend(content);
    let widths: [usize; COLUMNS] = std::array::from_fn(|column| {
        let widths = rows.iter().map(|row| row[column].chars().count());
        widths.max().unwrap_or(0)
    });
    let mut table = String::new();
    for row in &rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            if text.contains(&column) {
                line += &format!("{cell:<width$}  ");
            } else {
                line += &format!("{cell:>width$}  ");
            }
        }
        table += line.trim_end();
        table.push('\n');
    }
    table
}

/// Text with nothing in it that a terminal would act on.
fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

fn status_row(report: &Value) -> [String; 10] {
    let figure = |name: &str, show: fn(u64) -> String| {
        report[name].as_u64().map_or_else(|| "-".to_owned(), show)
    };
    let p99 = report["fault_us_p99"].as_f64().filter(|p99| *p99 > 0.0);
    [
        figure("pid", |pid| pid.to_string()),
        command_cell(&report["command"]),
        figure("limit_bytes", bytes),
        figure("total_bytes", bytes),
        figure("resident_bytes", bytes),
        figure("pool_bytes", bytes),
        figure("swapped_pages", |pages| bytes(pages * PAGE_BYTES)),
        figure("pages_out", |pages| bytes(pages * PAGE_BYTES)),
        figure("pages_in", |pages| bytes(pages * PAGE_BYTES)),
        p99.map_or_else(|| "-".to_owned(), microseconds),
    ]
}

/// The command in one line, cut to fit, with nothing in it that a terminal would act on.
fn command_cell(command: &Value) -> String {
    let words: Vec<&str> = command
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let line = words.join(" ");
    let mut shown: String = printable(&line).chars().take(COMMAND_CHARS_MAX).collect();
    if line.chars().count() > COMMAND_CHARS_MAX {
        shown.truncate(
            shown
                .char_indices()
                .nth(COMMAND_CHARS_MAX - 3)
                .map_or(0, |(at, _)| at),
        );
        shown += "...";
    }
    if shown.is_empty() {
        "-".to_owned()
    } else {
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn bytes_have_three_digits_that_matter() {
        for (value, expected) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "0.98 KiB"),
            (8 << 20, "8 MiB"),
            (512 << 20, "512 MiB"),
            (1000 << 20, "0.98 GiB"),
            (3 << 29, "1.5 GiB"),
            ((1 << 30) * 12 + (1 << 29), "12.5 GiB"),
            (u64::MAX, "16384 PiB"),
        ] {
            assert_eq!(bytes(value), expected);
        }
    }

    #[test]
    fn counts_and_times() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(41_234), "41.2k");
        assert_eq!(count(1_200_000), "1.2M");
        assert_eq!(microseconds(5.12), "5.12 us");
        assert_eq!(microseconds(23.0), "23 us");
        assert_eq!(microseconds(2_345.0), "2.35 ms");
        assert_eq!(microseconds(3_000_000.0), "3 s");
    }

    #[test]
    fn summary_says_when_nothing_was_evicted() {
        let status = Status {
            limit_bytes: 512 << 20,
            peak_total_bytes: 210 << 20,
            ..Status::default()
        };
        assert_eq!(
            summary_line(&status),
            "peak 210 MiB of 512 MiB; nothing was ever evicted"
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
        assert!(summary_line(&rejected).contains("; 1.2k times no slot for a page; faults 401k"));
        assert_eq!(
            summary_line(&status),
            "peak 498 MiB of 512 MiB (needed 1.5 GiB); pages out 412k, in 380k; \
             1.5 GiB compressed to 512 MiB (3.0x), 1.2k pages of zeros; faults 401k, p50 5.1 us, p99 23.4 us"
        );
    }

    #[test]
    fn table_lines_up_and_bears_gaps() {
        let table = status_table(&[
            json!({"pid": 7, "command": ["redis-server", "--port", "6400"], "limit_bytes": 536_870_912_u64,
                   "swapped_pages": 256, "fault_us_p99": 23.4}),
            json!({"pid": 123_456, "command": ["evil\u{1b}[2J", "a rather long argument that goes on and on"]}),
        ]);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[0].starts_with("   PID  COMMAND"), "{table}");
        assert!(
            lines[1].starts_with("     7  redis-server --port 6400"),
            "{table}"
        );
        assert!(
            lines[1].contains("512 MiB") && lines[1].contains("1 MiB"),
            "{table}"
        );
        assert!(lines[1].ends_with("23.4 us"), "{table}");
        assert!(
            lines[2].contains("evil?[2J a rather long argume...  "),
            "{table}"
        );
        assert!(!table.contains('\u{1b}'));
        assert_eq!(status_table(&[]).lines().count(), 1);
    }

    #[test]
    fn areas_are_shown_as_swapon_shows_them() {
        let area = json!({"name": "/dev/vdb2", "type": "partition", "size_bytes": 8_u64 << 30, "used_bytes": 4096,
                          "priority": -1, "failing": false});
        let table = areas_table(&[json!({"pid": 7, "areas": [area]}), json!({"pid": 8})]);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(
            lines,
            [
                "NAME       TYPE        SIZE   USED  PRIO  RUN",
                "/dev/vdb2  partition  8 GiB  4 KiB    -1    7"
            ]
        );
    }

    #[test]
    fn groups_are_shown_with_their_limits_and_what_these_have_refused() {
        let root = json!({"name": "/", "swap_bytes": 8192, "swap_max_bytes": null, "pool_bytes": 1024,
                          "pool_max_bytes": null, "writeback": true, "events": {"swap_max": 0}});
        let jobs = json!({"name": "web/jobs", "swap_bytes": 8192, "swap_max_bytes": 8192, "pool_bytes": 1024,
                          "pool_max_bytes": 2048, "writeback": false, "events": {"swap_max": 3, "swap_fail": 1200}});
        let table = groups_table(&[json!({"pid": 7, "groups": [root, jobs]}), json!({"pid": 8})]);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(
            lines,
            [
                "NAME       SWAP  SWAP-MAX   POOL  POOL-MAX  WRITEBACK  EVENTS                      RUN",
                "/         8 KiB         -  1 KiB         -  yes        -                             7",
                "web/jobs  8 KiB     8 KiB  1 KiB     2 KiB  no         swap_fail 1.2k, swap_max 3    7",
            ]
        );
    }
}
