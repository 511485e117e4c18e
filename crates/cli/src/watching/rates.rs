//! How fast the figures of runs and areas change, from one look to the next.
//!
//! The time between two looks is the run's own (`wall_seconds`), so it does not matter how long an answer was under
//! way.

use std::collections::HashMap;

use serde::Serialize;
use serde_json::Value;
use vswap_pager::Status;

use crate::output::figures::PAGE_BYTES;

/// Looks closer together than this say nothing of a rate, in seconds.
const APART_LEAST_S: f64 = 0.01;

/// What a run has done since the look before, by second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Rates {
    /// Bytes moved out.
    pub out_bytes: f64,
    /// Bytes brought back.
    pub in_bytes: f64,
    /// Faults served.
    pub faults: f64,
    /// The part of the time in which some thread waited for a page, from 0 to 1.
    pub waiting: f64,
    /// The part of the time in which one waited and none worked, from 0 to 1.
    pub stalled: f64,
}

/// What an area, or a tier, has done since the look before, in bytes by second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct AreaRates {
    pub read_bytes: f64,
    pub written_bytes: f64,
}

/// The last look: all that was seen then.
#[derive(Debug, Default)]
pub struct LastLook(HashMap<Of, Counts>);

/// Whose figures they are. A process id is used again, a program with the same one within two looks hardly so.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Of {
    /// The run of this process, with this program.
    Run(u64, u64),
    /// An area in its report.
    Area(u64, String),
    /// A tier in its report.
    Tier(u64, String),
}

/// Figures that only grow, and when they were so.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Counts {
    seconds: f64,
    counts: [f64; 5],
}

impl LastLook {
    /// Notes what there is now, and says what the runs have done since the look before. None for a run that was not
    /// there then, or does not answer.
    pub fn runs(&mut self, reports: &[Value]) -> Vec<Option<Rates>> {
        let rates = |report| {
            let (of, now) = of_run(report)?;
            Rates::between(self.0.get(&of)?, &now)
        };
        let rates = reports.iter().map(rates).collect();
        self.renew(reports, |report| of_run(report).into_iter().collect());
        rates
    }

    /// The same of the areas, in the order of the reports.
    pub fn areas(&mut self, reports: &[Value]) -> Vec<Option<AreaRates>> {
        let rates = reports.iter().flat_map(of_areas).map(|area| {
            let (of, now) = area;
            now.area_rates(self.0.get(&of)?)
        });
        let rates = rates.collect();
        self.renew(reports, of_areas);
        rates
    }

    /// The same of the tiers of each report. Of one that was not there at the look before, since the start.
    pub fn tiers(&mut self, reports: &[Value]) -> Vec<Option<AreaRates>> {
        let start = Counts {
            seconds: 0.0,
            counts: [0.0; 5],
        };
        let rates = reports.iter().flat_map(of_tiers).map(|(of, now)| {
            let before = self.0.get(&of).unwrap_or(&start);
            now.area_rates(before)
        });
        let rates = rates.collect();
        self.renew(reports, of_tiers);
        rates
    }

    fn renew(&mut self, reports: &[Value], figures: impl Fn(&Value) -> Vec<(Of, Counts)>) {
        self.0 = reports.iter().flat_map(figures).collect();
    }
}

impl Counts {
    /// Those of a run that is `seconds` old.
    pub fn of_status(status: &Status, seconds: f64) -> Counts {
        let counts = [
            status.pages_out as f64,
            status.pages_in as f64,
            status.faults as f64,
            status.pressure.some.total_seconds,
            status.pressure.full.total_seconds,
        ];
        Counts { seconds, counts }
    }

    fn area_rates(&self, before: &Counts) -> Option<AreaRates> {
        let [read_bytes, written_bytes, ..] = self.since(before)?;
        Some(AreaRates {
            read_bytes,
            written_bytes,
        })
    }

    /// What has been added by second. None if the two are too close together.
    fn since(&self, before: &Counts) -> Option<[f64; 5]> {
        let seconds = self.seconds - before.seconds;
        let mut added = self.counts;
        for (count, before) in added.iter_mut().zip(before.counts) {
            // Nothing of it goes back: if it has, this is somebody else.
            *count = (*count - before).max(0.0) / seconds;
        }
        (seconds >= APART_LEAST_S).then_some(added)
    }
}

impl Rates {
    /// What a run has done between two looks. None if these are too close together.
    pub fn between(before: &Counts, now: &Counts) -> Option<Rates> {
        let [pages_out, pages_in, faults, waiting, stalled] = now.since(before)?;
        let page = PAGE_BYTES as f64;
        Some(Rates {
            out_bytes: pages_out * page,
            in_bytes: pages_in * page,
            faults,
            waiting: waiting.min(1.0),
            stalled: stalled.min(1.0),
        })
    }
}

fn of_run(report: &Value) -> Option<(Of, Counts)> {
    let figure = |name: &str| report[name].as_f64();
    let lost = |of: &str| report["pressure"][of]["total_seconds"].as_f64();
    let counts = [
        figure("pages_out")?,
        figure("pages_in")?,
        figure("faults")?,
        lost("some").unwrap_or_default(),
        lost("full").unwrap_or_default(),
    ];
    let program = report["program_pid"].as_u64().unwrap_or_default();
    let of = Of::Run(report["pid"].as_u64()?, program);
    let seconds = figure("wall_seconds")?;
    Some((of, Counts { seconds, counts }))
}

fn of_areas(report: &Value) -> Vec<(Of, Counts)> {
    traffic(report, "areas", Of::Area)
}

fn of_tiers(report: &Value) -> Vec<(Of, Counts)> {
    traffic(report, "tiers", Of::Tier)
}

/// What was read and written of each of the report's `list`.
fn traffic(report: &Value, list: &str, of: fn(u64, String) -> Of) -> Vec<(Of, Counts)> {
    let areas = report[list].as_array().into_iter().flatten();
    let of_area = |area: &Value| {
        let figure = |name: &str| area[name].as_f64().unwrap_or_default();
        let of = of(report["pid"].as_u64()?, area["name"].as_str()?.to_owned());
        let counts = [figure("read_bytes"), figure("written_bytes"), 0.0, 0.0, 0.0];
        let seconds = report["wall_seconds"].as_f64()?;
        Some((of, Counts { seconds, counts }))
    };
    areas.filter_map(of_area).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report(seconds: f64, pages: u64, stalled: f64) -> Value {
        json!({"pid": 7, "program_pid": 8, "wall_seconds": seconds, "pages_out": pages, "pages_in": 2 * pages,
               "faults": pages, "areas": [{"name": "/a", "read_bytes": pages, "written_bytes": 0}],
               "pressure": {"some": {"total_seconds": stalled}, "full": {"total_seconds": stalled}}})
    }

    #[test]
    fn rates_are_by_the_second_of_the_run() {
        let mut last = LastLook::default();
        assert_eq!(last.runs(&[report(10.0, 100, 1.0)]), [None]);
        let rates = last.runs(&[report(14.0, 300, 3.0)])[0].expect("known");
        assert_eq!(rates.out_bytes, 50.0 * 4096.0);
        assert_eq!(rates.in_bytes, 100.0 * 4096.0);
        assert_eq!((rates.faults, rates.stalled), (50.0, 0.5));
    }

    #[test]
    fn who_is_new_or_silent_or_another_has_none() {
        let mut last = LastLook::default();
        last.runs(&[report(10.0, 100, 0.0)]);
        assert_eq!(last.runs(&[json!({"pid": 7, "error": "stopped"})]), [None]);
        assert_eq!(
            last.runs(&[report(14.0, 300, 0.0)]),
            [None],
            "not seen before"
        );
        let mut other = report(15.0, 0, 0.0);
        other["program_pid"] = 9.into();
        assert_eq!(last.runs(&[other]), [None]);
        assert_eq!(last.runs(&[report(15.0, 300, 0.0)]), [None]);
        assert_eq!(
            last.runs(&[report(15.0, 300, 0.0)]),
            [None],
            "no time has gone by"
        );
    }

    #[test]
    fn areas_have_rates_too() {
        let mut last = LastLook::default();
        assert_eq!(last.areas(&[report(1.0, 100, 0.0)]), [None]);
        let rates = last.areas(&[json!({"pid": 1}), report(3.0, 300, 0.0)]);
        assert_eq!(rates.len(), 1);
        assert_eq!(rates[0].expect("known").read_bytes, 100.0);
    }

    #[test]
    fn tiers_have_rates_since_the_start_at_the_first_look() {
        let report = |seconds: f64, bytes: u64| {
            json!({"pid": 7, "wall_seconds": seconds,
                   "tiers": [{"name": "fast", "read_bytes": bytes, "written_bytes": 2 * bytes}]})
        };
        let mut last = LastLook::default();
        let first = last.tiers(&[report(10.0, 100)])[0].expect("since the start");
        assert_eq!((first.read_bytes, first.written_bytes), (10.0, 20.0));
        let second = last.tiers(&[report(12.0, 300)])[0].expect("known");
        assert_eq!((second.read_bytes, second.written_bytes), (100.0, 200.0));
    }
}
