//! The figures of one workload's runs, by row and by side.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Value, json};

use crate::command::Ended;
use crate::spread::Spread;

use super::side::Side;

/// The compared figures of a phase: their names in the workloads' output and in the table.
const METRICS: [(&str, &str); 8] = [
    ("us_per_op", "us/op"),
    ("p50_us", "p50 us"),
    ("p99_us", "p99 us"),
    ("p999_us", "p99.9 us"),
    ("kb_per_s", "KB/s"),
    ("ops_per_s", "ops/s"),
    ("mib", "MiB"),
    ("bytes_per_slot", "bytes/slot"),
];
/// Figures of a line that belongs to no phase.
const SINGLE: [(&str, &str); 1] = [("lz4_ratio", "lz4 ratio of the content")];
/// Figures of vswap's own summary.
const SUMMARY: [(&str, &str); 2] = [
    ("fault_us_p50", "vswap fault p50 us"),
    ("fault_us_p99", "vswap fault p99 us"),
];
/// The name of the row with the total memory.
const MEMORY: &str = "memory MiB";

/// All samples of a workload.
#[derive(Debug, Default)]
pub(super) struct Samples {
    /// Rows in order of first appearance.
    rows: Vec<Row>,
    without: BTreeMap<(Side, Without), usize>,
    summaries: Vec<Value>,
}

/// Why a run has no figures.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Without {
    /// The run failed, perhaps because it found a wrong byte.
    Failed,
    /// The kernel killed the run for memory while its own swap was measured. That is a result, not a failure of the
    /// measurement.
    Killed,
}

impl fmt::Display for Without {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Failed => "failed and have no figures",
            Self::Killed => "were killed by the kernel for memory and have no figures",
        })
    }
}

/// One figure of all sides.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: String,
    /// One sample for each round.
    samples: BTreeMap<Side, Vec<f64>>,
}

/// The ratio of vswap's figure to another side's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ratio {
    pub(super) ours: Side,
    pub(super) theirs: Side,
    /// The ratio of the medians.
    pub(super) of_medians: f64,
    /// The ratios of the rounds, if no round failed.
    pub(super) of_rounds: Option<Spread>,
}

impl Row {
    pub(super) fn spread(&self, side: Side) -> Option<Spread> {
        Spread::of(self.samples.get(&side)?)
    }

    pub(super) fn samples(&self, side: Side) -> &[f64] {
        self.samples.get(&side).map_or(&[], Vec::as_slice)
    }

    pub(super) fn ratio(&self, ours: Side, theirs: Side) -> Option<Ratio> {
        let (our, their) = (self.spread(ours)?, self.spread(theirs)?);
        if their.median <= 0.0 {
            return None;
        }
        let (a, b) = (self.samples(ours), self.samples(theirs));
        let of_rounds: Vec<f64> = a.iter().zip(b).map(|(a, b)| a / b).collect();
        let comparable = a.len() == b.len() && of_rounds.iter().all(|ratio| ratio.is_finite());
        Some(Ratio {
            ours,
            theirs,
            of_medians: our.median / their.median,
            of_rounds: Spread::of(&of_rounds).filter(|_| comparable),
        })
    }
}

impl Samples {
    /// Records the figures of a run that succeeded.
    pub(super) fn add(
        &mut self,
        side: Side,
        ended: &Ended,
        total_mib: Option<f64>,
        summary: Option<Value>,
    ) {
        for (row, value) in figures(&ended.stdout) {
            self.sample(&row, side, value);
        }
        self.sample("wall s", side, ended.wall_s);
        self.sample("CPU s", side, ended.cpu_s);
        let of = |key: &str| summary.as_ref()?.get(key)?.as_f64();
        let mib = of("peak_total_bytes").map(|bytes| bytes / f64::from(1u32 << 20));
        if let Some(mib) = mib.or(total_mib) {
            self.sample(MEMORY, side, mib);
        }
        for (key, row) in SUMMARY {
            if let Some(value) = of(key) {
                self.sample(row, side, value);
            }
        }
        self.summaries.extend(summary);
    }

    /// Counts a run that did not succeed.
    pub(super) fn add_without(&mut self, side: Side, why: Without) {
        *self.without.entry((side, why)).or_default() += 1;
    }

    fn sample(&mut self, name: &str, side: Side, value: f64) {
        let at = self.rows.iter().position(|row| row.name == name);
        let at = at.unwrap_or_else(|| {
            self.rows.push(Row {
                name: name.to_owned(),
                samples: BTreeMap::new(),
            });
            self.rows.len() - 1
        });
        self.rows[at].samples.entry(side).or_default().push(value);
    }

    pub(super) fn rows(&self) -> &[Row] {
        &self.rows
    }

    pub(super) fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }

    /// How many runs of each side have no figures, and why.
    pub(super) const fn without(&self) -> &BTreeMap<(Side, Without), usize> {
        &self.without
    }

    /// Has a run failed?
    pub(super) fn has_failure(&self) -> bool {
        self.without.keys().any(|(_, why)| *why == Without::Failed)
    }

    /// The sides that have figures, in the order of the table.
    pub(super) fn sides(&self) -> Vec<Side> {
        let mut sides: Vec<Side> = self
            .rows
            .iter()
            .flat_map(|row| row.samples.keys().copied())
            .collect();
        sides.sort_by_key(|side| (side.backing(), *side));
        sides.dedup();
        sides
    }

    /// Which sides are compared with which.
    pub(super) fn pairs(&self) -> Vec<(Side, Side)> {
        let sides = self.sides();
        let rivals = |&ours: &Side| {
            let rivals = sides.iter().copied();
            rivals.filter_map(move |theirs| {
                ours.is_measured_against(theirs).then_some((ours, theirs))
            })
        };
        sides.iter().flat_map(rivals).collect()
    }

    pub(super) fn to_json(&self) -> Value {
        let rows: Vec<Value> = self.rows.iter().map(|row| self.row_json(row)).collect();
        let without = |wanted: Without| -> BTreeMap<&str, usize> {
            let counts = self.without.iter().filter(|((_, why), _)| *why == wanted);
            counts
                .map(|((side, _), count)| (side.name(), *count))
                .collect()
        };
        let (failed, killed) = (without(Without::Failed), without(Without::Killed));
        json!({ "rows": rows, "failed": failed, "killed": killed, "summaries": self.summaries })
    }

    fn row_json(&self, row: &Row) -> Value {
        let sides: Vec<Value> = row
            .samples
            .iter()
            .map(|(side, samples)| {
                json!({ "side": side, "samples": samples, "spread": Spread::of(samples) })
            })
            .collect();
        let ratios: Vec<Value> = self
            .pairs()
            .into_iter()
            .filter_map(|(ours, theirs)| row.ratio(ours, theirs))
            .map(|ratio| {
                json!({
                    "ours": ratio.ours,
                    "theirs": ratio.theirs,
                    "of_medians": ratio.of_medians,
                    "of_rounds": ratio.of_rounds,
                })
            })
            .collect();
        json!({ "row": row.name, "sides": sides, "ratios": ratios })
    }
}

/// The figures that a run has printed, one JSON object a line. A phase that ran several times gets the mean of its
/// times.
fn figures(stdout: &str) -> Vec<(String, f64)> {
    let mut sums: Vec<(String, f64, f64)> = Vec::new();
    let mut add = |row: String, value: f64| match sums.iter_mut().find(|sum| sum.0 == row) {
        Some((_, sum, count)) => {
            *sum += value;
            *count += 1.0;
        }
        None => sums.push((row, value, 1.0)),
    };
    for line in stdout.lines().filter(|line| line.starts_with('{')) {
        let Ok(object) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        let of = |key| object.get(key).and_then(Value::as_f64);
        for (key, name) in SINGLE {
            if let Some(value) = of(key) {
                add(name.to_owned(), value);
            }
        }
        let Some(phase) = object.get("phase").and_then(Value::as_str) else {
            continue;
        };
        for (key, name) in METRICS {
            if let Some(value) = of(key) {
                add(format!("{phase} {name}"), value);
            }
        }
    }
    let mean = |(row, sum, count): (String, f64, f64)| (row, sum / count);
    sums.into_iter().map(mean).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;
    use crate::kernel_swap::Backing;

    pub(in crate::compare) const ZRAM: Side = Side::Kernel(Backing::Zram);
    pub(in crate::compare) const VSWAP: Side = Side::Vswap(Backing::Zram);

    pub(in crate::compare) fn ended(stdout: &str, wall_s: f64) -> Ended {
        Ended {
            status: ExitStatus::from_raw(0),
            stdout: stdout.to_owned(),
            stderr: String::new(),
            wall_s,
            cpu_s: 2.0 * wall_s,
        }
    }

    /// Three rounds of one phase in which vswap is twice as fast.
    pub(in crate::compare) fn three_rounds() -> Samples {
        let mut samples = Samples::default();
        for us in [10.0, 20.0, 30.0] {
            let line = |us: f64| format!("{{\"phase\":\"fill\",\"us_per_op\":{us}}}\nnoise\n");
            samples.add(ZRAM, &ended(&line(us), us), Some(100.0), None);
            let summary = json!({ "peak_total_bytes": 94 << 20, "fault_us_p50": 5.0 });
            samples.add(
                VSWAP,
                &ended(&line(us / 2.0), us / 2.0),
                Some(100.0),
                Some(summary),
            );
        }
        samples
    }

    #[test]
    fn phases_times_memory_and_the_summary_become_rows() {
        let samples = three_rounds();
        let names: Vec<&str> = samples.rows().iter().map(|row| row.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "fill us/op",
                "wall s",
                "CPU s",
                "memory MiB",
                "vswap fault p50 us"
            ]
        );
        let memory = samples.row(MEMORY).unwrap();
        assert_eq!(memory.spread(ZRAM).unwrap().median, 100.0);
        assert_eq!(memory.spread(VSWAP).unwrap().median, 94.0);
    }

    #[test]
    fn ratios_are_of_medians_and_of_rounds() {
        let samples = three_rounds();
        assert_eq!(samples.pairs(), [(VSWAP, ZRAM)]);
        let ratio = samples.rows()[0].ratio(VSWAP, ZRAM).unwrap();
        assert_eq!(ratio.of_medians, 0.5);
        assert_eq!(ratio.of_rounds.unwrap().max, 0.5);
        assert!(
            samples
                .row("vswap fault p50 us")
                .unwrap()
                .ratio(VSWAP, ZRAM)
                .is_none()
        );
    }

    #[test]
    fn a_phase_that_comes_again_has_one_sample() {
        let said = "{\"phase\":\"walk\",\"us_per_op\":1}\n{\"phase\":\"walk\",\"us_per_op\":3}\n{\"lz4_ratio\":2.5}";
        assert_eq!(
            figures(said),
            [
                ("walk us/op".to_owned(), 2.0),
                (SINGLE[0].1.to_owned(), 2.5)
            ]
        );
    }

    #[test]
    fn json_holds_samples_ratios_and_failures() {
        let mut samples = three_rounds();
        samples.add_without(ZRAM, Without::Killed);
        assert!(!samples.has_failure());
        samples.add_without(VSWAP, Without::Failed);
        assert!(samples.has_failure());
        let json = samples.to_json();
        assert_eq!(json["killed"], json!({ "zram": 1 }));
        assert_eq!(json["failed"], json!({ "vswap": 1 }));
        let fill = &json["rows"][0];
        assert_eq!(fill["row"], "fill us/op");
        assert_eq!(fill["ratios"][0]["of_medians"], 0.5);
        assert_eq!(fill["sides"][1]["samples"], json!([5.0, 10.0, 15.0]));
        assert_eq!(fill["sides"][1]["spread"]["median"], 10.0);
    }
}
