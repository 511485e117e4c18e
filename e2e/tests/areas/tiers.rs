//! Tiers by name, and how much of each a group may have: from the start, and changed while the program runs.

use serde_json::Value;
use vswap_e2e::{Context, Failure, Job, MIB, Outcome, Running, ensure, procfs, workload_binary};

use crate::groups::{figure, group, report};

const LIMIT_BYTES: u64 = 64 * MIB;
const GROUP: &str = "web/jobs";
/// What the group may have of the second tier at first, and of the first one later.
const SSD_MAX_BYTES: u64 = 32 * MIB;
const FAST_MAX_BYTES: u64 = 24 * MIB;

/// Runs a command of vswap, and returns what it says if it ends well.
fn vswap(context: &Context, words: &[&str]) -> Outcome<String> {
    let output = context.vswap(words)?;
    ensure!(output.status.success(), "{words:?}: {output:?}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What the group has in each of these tiers. Checks that this is within its limits.
fn in_tiers(report: &Value) -> Outcome<[u64; 3]> {
    let jobs = group(report, GROUP)?;
    let mut bytes = [0; 3];
    for (bytes, name) in bytes.iter_mut().zip(["fast", "ssd", "far"]) {
        let tiers = jobs["tiers"].as_array().into_iter().flatten();
        let tier = tiers.clone().find(|tier| tier["name"] == name);
        let tier = tier.ok_or_else(|| Failure::wrong(format!("no tier {name} in {jobs}")))?;
        *bytes = figure(tier, "bytes")?;
        let most = tier["max_bytes"].as_u64().unwrap_or(u64::MAX);
        ensure!(*bytes <= most, "above its limit: {jobs}");
    }
    Ok(bytes)
}

/// What the run says of its tiers.
fn must_list(context: &Context, running: &Running) -> Outcome {
    let run = running.pid().to_string();
    let words = ["status", "--tiers", "--run", &run];
    let text = vswap(context, &[&words[..], &["--json"]].concat())?;
    let reports: Value = serde_json::from_str(&text)
        .map_err(|error| Failure::wrong(format!("no JSON: {error}: {text}")))?;
    let tiers = reports[0]["tiers"].as_array().cloned().unwrap_or_default();
    let names: Vec<&str> = tiers
        .iter()
        .filter_map(|tier| tier["name"].as_str())
        .collect();
    ensure!(names == ["fast", "ssd", "far"], "the tiers are {tiers:?}");
    for tier in &tiers {
        let (size, used) = (figure(tier, "size_bytes")?, figure(tier, "used_bytes")?);
        ensure!(used <= size && tier["areas"] == 1, "{tier}");
        ensure!(
            tier["rates"]["written_bytes"].is_number(),
            "no rate: {tier}"
        );
    }
    let far = tiers.last().unwrap_or(&Value::Null);
    ensure!(
        figure(far, "written_bytes")? > 0,
        "nothing went there: {far}"
    );
    let table = vswap(context, &words)?;
    ensure!(
        table.starts_with("TIER ") && table.lines().count() == 4,
        "the table is {table}"
    );
    Ok(())
}

/// The group is kept out of one tier and limited in another; the limits are changed while its program runs, and every
/// byte comes back right.
pub fn limits(context: &Context) -> Outcome {
    let place = context.place().display().to_string();
    let tier = |name: &str, size: &str| format!("--tier={name}={place}/{name}:{size}");
    let ssd = format!("ssd={SSD_MAX_BYTES}");
    let job = Job::new(workload_binary()?).args(["memhog", "224M", "--seconds", "25"]);
    let job = job
        .vswap_options([tier("fast", "256M"), tier("ssd", "256M"), tier("far", "1G")])
        .vswap_options(["--pool", "off", "--group", GROUP])
        .vswap_options(["--tier-max", "fast=0", "--tier-max", &ssd]);
    let launcher = context.limited(LIMIT_BYTES)?;
    let running = launcher.start(&job)?;
    let until = |what: &str, holds: &dyn Fn([u64; 3]) -> bool| {
        running.until(what, || {
            let Some(report) = report(context, &running)? else {
                return Ok(None);
            };
            Ok(holds(in_tiers(&report)?).then_some(()))
        })
    };
    until("the second tier to be full and the third in use", &|[
        fast,
        ssd,
        far,
    ]| {
        fast == 0 && ssd == SSD_MAX_BYTES && far > 16 * MIB
    })?;
    must_list(context, &running)?;
    let run = running.pid().to_string();
    let set = ["set", "--run", &run, "--group", GROUP, "--tier-max"];
    let fast = format!("fast={FAST_MAX_BYTES}");
    vswap(
        context,
        &[&set[..], &[&fast, "--tier-max", "ssd=max"]].concat(),
    )?;
    until("the first tier to be full", &|[fast, ssd, _]| {
        fast == FAST_MAX_BYTES && ssd > SSD_MAX_BYTES
    })?;
    let unknown = context.vswap(&[&set[..], &["slow=0"]].concat())?;
    let said = String::from_utf8_lossy(&unknown.stderr).into_owned();
    ensure!(
        !unknown.status.success() && said.contains("no tier slow") && said.contains("ssd"),
        "an unknown tier: {said}"
    );
    let table = vswap(context, &["status", "--groups", "--run", &run])?;
    ensure!(table.contains("of 24 MiB"), "the table is {table}");
    ensure!(procfs::is_alive(running.pid()), "the program has gone");
    launcher.finish(running).map(drop)
}
