//! `vswap status`: asks every living run of this user, and the daemon, for figures.

mod far_tables;
mod rates_tables;
mod watch;

use std::process::ExitCode;

use serde_json::{Value, json};

use crate::args::StatusArgs;
use crate::failure::Failure;
use crate::output::print;
use crate::output::tables::{areas_table, groups_table, pressure_table, status_table};
use crate::verbs::status::far_tables::far_tables;
use crate::verbs::status::rates_tables::tiers_table;
use crate::watching::rates::LastLook;
use crate::watching::reports::reports;

/// Prints the living runs as a table or as a JSON array.
pub fn status(args: &StatusArgs) -> Result<ExitCode, Failure> {
    if let Some(every) = args.watch {
        return watch::watch(args, every);
    }
    let mut reports = reports(args.run);
    must_be_there(args, &reports)?;
    if args.json && args.tiers {
        with_tier_rates(&mut LastLook::default(), &mut reports);
    }
    if args.json {
        print(&format!("{:#}\n", Value::Array(reports)))
    } else if reports.is_empty() {
        print("no runs\n")
    } else if args.areas {
        print(&areas_table(&reports))
    } else if args.tiers {
        let rates = LastLook::default().tiers(&reports);
        print(&tiers_table(&reports, &rates))
    } else if args.pressure {
        print(&pressure_table(&reports))
    } else if args.far {
        print(&far_tables(&reports))
    } else if args.groups {
        print(&groups_table(&reports))
    } else {
        print(&status_table(&reports))
    }
}

/// Adds to each tier what has come and gone by the second.
fn with_tier_rates(last: &mut LastLook, reports: &mut [Value]) {
    let rates = last.tiers(reports);
    let tiers = reports
        .iter_mut()
        .filter_map(|report| report.get_mut("tiers")?.as_array_mut());
    for (tier, rates) in tiers.flatten().zip(rates) {
        tier["rates"] = json!(rates);
    }
}

/// Who asks for one run expects that there is one.
fn must_be_there(args: &StatusArgs, reports: &[Value]) -> Result<(), Failure> {
    match args.run {
        Some(pid) if reports.is_empty() => Err(Failure::own(format!(
            "no run of yours has the process id {pid}: `vswap status` lists them"
        ))),
        _ => Ok(()),
    }
}
