//! Results as tables in Markdown. The documentation shows them as they are printed.

use std::fmt::{self, Display, Formatter};

use serde::Serialize;

use crate::engine_bench::metadata::{KERNEL, OfPage, TIB_SLOTS, of_page};
use crate::engine_bench::plan::THREADS;
use crate::engine_bench::record::{AreaSample, Results, Sample, Weight, distinct, spread};
use crate::spread::Spread;

const MIB: f64 = (1 << 20) as f64;
/// A small machine has no more processors than this many threads. The last column's ratio refers to it.
const FEW_THREADS: usize = 2;

impl Display for Results {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let about = &self.about;
        writeln!(
            f,
            "{} processors, load average {} before{}; median (min..max) of the rounds\n",
            about.processors,
            about
                .load_average
                .map_or("?".to_owned(), |load| format!("{load:.2}")),
            if about.quick { ", QUICK RUN" } else { "" }
        )?;
        self.tables().iter().try_for_each(|table| table.fmt(f))
    }
}

/// A table, with its cells as they are shown. `--json` keeps it too, for pages made by programs that cannot compute it.
#[derive(Debug, Serialize)]
pub(crate) struct Table {
    heads: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    fn new(heads: &[&str]) -> Self {
        Self {
            heads: heads.iter().map(|&head| head.to_owned()).collect(),
            rows: Vec::new(),
        }
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        line(f, &self.heads)?;
        writeln!(f, "|{}", "---|".repeat(self.heads.len()))?;
        for row in &self.rows {
            line(f, row)?;
        }
        writeln!(f)
    }
}

impl Results {
    /// One table for the operations, one for each load of the variants, and those of areas and of tables.
    pub(crate) fn tables(&self) -> Vec<Table> {
        let mut tables = Vec::new();
        let (ablation, operations): (Vec<_>, Vec<_>) =
            self.samples.iter().partition(|sample| sample.is_ablation());
        if !operations.is_empty() {
            tables.push(throughput(&operations, "operation", |sample| &sample.load));
        }
        for load in distinct(ablation.iter().map(|sample| sample.load.as_str())) {
            let of_load: Vec<&Sample> = ablation
                .iter()
                .copied()
                .filter(|sample| sample.load == load)
                .collect();
            tables.push(throughput(&of_load, load, |sample| &sample.variant));
        }
        if !self.areas.is_empty() {
            tables.push(areas(&self.areas));
        }
        if !self.metadata.is_empty() {
            tables.push(measured(&self.metadata));
            tables.push(kernel());
            tables.extend(of_page(&self.metadata).map(page));
        }
        tables
    }
}

/// A spread, or a dash if there is none.
fn cell(spread: Option<Spread>, decimals: usize) -> String {
    spread.map_or_else(|| "-".to_owned(), |spread| format!("{spread:.decimals$}"))
}

fn line(f: &mut Formatter<'_>, cells: &[String]) -> fmt::Result {
    writeln!(f, "| {} |", cells.join(" | "))
}

/// A row for each name: throughput by number of threads, how well it holds beyond the processors, CPU time and memory.
fn throughput(samples: &[&Sample], title: &str, name: impl Fn(&Sample) -> &String) -> Table {
    let most = THREADS[THREADS.len() - 1];
    let alone = ["p50 alone, ns", "p99 alone, ns"].map(str::to_owned);
    let mut heads = vec![title.to_owned()];
    heads.extend(alone);
    heads.extend(THREADS.map(|threads| format!("Mop/s, {threads} threads")));
    heads.push(format!("{most} : {FEW_THREADS}"));
    heads.extend([FEW_THREADS, most].map(|threads| format!("CPU ns/op, {threads} threads")));
    heads.push("tables, MiB".to_owned());
    let mut rows = Vec::new();
    for row in distinct(samples.iter().map(|sample| name(sample).as_str())) {
        let of = |threads, figure: fn(&Sample) -> f64| {
            let with = samples.iter().copied();
            spread(
                with.filter(|s| name(s) == row && s.threads == threads),
                figure,
            )
        };
        let mut cells = vec![row.to_owned()];
        cells.push(cell(of(1, |sample| sample.p50_ns), 1));
        cells.push(cell(of(1, |sample| sample.p99_ns), 1));
        cells.extend(THREADS.map(|threads| cell(of(threads, Sample::mops), 2)));
        let ratio = of(most, Sample::mops).zip(of(FEW_THREADS, Sample::mops));
        cells.push(ratio.map_or("-".into(), |(a, b)| format!("{:.2}", a.median / b.median)));
        cells.push(cell(of(FEW_THREADS, Sample::cpu_ns), 0));
        cells.push(cell(of(most, Sample::cpu_ns), 0));
        cells.push(of(most, table_mib).map_or("-".into(), |mib| format!("{:.2}", mib.median)));
        rows.push(cells);
    }
    Table { heads, rows }
}

#[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^53")]
fn table_mib(sample: &Sample) -> f64 {
    sample.table_bytes as f64 / MIB
}

fn areas(samples: &[AreaSample]) -> Table {
    let mut table = Table::new(&[
        "four areas on",
        "chosen by",
        "threads",
        "out, MB/s",
        "slowest thread, MB/s",
        "CPU, s",
        "free, ms",
        "used, %",
    ]);
    for storage in distinct(samples.iter().map(|sample| sample.storage.as_str())) {
        for threads in distinct(samples.iter().map(|sample| &sample.threads)) {
            for policy in distinct(samples.iter().map(|sample| sample.policy.as_str())) {
                let rounds: Vec<&AreaSample> = samples
                    .iter()
                    .filter(|s| s.storage == storage && s.policy == policy && s.threads == *threads)
                    .collect();
                let of = |figure: fn(&AreaSample) -> f64, decimals| {
                    cell(spread(rounds.iter().copied(), figure), decimals)
                };
                let used = rounds
                    .last()
                    .map(|sample| &sample.used_percent[..])
                    .unwrap_or_default();
                let used: Vec<String> = used.iter().map(|part| format!("{part:.0}")).collect();
                table.rows.push(vec![
                    storage.to_owned(),
                    policy.to_owned(),
                    threads.to_string(),
                    of(|sample| sample.out_mb_per_s, 0),
                    of(|sample| sample.thread_mb_per_s, 0),
                    of(|sample| sample.cpu_s, 3),
                    of(|sample| sample.free_us / 1e3, 1),
                    used.join(" "),
                ]);
            }
        }
    }
    table
}

#[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^53")]
fn measured(weights: &[Weight]) -> Table {
    let mut table = Table::new(&[
        "tables, measured",
        "slots in use",
        "by its figures",
        "page source",
        "resident",
        "bytes a slot in use",
    ]);
    let size = |bytes: u64| match bytes {
        0 => "-".to_owned(),
        bytes if (bytes as f64) < MIB => format!("{:.0} KiB", bytes as f64 / 1024.0),
        bytes => format!("{:.1} MiB", bytes as f64 / MIB),
    };
    for weight in weights {
        let per_slot = weight.table_bytes as f64 / weight.slots_used as f64;
        table.rows.push(vec![
            weight.what.clone(),
            weight.slots_used.to_string(),
            size(weight.table_bytes),
            size(weight.source_bytes),
            size(weight.resident_bytes),
            if per_slot.is_finite() {
                format!("{per_slot:.2}")
            } else {
                "-".to_owned()
            },
        ]);
    }
    table
}

#[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^53")]
fn kernel() -> Table {
    let mut table = Table::new(&[
        "an area of 1 TiB, by arithmetic",
        "idle, MiB",
        "full, MiB",
        "bytes a slot when full",
    ]);
    for phase in KERNEL {
        let full = phase.idle_per_slot + phase.used_per_slot;
        let mib = |per_slot: f64| format!("{:.0}", per_slot * TIB_SLOTS as f64 / MIB);
        table.rows.push(vec![
            phase.name.to_owned(),
            mib(phase.idle_per_slot),
            mib(full),
            format!("{full:.2}"),
        ]);
    }
    table
}

fn page(parts: [OfPage; 3]) -> Table {
    let mut table = Table::new(&[
        "a page in a physical slot, bytes of tables",
        "measured",
        "kernel with virtual swap, by arithmetic",
    ]);
    for part in parts {
        table.rows.push(vec![
            part.what.to_owned(),
            format!("{:.2}", part.engine),
            format!("{:.2}", part.kernel),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine_bench::cell::Cell;

    #[test]
    fn rounds_become_a_median_and_a_spread() {
        let mut results = Results::default();
        for (threads, ops) in [(1, 1), (1, 2), (1, 3), (2, 4), (32, 3)] {
            let cell = Cell {
                ops: ops * 1_000_000,
                wall_s: 1.0,
                cpu_s: 1.0,
                p50_ns: 10.0,
                p99_ns: 20.0,
            };
            results
                .samples
                .push(Sample::new("lookup", "engine", threads, &cell));
        }
        let text = results.to_string();
        assert!(
            text.contains("| lookup | 10.0 (10.0..10.0) | 20.0 (20.0..20.0) | 2.00 (1"),
            "{text}"
        );
        assert!(
            text.contains("2.00 (1.00..3.00) | 4.00 (4.00..4.00) | - |"),
            "{text}"
        );
        assert!(text.contains("| 0.75 |"), "{text}");
        let kept = serde_json::to_value(results.tables()).unwrap();
        assert_eq!(kept[0]["heads"][0], "operation");
        assert_eq!(kept[0]["rows"][0][1], "10.0 (10.0..10.0)");
    }
}
