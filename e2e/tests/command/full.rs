//! Memory is full and its content does not compress. The program waits, vswap says so, the limit holds, only the user
//! kills anybody, and nothing is lost when there is room again.

use std::fs;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use vswap_e2e::failure::During;
use vswap_e2e::limit::{allowed_bytes, mib};
use vswap_e2e::{Context, Ended, Job, MIB, Outcome, Running, ensure, procfs, require_program};

const LIMIT_BYTES: u64 = 64 * MIB;
/// How long a waiting program must stay alive.
const WAITS_FOR: Duration = Duration::from_secs(4);

/// Fills memory with noise, four MiB at a time, and logs each step.
const FILLS: &str = "import os, sys
log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
kept = []
for step in range(256):
    kept.append(os.urandom(4 << 20))
    os.write(log, f'step {step}\\n'.encode())
os.write(log, b'all of it\\n')
";

/// Two processes. The first keeps much memory and gives it back when told, and then the second one has room.
const FREES: &str = "import hashlib, os, signal, sys
log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
hears, tells = os.pipe()
child = os.fork()
if child == 0:
    kept = [os.urandom(1 << 20) for step in range(30)]
    os.write(tells, b'child holds')
    while True:
        signal.pause()
os.read(hears, 11)
kept, sums = [], []
for step in range(44):
    kept.append(os.urandom(1 << 20))
    sums.append(hashlib.sha256(kept[-1]).digest())
    os.write(log, f'step {step}\\n'.encode())
for content, expected in zip(kept, sums):
    if hashlib.sha256(content).digest() != expected:
        os.write(log, b'WRONG\\n')
        sys.exit(1)
os.waitpid(child, 0)
os.write(log, b'right\\n')
";

/// Starts a script and waits until vswap says that memory is full.
fn start_until_full(context: &Context, script: &str) -> Outcome<Running> {
    let python = require_program("python3", "apt package python3")?;
    let job = Job::new(python)
        .args(["-c", script])
        .arg(context.place().join("log"))
        .own_group()
        .vswap_options(["--swap", "none", "--on-full", "wait"]);
    let running = context.limited(LIMIT_BYTES)?.start(&job)?;
    running.until("vswap to say that memory is full", || {
        let text = fs::read_to_string(running.stderr()).unwrap_or_default();
        Ok((text.contains("full") && text.contains("--ram")).then_some(()))
    })?;
    Ok(running)
}

/// Checks that the program is alive, makes no progress and takes no more memory.
fn must_wait(context: &Context, running: &Running) -> Outcome {
    let log = || fs::read_to_string(context.place().join("log")).unwrap_or_default();
    thread::sleep(Duration::from_secs(1));
    let before = log();
    thread::sleep(WAITS_FOR);
    ensure!(procfs::is_alive(running.pid()), "vswap has gone");
    ensure!(
        procfs::is_alive(running.program_pid()?),
        "the program has gone"
    );
    ensure!(
        log() == before,
        "a program that is said to wait went on: {} after {before}",
        log()
    );
    ensure!(
        before.contains("step 2\n"),
        "it was stopped before memory was full: {before}"
    );
    Ok(())
}

fn must_hold(ended: &Ended) -> Outcome {
    let allowed = allowed_bytes(LIMIT_BYTES);
    let (seen, own) = (ended.peak.total_bytes, ended.figure("peak_total_bytes")?);
    ensure!(
        seen <= allowed,
        "the limit did not hold: {} seen, {} allowed",
        mib(seen),
        mib(allowed)
    );
    ensure!(
        own <= allowed,
        "the limit did not hold: {} by vswap, {} allowed",
        mib(own),
        mib(allowed)
    );
    Ok(())
}

pub fn terminated(context: &Context) -> Outcome {
    ended_by(context, Signal::TERM)
}

pub fn killed(context: &Context) -> Outcome {
    ended_by(context, Signal::KILL)
}

fn ended_by(context: &Context, signal: Signal) -> Outcome {
    let running = start_until_full(context, FILLS)?;
    must_wait(context, &running)?;
    // SIGKILL cannot be passed on, so it is sent to the program itself.
    let target = if signal == Signal::KILL {
        running.program_pid()?
    } else {
        running.pid()
    };
    vswap_e2e::launch::signal_pid(target, signal)?;
    let ended = running.wait()?;
    ended.must_be_ended_by(signal)?;
    ended.must_leave_nothing()?;
    must_hold(&ended)
}

pub fn freed(context: &Context) -> Outcome {
    let running = start_until_full(context, FREES)?;
    must_wait(context, &running)?;
    let program = running.program_pid()?;
    let family = procfs::living_descendants(program);
    for child in family {
        vswap_e2e::launch::signal_pid(child, Signal::KILL)?;
    }
    let ended = running.wait()?;
    let log =
        fs::read_to_string(context.place().join("log")).during(|| "read the log".to_owned())?;
    ensure!(
        log.ends_with("right\n"),
        "with room again the program did not come to a good end: {log}"
    );
    ended.must_succeed()?;
    ended.must_leave_nothing()?;
    must_hold(&ended)
}
