//! Samples of all sides, and the table of medians, spreads and ratios.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Value, json};
use vswap_bench::command::Ended;
use vswap_bench::spread::Spread;

/// Figures of a phase that are compared.
const METRICS: [&str; 3] = ["us_per_op", "p50_us", "p99_us"];

/// Who ran the command.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Side {
    Native,
    Kernel,
    Vswap,
    /// vswap, built or told otherwise.
    Other,
}

impl Side {
    const ALL: [Side; 4] = [Side::Native, Side::Kernel, Side::Vswap, Side::Other];
    /// What vswap is compared with.
    const RIVALS: [Side; 2] = [Side::Kernel, Side::Other];
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Native => "native",
            Self::Kernel => "kernel",
            Self::Vswap => "vswap",
            Self::Other => "other",
        })
    }
}

/// All samples.
#[derive(Default)]
pub(crate) struct Table {
    /// Rows in the order in which they were first seen.
    rows: Vec<String>,
    samples: BTreeMap<(String, Side), Vec<f64>>,
    failed: BTreeMap<Side, usize>,
    summaries: Vec<Value>,
}

impl Table {
    /// Takes the figures of a run that succeeded.
    pub(crate) fn add(
        &mut self,
        side: Side,
        ended: &Ended,
        ram_mib: Option<f64>,
        summary: Option<String>,
    ) {
        for line in ended.stdout.lines().filter(|line| line.starts_with('{')) {
            let Ok(phase) = serde_json::from_str::<Value>(line) else {
                continue;
            };
            let Some(name) = phase.get("phase").and_then(Value::as_str) else {
                continue;
            };
            for metric in METRICS {
                if let Some(value) = phase.get(metric).and_then(Value::as_f64) {
                    self.sample(format!("{name} {metric}"), side, value);
                }
            }
        }
        self.sample("wall s".to_owned(), side, ended.wall_s);
        self.sample("cpu s".to_owned(), side, ended.cpu_s);
        let summary = summary.and_then(|text| serde_json::from_str::<Value>(&text).ok());
        let peak_mib = summary
            .as_ref()
            .and_then(|summary| summary.get("peak_total_bytes"))
            .and_then(Value::as_f64)
            .map(|bytes| bytes / f64::from(1u32 << 20));
        if let Some(mib) = peak_mib.or(ram_mib) {
            self.sample("memory MiB".to_owned(), side, mib);
        }
        self.summaries.extend(summary);
    }

    /// Counts a run that did not succeed.
    pub(crate) fn failed(&mut self, side: Side) {
        *self.failed.entry(side).or_default() += 1;
    }

    fn sample(&mut self, row: String, side: Side, value: f64) {
        if !self.rows.contains(&row) {
            self.rows.push(row.clone());
        }
        self.samples.entry((row, side)).or_default().push(value);
    }

    fn spread(&self, row: &str, side: Side) -> Option<Spread> {
        Spread::of(self.samples.get(&(row.to_owned(), side))?)
    }

    /// All samples, failures and vswap's own summaries.
    pub(crate) fn to_json(&self) -> String {
        let rows: Vec<Value> = self
            .samples
            .iter()
            .map(|((row, side), values)| {
                json!({ "row": row, "side": side.to_string(), "samples": values })
            })
            .collect();
        let failed: BTreeMap<String, usize> = self
            .failed
            .iter()
            .map(|(side, count)| (side.to_string(), *count))
            .collect();
        json!({ "rows": rows, "failed": failed, "summaries": self.summaries }).to_string()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_run = |side: &Side| self.samples.keys().any(|(_, of)| of == side);
        let sides: Vec<Side> = Side::ALL.into_iter().filter(has_run).collect();
        let rivals: Vec<Side> = Side::RIVALS.into_iter().filter(has_run).collect();
        write!(f, "{:<24}", "median (min..max)")?;
        for side in &sides {
            write!(f, " {:>26}", side.to_string())?;
        }
        for rival in &rivals {
            write!(f, " {:>14}", format!("vswap/{rival}"))?;
        }
        writeln!(f)?;
        for row in &self.rows {
            write!(f, "{row:<24}")?;
            for &side in &sides {
                match self.spread(row, side) {
                    Some(spread) => write!(f, " {spread:>26}")?,
                    None => write!(f, " {:>26}", "-")?,
                }
            }
            for &rival in &rivals {
                match (self.spread(row, Side::Vswap), self.spread(row, rival)) {
                    (Some(vswap), Some(rival)) if rival.median > 0.0 => {
                        write!(f, " {:>14.2}", vswap.median / rival.median)?;
                    }
                    _ => write!(f, " {:>14}", "-")?,
                }
            }
            writeln!(f)?;
        }
        for (side, count) in &self.failed {
            writeln!(f, "{side}: {count} runs failed")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_come_from_medians_and_what_is_missing_is_a_dash() {
        let mut table = Table::default();
        for value in [10.0, 20.0, 30.0] {
            table.sample("fill us_per_op".to_owned(), Side::Kernel, value);
            table.sample("fill us_per_op".to_owned(), Side::Vswap, value / 2.0);
        }
        let text = table.to_string();
        assert!(text.contains("20.00 (10.00..30.00)"), "{text}");
        assert!(text.lines().nth(1).unwrap().ends_with("0.50"), "{text}");
        table.sample("fill us_per_op".to_owned(), Side::Other, 5.0);
        let text = table.to_string();
        assert!(text.lines().nth(1).unwrap().ends_with("2.00"), "{text}");
        table.sample("wall s".to_owned(), Side::Vswap, 1.0);
        let text = table.to_string();
        assert!(text.lines().nth(2).unwrap().ends_with('-'), "{text}");
    }
}
