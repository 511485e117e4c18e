//! One look at all runs: asking them, and turning what they say into what is shown. Rates come from the look before.

use std::collections::HashMap;
use std::time::Instant;

use serde_json::Value;

use crate::output::time;
use crate::verbs::top::run::Run;
use crate::watching::rates::LastLook;
use crate::watching::reports::reports;

/// All runs at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Look {
    /// When it was, for people.
    pub time: String,
    pub runs: Vec<Run>,
}

/// Looks again and again.
#[derive(Debug, Default)]
pub struct Looker {
    last: LastLook,
    last_tiers: LastLook,
    /// Faults of each process of each run, and when that was.
    faults: HashMap<(u32, u32), u64>,
    at: Option<Instant>,
}

impl Looker {
    /// Asks all runs. Takes half a second for each that does not answer.
    pub fn look(&mut self) -> Look {
        let reports = reports(None);
        Look {
            time: time::now(),
            runs: self.runs(&reports, Instant::now()),
        }
    }

    /// What these reports say, as of now.
    pub fn runs(&mut self, reports: &[Value], now: Instant) -> Vec<Run> {
        let rates = self.last.runs(reports);
        let with_rates = reports.iter().zip(rates);
        let mut runs: Vec<Run> = with_rates
            .map(|(report, rates)| Run::of(report, rates))
            .collect();
        let tiers = runs.iter_mut().flat_map(|run| &mut run.tiers);
        for (tier, rates) in tiers.zip(self.last_tiers.tiers(reports)) {
            // Rates since the start of a run would stand beside those since the look before.
            tier.rates = rates.filter(|_| self.at.is_some());
        }
        let seconds = self.at.map(|at| now.duration_since(at).as_secs_f64());
        let mut faults = HashMap::new();
        for run in &mut runs {
            for process in &mut run.processes {
                let of = (run.pid, process.pid);
                let before = self.faults.get(&of).copied();
                let added = before.and_then(|before| process.faults.checked_sub(before));
                process.fault_rate = added.zip(seconds).map(|(added, s)| added as f64 / s);
                faults.insert(of, process.faults);
            }
        }
        (self.faults, self.at) = (faults, Some(now));
        runs
    }
}
