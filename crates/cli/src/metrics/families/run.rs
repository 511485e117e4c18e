//! Metrics of runs.

mod table;

use std::fmt;
use std::time::UNIX_EPOCH;

use prometheus_client::registry::Unit;
use serde_json::Value;
use vswap_pager::LatencyBucket;
use vswap_pager::status::State;

use crate::metrics::families::run::table::FIGURES;
use crate::metrics::families::writer::{Family, Kind, Labels, Number, Writer};
use crate::metrics::figures::RunFigures;

static STARTED: Family = Family {
    name: "vswap_run_start_time",
    unit: Some(Unit::Seconds),
    kind: Kind::Gauge,
    help: "When the run began, in seconds since 1970.",
};

static STATE: Family = Family {
    name: "vswap_run_state",
    unit: None,
    kind: Kind::Gauge,
    help: "1 for the state that the run is in: running, thrashing, full, stopped or parked.",
};

const STATES: [State; 5] = [
    State::Running,
    State::Thrashing,
    State::Full,
    State::Stopped,
    State::Parked,
];

/// Writes them.
pub fn write(runs: &[RunFigures], writer: &mut Writer<'_>) -> fmt::Result {
    let infos = runs.iter().filter_map(|run| {
        let mut labels = of(run);
        labels.push(("program", run.program.clone()?));
        Some(labels)
    });
    writer.info("vswap_run", "The program of the run.", infos)?;
    writer.family(&STARTED, runs.iter().filter_map(started))?;
    writer.family(&STATE, runs.iter().flat_map(states))?;
    for (family, value) in &FIGURES {
        let samples = runs.iter().map(|run| (of(run), value(&run.status)));
        writer.family(family, samples)?;
    }
    writer.histogram(
        "vswap_fault_latency",
        "Time from reading a fault on a swapped page until the page is there.",
        runs.iter().map(|run| {
            let buckets = run.status.fault_buckets.iter().map(bucket);
            (of(run), run.status.fault_seconds, buckets.collect())
        }),
    )
}

fn of(run: &RunFigures) -> Labels {
    vec![("run", run.pid.to_string())]
}

fn started(run: &RunFigures) -> Option<(Labels, Number)> {
    let since = run.started?.duration_since(UNIX_EPOCH).ok()?;
    Some((of(run), since.as_secs_f64().into()))
}

fn states(run: &RunFigures) -> [(Labels, Number); STATES.len()] {
    STATES.map(|state| {
        let mut labels = of(run);
        labels.push(("state", name(state)));
        (labels, (state == run.status.state).into())
    })
}

/// As in `vswap status`.
fn name(state: State) -> String {
    match serde_json::to_value(state) {
        Ok(Value::String(name)) => name,
        _ => String::new(),
    }
}

/// The end in seconds, and how many are in it.
fn bucket(bucket: &LatencyBucket) -> (f64, u64) {
    let until = bucket.until_us.map(|us| f64::from(us) / 1e6);
    (until.unwrap_or(f64::INFINITY), bucket.count)
}
