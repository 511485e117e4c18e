//! The tables of `vswap status --watch`: those of `vswap status`, with what happens by second.

use serde_json::Value;

use crate::output::figures::{PAGE_BYTES, bytes, count, microseconds};
use crate::output::tables::{
    AREA_HEADINGS, AREA_TEXT_COLUMNS, TEXT_COLUMNS, area_row, figure, p99_cell, printable,
    run_cells, table, tier_priorities,
};
use crate::watching::rates::{AreaRates, Rates};

const HEADINGS: [&str; 13] = [
    "PID", "COMMAND", "STATE", "LIMIT", "TOTAL", "RESIDENT", "POOL", "SWAPPED", "OUT/s", "IN/s",
    "FAULTS/s", "LOST", "P99",
];
/// What an area has beside the columns of `areas_table`, and the run, which comes last.
const AREA_RATE_HEADINGS: [&str; 2] = ["READ/s", "WRITTEN/s"];

/// `DOWN/s` and `UP/s` are pages.
const TIER_HEADINGS: [&str; 9] = [
    "TIER", "AREAS", "PRIO", "SIZE", "USED", "DOWN/s", "UP/s", "LATENCY", "RUN",
];
const TIER_TEXT_COLUMNS: [usize; 1] = [0];

/// Runs, with the rates of each.
pub fn runs_table(reports: &[Value], rates: &[Option<Rates>]) -> String {
    let rows = reports.iter().zip(rates);
    table(
        &HEADINGS,
        &TEXT_COLUMNS,
        rows.map(|(report, rates)| run_row(report, *rates)),
    )
}

fn run_row(report: &Value, rates: Option<Rates>) -> [String; 13] {
    let rate = |of: fn(Rates) -> f64, show: fn(u64) -> String| {
        rates.map_or_else(|| "-".to_owned(), |rates| show(whole(of(rates))))
    };
    let [pid, command, state, limit, total, resident, pool, swapped] = run_cells(report);
    let out = rate(|rates| rates.out_bytes, bytes);
    let back = rate(|rates| rates.in_bytes, bytes);
    let faults = rate(|rates| rates.faults, count);
    let lost = rate(
        |rates| rates.stalled * 100.0,
        |percent| format!("{percent} %"),
    );
    let p99 = p99_cell(report);
    [
        pid, command, state, limit, total, resident, pool, swapped, out, back, faults, lost, p99,
    ]
}

/// Areas, with the rates of each.
pub fn areas_table(reports: &[Value], rates: &[Option<AreaRates>]) -> String {
    let [name, kind, size, used, priority, encrypted, run] = AREA_HEADINGS;
    let [read, written] = AREA_RATE_HEADINGS;
    let headings = [
        name, kind, size, used, priority, encrypted, read, written, run,
    ];
    let areas = reports.iter().flat_map(|report| {
        let areas = report["areas"].as_array().into_iter().flatten();
        areas.map(|area| area_row(area, &report["pid"]))
    });
    let rows = areas.zip(rates).map(|(row, rates)| {
        let [name, kind, size, used, priority, encrypted, run] = row;
        let rate = |of: fn(AreaRates) -> f64| {
            rates.map_or_else(|| "-".to_owned(), |rates| bytes(whole(of(rates))))
        };
        let read = rate(|rates| rates.read_bytes);
        let written = rate(|rates| rates.written_bytes);
        [
            name, kind, size, used, priority, encrypted, read, written, run,
        ]
    });
    table(&headings, &AREA_TEXT_COLUMNS, rows)
}

/// The table of `vswap status --tiers`, with the rates of each.
pub fn tiers_table(reports: &[Value], rates: &[Option<AreaRates>]) -> String {
    let tiers = reports.iter().flat_map(|report| {
        let tiers = report["tiers"].as_array().into_iter().flatten();
        tiers.map(|tier| (tier, &report["pid"]))
    });
    let rows = tiers.zip(rates);
    let rows = rows.map(|((tier, pid), rates)| tier_row(tier, pid, *rates));
    table(&TIER_HEADINGS, &TIER_TEXT_COLUMNS, rows)
}

fn tier_row(tier: &Value, pid: &Value, rates: Option<AreaRates>) -> [String; 9] {
    let none = || "-".to_owned();
    let rate = |of: fn(AreaRates) -> f64| {
        rates.map_or_else(none, |rates| count(whole(of(rates) / PAGE_BYTES as f64)))
    };
    [
        printable(tier["name"].as_str().unwrap_or("-")),
        figure(tier, "areas", |areas| areas.to_string()),
        tier_priorities(tier),
        figure(tier, "size_bytes", bytes),
        figure(tier, "used_bytes", bytes),
        rate(|rates| rates.written_bytes),
        rate(|rates| rates.read_bytes),
        tier["latency_us"].as_f64().map_or_else(none, microseconds),
        pid.to_string(),
    ]
}

/// A rate is neither negative nor larger than any figure.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast ends at the bounds of u64"
)]
fn whole(rate: f64) -> u64 {
    rate.round() as u64
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn runs_have_rates_and_the_first_look_has_none() {
        let rates = Rates {
            out_bytes: 1_572_864.0,
            in_bytes: 0.0,
            faults: 41_234.4,
            waiting: 0.5,
            stalled: 0.1249,
        };
        let report = json!({"pid": 7, "command": ["sort"], "state": "running", "limit_bytes": 536_870_912_u64});
        let table = runs_table(&[report, json!({"pid": 8})], &[Some(rates), None]);
        let rows: Vec<Vec<&str>> = table
            .lines()
            .skip(1)
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(
            rows[0],
            [
                "7", "sort", "running", "512", "MiB", "-", "-", "-", "-", "1.5", "MiB", "0", "B",
                "41.2k", "12", "%", "-"
            ],
            "{table}"
        );
        assert_eq!(rows[1][1..], ["-"; 12]);
    }

    #[test]
    fn areas_have_rates() {
        let area = json!({"name": "/dev/vdb2", "type": "partition", "size_bytes": 8_u64 << 30, "used_bytes": 4096,
                          "priority": -1, "encrypted": true});
        let rates = AreaRates {
            read_bytes: 4096.0,
            written_bytes: 0.4,
        };
        let table = areas_table(&[json!({"pid": 7, "areas": [area]})], &[Some(rates)]);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(
            lines,
            [
                "NAME       TYPE        SIZE   USED  PRIO  ENCRYPTED  READ/s  WRITTEN/s  RUN",
                "/dev/vdb2  partition  8 GiB  4 KiB    -1  yes         4 KiB        0 B    7"
            ]
        );
    }

    #[test]
    fn tiers_are_shown_with_what_goes_down_and_comes_up() {
        let fast = json!({"name": "fast", "areas": 2, "priority_min": 1, "priority_max": 2,
                          "size_bytes": 8_u64 << 30, "used_bytes": 4096, "latency_us": 81.25});
        let far = json!({"name": "far", "areas": 1, "priority_min": -1, "priority_max": -1,
                         "size_bytes": 8192, "used_bytes": 0, "latency_us": null});
        let rates = AreaRates {
            read_bytes: 8192.0,
            written_bytes: 4096.0 * 1500.0,
        };
        let table = tiers_table(
            &[json!({"pid": 7, "tiers": [fast, far]}), json!({"pid": 8})],
            &[Some(rates), None],
        );
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(
            lines,
            [
                "TIER  AREAS  PRIO   SIZE   USED  DOWN/s  UP/s  LATENCY  RUN",
                "fast      2  1..2  8 GiB  4 KiB    1.5k     2  81.2 us    7",
                "far       1    -1  8 KiB    0 B       -     -        -    7",
            ]
        );
    }
}
