//! The JSON that vswap prints is what docs/schemas says, and nothing else.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use vswap_e2e::failure::During;
use vswap_e2e::schema::{ADVICE, is_as_described, is_as_described_in, parsed};
use vswap_e2e::{Context, Outcome, ensure, require_program};

/// Makes 30 MiB and looks at them again and again.
const ADVISED: &str = "import time
held = [b'%d' % n * 100 for n in range(60_000)]
end = time.monotonic() + 4
while time.monotonic() < end: sum(map(len, held))";
/// Needs twice what it may have, and then stays until it is told to end.
const PROGRAM: &str =
    "held = [b'%d' % n * 100 for n in range(300_000)]; print('ready', flush=True); input()";

/// A run or a daemon, killed on drop.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Started {
    /// Reads standard output up to the line `ready`.
    fn when_ready(mut self) -> Outcome<Started> {
        let out = self.0.stdout.take().map(BufReader::new);
        let first = out.and_then(|out| out.lines().next());
        let first = first
            .transpose()
            .during(|| "read the program's output".to_owned())?;
        ensure!(
            first.as_deref() == Some("ready"),
            "the program said {first:?}"
        );
        Ok(self)
    }
}

fn vswap(context: &Context, words: &[&str]) -> Outcome<Command> {
    let mut command = Command::new(context.require_vswap()?);
    command
        .args(words)
        .env("XDG_RUNTIME_DIR", context.place())
        .current_dir(context.place())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    Ok(command)
}

fn printed(context: &Context, words: &[&str]) -> Outcome<Value> {
    let mut command = vswap(context, words)?;
    let output = command.output().during(|| format!("run vswap {words:?}"))?;
    parsed(&output.stdout)
}

fn start(context: &Context, words: &[&str]) -> Outcome<Started> {
    let child = vswap(context, words)?.spawn();
    child
        .map(Started)
        .during(|| format!("start vswap {words:?}"))
}

pub fn json(context: &Context) -> Outcome {
    let python = require_program("python3", "apt package python3")?;
    let python = python.display().to_string();
    let python = [python.as_str(), "-c", PROGRAM];
    let daemon = start(context, &["daemon", "--swap", ".:1G"])?;
    // It waits a moment for a daemon that is just starting.
    let joined = "run --ram 32M --group web/jobs --swap-max 1G --";
    let joined = start(context, &words(joined, &python))?.when_ready()?;
    let alone = "run --no-daemon --ram 32M --swap .:1G --pool off --summary end.json --";
    let alone = start(context, &words(alone, &python))?.when_ready()?;
    listed(context, [&daemon, &joined, &alone])?;
    watched(context, &alone)?;
    drop((joined, daemon));
    summarised(context, alone)?;
    let silent = json!({"schema": 1, "pid": 7, "state": null, "error": "no answer", "more": 1});
    ensure!(
        is_as_described("silent", &silent).is_err(),
        "a field that is not described is not found"
    );
    Ok(())
}

/// `advise --json`, of a program that it starts.
pub fn advice(context: &Context) -> Outcome {
    let python = require_program("python3", "apt package python3")?;
    let python = python.display().to_string();
    let words = words(
        "advise --area 100us --json advice.json --report advice.html --",
        &[&python, "-c", ADVISED],
    );
    let status = vswap(context, &words)?
        .status()
        .during(|| "run vswap advise".to_owned())?;
    ensure!(status.success(), "vswap advise: {status}");
    let mut advice = read(&context.place().join("advice.json"))?;
    is_as_described_in(ADVICE, "advice", &advice)?;
    for list in ["sizes", "curve", "codecs", "areas"] {
        let is_tried = advice[list].as_array().is_some_and(|list| !list.is_empty());
        ensure!(
            is_tried,
            "{list} is empty, so its part of the schema is untried"
        );
    }
    // The page has the same figures.
    let page = fs::read_to_string(context.place().join("advice.html"));
    let page = page.during(|| "read the page".to_owned())?;
    let least = advice["sizes"][0]["ram_bytes"].as_u64().unwrap_or(0);
    let least = format!("<td>{}M</td>", least.div_ceil(1 << 20));
    for part in ["Time against RAM", "<svg", "--codec zstd", least.as_str()] {
        ensure!(page.contains(part), "the page has no {part}: {page}");
    }
    advice["more"] = 1.into();
    ensure!(
        is_as_described_in(ADVICE, "advice", &advice).is_err(),
        "a field that is not described is not found"
    );
    Ok(())
}

fn words<'a>(options: &'a str, program: &[&'a str]) -> Vec<&'a str> {
    let options = options.split(' ');
    options.chain(program.iter().copied()).collect()
}

/// `status --json`, of runs and a daemon.
fn listed(context: &Context, started: [&Started; 3]) -> Outcome {
    // Somebody else's runs may be there as well.
    let ours = started.map(|started| Some(started.0.id().into()));
    let printed = printed(context, &["status", "--json"])?;
    let reports = printed.as_array().into_iter().flatten();
    let reports: Vec<&Value> = reports
        .filter(|report| ours.contains(&report["pid"].as_u64()))
        .collect();
    ensure!(
        reports.len() == 3,
        "of two runs and a daemon {} are listed",
        reports.len()
    );
    for report in &reports {
        let is_daemon = report.get("daemon").is_some();
        is_as_described(if is_daemon { "daemon" } else { "run" }, report)?;
    }
    ensure!(
        reports
            .iter()
            .any(|report| report["areas"][0]["written_bytes"].as_u64() > Some(0)),
        "no area was written, so its part of the schema is untried"
    );
    Ok(())
}

/// `status --watch --json`: the first look, which has no rates, and the second.
fn watched(context: &Context, run: &Started) -> Outcome {
    let pid = run.0.id().to_string();
    let words = ["status", "--watch", "0.2", "--json", "--run", &pid];
    let mut watch = start(context, &words)?;
    let lines = watch.0.stdout.take().map(BufReader::new);
    for line in lines.into_iter().flat_map(BufRead::lines).take(2) {
        let line = line.during(|| "read a look".to_owned())?;
        is_as_described("look", &parsed(line.as_bytes())?)?;
    }
    Ok(())
}

/// `--summary`, when the program's input has ended and with it the program.
fn summarised(context: &Context, mut run: Started) -> Outcome {
    drop(run.0.stdin.take());
    let ended = run.0.wait().during(|| "wait for the run".to_owned())?;
    ensure!(
        ended.code() == Some(1),
        "input() at the end of a file: {ended}"
    );
    let end = read(&context.place().join("end.json"))?;
    ensure!(
        end["exit_status"] == 1 && end["ended_full"] == false,
        "{end:#}"
    );
    is_as_described("run", &end)
}

fn read(path: &Path) -> Outcome<Value> {
    let bytes = fs::read(path).during(|| format!("read {}", path.display()))?;
    parsed(&bytes)
}
