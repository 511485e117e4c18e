//! `vswap advise --run`: a run that is under way is watched and loses no byte, and goes on whatever becomes of the
//! asker.

use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use vswap_e2e::failure::During;
use vswap_e2e::launch::signal_pid;
use vswap_e2e::{Context, Job, Outcome, Running, ensure, workload_binary};

const MIB: u64 = 1 << 20;
/// Less than the program has, so much of it is out when sampling begins.
const LIMIT_BYTES: u64 = 64 * MIB;
/// Writes and verifies seeded content, round and round.
const SIZE: &str = "80M";

/// An asker, killed on drop.
struct Asker(Child);

impl Drop for Asker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Asker {
    fn start(context: &Context, running: &Running, words: &[&str]) -> Outcome<Asker> {
        let pid = running.pid().to_string();
        let mut command = Command::new(context.require_vswap()?);
        command
            .args(["advise", "--run", &pid])
            .args(words)
            .current_dir(context.place())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = command.spawn().during(|| "start vswap advise".to_owned());
        Ok(Asker(child?))
    }

    fn end(mut self) -> Outcome<Output> {
        let mut output = Output {
            status: self
                .0
                .wait()
                .during(|| "wait for vswap advise".to_owned())?,
            stdout: Vec::new(),
            stderr: Vec::new(),
        };
        if let Some(mut stderr) = self.0.stderr.take() {
            let read = std::io::Read::read_to_end(&mut stderr, &mut output.stderr);
            read.during(|| "read what vswap advise said".to_owned())?;
        }
        Ok(output)
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn hog(context: &Context, seconds: &str) -> Outcome<Running> {
    let job = Job::new(workload_binary()?).args(["memhog", SIZE, "--seconds", seconds]);
    let running = context.limited(LIMIT_BYTES)?.start(&job)?;
    running.until("pages to be out", || {
        let output = context.vswap(&["status", "--json"])?;
        let all: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let is_out =
            |run: &Value| run["pid"] == running.pid() && run["swapped_pages"].as_u64() > Some(0);
        Ok(all.iter().any(is_out).then_some(()))
    })?;
    Ok(running)
}

/// Starts an asker, and returns it once it is at work: then a second one is refused. If the second one was the faster
/// one, the first was refused, and both begin again.
fn at_work(context: &Context, running: &Running, words: &[&str]) -> Outcome<Asker> {
    running.until("the run to be sampled", || {
        let mut first = Asker::start(context, running, words)?;
        std::thread::sleep(Duration::from_secs(1));
        let second = Asker::start(context, running, &["--for", "1s"])?.end()?;
        let is_refused = second.status.code() == Some(125)
            && said(&second).contains("somebody samples this run already");
        let ended = first
            .0
            .try_wait()
            .during(|| "look at vswap advise".to_owned())?;
        Ok((is_refused && ended.is_none()).then_some(first))
    })
}

pub fn keeps_every_byte(context: &Context) -> Outcome {
    // Long enough for all of this on a busy machine.
    let running = hog(context, "75")?;
    let words = ["--for", "8s", "--json", "joined.json"];
    let first = at_work(context, &running, &words)?;
    let output = first.end()?;
    let words = said(&output);
    ensure!(
        output.status.success() && words.contains("Its limit meanwhile was 64 MiB"),
        "it ended with {}: {words}",
        output.status
    );
    is_advice(context, "joined.json")?;
    // Whoever is killed asks no more.
    let killed = at_work(context, &running, &["--for", "1h"])?;
    drop(killed);
    // Whoever is interrupted gets the advice.
    running.until("another asker to be served", || {
        let last = Asker::start(context, &running, &["--for", "1h", "--json", "last.json"])?;
        std::thread::sleep(Duration::from_secs(4));
        signal_pid(last.0.id(), Signal::INT)?;
        let output = last.end()?;
        Ok(output.status.success().then_some(()))
    })?;
    is_advice(context, "last.json")?;
    let ended = running.wait()?;
    ended.must_succeed()?;
    ended.must_leave_nothing()?;
    let limit = ended.figure("limit_bytes")?;
    ensure!(limit == LIMIT_BYTES, "its limit is {limit} now");
    Ok(())
}

fn is_advice(context: &Context, name: &str) -> Outcome {
    let bytes = fs::read(context.place().join(name)).during(|| format!("read {name}"))?;
    let advice: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    ensure!(
        advice["limit_bytes"] == LIMIT_BYTES && advice["watched_pages"].as_u64() > Some(100),
        "{name}: {advice}"
    );
    let peak = advice["peak_bytes"].as_u64().unwrap_or(0) / MIB;
    ensure!(
        (76..112).contains(&peak),
        "{name}: what is out counts too, and it had {peak} MiB: {advice}"
    );
    let sizes = advice["sizes"].as_array().cloned().unwrap_or_default();
    let sizes: Vec<u64> = sizes
        .iter()
        .filter_map(|size| size["ram_bytes"].as_u64())
        .collect();
    ensure!(
        sizes.len() == 3 && sizes.is_sorted_by(|a, b| a >= b),
        "{name}: {advice}"
    );
    // A walk over all of it again and again needs all of it.
    ensure!(sizes[0] > LIMIT_BYTES, "{name}: {advice}");
    Ok(())
}

pub fn refuses(context: &Context) -> Outcome {
    let refused = |words: &[&str], status: i32, expected: &str| -> Outcome {
        let output = context.vswap(words)?;
        ensure!(
            output.status.code() == Some(status) && said(&output).contains(expected),
            "{words:?} ended with {}: {}",
            output.status,
            said(&output)
        );
        Ok(())
    };
    refused(
        &["advise", "--run", "1"],
        125,
        "no run of yours has the process id 1",
    )?;
    refused(
        &["advise", "--run", "1", "--", "true"],
        125,
        "cannot be used with",
    )?;
    refused(
        &["advise", "--for", "9s", "--", "true"],
        125,
        "cannot be used with",
    )?;
    refused(&["advise", "--run", "1", "--for", "9"], 125, "10m")?;
    let running = hog(context, "12")?;
    let pid = running.pid().to_string();
    let parked = context.vswap(&["park", "--run", &pid])?;
    ensure!(parked.status.success(), "{parked:?}");
    refused(&["advise", "--run", &pid], 125, "the run is parked")?;
    let woken = context.vswap(&["wake", "--run", &pid])?;
    ensure!(woken.status.success(), "{woken:?}");
    let ended = running.wait()?;
    ended.must_succeed()?;
    ended.must_leave_nothing()
}
