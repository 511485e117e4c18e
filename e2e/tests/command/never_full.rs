//! More than memory and pool can hold, of which nothing compresses: the run goes on into a file on disk. Where there is
//! none it waits at no cost, can be given room, can be told to end, and ends by itself as it was told to.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::statvfs;
use rustix::process::Signal;
use serde_json::Value;
use vswap_e2e::device::Mounted;
use vswap_e2e::failure::During;
use vswap_e2e::{
    Context, Ended, Failure, Job, MIB, Outcome, Running, ensure, procfs, require_program,
    require_root,
};

const LIMIT_BYTES: u64 = 80 * MIB;
/// What the file that comes by itself leaves free at the least.
const RESERVE_BYTES: u64 = 1 << 30;
/// By how much a file system may have less: its own blocks, and requests that were under way together.
const RESERVE_SLACK_BYTES: u64 = 8 * MIB;
/// Of the time that a run waits, vswap may take one part in this many of a processor.
const IDLE_PART: u32 = 5;
const WATCHED: Duration = Duration::from_secs(4);

/// Fills 220 MiB with noise that can be made again, and looks at every byte.
const FILLS: &str = "import random
r = random.Random(7)
kept = [r.randbytes(4 << 20) for step in range(55)]
r = random.Random(7)
for content in kept:
    assert content == r.randbytes(4 << 20)
print('right')
";

/// Takes memory for ever, little by little, and some more when it is told to end.
const ENDS: &str = "import os, random, signal
r, kept = random.Random(7), []
def end(*_):
    last = [r.randbytes(1 << 16) for step in range(16)]
    print('handled', sum(map(len, last)), flush=True)
    os._exit(3)
signal.signal(signal.SIGTERM, end)
while True:
    kept.append(r.randbytes(1 << 17))
";

/// The same, and does not listen.
const IGNORES: &str = "import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
kept = []
while True:
    kept.append(os.urandom(1 << 20))
";

fn job(script: &str, options: &[&str]) -> Outcome<Job> {
    let python = require_program("python3", "apt package python3")?;
    let job = Job::new(python).args(["-c", script]).own_group();
    Ok(job.vswap_options(options.iter().copied()))
}

fn errors(of: &Path) -> String {
    fs::read_to_string(of).unwrap_or_default()
}

/// Starts a job and waits until vswap says that the program waits.
fn start_until_full(context: &Context, job: &Job) -> Outcome<Running> {
    let running = context.limited(LIMIT_BYTES)?.start(job)?;
    running.until("vswap to say that the program waits", || {
        Ok(errors(running.stderr())
            .contains("the program waits")
            .then_some(()))
    })?;
    Ok(running)
}

fn must_be_right(ended: &Ended) -> Outcome {
    ended.must_succeed()?;
    ended.must_leave_nothing()?;
    ensure!(
        errors(&ended.stdout) == "right\n",
        "the content was not looked at: {}",
        errors(&ended.stdout)
    );
    Ok(())
}

/// Without a word the run goes on into a file in the directory that the user named, which nobody sees.
pub fn goes_on(context: &Context) -> Outcome {
    let place = context.place().join("swap");
    fs::create_dir(&place).during(|| format!("make {}", place.display()))?;
    let job = job(FILLS, &[])?.env("VSWAP_SWAP_DIR", &place);
    let launcher = context.limited(LIMIT_BYTES)?;
    let ended = launcher.run(&job)?;
    must_be_right(&ended)?;
    let said = errors(&ended.stderr);
    let file = format!("encrypted file in {}", place.display());
    ensure!(
        said.matches(&file).count() == 1,
        "the file is not said once: {said}"
    );
    ensure!(!said.contains("waits"), "the program waited: {said}");
    let areas = ended
        .summary
        .as_ref()
        .map_or(Value::Null, |s| s["areas"].clone());
    let written = areas[0]["written_bytes"].as_u64().unwrap_or(0);
    ensure!(written > 64 * MIB, "hardly anything was written: {areas}");
    let quiet = launcher.run(&job.vswap_options(["--quiet"]))?;
    must_be_right(&quiet)?;
    ensure!(
        errors(&quiet.stderr).is_empty(),
        "--quiet says {}",
        errors(&quiet.stderr)
    );
    Ok(())
}

fn must_say_that_it_was_full(ended: &Ended) -> Outcome {
    let figure = |name: &str| {
        ended
            .summary
            .as_ref()
            .map_or(Value::Null, |s| s[name].clone())
    };
    ensure!(figure("ended_full") == true, "{:?}", ended.summary);
    ensure!(
        figure("stalled_seconds").as_f64().unwrap_or(0.0) > 1.0,
        "{:?}",
        ended.summary
    );
    let said = errors(&ended.stderr);
    for words in ["vswap swapon --run", "ended because it was full"] {
        ensure!(said.contains(words), "no word of {words:?}: {said}");
    }
    ended.must_leave_nothing()
}

/// A program that does not end when told to is killed, and the status is that of a kill.
pub fn killed(context: &Context) -> Outcome {
    let job = job(IGNORES, &["--swap", "none", "--on-full", "kill:1"])?;
    let ended = context.limited(LIMIT_BYTES)?.start(&job)?.wait()?;
    ended.must_be_ended_by(Signal::KILL)?;
    must_say_that_it_was_full(&ended)
}

/// A program that ends in order when it is told to has still been ended.
pub fn failed(context: &Context) -> Outcome {
    let job = job(ENDS, &["--swap", "none", "--on-full", "fail:0"])?;
    let ended = context.limited(LIMIT_BYTES)?.start(&job)?.wait()?;
    ended.must_exit_with(125)?;
    ensure!(
        errors(&ended.stdout).starts_with("handled"),
        "it was not told to end first"
    );
    must_say_that_it_was_full(&ended)
}

/// Processor time of vswap.
fn processor(running: &Running) -> Outcome<Duration> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", running.pid()));
    let stat = stat.during(|| "read the time of vswap".to_owned())?;
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 = after_name
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|ticks| ticks.parse::<u64>().ok())
        .sum();
    Ok(Duration::from_millis(
        ticks * 1000 / rustix::param::clock_ticks_per_second(),
    ))
}

/// It waits, at no cost, until somebody follows the advice; then all is right.
pub fn given_room(context: &Context) -> Outcome {
    let running = start_until_full(
        context,
        &job(FILLS, &["--swap", "none", "--on-full", "wait"])?,
    )?;
    let (before, begun) = (processor(&running)?, Instant::now());
    thread::sleep(WATCHED);
    let (took, lasted) = (processor(&running)? - before, begun.elapsed());
    context.say(format!("waiting for {lasted:?} took {took:?}"));
    ensure!(
        took * IDLE_PART < lasted,
        "waiting for {lasted:?} took {took:?} of a processor"
    );
    ensure!(procfs::is_alive(running.pid()), "it did not wait");
    let listed = context.vswap(&["status"])?;
    let table = String::from_utf8_lossy(&listed.stdout).into_owned();
    let says_full = table
        .lines()
        .any(|line| line.split_whitespace().any(|word| word == "full"));
    ensure!(says_full, "status says {table}");
    let pid = running.pid().to_string();
    let area = format!("{}:1G", context.place().display());
    let given = context.vswap(&["swapon", "--run", &pid, &area])?;
    ensure!(given.status.success(), "swapon: {given:?}");
    let ended = running.wait()?;
    must_be_right(&ended)?;
    ensure!(
        errors(&ended.stderr).contains("for memory; peak"),
        "the wait is not told: {}",
        errors(&ended.stderr)
    );
    Ok(())
}

/// The handler of a signal runs though it wants memory.
pub fn told_to_end(context: &Context) -> Outcome {
    let running = start_until_full(
        context,
        &job(ENDS, &["--swap", "none", "--on-full", "wait"])?,
    )?;
    running.signal(Signal::TERM)?;
    let ended = running.wait()?;
    ended.must_exit_with(3)?;
    ended.must_leave_nothing()?;
    ensure!(
        errors(&ended.stdout) == "handled 1048576\n",
        "the handler: {}",
        errors(&ended.stdout)
    );
    Ok(())
}

/// Who does not listen is ended by the second signal.
pub fn told_twice(context: &Context) -> Outcome {
    let running = start_until_full(
        context,
        &job(IGNORES, &["--swap", "none", "--on-full", "wait"])?,
    )?;
    running.signal(Signal::TERM)?;
    running.until("the run to wait for the second", || {
        Ok(errors(running.stderr())
            .contains("second signal")
            .then_some(()))
    })?;
    running.signal(Signal::TERM)?;
    let ended = running.wait()?;
    ended.must_be_ended_by(Signal::KILL)?;
    ended.must_leave_nothing()
}

/// The file takes no more than others can spare; what does not fit waits for room elsewhere.
pub fn leaves_others_room(context: &Context) -> Outcome {
    let small = Mounted::new(context, "small", 2 * RESERVE_BYTES)?;
    let free = || -> Outcome<u64> {
        let found = statvfs(small.path()).during(|| "look at the small disk".to_owned())?;
        Ok(found.f_bavail * found.f_frsize)
    };
    let filler = fs::File::create(small.path().join("filler"))
        .during(|| "make a file on the small disk".to_owned())?;
    let taken = free()?.saturating_sub(RESERVE_BYTES + 48 * MIB);
    rustix::fs::fallocate(&filler, rustix::fs::FallocateFlags::empty(), 0, taken)
        .during(|| "fill the small disk".to_owned())?;
    let job = job(FILLS, &["--on-full", "wait"])?.env("VSWAP_SWAP_DIR", small.path());
    let running = start_until_full(context, &job)?;
    let said = errors(running.stderr());
    ensure!(
        said.lines()
            .next()
            .is_some_and(|line| line.contains("should memory become full")),
        "that the disk is small is not said first: {said}"
    );
    let left = free()?;
    ensure!(
        left + RESERVE_SLACK_BYTES >= RESERVE_BYTES,
        "{left} bytes are left to others"
    );
    ensure!(
        left < RESERVE_BYTES + 24 * MIB,
        "{left} bytes are left: it was hardly used"
    );
    let pid = running.pid().to_string();
    let area = format!("{}:1G", context.place().display());
    let given = context.vswap(&["swapon", "--run", &pid, &area])?;
    ensure!(given.status.success(), "swapon: {given:?}");
    must_be_right(&running.wait()?)
}

/// Where only memory and a disk that cannot be written are to be had, that is said at the start.
pub fn nowhere(context: &Context) -> Outcome {
    require_root("a mount namespace")?;
    let unshare = require_program("unshare", "apt package util-linux")?;
    let vswap = context.require_vswap()?;
    let hides = "mount -t tmpfs none /var/tmp && exec \"$0\" run --ram 64M \"$@\" -- true";
    let run = |options: &[&str]| -> Outcome<String> {
        let output = Command::new(&unshare)
            .args(["--mount", "sh", "-c", hides])
            .arg(&vswap)
            .args(options)
            .env("VSWAP_SWAP_DIR", "/proc/self")
            .env("TMPDIR", "/dev/shm")
            .stdin(Stdio::null())
            .output()
            .during(|| "run vswap without a disk".to_owned())?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if said.contains("unshare:") || said.contains("mount:") {
            return Err(Failure::Skip(format!("no mounts to be had: {said}")));
        }
        ensure!(output.status.success(), "{said}");
        Ok(said)
    };
    let said = run(&[])?;
    for words in [
        "no place on disk",
        "/proc/self: ",
        "/dev/shm: ",
        "/var/tmp: ",
    ] {
        ensure!(said.contains(words), "no word of {words:?}: {said}");
    }
    for options in [&["--quiet"][..], &["--swap", "none"]] {
        let said = run(options)?;
        ensure!(
            !said.contains("no place on disk"),
            "{options:?} says {said}"
        );
    }
    Ok(())
}
