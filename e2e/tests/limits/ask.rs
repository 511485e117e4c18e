//! Asking a run: for other limits, and for its figures.

use std::process::Output;

use serde_json::Value;
use vswap_e2e::{Context, Failure, Job, Outcome, Running, ensure, workload_binary};

/// A program that rewrites and verifies its memory round and round.
pub fn hog(size: &str, seconds: &str) -> Outcome<Job> {
    Ok(Job::new(workload_binary()?).args(["memhog", size, "--seconds", seconds]))
}

/// `vswap set` of a run.
pub fn set(context: &Context, running: &Running, options: &[&str]) -> Outcome<Output> {
    let run = running.pid().to_string();
    let words = [&["set", "--run", &run], options].concat();
    context.vswap(&words)
}

/// The same, which has to do it.
pub fn must_set(context: &Context, running: &Running, options: &[&str]) -> Outcome {
    let done = set(context, running, options)?;
    ensure!(done.status.success(), "set {options:?}: {done:?}");
    Ok(())
}

/// The same, which has to end with this status and say this.
pub fn must_say(
    context: &Context,
    running: &Running,
    options: &[&str],
    status: i32,
    words: &[&str],
) -> Outcome {
    let done = set(context, running, options)?;
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    ensure!(
        done.status.code() == Some(status) && words.iter().all(|word| said.contains(word)),
        "set {options:?} ended with {} and said {said}, not {words:?}",
        done.status
    );
    Ok(())
}

/// What the run says of itself, once it answers.
pub fn report(context: &Context, running: &Running) -> Outcome<Value> {
    running.until("an answer", || {
        let output = context.vswap(&["status", "--json"])?;
        let all: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let of_run =
            |report: &Value| report["pid"] == running.pid() && report["limit_bytes"].is_u64();
        Ok(all.into_iter().find(of_run))
    })
}

/// One of its figures.
pub fn figure(context: &Context, running: &Running, name: &str) -> Outcome<u64> {
    let report = report(context, running)?;
    let figure = report[name].as_u64();
    figure.ok_or_else(|| Failure::wrong(format!("no {name} in {report}")))
}
