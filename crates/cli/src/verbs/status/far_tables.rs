//! The tables of `vswap status --far`: areas on other machines, and their servers.

use serde_json::Value;

use crate::output::figures::{bytes, count, microseconds};
use crate::output::tables::{figure, printable, table};

/// `PAGES` and `KEYS` are what is there now, the figures behind them count pages since the area is in use.
const AREA_HEADINGS: [&str; 9] = [
    "AREA", "PAGES", "KEYS", "LOST", "ALTERED", "SINGLE", "REPAIRED", "BACKUP", "RUN",
];
const AREA_TEXT_COLUMNS: [usize; 1] = [0];
/// `OUT` and `IN` are pages as they travel: packed.
const SERVER_HEADINGS: [&str; 9] = [
    "SERVER", "OUT", "IN", "P50", "P99", "ERRORS", "RETRIES", "RUN", "STATE",
];
const SERVER_TEXT_COLUMNS: [usize; 2] = [0, 8];

/// Both tables, or a line that says that there is no such area.
pub fn far_tables(reports: &[Value]) -> String {
    let areas = reports.iter().flat_map(|report| {
        let areas = report["areas"].as_array().into_iter().flatten();
        let far = areas.filter(|area| area["far"].is_object());
        far.map(|area| (area, &report["pid"]))
    });
    let areas: Vec<(&Value, &Value)> = areas.collect();
    if areas.is_empty() {
        return "no areas on other machines\n".to_owned();
    }
    let rows = areas.iter().map(|(area, pid)| area_row(area, pid));
    let totals = table(&AREA_HEADINGS, &AREA_TEXT_COLUMNS, rows);
    let rows = areas.iter().flat_map(|(area, pid)| {
        let servers = area["far"]["servers"].as_array().into_iter().flatten();
        servers.map(|server| server_row(server, pid))
    });
    let servers = table(&SERVER_HEADINGS, &SERVER_TEXT_COLUMNS, rows);
    format!("{totals}\n{servers}")
}

fn area_row(area: &Value, pid: &Value) -> [String; 9] {
    let of = |name: &str| figure(&area["far"], name, count);
    [
        printable(area["name"].as_str().unwrap_or("-")),
        of("pages"),
        of("keys"),
        of("lost_pages"),
        of("altered_pages"),
        of("single_copies"),
        of("repaired_pages"),
        of("backup_reads"),
        pid.to_string(),
    ]
}

fn server_row(server: &Value, pid: &Value) -> [String; 9] {
    let latency = |name: &str| {
        let known = server[name].as_f64();
        known.map_or_else(|| "-".to_owned(), microseconds)
    };
    [
        printable(server["name"].as_str().unwrap_or("-")),
        figure(server, "bytes_out", bytes),
        figure(server, "bytes_in", bytes),
        latency("latency_half_us"),
        latency("latency_p99_us"),
        figure(server, "errors", count),
        figure(server, "retries", count),
        pid.to_string(),
        state(server),
    ]
}

/// How the server is; if it does not answer, for how long and why.
fn state(server: &Value) -> String {
    let state = server["state"].as_str().unwrap_or("-");
    let silent = server["silent_seconds"].as_f64();
    let reason = server["reason"].as_str();
    match (silent, reason) {
        (Some(seconds), Some(reason)) => printable(&format!("{state}, {seconds:.0} s: {reason}")),
        _ => printable(state),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn areas_and_their_servers_have_rows() {
        let server = |name: &str, state: &str| {
            json!({"name": name, "state": state, "reason": null, "silent_seconds": null,
                   "pages_in": 1, "pages_out": 2, "bytes_in": 1024, "bytes_out": 2048,
                   "errors": 0, "retries": 3, "latency_half_us": 81.25, "latency_p99_us": null})
        };
        let mut silent = server("b:2", "given up");
        silent["silent_seconds"] = json!(61.5);
        silent["reason"] = json!("no answer\nin time");
        let far = json!({"pages": 12, "keys": 3, "lost_pages": 4, "altered_pages": 5, "single_copies": 6,
                         "repaired_pages": 7, "backup_reads": 8, "servers": [server("a:1", "answers"), silent]});
        let areas = json!([{"name": "/a", "far": null}, {"name": "valkey://a:1", "far": far}]);
        let shown = far_tables(&[json!({"pid": 7, "areas": areas})]);
        let lines: Vec<String> = shown
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(
            lines,
            [
                "AREA PAGES KEYS LOST ALTERED SINGLE REPAIRED BACKUP RUN",
                "valkey://a:1 12 3 4 5 6 7 8 7",
                "",
                "SERVER OUT IN P50 P99 ERRORS RETRIES RUN STATE",
                "a:1 2 KiB 1 KiB 81.2 us - 0 3 7 answers",
                "b:2 2 KiB 1 KiB 81.2 us - 0 3 7 given up, 62 s: no answer?in time",
            ]
        );
    }

    #[test]
    fn no_such_area_is_said() {
        let areas = json!([{"name": "/a", "far": null}]);
        let shown = far_tables(&[json!({"pid": 7, "areas": areas}), json!({"pid": 8})]);
        assert_eq!(shown, "no areas on other machines\n");
    }
}
