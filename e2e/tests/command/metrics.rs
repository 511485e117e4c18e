//! `--metrics` of a run that swaps, read as Prometheus reads it, and the examples for it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use std::io::Write;

use vswap_e2e::failure::During;
use vswap_e2e::scrape::{OPEN_METRICS, PROMETHEUS, sample, scrape};
use vswap_e2e::victim::Plan;
use vswap_e2e::{Context, Failure, MIB, Outcome, ensure, require_program};

const LIMIT_BYTES: u64 = 64 * MIB;
const SWAPS: Plan = Plan {
    mib: 208,
    children: 1,
    passes: 0,
    exit_status: 0,
};

/// The parser of the project that made the format. It refuses whatever the format does not allow.
const READ_OPEN_METRICS: &str = "
import sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families
families = list(text_string_to_metric_families(sys.stdin.read()))
assert len(families) > 50, families
assert all(family.documentation for family in families)
";

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/metrics")
}

/// Gives a program this input. It has to be content with it.
fn must_take(command: &mut Command, input: &str, what: &str) -> Outcome {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .during(|| format!("start {what}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin
            .write_all(input.as_bytes())
            .during(|| format!("write to {what}"))?;
    }
    let output = child
        .wait_with_output()
        .during(|| format!("wait for {what}"))?;
    ensure!(output.status.success(), "{what}: {output:?}\n{input}");
    Ok(())
}

/// What a run under pressure tells, in both formats.
pub fn of_a_run(context: &Context) -> Outcome {
    let promtool = require_program("promtool", "apt package prometheus")?;
    let python = require_program("python3", "apt package python3")?;
    let has_parser = Command::new(&python)
        .args(["-c", "import prometheus_client.openmetrics.parser"])
        .output();
    if !has_parser.is_ok_and(|output| output.status.success()) {
        return Err(Failure::Skip(
            "python3 has no prometheus_client; install apt package python3-prometheus-client"
                .to_owned(),
        ));
    }
    let (job, log) = SWAPS.job(context)?;
    let socket = context.place().join("figures");
    let swap = format!("{}:256M", context.place().display());
    let job = job
        .vswap_options(["--metrics", &socket.display().to_string()])
        .vswap_options(["--swap", &swap, "--group", "web/\"jobs\""]);
    let running = context.limited(LIMIT_BYTES)?.start(&job)?;
    running.until(
        "a pass over swapped memory",
        || Ok(log.has("pass 0 parent")),
    )?;
    let open = scrape(&socket, OPEN_METRICS)?;
    must_take(
        Command::new(&python).args(["-c", READ_OPEN_METRICS]),
        &open,
        "the parser of OpenMetrics",
    )?;
    let plain = scrape(&socket, PROMETHEUS)?;
    must_take(
        Command::new(&promtool).args(["check", "metrics"]),
        &plain,
        "promtool check metrics",
    )?;
    let of_run = |name: &str| {
        let name = format!("{name}{{run=\"{}\"}}", running.pid());
        let found = sample(&open, &name);
        found.ok_or_else(|| Failure::wrong(format!("no {name} in {open}")))
    };
    ensure!(
        of_run("vswap_memory_limit_bytes")? == LIMIT_BYTES as f64,
        "another limit: {open}"
    );
    for name in [
        "vswap_pages_out_total",
        "vswap_pages_in_total",
        "vswap_memory_swapped_bytes",
        "vswap_fault_latency_seconds_count",
        "vswap_pressure_waiting_seconds_total",
    ] {
        ensure!(of_run(name)? > 0.0, "{name} is 0: {open}");
    }
    let group = "vswap_group_pool_bytes{group=\"web/\\\"jobs\\\"\"}";
    ensure!(sample(&open, group) > Some(0.0), "no {group} in {open}");
    // Both processes have memory out, which no figure of the run says.
    let in_swap = open.lines().filter(|line| {
        let value = line
            .split(' ')
            .next_back()
            .and_then(|value| value.parse().ok());
        line.starts_with("vswap_process_swapped_bytes{") && value > Some(0.0)
    });
    ensure!(in_swap.count() == 2, "not two processes in swap: {open}");
    running.signal(rustix::process::Signal::KILL)?;
    running.wait()?;
    Ok(())
}

/// The rules and the configuration are what Prometheus takes.
pub fn examples_are_right(_: &Context) -> Outcome {
    let promtool = require_program("promtool", "apt package prometheus")?;
    for (kind, name) in [("rules", "alerts.yml"), ("config", "prometheus.yml")] {
        let file = examples().join(name);
        let output = Command::new(&promtool)
            .args(["check", kind])
            .arg(&file)
            .output()
            .during(|| "start promtool".to_owned())?;
        ensure!(output.status.success(), "{name}: {output:?}");
    }
    Ok(())
}
