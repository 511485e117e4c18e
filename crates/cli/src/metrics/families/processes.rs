//! Metrics of the largest processes.

use std::fmt;

use prometheus_client::registry::Unit;
use vswap_pager::ProcessStatus;

use crate::metrics::families::writer::{Family, Kind, Labels, Number, Writer};
use crate::metrics::figures::RunFigures;
use crate::output::figures::PAGE_BYTES;

/// Most processes of a run that are told of, the largest: whoever collects keeps each for weeks.
const PROCESSES_MAX: usize = 64;

/// A family, and how a process comes by its value.
type Of = (Family, fn(&ProcessStatus) -> Option<Number>);

static FAMILIES: [Of; 3] = [
    (
        Family {
            name: "vswap_process_resident",
            unit: Some(Unit::Bytes),
            kind: Kind::Gauge,
            help: "Resident anonymous memory of one of the largest processes of the run.",
        },
        |process| process.resident_bytes.map(Number::from),
    ),
    (
        Family {
            name: "vswap_process_swapped",
            unit: Some(Unit::Bytes),
            kind: Kind::Gauge,
            help: "Memory of one of the largest processes of the run that is in swap.",
        },
        |process| {
            process
                .swapped_pages
                .map(|pages| (pages * PAGE_BYTES).into())
        },
    ),
    (
        Family {
            name: "vswap_process_faults",
            unit: None,
            kind: Kind::Counter,
            help: "Faults served for one of the largest processes of the run since its program began.",
        },
        |process| process.managed.then_some(process.faults.into()),
    ),
];

/// Writes them.
pub fn write(runs: &[RunFigures], writer: &mut Writer<'_>) -> fmt::Result {
    for (family, value) in &FAMILIES {
        let samples = runs.iter().flat_map(|run| {
            let largest = run.status.processes.iter().take(PROCESSES_MAX);
            largest.filter_map(|process| Some((labels(run.pid, process), value(process)?)))
        });
        writer.family(family, samples)?;
    }
    Ok(())
}

fn labels(run: u32, process: &ProcessStatus) -> Labels {
    vec![
        ("run", run.to_string()),
        ("pid", process.pid.to_string()),
        ("name", process.name.clone()),
    ]
}
