//! `vswap set`: other limits for a run or a group that is alive. It does the work; this asks, and waits until it is so.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use vswap_engine::GroupName;
use vswap_pager::Settings;
use vswap_sys::process::signals::{self, Blocked};

use crate::args::set::SetArgs;
use crate::args::size::{Available, PoolSize};
use crate::control::{self, Request};
use crate::failure::Failure;
use crate::output::figures::bytes;
use crate::output::warning;
use crate::run_dir::{self, Kind, Living};
use crate::verbs::swap::only;

/// Pause between two looks at how far a run has come.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Exit status after Ctrl-C, as a shell shows it.
const INTERRUPTED: u8 = 130;

/// Has a run or a group take other limits.
pub fn set(args: &SetArgs) -> Result<ExitCode, Failure> {
    let signals =
        signals::block().map_err(|error| Failure::own(format!("cannot block signals: {error}")))?;
    let mut living = run_dir::living();
    if let Some(group) = &args.group {
        let dir = only(living, args.run)?.path;
        let request = Request::SetGroup(group.to_string(), args.group_change());
        control::ask(&dir, &request).map_err(Failure::of)?;
        remark_on_group(&dir, Some(group));
        return Ok(ExitCode::SUCCESS);
    }
    if args.run.is_none() {
        living.retain(|one| one.kind == Kind::Run);
    }
    let run = only(living, args.run)?;
    let settings = Settings {
        ram: args
            .ram
            .map(|ram| ram.resolve(Available::here()?))
            .transpose()?,
        pool: args.pool.map(PoolSize::limit),
        group: args.group_change(),
    };
    let is_of_group = !settings.group.is_nothing();
    control::ask(&run.path, &Request::Set(settings)).map_err(Failure::of)?;
    if is_of_group {
        remark_on_group(&run.path, None);
    }
    wait(args, &run, &signals)
}

/// Waits until a lower limit holds, as long as the user has patience.
fn wait(args: &SetArgs, run: &Living, signals: &Blocked) -> Result<ExitCode, Failure> {
    let since = Instant::now();
    loop {
        let report = control::ask(&run.path, &Request::Status).map_err(|error| {
            Failure::own(format!(
                "the run (process {}) has its new limits, and does not answer any more: {error}",
                run.pid
            ))
        })?;
        let Some(standing) = standing(args, &report) else {
            return Ok(ExitCode::SUCCESS);
        };
        let said = format!("the run (process {}) {standing}", run.pid);
        if since.elapsed() >= args.wait {
            return Err(Failure::not_yet(said));
        }
        let left = args.wait.saturating_sub(since.elapsed());
        let taken = signals.take(LOOK_EVERY.min(left));
        if taken.is_some_and(|taken| is_end(taken.signal)) {
            warning(&said);
            return Ok(ExitCode::from(INTERRUPTED));
        }
    }
}

fn is_end(signal: i32) -> bool {
    [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT]
        .iter()
        .any(|end| end.as_raw() == signal)
}

/// Where a run stands that has not come to its new limits; none if it has.
fn standing(args: &SetArgs, report: &Value) -> Option<String> {
    let figure = |name: &str| report[name].as_u64().unwrap_or_default();
    let (limit, wanted) = (figure("limit_bytes"), figure("wanted_limit_bytes"));
    let (pool, pool_limit) = (figure("pool_bytes"), figure("pool_limit_bytes"));
    let what_to_do = if report["stalled"] == true {
        "nothing more can be stored: add an area with `vswap swapon`, or set a higher --ram"
    } else {
        "it goes on towards it: `vswap status` shows how far"
    };
    if args.ram.is_some() && limit > wanted {
        let total = bytes(figure("total_bytes"));
        let (limit, wanted) = (bytes(limit), bytes(wanted));
        Some(format!(
            "uses {total} and may use {limit} until it comes to {wanted}; {what_to_do}"
        ))
    } else if args.pool.is_some() && pool > pool_limit {
        let (pool, pool_limit) = (bytes(pool), bytes(pool_limit));
        Some(format!(
            "has {pool} in its pool, which takes nothing more until it comes to {pool_limit}; {what_to_do}"
        ))
    } else {
        None
    }
}

/// Says what a group has above its limits, which stays where it is: of all groups of the run, or of this one.
fn remark_on_group(dir: &Path, name: Option<&GroupName>) {
    let report = control::ask(dir, &Request::Status).unwrap_or_default();
    let groups = report["groups"].as_array().into_iter().flatten();
    let meant = |group: &&Value| name.is_none_or(|name| group["name"] == name.to_string());
    for remark in groups.filter(meant).flat_map(above_limits) {
        warning(&remark);
    }
}

fn above_limits(group: &Value) -> Vec<String> {
    let name = group["name"].as_str().unwrap_or_default();
    let above = |what: &str, of: &Value, has: &str, most: &str| {
        let (has, most) = (of[has].as_u64()?, of[most].as_u64()?);
        (has > most).then(|| {
            format!(
                "group {name} has {} in {what}, above its limit of {}: nothing more of it goes there, and what is \
                 there stays until it is needed",
                bytes(has),
                bytes(most)
            )
        })
    };
    let swap = above("areas", group, "swap_bytes", "swap_max_bytes");
    let pool = above("the pool", group, "pool_bytes", "pool_max_bytes");
    let tiers = group["tiers"].as_array().into_iter().flatten();
    let tiers = tiers.filter_map(|tier| {
        let what = format!("the tier {}", tier["name"].as_str().unwrap_or_default());
        above(&what, tier, "bytes", "max_bytes")
    });
    swap.into_iter().chain(pool).chain(tiers).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;
    use crate::args::{Args, Command};

    fn args(words: &[&str]) -> SetArgs {
        let words = ["vswap", "set"].iter().chain(words);
        match Args::try_parse_from(words).expect("good arguments").command {
            Command::Set(args) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_run_stands_where_it_has_not_come_to_its_limits() {
        let report = json!({"limit_bytes": 2 << 20, "wanted_limit_bytes": 1 << 20, "total_bytes": 3 << 19,
                            "pool_bytes": 9 << 20, "pool_limit_bytes": 8 << 20, "stalled": false});
        let ram = standing(&args(&["--ram", "16M"]), &report).expect("not there yet");
        assert!(
            ram.contains("uses 1.5 MiB") && ram.contains("2 MiB until it comes to 1 MiB"),
            "{ram}"
        );
        let pool = standing(&args(&["--pool", "8M"]), &report).expect("not there yet");
        assert!(
            pool.contains("9 MiB in its pool") && pool.contains("8 MiB"),
            "{pool}"
        );
        assert_eq!(standing(&args(&["--swap-max", "8M"]), &report), None);
        let there = json!({"limit_bytes": 1, "wanted_limit_bytes": 1, "pool_bytes": 1, "pool_limit_bytes": 1});
        assert_eq!(
            standing(&args(&["--ram", "16M", "--pool", "8M"]), &there),
            None
        );
        let full = json!({"limit_bytes": 2, "wanted_limit_bytes": 1, "stalled": true});
        let full = standing(&args(&["--ram", "16M"]), &full).expect("not there yet");
        assert!(full.contains("vswap swapon"), "{full}");
    }

    #[test]
    fn what_a_group_has_above_its_limits_is_said() {
        let group = json!({"name": "jobs", "swap_bytes": 8192, "swap_max_bytes": 4096, "pool_bytes": 1,
                           "pool_max_bytes": null,
                           "tiers": [{"name": "fast", "bytes": 4096, "max_bytes": 0},
                                     {"name": "far", "bytes": 4096, "max_bytes": null}]});
        let remarks = above_limits(&group);
        assert_eq!(remarks.len(), 2);
        assert!(remarks[1].contains("4 KiB in the tier fast"), "{remarks:?}");
        assert!(
            remarks[0].contains("jobs has 8 KiB in areas"),
            "{remarks:?}"
        );
    }

    #[test]
    fn something_has_to_be_changed_and_memory_is_a_runs() {
        let refused = |words: &[&str]| {
            let words = ["vswap", "set"].iter().chain(words);
            Args::try_parse_from(words)
                .expect_err("bad arguments")
                .to_string()
        };
        assert!(refused(&["--run", "7"]).contains("--ram"));
        assert!(refused(&["--group", "jobs", "--ram", "1G"]).contains("cannot be used with"));
        assert!(refused(&["--ram", "1M"]).contains("16 MiB"));
    }
}
