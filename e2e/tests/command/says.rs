//! What vswap says: the summary, the summary line, `status` and `doctor`.

use std::fs;

use serde_json::Value;
use vswap_e2e::failure::During;
use vswap_e2e::victim::Plan;
use vswap_e2e::{Context, Ended, Failure, Job, MIB, Outcome, ensure};

const AMPLE_BYTES: u64 = 256 * MIB;
const TIGHT_BYTES: u64 = 64 * MIB;
const SWAPS: Plan = Plan {
    mib: 208,
    children: 0,
    passes: 2,
    exit_status: 0,
};

/// Figures that a run must give.
const FIGURES: [&str; 12] = [
    "limit_bytes",
    "peak_total_bytes",
    "peak_needed_bytes",
    "pages_out",
    "pages_in",
    "compressed_in_bytes",
    "compressed_out_bytes",
    "faults",
    "pool_bytes",
    "resident_bytes",
    "total_bytes",
    "swapped_pages",
];

fn errors(ended: &Ended) -> Outcome<String> {
    let bytes = fs::read(&ended.stderr).during(|| "read standard error".to_owned())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

pub fn summary(context: &Context) -> Outcome {
    let (job, log) = SWAPS.job(context)?;
    let ended = context.limited(TIGHT_BYTES)?.start(&job)?.wait()?;
    ended.must_succeed()?;
    log.must_be_right()?;
    ended.must_hold_limit()?;
    for key in FIGURES {
        ended.figure(key)?;
    }
    let needed = ended.figure("peak_needed_bytes")?;
    let expected = SWAPS.mib * MIB;
    ensure!(
        needed >= expected,
        "peak_needed_bytes is {needed}, the program has filled {expected}"
    );
    ensure!(
        needed < expected + 64 * MIB,
        "peak_needed_bytes is {needed} for {expected}"
    );
    ensure!(
        ended.figure("limit_bytes")? == TIGHT_BYTES,
        "limit_bytes is not what --ram was"
    );
    let (went_in, came_out) = (
        ended.figure("compressed_in_bytes")?,
        ended.figure("compressed_out_bytes")?,
    );
    ensure!(
        came_out > 0 && came_out < went_in,
        "{went_in} bytes were compressed to {came_out}"
    );
    ensure!(
        ended.figure("pages_in")? > 0,
        "nothing came back, though all was read again"
    );
    let text = ended
        .summary
        .as_ref()
        .map(Value::to_string)
        .unwrap_or_default();
    let numbers = ["fault_us_p50", "fault_us_p99"];
    let object = ended.summary.as_ref().and_then(Value::as_object);
    for key in numbers {
        let number = object
            .and_then(|object| object.get(key))
            .and_then(Value::as_f64)
            .unwrap_or(0.0);
        ensure!(number > 0.0, "{key} is not in the summary or 0: {text}");
    }
    Ok(())
}

/// A line of the end is shorter than this, also after a long run.
const LINE_COLUMNS: usize = 200;

pub fn summary_line(context: &Context) -> Outcome {
    let (job, _) = SWAPS.job(context)?;
    let launcher = context.limited(TIGHT_BYTES)?;
    let ended = launcher.start(&job)?.wait()?;
    let text = errors(&ended)?;
    ensure!(
        text.lines().count() == 2 && text.lines().all(|line| line.len() < LINE_COLUMNS),
        "there are not two lines of less than {LINE_COLUMNS} columns: {text}"
    );
    for word in [
        "vswap: ",
        "peak",
        "64 MiB",
        "out",
        "in",
        "compressed",
        "faults",
        "p50",
        "p99",
    ] {
        ensure!(
            text.contains(word),
            "the lines say nothing of {word:?}: {text}"
        );
    }
    let quiet = launcher.start(&job.vswap_options(["--quiet"]))?.wait()?;
    ensure!(
        errors(&quiet)?.is_empty(),
        "--quiet says {}",
        errors(&quiet)?
    );
    let ended = context
        .limited(AMPLE_BYTES)?
        .start(&Job::shell("true"))?
        .wait()?;
    let text = errors(&ended)?;
    ensure!(
        text.starts_with("vswap: ") && text.lines().count() == 1,
        "a small program: {text}"
    );
    ensure!(
        ended.figure("pages_out")? == 0,
        "a program within its limit was swapped"
    );
    Ok(())
}

pub fn status(context: &Context) -> Outcome {
    let (job, log) = Plan { passes: 0, ..SWAPS }.job(context)?;
    let launcher = context.limited(TIGHT_BYTES)?;
    let running = launcher.start(&job)?;
    running.until(
        "a pass over swapped memory",
        || Ok(log.has("pass 0 parent")),
    )?;
    let listed = || -> Outcome<Vec<Value>> {
        let output = context.vswap(&["status", "--json"])?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(
            output.status.success(),
            "status ended with {}: {errors}",
            output.status
        );
        let parsed: Result<Value, _> = serde_json::from_slice(&output.stdout);
        let parsed = parsed.map_err(|error| Failure::wrong(format!("status --json: {error}")))?;
        parsed
            .as_array()
            .cloned()
            .ok_or_else(|| Failure::wrong("status --json is no array"))
    };
    let vswap = u64::from(running.pid());
    let program = u64::from(running.program_pid()?);
    let runs = listed()?;
    let own = runs
        .iter()
        .find(|run| [vswap, program].map(Value::from).contains(&run["pid"]));
    let own = own.ok_or_else(|| Failure::wrong(format!("{vswap} is not in {runs:?}")))?;
    let figure = |key: &str| own[key].as_u64().unwrap_or(0);
    ensure!(
        figure("limit_bytes") == TIGHT_BYTES,
        "status says of the limit {own}"
    );
    ensure!(
        figure("swapped_pages") > 0 && figure("total_bytes") > 0,
        "status has no figures: {own}"
    );
    let table = context.vswap(&["status"])?;
    let text = String::from_utf8_lossy(&table.stdout).into_owned();
    ensure!(
        text.contains("python3") && text.contains("64 MiB"),
        "the table says {text}"
    );
    running.signal(rustix::process::Signal::KILL)?;
    running.wait()?;
    let left = listed()?;
    let gone = !left.iter().any(|run| run["pid"] == own["pid"]);
    ensure!(gone, "a run that is over is still listed: {left:?}");
    Ok(())
}

pub fn doctor(context: &Context) -> Outcome {
    let output = context.vswap(&["doctor"])?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success(),
        "doctor ended with {}: {text}",
        output.status
    );
    for word in [
        "userfaultfd",
        "move",
        "pagemap-scan",
        "io-uring",
        "fork",
        "vswap far check",
    ] {
        let found = text.to_lowercase().contains(&word.to_lowercase());
        ensure!(found, "doctor says nothing of {word}: {text}");
    }
    Ok(())
}
