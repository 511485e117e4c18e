//! Reports what every thread waits for when a run makes no progress.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use vswap_drive::threads;

use crate::plan::Plan;
use crate::program::log::{BEGUN, Log};

/// The steps under way, and every thread of every process of the run.
pub(crate) fn report(plan: &Plan, log: &Log) -> String {
    let mut text = String::from("steps under way:\n");
    for (line, record) in plan.lines.iter().zip(log.records()) {
        if record.state.load(Ordering::SeqCst) == BEGUN {
            let _ = writeln!(text, "  actor {} {:?}", line.actor, line.step);
        }
    }
    text + &threads::report_below()
}
