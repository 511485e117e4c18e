//! `vswap set --ram`: what a verified program has resident follows, seen in /proc.

use std::thread;
use std::time::{Duration, Instant};

use vswap_e2e::limit::{allowed_bytes, mib};
use vswap_e2e::{Context, Job, MIB, Outcome, Running, ensure, procfs, require_program};

use crate::ask::{figure, hog, must_say, must_set};

const LIMIT_BYTES: u64 = 96 * MIB;
const HIGHER_BYTES: u64 = 448 * MIB;
const LOWER_BYTES: u64 = 64 * MIB;
/// How often, and how long apart, it is looked whether a limit holds.
const LOOKS: usize = 50;
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Noise for which there is room under the first limit and not under the second.
const NOISE: &str = "import os, sys, time
kept = [os.urandom(1 << 20) for step in range(120)]
print('filled', flush=True)
end = time.monotonic() + 12
rounds = 0
while time.monotonic() < end:
    copy = bytes(kept[rounds % 120])
    assert copy == kept[rounds % 120]
    rounds += 1
";

/// All that the run takes, by what /proc says.
fn taken_bytes(running: &Running) -> u64 {
    let programs = procfs::living_descendants(running.pid());
    let programs: u64 = programs.into_iter().map(procfs::anon_share_bytes).sum();
    programs + procfs::rss_bytes(running.pid())
}

/// It takes no more than this for a while.
pub fn must_hold(context: &Context, running: &Running, limit_bytes: u64) -> Outcome {
    let mut most = 0;
    for _ in 0..LOOKS {
        most = most.max(taken_bytes(running));
        thread::sleep(LOOK_EVERY);
    }
    let allowed = allowed_bytes(limit_bytes);
    context.say(format!("at most {} of {}", mib(most), mib(limit_bytes)));
    ensure!(
        most <= allowed,
        "it takes {} where {} are allowed",
        mib(most),
        mib(allowed)
    );
    Ok(())
}

/// A run in which the program has begun to swap.
fn begin(context: &Context, job: &Job) -> Outcome<Running> {
    let place = context.place().display().to_string();
    let job = job.clone().vswap_options(["--swap", &place]);
    let running = context.limited(LIMIT_BYTES)?.start(&job)?;
    running.until("pages to go out", || {
        let out = figure(context, &running, "pages_out")?;
        Ok((out > 1000).then_some(()))
    })?;
    Ok(running)
}

/// Up, so that what is touched stays; down again, below where it began; every byte is right at the end.
pub fn up_and_down(context: &Context) -> Outcome {
    let running = begin(context, &hog("320M", "15")?)?;
    let program = running.program_pid()?;
    must_set(context, &running, &["--ram", "448M"])?;
    running.until("the program to have its memory", || {
        Ok((procfs::anon_bytes(program) > 300 * MIB).then_some(()))
    })?;
    ensure!(
        figure(context, &running, "limit_bytes")? == HIGHER_BYTES,
        "another limit"
    );
    // It says how far the run is.
    let words = ["until it comes to 64 MiB"];
    must_say(
        context,
        &running,
        &["--ram", "64M", "--wait", "0"],
        1,
        &words,
    )?;
    // The program writes all of its memory again and again, and gets less and less of it.
    let begins = Instant::now();
    must_set(context, &running, &["--ram", "64M", "--wait", "12"])?;
    context.say(format!("it came down in {:.1?}", begins.elapsed()));
    must_hold(context, &running, LOWER_BYTES)?;
    ensure!(procfs::is_alive(program), "the program ended too soon");
    let ended = running.wait()?;
    ended.must_succeed()?;
    ended.must_leave_nothing()?;
    ensure!(
        ended.figure("highest_limit_bytes")? == HIGHER_BYTES
            && ended.figure("limit_bytes")? == LOWER_BYTES,
        "the summary has other limits: {:?}",
        ended.summary
    );
    Ok(())
}

/// A limit that nothing has room for: the command says where the run stands, the program goes on meanwhile, and the
/// old limit can be had back.
pub fn out_of_reach(context: &Context) -> Outcome {
    let python = require_program("python3", "apt package python3")?;
    let job = Job::new(python)
        .args(["-c", NOISE])
        .vswap_options(["--swap", "none"]);
    let running = context.limited(256 * MIB)?.start(&job)?;
    running.until("the memory to be filled", || {
        let said = std::fs::read_to_string(running.stdout()).unwrap_or_default();
        Ok(said.contains("filled").then_some(()))
    })?;
    let words = ["until it comes to 64 MiB"];
    must_say(
        context,
        &running,
        &["--ram", "64M", "--wait", "3"],
        1,
        &words,
    )?;
    let limit = figure(context, &running, "limit_bytes")?;
    ensure!(
        limit > LOWER_BYTES && figure(context, &running, "wanted_limit_bytes")? == LOWER_BYTES,
        "it holds {limit}"
    );
    must_set(context, &running, &["--ram", "256M"])?;
    let ended = running.wait()?;
    ended.must_succeed()?;
    ended.must_leave_nothing()
}

/// A process without an agent, which vswap counts and cannot move out: it begins under a seccomp filter that is not
/// vswap's.
const UNMANAGED: &str = "import ctypes, struct, subprocess, sys, time
libc = ctypes.CDLL(None)
allow = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0x7fff0000))
program = ctypes.create_string_buffer(struct.pack('HxxxxxxQ', 1, ctypes.addressof(allow)))
def confine():
    libc.prctl(38, 1, 0, 0, 0)
    libc.prctl(22, 2, program, 0, 0)
holds = 'kept = bytes([1]) * (64 << 20); import time; time.sleep(20)'
child = subprocess.Popen([sys.executable, '-c', holds], env={'PATH': '/usr/bin:/bin'}, preexec_fn=confine)
time.sleep(15)
child.kill()
child.wait()
";

/// What makes no sense is refused with a figure, and nothing has changed.
pub fn refused(context: &Context) -> Outcome {
    let python = require_program("python3", "apt package python3")?;
    let job = Job::new(python).args(["-c", UNMANAGED]);
    let running = context.limited(128 * MIB)?.start(&job)?;
    running.until("the process without an agent to have its memory", || {
        let total = figure(context, &running, "resident_bytes")?;
        Ok((total > 64 * MIB).then_some(()))
    })?;
    for (options, words) in [
        (["--ram", "64M"], "without an agent"),
        (["--ram", "8M"], "at least 16 MiB"),
        (["--ram", "1G..512M"], "smaller one first"),
        (["--pool", "101%"], "more than all of --ram"),
        (["--swap-max", "1M"], "--group NAME"),
        (["--wait", "5"], "--ram"),
    ] {
        must_say(context, &running, &options, 125, &[words])?;
    }
    let limits = ["limit_bytes", "wanted_limit_bytes"];
    for name in limits {
        let limit = figure(context, &running, name)?;
        ensure!(limit == 128 * MIB, "{name} has become {limit}");
    }
    must_set(context, &running, &["--ram", "112M"])?;
    running.wait()?.must_succeed()
}
