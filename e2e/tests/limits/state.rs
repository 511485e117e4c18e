//! What a run says of how it gets on: full, stopped, thrashing, and the time that it loses to paging.

use rustix::process::Signal;
use vswap_e2e::launch::signal_pid;
use vswap_e2e::{Context, Job, MIB, Outcome, Running, ensure, require_program};

use crate::ask::{must_set, report};

const LIMIT_BYTES: u64 = 64 * MIB;
/// Noise for which there is no room anywhere.
const FILLS: &str = "import os
kept = [os.urandom(1 << 20) for step in range(400)]
";
/// Pages that are read at random, each verified, from an area: there is next to nothing else to do.
const THRASHES: &str = "import random, time
size = 240 << 20
memory = bytearray(size)
for at in range(0, size, 4096):
    memory[at:at + 8] = at.to_bytes(8, 'little')
chosen, end = random.Random(1), time.monotonic() + 40
while time.monotonic() < end:
    for step in range(100):
        at = chosen.randrange(size // 4096) * 4096
        assert int.from_bytes(memory[at:at + 8], 'little') == at
";

fn python(script: &str) -> Outcome<Job> {
    let python = require_program("python3", "apt package python3")?;
    Ok(Job::new(python).args(["-c", script]))
}

fn until_state(context: &Context, running: &Running, state: &str) -> Outcome {
    running.until(state, || {
        Ok((report(context, running)?["state"] == state).then_some(()))
    })
}

fn table(context: &Context, options: &[&str], pid: u32) -> Outcome<String> {
    let output = context.vswap(&[&["status"], options].concat())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let of_run = |line: &&str| line.split_whitespace().next() == Some(&pid.to_string());
    Ok(text.lines().find(of_run).unwrap_or_default().to_owned())
}

/// A full run says so until it has room.
pub fn full(context: &Context) -> Outcome {
    let job = python(FILLS)?.vswap_options(["--swap", "none"]);
    let running = context.limited(LIMIT_BYTES)?.start(&job)?;
    until_state(context, &running, "full")?;
    let row = table(context, &[], running.pid())?;
    ensure!(row.contains("full"), "the table has {row}");
    must_set(context, &running, &["--ram", "640M"])?;
    running.wait()?.must_succeed()
}

/// A run is stopped when its processes are, whoever stopped them.
pub fn stopped(context: &Context) -> Outcome {
    let sleep = require_program("sleep", "apt package coreutils")?;
    let launcher = context.limited(LIMIT_BYTES)?;
    let running = launcher.start(&Job::new(sleep).arg("1000"))?;
    until_state(context, &running, "running")?;
    let program = running.program_pid()?;
    signal_pid(program, Signal::STOP)?;
    until_state(context, &running, "stopped")?;
    signal_pid(program, Signal::CONT)?;
    until_state(context, &running, "running")?;
    running.signal(Signal::TERM)?;
    running.wait().map(drop)
}

/// A program that does nothing but wait for its pages: it shows, it is said once, and the time is counted.
pub fn thrashing(context: &Context) -> Outcome {
    let place = context.place().display().to_string();
    let job = python(THRASHES)?.vswap_options(["--pool", "off", "--swap", &place]);
    let running = context.limited(LIMIT_BYTES)?.start(&job)?;
    running.until("time to be lost", || {
        let full = report(context, &running)?["pressure"]["full"]["avg10"].as_f64();
        Ok((full > Some(1.0)).then_some(()))
    })?;
    let row = table(context, &["--pressure"], running.pid())?;
    ensure!(row.ends_with(" s"), "the table has {row}");
    let ended = running.wait()?;
    ended.must_succeed()?;
    let pressure = ended
        .summary
        .as_ref()
        .map(|summary| summary["pressure"].clone());
    let pressure = pressure.unwrap_or_default();
    let total = |of: &str| pressure[of]["total_seconds"].as_f64().unwrap_or(0.0);
    ensure!(
        total("full") > 1.0
            && total("some") >= total("full")
            && total("some") <= ended.took.as_secs_f64(),
        "lost in {:?}: {pressure}",
        ended.took
    );
    let said = std::fs::read_to_string(&ended.stderr).unwrap_or_default();
    let times = said.matches("waiting for its pages").count();
    context.say(format!("said {times} times; full for {} s", total("full")));
    ensure!(times <= 1, "it is said again and again: {said}");
    // On a machine that is busy with other things it may have come near to half of the time only.
    let long = total("full") > ended.took.as_secs_f64() * 0.7;
    ensure!(times == 1 || !long, "it is not said: {said}");
    ensure!(
        said.contains("with nothing else to do"),
        "the last line: {said}"
    );
    Ok(())
}
