//! Tiers of a daemon: how much of each a run's group may have, whatever other runs have there.

use serde_json::Value;
use vswap_e2e::{Context, Failure, Job, MIB, Outcome, Running, ensure, workload_binary};

use crate::daemon::Daemon;

const LIMIT_BYTES: u64 = 64 * MIB;
/// What the group may have of the first tier.
const FAST_MAX_BYTES: u64 = 24 * MIB;

/// What a group has in a tier, by the daemon's report. None while there is no such group.
fn in_tier(report: &Value, group: &str, tier: &str) -> Option<u64> {
    let named = |of: &Value, name: &str| {
        let all = of.as_array()?;
        all.iter().find(|one| one["name"] == name).cloned()
    };
    let group = named(&report["groups"], group)?;
    named(&group["tiers"], tier)?["bytes"].as_u64()
}

fn job(daemon: &Daemon, group: &str, options: &[&str]) -> Outcome<Job> {
    let job = Job::new(workload_binary()?).args(["memhog", "160M", "--seconds", "20"]);
    let job = job.vswap_options(["--group", group]);
    Ok(daemon.job(job.vswap_options(options.iter().copied())))
}

/// Waits until what two groups have in two tiers is as it should be. The limited one is never above its limit.
fn until(
    daemon: &mut Daemon,
    run: &Running,
    what: &str,
    holds: impl Fn([u64; 4]) -> bool,
) -> Outcome {
    run.until(what, || {
        let report = daemon.report_of(daemon.pid())?.unwrap_or_default();
        let places = [
            ("web", "fast"),
            ("web", "slow"),
            ("db", "fast"),
            ("db", "slow"),
        ];
        let has = places.map(|(group, tier)| in_tier(&report, group, tier).unwrap_or(0));
        ensure!(has[0] <= FAST_MAX_BYTES, "above its limit: {report}");
        Ok(holds(has).then_some(()))
    })
}

/// One group is limited in a tier and another is not. The limit is taken away while both run; every byte is verified.
pub fn limits(context: &Context) -> Outcome {
    let place = context.place().display().to_string();
    let tier = |name: &str, size: &str| format!("--tier={name}={place}/{name}:{size}");
    let tiers = [tier("fast", "1G"), tier("slow", "1G")];
    let mut daemon = Daemon::start(context, &["--pool", "off", &tiers[0], &tiers[1]])?;
    let launcher = context.limited(LIMIT_BYTES)?;
    let most = format!("fast={FAST_MAX_BYTES}");
    let web = launcher.start(&job(&daemon, "web", &["--tier-max", &most])?)?;
    let db = launcher.start(&job(&daemon, "db", &[])?)?;
    until(
        &mut daemon,
        &web,
        "the limited group to go past the tier",
        |[web_fast, web_slow, db_fast, db_slow]| {
            web_fast == FAST_MAX_BYTES
                && web_slow > 16 * MIB
                && db_fast > FAST_MAX_BYTES
                && db_slow == 0
        },
    )?;
    let unknown = launcher.start(&job(&daemon, "other", &["--tier-max", "none=0"])?)?;
    unknown.wait()?.must_exit_with(125)?;
    let pid = daemon.pid().to_string();
    let set = ["set", "--run", &pid, "--group", "web", "--tier-max"];
    let set = daemon.vswap(&[&set[..], &["fast=0"]].concat())?;
    ensure!(set.status.success(), "vswap set: {set:?}");
    until(
        &mut daemon,
        &web,
        "the limited group to leave the tier",
        |[web_fast, web_slow, ..]| web_fast < FAST_MAX_BYTES / 2 && web_slow > 32 * MIB,
    )?;
    for run in [web, db] {
        run.wait()?.must_succeed()?;
    }
    let left = daemon.report()?["areas"].clone();
    let areas = left
        .as_array()
        .ok_or_else(|| Failure::wrong(format!("no areas: {left}")))?;
    ensure!(areas.len() == 2, "the areas are {left}");
    daemon.until_empty()
}
