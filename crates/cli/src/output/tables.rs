//! The tables of `vswap status`: runs, areas, groups.

use serde_json::Value;

use super::figures::{PAGE_BYTES, bytes, count, microseconds};

const HEADINGS: [&str; 11] = [
    "PID", "COMMAND", "STATE", "LIMIT", "TOTAL", "RESIDENT", "POOL", "SWAPPED", "OUT", "IN", "P99",
];
/// Columns with text are left-aligned. The others hold figures and are right-aligned.
pub const TEXT_COLUMNS: [usize; 2] = [1, 2];

const PRESSURE_HEADINGS: [&str; 10] = [
    "PID", "COMMAND", "STATE", "SOME10", "SOME60", "SOME300", "FULL10", "FULL60", "FULL300",
    "STALLED",
];

pub const AREA_HEADINGS: [&str; 7] = ["NAME", "TYPE", "SIZE", "USED", "PRIO", "ENCRYPTED", "RUN"];
pub const AREA_TEXT_COLUMNS: [usize; 3] = [0, 1, 5];

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
/// The column before the run, which is there if some group is limited in some tier.
const GROUP_TIERS_HEADING: &str = "TIERS";
const GROUP_TIERS_TEXT_COLUMNS: [usize; 4] = [0, 5, 6, 7];
/// The longest command that the table shows. With it the figures still fit into a line of 120 characters.
const COMMAND_CHARS_MAX: usize = 32;

/// The table of `vswap status`. Figures that a run of another version does not report are shown as `-`.
pub fn status_table(reports: &[Value]) -> String {
    table(&HEADINGS, &TEXT_COLUMNS, reports.iter().map(status_row))
}

/// The table of `vswap status --pressure`: hundredths of the time in which some thread waited for a page, and in which
/// none worked, and seconds of that since the start.
pub fn pressure_table(reports: &[Value]) -> String {
    let rows = reports.iter().map(|report| {
        let lost = |of: &str, name: &str| report["pressure"][of][name].as_f64();
        let share = |of: &str, name: &str| {
            lost(of, name).map_or_else(|| "-".to_owned(), |share| format!("{share:.2}"))
        };
        let stalled = lost("full", "total_seconds");
        [
            report["pid"].to_string(),
            command_cell(&report["command"]),
            state_cell(report),
            share("some", "avg10"),
            share("some", "avg60"),
            share("some", "avg300"),
            share("full", "avg10"),
            share("full", "avg60"),
            share("full", "avg300"),
            stalled.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.1} s")),
        ]
    });
    table(&PRESSURE_HEADINGS, &TEXT_COLUMNS, rows)
}

/// STATE, or a dash.
fn state_cell(report: &Value) -> String {
    printable(report["state"].as_str().unwrap_or("-"))
}

/// The table of `vswap status --areas`: the columns of `swapon --show`, whether pages are
/// encrypted, and the run.
pub fn areas_table(reports: &[Value]) -> String {
    let rows = reports.iter().flat_map(|report| {
        let areas = report["areas"].as_array().into_iter().flatten();
        areas.map(|area| area_row(area, &report["pid"]))
    });
    table(&AREA_HEADINGS, &AREA_TEXT_COLUMNS, rows)
}

/// A row of `areas_table`.
pub fn area_row(area: &Value, pid: &Value) -> [String; 7] {
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
        yes_or_no(&area["encrypted"]),
        pid.to_string(),
    ]
}

/// The table of `vswap status --groups`. The daemon tells of the groups of all runs that have joined it, so where it is
/// listed these do not tell of them again.
pub fn groups_table(reports: &[Value]) -> String {
    let has_daemon = reports.iter().any(|report| report["daemon"] == true);
    let tells = move |report: &&Value| !has_daemon || report["shared"] != true;
    let groups = reports.iter().filter(tells).flat_map(|report| {
        let groups = report["groups"].as_array().into_iter().flatten();
        groups.map(|group| (group, &report["pid"]))
    });
    let rows = groups.clone().map(|(group, pid)| group_row(group, pid));
    let limits: Vec<Option<String>> = groups.map(|(group, _)| tier_limits(group)).collect();
    if limits.iter().all(Option::is_none) {
        return table(&GROUP_HEADINGS, &GROUP_TEXT_COLUMNS, rows);
    }
    let with = |row: [String; 8], limits: String| {
        let [name, swap, swap_max, pool, pool_max, writeback, events, run] = row;
        [
            name, swap, swap_max, pool, pool_max, writeback, events, limits, run,
        ]
    };
    let headings = with(
        GROUP_HEADINGS.map(str::to_owned),
        GROUP_TIERS_HEADING.to_owned(),
    );
    let headings = headings.each_ref().map(String::as_str);
    let limits = limits.into_iter();
    let limits = limits.map(|limits| limits.unwrap_or_else(|| "-".to_owned()));
    let rows = rows.zip(limits).map(|(row, limits)| with(row, limits));
    table(&headings, &GROUP_TIERS_TEXT_COLUMNS, rows)
}

/// The priorities of a tier's areas.
pub fn tier_priorities(tier: &Value) -> String {
    let priority = |name: &str| tier[name].as_i64();
    match (priority("priority_min"), priority("priority_max")) {
        (Some(least), Some(most)) if least != most => format!("{least}..{most}"),
        (Some(one), _) => one.to_string(),
        _ => "-".to_owned(),
    }
}

/// What a group has and may have in the tiers in which it is limited; none if there are none.
fn tier_limits(group: &Value) -> Option<String> {
    let tiers = group["tiers"].as_array().into_iter().flatten();
    let limits = tiers.filter_map(|tier| {
        let has = bytes(tier["bytes"].as_u64()?);
        let most = bytes(tier["max_bytes"].as_u64()?);
        Some(format!("{} {has} of {most}", tier["name"].as_str()?))
    });
    let limits: Vec<String> = limits.collect();
    (!limits.is_empty()).then(|| printable(&limits.join(", ")))
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
        yes_or_no(&group["writeback"]),
        if met.is_empty() {
            "-".to_owned()
        } else {
            printable(&met.join(", "))
        },
        pid.to_string(),
    ]
}

fn yes_or_no(flag: &Value) -> String {
    let text = match flag.as_bool() {
        Some(true) => "yes",
        Some(false) => "no",
        None => "-",
    };
    text.to_owned()
}

/// Aligns rows under their headings: columns named in `text` to the left, figures to the right.
pub fn table<const COLUMNS: usize>(
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

/// The text without anything that a terminal would act on.
pub fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

fn status_row(report: &Value) -> [String; 11] {
    let moved = |name: &str| figure(report, name, |pages| bytes(pages * PAGE_BYTES));
    let [pid, command, state, limit, total, resident, pool, swapped] = run_cells(report);
    let (out, back) = (moved("pages_out"), moved("pages_in"));
    let p99 = p99_cell(report);
    [
        pid, command, state, limit, total, resident, pool, swapped, out, back, p99,
    ]
}

/// What each table of runs begins with.
pub fn run_cells(report: &Value) -> [String; 8] {
    [
        figure(report, "pid", |pid| pid.to_string()),
        command_cell(&report["command"]),
        state_cell(report),
        figure(report, "limit_bytes", bytes),
        figure(report, "total_bytes", bytes),
        figure(report, "resident_bytes", bytes),
        figure(report, "pool_bytes", bytes),
        figure(report, "swapped_pages", |pages| bytes(pages * PAGE_BYTES)),
    ]
}

/// What a fault takes at the 99th percentile.
pub fn p99_cell(report: &Value) -> String {
    let p99 = report["fault_us_p99"].as_f64().filter(|p99| *p99 > 0.0);
    p99.map_or_else(|| "-".to_owned(), microseconds)
}

/// A figure of a report, or a dash.
pub fn figure(report: &Value, name: &str, show: fn(u64) -> String) -> String {
    report[name].as_u64().map_or_else(|| "-".to_owned(), show)
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
    fn table_lines_up_and_bears_gaps() {
        let table = status_table(&[
            json!({"pid": 7, "command": ["redis-server", "--port", "6400"], "limit_bytes": 536_870_912_u64,
                   "swapped_pages": 256, "fault_us_p99": 23.4}),
            json!({"pid": 8, "command": ["sort"], "state": "full"}),
            json!({"pid": 123_456, "command": ["evil\u{1b}[2J", "a rather long argument that goes on and on"]}),
        ]);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 4);
        let cells: Vec<&str> = lines[2].split_whitespace().take(3).collect();
        assert_eq!(cells, ["8", "sort", "full"], "{table}");
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
            lines[3].contains("evil?[2J a rather long argume...  "),
            "{table}"
        );
        assert!(!table.contains('\u{1b}'));
        assert_eq!(status_table(&[]).lines().count(), 1);
    }

    #[test]
    fn time_lost_is_shown_by_window() {
        let pressure = json!({"some": {"avg10": 12.5, "avg60": 3.0, "avg300": 0.61, "total_seconds": 9.0},
                              "full": {"avg10": 10.0, "avg60": 2.0, "avg300": 0.5, "total_seconds": 7.25}});
        let table = pressure_table(&[
            json!({"pid": 7, "command": ["sort"], "state": "thrashing", "pressure": pressure}),
            json!({"pid": 8}),
        ]);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(
            lines,
            [
                "PID  COMMAND  STATE      SOME10  SOME60  SOME300  FULL10  FULL60  FULL300  STALLED",
                "  7  sort     thrashing   12.50    3.00     0.61   10.00    2.00     0.50    7.2 s",
                "  8  -        -               -       -        -       -       -        -        -",
            ]
        );
    }

    #[test]
    fn areas_are_shown_as_swapon_shows_them() {
        let area = json!({"name": "/dev/vdb2", "type": "partition", "size_bytes": 8_u64 << 30, "used_bytes": 4096,
                          "priority": -1, "failing": false, "encrypted": true});
        let table = areas_table(&[json!({"pid": 7, "areas": [area]}), json!({"pid": 8})]);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(
            lines,
            [
                "NAME       TYPE        SIZE   USED  PRIO  ENCRYPTED  RUN",
                "/dev/vdb2  partition  8 GiB  4 KiB    -1  yes          7"
            ]
        );
    }

    #[test]
    fn limits_of_tiers_are_shown_where_there_are_any() {
        let tier =
            |max_bytes: Option<u64>| json!({"name": "fast", "bytes": 4096, "max_bytes": max_bytes});
        let group = |name: &str, max_bytes| json!({"name": name, "tiers": [tier(max_bytes)]});
        let table = groups_table(&[
            json!({"pid": 7, "groups": [group("/", None), group("a", Some(8192))]}),
        ]);
        let lines: Vec<&str> = table.lines().collect();
        assert!(
            lines[0].ends_with("EVENTS  TIERS                RUN"),
            "{table}"
        );
        assert!(
            lines[1].ends_with("-       -                      7"),
            "{table}"
        );
        assert!(
            lines[2].ends_with("-       fast 4 KiB of 8 KiB    7"),
            "{table}"
        );
        let none = groups_table(&[json!({"pid": 7, "groups": [group("/", None)]})]);
        assert!(!none.contains("TIERS"), "{none}");
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

    #[test]
    fn groups_of_the_daemon_are_shown_once() {
        let run = json!({"pid": 8, "shared": true, "groups": [{"name": "/"}, {"name": "run-8"}]});
        let daemon =
            json!({"pid": 7, "daemon": true, "groups": [{"name": "/"}, {"name": "run-8"}]});
        let other = json!({"pid": 9, "shared": false, "groups": [{"name": "/"}]});
        let lines = |reports: &[Value]| groups_table(reports).lines().count() - 1;
        assert_eq!(lines(&[daemon, run.clone(), other]), 3);
        assert_eq!(lines(&[run]), 2, "who asks for one run sees its groups");
    }
}
