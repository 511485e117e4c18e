//! `vswap swapon` and `vswap swapoff`: ask the daemon or a living run to change its areas. They do the work; see
//! `areas`.

use std::path::Path;
use std::process::ExitCode;

use serde_json::Value;
use vswap_areas::area_file;
use vswap_far::{FarSpec, NbdSpec};

use crate::args::{SwapOffArgs, SwapOnArgs};
use crate::control::{self, Request};
use crate::failure::Failure;
use crate::output::progress::shown;
use crate::run_dir::{self, Kind, Living};

/// Makes a run use areas, one after the other.
pub fn swap_on(args: &SwapOnArgs) -> Result<ExitCode, Failure> {
    let dir = only(run_dir::living(), args.run)?.path;
    for spec in &args.areas {
        let absolute = spec
            .absolute()
            .map_err(|error| Failure::own(format!("{}: {error}", spec.place)))?;
        ask(&dir, &Request::SwapOn(absolute.as_typed().to_owned()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes a run give up areas, one after the other.
pub fn swap_off(args: &SwapOffArgs) -> Result<ExitCode, Failure> {
    let dir = only(run_dir::living(), args.run)?.path;
    let names = if args.all {
        names(&control::ask(&dir, &Request::Status).map_err(Failure::of)?)
    } else {
        let named = args.areas.iter().map(|path| name_of(path));
        named.collect::<Result<_, _>>()?
    };
    for name in names {
        let left = || left_in(&control::ask(&dir, &Request::Status).ok()?, &name);
        shown(&format!("giving up {name}"), left, || {
            ask(&dir, &Request::SwapOff(name.clone()))
        })?;
    }
    Ok(ExitCode::SUCCESS)
}

fn ask(dir: &Path, request: &Request) -> Result<(), Failure> {
    control::ask(dir, request).map(drop).map_err(Failure::of)
}

/// Who is meant: the process with this id, or the daemon, or the only run there is.
pub fn only(living: Vec<Living>, pid: Option<u32>) -> Result<Living, Failure> {
    let count = living.len();
    let has_daemon = living.iter().any(|one| one.kind == Kind::Daemon);
    let mut meant = living.into_iter().filter(|one| match pid {
        Some(pid) => one.pid == pid,
        None => !has_daemon || one.kind == Kind::Daemon,
    });
    match (meant.next(), meant.next()) {
        (Some(run), None) => Ok(run),
        (Some(_), Some(_)) => Err(Failure::own(format!(
            "{count} runs are alive: say which one with --run PID (`vswap status` lists them)"
        ))),
        (None, _) => Err(Failure::own(match pid {
            Some(pid) => {
                format!("no run of yours has the process id {pid}: `vswap status` lists them")
            }
            None => "no run is alive: start one with `vswap run`".to_owned(),
        })),
    }
}

/// The run's name for the area that the user means.
fn name_of(path: &Path) -> Result<String, Failure> {
    if let Some(store) = path.to_str().filter(|text| FarSpec::names_a_store(text)) {
        let store: FarSpec = store.parse().map_err(Failure::of)?;
        return Ok(store.to_string());
    }
    if let Some(export) = path.to_str().filter(|text| NbdSpec::names_an_export(text)) {
        let export: NbdSpec = export.parse().map_err(Failure::of)?;
        return Ok(export.to_string());
    }
    area_file::name(path)
        .map_err(|error| Failure::own(format!("\"{}\" names no area: {error}", path.display())))
}

/// How much an area still holds, by a run's report.
fn left_in(report: &Value, name: &str) -> Option<u64> {
    let mut areas = report["areas"].as_array()?.iter();
    areas.find(|area| area["name"] == name)?["used_bytes"].as_u64()
}

/// The names of all areas in a run's report.
fn names(report: &Value) -> Vec<String> {
    let areas = report["areas"].as_array();
    let name = |area: &Value| area["name"].as_str().map(str::to_owned);
    areas.into_iter().flatten().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use serde_json::json;

    use super::*;

    #[test]
    fn the_run_is_the_one_that_is_named_or_the_only_one() {
        let one = |kind, pid| Living {
            kind,
            pid,
            path: PathBuf::from(format!("/run-{pid}")),
        };
        let (run, daemon) = (|pid| one(Kind::Run, pid), one(Kind::Daemon, 9));
        let chosen = |living, pid| only(living, pid).expect("one").pid;
        assert_eq!(chosen(vec![run(7)], None), 7);
        assert_eq!(chosen(vec![run(7), run(8)], Some(8)), 8);
        assert_eq!(chosen(vec![run(7), daemon], None), 9, "the daemon's");
        for (living, pid, expected) in [
            (vec![], None, "no run is alive"),
            (vec![run(7), run(8)], None, "2 runs are alive"),
            (vec![run(7)], Some(9), "process id 9"),
        ] {
            let error = only(living, pid).expect_err(expected);
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn all_areas_of_a_report_are_named() {
        let report =
            json!({"areas": [{"name": "/a", "used_bytes": 0}, {"name": "/b", "used_bytes": 9}]});
        assert_eq!(names(&report), ["/a", "/b"]);
        assert_eq!(left_in(&report, "/b"), Some(9));
        assert_eq!(left_in(&report, "/c"), None);
        assert!(names(&json!({})).is_empty());
    }
}
