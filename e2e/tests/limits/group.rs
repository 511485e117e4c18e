//! `vswap set --group`: limits of a group hold for what comes, and what is above them is said.

use serde_json::Value;
use vswap_e2e::{Context, Failure, MIB, Outcome, Running, ensure};

use crate::ask::{hog, must_say, must_set, report};

fn group(context: &Context, running: &Running) -> Outcome<Value> {
    let report = report(context, running)?;
    let groups = report["groups"].as_array().into_iter().flatten();
    let found = groups.clone().find(|group| group["name"] == "web/jobs");
    let found = found.cloned();
    found.ok_or_else(|| Failure::wrong(format!("no such group in {report}")))
}

pub fn limits(context: &Context) -> Outcome {
    let place = context.place().display().to_string();
    let options = ["--swap", &place, "--group", "web/jobs", "--swap-max", "8M"];
    let launcher = context.limited(96 * MIB)?;
    let running = launcher.start(&hog("192M", "15")?.vswap_options(options))?;
    running.until("the group to be at its limit", || {
        let bytes = group(context, &running)?["swap_bytes"].as_u64();
        Ok((bytes == Some(8 * MIB)).then_some(()))
    })?;
    let set = |options: &[&str]| {
        must_set(
            context,
            &running,
            &[&["--group", "web/jobs"], options].concat(),
        )
    };
    set(&["--swap-max", "none"])?;
    running.until("more to go to the area", || {
        let bytes = group(context, &running)?["swap_bytes"].as_u64();
        Ok(bytes.is_some_and(|bytes| bytes > 12 * MIB).then_some(()))
    })?;
    let lower = ["--swap-max", "1M"];
    let said = ["group web/jobs has", "above its limit of 1 MiB"];
    must_say(context, &running, &lower, 0, &said)?;
    set(&["--swap-max", "64M", "--pool-max", "80M"])?;
    set(&["--writeback", "off"])?;
    let now = group(context, &running)?;
    ensure!(
        now["swap_max_bytes"] == 64 * MIB
            && now["pool_max_bytes"] == 80 * MIB
            && now["writeback"] == false,
        "the group is {now}"
    );
    set(&["--writeback", "on"])?;
    let unknown = ["--group", "jobs", "--swap-max", "1M"];
    must_say(context, &running, &unknown, 125, &["no group jobs"])?;
    launcher.finish(running).map(drop)
}
