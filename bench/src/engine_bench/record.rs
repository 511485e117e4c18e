//! The measurements as they are kept in a file: samples of single rounds, from which tables and plots are made.

use serde::{Deserialize, Serialize};

use crate::engine_bench::cell::{Cell, cpus};
use crate::spread::Spread;

/// How the names of loads begin that all variants had.
pub(crate) const ABLATION: &str = "ablation: ";

/// A whole run.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct Results {
    pub(crate) about: About,
    /// Operations and ablations.
    pub(crate) samples: Vec<Sample>,
    /// Four areas that take turns, and four one after the other.
    pub(crate) areas: Vec<AreaSample>,
    /// What tables cost.
    pub(crate) metadata: Vec<Weight>,
}

impl Results {
    /// What `--json` writes: everything, and the tables beside it.
    pub(crate) fn to_json(&self) -> serde_json::Result<String> {
        let mut json = serde_json::to_value(self)?;
        json["tables"] = serde_json::to_value(self.tables())?;
        serde_json::to_string(&json)
    }
}

/// The circumstances of the run.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct About {
    pub(crate) quick: bool,
    pub(crate) processors: usize,
    /// Load average: the runnable processes over the last minute, when the run began. `None` if the system does not
    /// say.
    pub(crate) load_average: Option<f64>,
}

impl About {
    pub(crate) fn now(quick: bool) -> About {
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let first = load
            .split_whitespace()
            .next()
            .and_then(|word| word.parse().ok());
        About {
            quick,
            processors: cpus(),
            load_average: first,
        }
    }
}

/// One measurement.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Sample {
    /// What was done: an operation of the engine, or a load that all variants had.
    pub(crate) load: String,
    /// Which variant did it.
    pub(crate) variant: String,
    pub(crate) threads: usize,
    pub(crate) ops: u64,
    pub(crate) wall_s: f64,
    pub(crate) cpu_s: f64,
    pub(crate) p50_ns: f64,
    pub(crate) p99_ns: f64,
    /// Bytes of tables at the end, by the variant's own count.
    pub(crate) table_bytes: u64,
}

impl Sample {
    pub(crate) fn new(load: &str, variant: &str, threads: usize, cell: &Cell) -> Sample {
        Sample {
            load: load.to_owned(),
            variant: variant.to_owned(),
            threads,
            ops: cell.ops,
            wall_s: cell.wall_s,
            cpu_s: cell.cpu_s,
            p50_ns: cell.p50_ns,
            p99_ns: cell.p99_ns,
            table_bytes: 0,
        }
    }

    /// Is its load one that all variants had?
    pub(crate) fn is_ablation(&self) -> bool {
        self.load.starts_with(ABLATION)
    }

    /// Millions of operations a second, all threads together.
    #[expect(
        clippy::cast_precision_loss,
        reason = "operations of a second are far below 2^53"
    )]
    pub(crate) fn mops(&self) -> f64 {
        self.ops as f64 / self.wall_s / 1e6
    }

    /// CPU time of one operation.
    #[expect(
        clippy::cast_precision_loss,
        reason = "operations of a second are far below 2^53"
    )]
    pub(crate) fn cpu_ns(&self) -> f64 {
        self.cpu_s * 1e9 / self.ops.max(1) as f64
    }
}

/// Pages written out to four areas.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct AreaSample {
    /// The storage of the areas.
    pub(crate) storage: String,
    /// How the areas were chosen.
    pub(crate) policy: String,
    pub(crate) threads: usize,
    pub(crate) out_mb_per_s: f64,
    /// The slowest thread's part.
    pub(crate) thread_mb_per_s: f64,
    pub(crate) cpu_s: f64,
    /// Time to free everything.
    pub(crate) free_us: f64,
    /// Use of each area when all pages were out, in percent.
    pub(crate) used_percent: Vec<f64>,
}

/// What the tables of an area cost.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Weight {
    pub(crate) what: String,
    /// Slots of the area.
    pub(crate) slots: u64,
    pub(crate) slots_used: u64,
    /// By the engine's own figures.
    pub(crate) table_bytes: u64,
    /// What the page source gave out.
    pub(crate) source_bytes: u64,
    /// How much the process grew.
    pub(crate) resident_bytes: u64,
    /// Seconds that filling the area took.
    pub(crate) fill_s: f64,
}

/// The spread of a figure over the rounds.
pub(crate) fn spread<'a, T: 'a>(
    rounds: impl IntoIterator<Item = &'a T>,
    figure: impl Fn(&T) -> f64,
) -> Option<Spread> {
    let figures: Vec<f64> = rounds.into_iter().map(figure).collect();
    Spread::of(&figures)
}

/// The distinct values, in order of first appearance.
pub(crate) fn distinct<'a, T>(of: impl Iterator<Item = &'a T>) -> Vec<&'a T>
where
    T: PartialEq + ?Sized,
{
    let mut seen = Vec::new();
    for value in of {
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_can_be_read_again() {
        let cell = Cell {
            ops: 5_000_000,
            wall_s: 0.5,
            cpu_s: 1.0,
            p50_ns: 3.0,
            p99_ns: 4.0,
        };
        let results = Results {
            samples: vec![Sample::new("lookup", "engine", 2, &cell)],
            ..Results::default()
        };
        let text = results.to_json().unwrap();
        assert!(
            text.contains("\"tables\":[{\"heads\":[\"operation\","),
            "{text}"
        );
        let again: Results = serde_json::from_str(&text).unwrap();
        assert_eq!(again.samples[0].mops(), 10.0);
        assert_eq!(again.samples[0].cpu_ns(), 200.0);
        assert_eq!(again.to_string(), results.to_string());
    }

    #[test]
    fn values_keep_the_order_in_which_they_came() {
        assert_eq!(distinct(["b", "a", "b"].into_iter()), ["b", "a"]);
    }
}
