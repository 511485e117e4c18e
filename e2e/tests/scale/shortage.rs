//! No descriptors or threads are left: programs end right, perhaps later or without swap, and nobody spins meanwhile.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use vswap_e2e::failure::During;
use vswap_e2e::group::Group;
use vswap_e2e::{Context, Ended, Job, MIB, Outcome, Running, ensure, require_program};

use crate::group;

const LIMIT_BYTES: u64 = 32 * MIB;
/// How long vswap is watched while it is short of something, and how much CPU time it may take meanwhile.
const WATCHED: Duration = Duration::from_secs(2);
const TICKS_MAX: u64 = 60;

/// `children.py` with these arguments.
fn job(context: &Context, arguments: [&str; 5]) -> Outcome<Job> {
    let python = require_program("python3", "apt package python3")?;
    let script = context.place().join("children.py");
    let text = include_str!("../../inputs/children.py");
    fs::write(&script, text).during(|| format!("write {}", script.display()))?;
    Ok(Job::new(python).arg(script).args(arguments))
}

/// CPU time of a process in ticks.
fn ticks(pid: u32) -> Outcome<u64> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read_to_string(&path).during(|| format!("read {path}"))?;
    let behind_name = text.rsplit(") ").next().unwrap_or_default();
    let fields = behind_name.split(' ').skip(11).take(2);
    Ok(fields.filter_map(|field| field.parse::<u64>().ok()).sum())
}

fn said(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Waits until vswap says that it is short of something, and checks how much CPU time it uses while it waits.
fn must_rest(context: &Context, running: &Running, shortage: &str) -> Outcome {
    running.until("vswap to be short of something", || {
        Ok(said(running.stderr()).contains(shortage).then_some(()))
    })?;
    thread::sleep(Duration::from_millis(500));
    let before = ticks(running.pid())?;
    thread::sleep(WATCHED);
    let took = ticks(running.pid())? - before;
    context.say(format!("vswap took {took} ticks in {WATCHED:?}"));
    ensure!(took <= TICKS_MAX, "vswap took {took} ticks in {WATCHED:?}");
    Ok(())
}

fn must_be_right(ended: &Ended) -> Outcome {
    ended.must_succeed()?;
    ended.must_leave_nothing()?;
    let text = said(&ended.stdout);
    ensure!(
        text.ends_with("parent right, 0 children failed\n"),
        "the program said {text}"
    );
    let pages_out = ended.figure("pages_out")?;
    ensure!(pages_out > 2000, "only {pages_out} pages were moved out");
    Ok(())
}

/// Descriptors suffice only for some of the children at a time, so forks wait until others have ended.
pub fn few_descriptors(context: &Context) -> Outcome {
    require_program("prlimit", "apt package util-linux")?;
    let script = "exec /usr/bin/prlimit --nofile=96:96";
    let launcher = group::launcher(context, LIMIT_BYTES, script)?;
    let running = launcher.start(&job(context, ["48", "36", "32", "8", "5"])?)?;
    must_rest(context, &running, "no descriptors are left")?;
    must_be_right(&running.wait()?)
}

/// Threads suffice only for some of the children at a time. The others wait, or run without swap of their own.
pub fn few_threads(context: &Context) -> Outcome {
    let group = Group::make("pids")?;
    let path = group.file("pids.max");
    fs::write(&path, "60").during(|| format!("write {}", path.display()))?;
    let launcher = group::launcher(context, LIMIT_BYTES, &group.enter())?;
    let running = launcher.start(&job(context, ["48", "60", "32", "8", "1"])?)?;
    let ended = running.wait()?;
    ended.must_succeed()?;
    ended.must_leave_nothing()?;
    let text = said(&ended.stdout);
    // A child without a thread for its agent cannot live, and the parent sees that.
    ensure!(text.contains("parent right,"), "the program said {text}");
    context.say(text.lines().last().unwrap_or_default());
    Ok(())
}
