//! Limits of the run's group: its pages in areas stay within them, and pages that have to stay in memory are right.

use std::fs;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use vswap_e2e::failure::During;
use vswap_e2e::{Context, Failure, Job, MIB, Outcome, Running, ensure, procfs, workload_binary};

use crate::used::{traffic, with_areas, workload};

const LIMIT_BYTES: u64 = 96 * MIB;
/// Less than the area would get without a limit, and enough to leave room in memory and pool for the rest.
const SWAP_MAX_BYTES: u64 = 40 * MIB;
const CONTENT: &str = "192M";
/// How much an area's figure may be too high. Its clusters are added up one after the other, while pages move from
/// later clusters to those that were already counted.
const AREA_SLACK_BYTES: u64 = MIB / 4;
/// How long a waiting program must stay alive.
const WAITS_FOR: Duration = Duration::from_secs(3);

/// A job in group `web/jobs` with a private area in the test's directory.
fn in_group(context: &Context, job: Job, options: &[&str]) -> Outcome<Job> {
    let place = context.place().join("private");
    fs::create_dir(&place).during(|| format!("make {}", place.display()))?;
    let job = with_areas(job, &[place.display().to_string()]);
    Ok(job
        .vswap_options(["--group", "web/jobs"])
        .vswap_options(options.iter().copied()))
}

/// The run's current report. `None` while it begins or has ended.
pub fn report(context: &Context, running: &Running) -> Outcome<Option<Value>> {
    let output = context.vswap(&["status", "--json"])?;
    let all: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let of_run = |report: &Value| report["pid"] == running.pid() && report["groups"].is_array();
    Ok(all.into_iter().find(of_run))
}

/// One group's entry in a report.
pub fn group<'a>(report: &'a Value, name: &str) -> Outcome<&'a Value> {
    let groups = report["groups"].as_array();
    let found = groups
        .into_iter()
        .flatten()
        .find(|group| group["name"] == name);
    found.ok_or_else(|| Failure::wrong(format!("no group {name} in {report}")))
}

pub fn figure(of: &Value, name: &str) -> Outcome<u64> {
    let figure = of[name].as_u64();
    figure.ok_or_else(|| Failure::wrong(format!("no {name} in {of}")))
}

/// The group's bytes in areas. Checks that the group, the groups around it and the area are within the limit.
fn must_be_within(report: &Value) -> Outcome<u64> {
    let jobs = group(report, "web/jobs")?;
    let swap_bytes = figure(jobs, "swap_bytes")?;
    ensure!(
        swap_bytes <= SWAP_MAX_BYTES && figure(jobs, "swap_max_bytes")? == SWAP_MAX_BYTES,
        "the group is above its limit: {jobs}"
    );
    let area_bytes = figure(&report["areas"][0], "used_bytes")?;
    ensure!(
        area_bytes <= SWAP_MAX_BYTES + AREA_SLACK_BYTES,
        "the area holds {area_bytes} bytes"
    );
    Ok(swap_bytes)
}

/// The area never holds more than the group may have there, and every byte comes back right.
pub fn swap_max(context: &Context) -> Outcome {
    let size = SWAP_MAX_BYTES.to_string();
    let job = in_group(context, workload(CONTENT)?, &["--swap-max", &size])?;
    let launcher = context.limited(LIMIT_BYTES)?;
    let running = launcher.start(&job)?;
    let (mut samples, mut most) = (0, 0);
    while procfs::is_alive(running.pid()) {
        if let Some(report) = report(context, &running)? {
            most = most.max(must_be_within(&report)?);
            samples += 1;
        }
    }
    let ended = launcher.finish(running)?;
    context.say(format!(
        "{samples} samples, at most {} KiB in the area",
        most / 1024
    ));
    ensure!(samples > 10, "only {samples} samples");
    ensure!(most == SWAP_MAX_BYTES, "the limit was not reached");
    let summary = ended.summary.as_ref().unwrap_or(&Value::Null);
    let events = &group(summary, "web/jobs")?["events"];
    ensure!(figure(events, "swap_max")? > 0, "no event: {events}");
    Ok(())
}

/// The group's pages do not go to areas, though there is an area and the pool is full.
pub fn no_writeback(context: &Context) -> Outcome {
    let options = ["--no-writeback", "--pool-max", "1G"];
    let job = in_group(context, workload("160M")?, &options)?;
    let ended = context.limited(LIMIT_BYTES)?.run(&job)?;
    ensure!(
        traffic(&ended, "private")? == (0, 0),
        "something went to the area"
    );
    ensure!(
        ended.figure("pages_in")? > 0 && ended.figure("compressed_out_bytes")? > 16 * MIB,
        "the run did not swap"
    );
    Ok(())
}

/// At the limit, with no other room, the program waits. vswap says so, and nobody is killed.
pub fn group_full(context: &Context) -> Outcome {
    let job = Job::new(workload_binary()?).args(["memhog", "320M", "--seconds", "60"]);
    let options = ["--swap-max", "8M", "--pool-max", "8M", "--quiet"];
    let job = in_group(context, job, &options)?;
    let launcher = context.limited(LIMIT_BYTES)?;
    let running = launcher.start(&job)?;
    running.until("vswap to say what limits the run", || {
        let said = fs::read_to_string(running.stderr()).unwrap_or_default();
        Ok((said.contains("`vswap status --groups`")).then_some(()))
    })?;
    thread::sleep(WAITS_FOR);
    ensure!(
        procfs::is_alive(running.program_pid()?),
        "the program has gone"
    );
    // Nothing moves any more, so the group's charge must equal what there is, to the byte.
    running.until("all that is stored to be charged", || {
        let Some(report) = report(context, &running)? else {
            return Ok(None);
        };
        let charges = ["/", "web", "web/jobs"].map(|name| {
            let group = group(&report, name)?;
            Ok((figure(group, "swap_bytes")?, figure(group, "pool_bytes")?))
        });
        let [root, outer, inner] = charges.map(|charge: Outcome<(u64, u64)>| charge.ok());
        Ok((root.is_some() && root == outer && outer == inner).then_some(()))
    })?;
    let table = context.vswap(&["status", "--groups"])?;
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    let run = running.pid().to_string();
    let row = table
        .lines()
        .filter(|line| line.ends_with(&run))
        .find(|line| line.starts_with("web/jobs "));
    ensure!(
        row.is_some_and(|row| row.contains("swap_max") && row.contains("pool_max")),
        "the table says {table}"
    );
    running.signal(Signal::TERM)?;
    running.wait()?.must_leave_nothing()
}
