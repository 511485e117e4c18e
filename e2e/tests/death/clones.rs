//! Children that no fork hook sees: of a bare clone, of `syscall`, of `_Fork`, of `clone`. When vswap is killed, they
//! must be gone soon and must not read one word that they did not write, whether they have an agent or not.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use vswap_e2e::compile::{GCC, compile};
use vswap_e2e::ended::nothing_left;
use vswap_e2e::launch::signal_pid;
use vswap_e2e::{Context, Job, MIB, Outcome, ensure, procfs};

const LIMIT_BYTES: u64 = 64 * MIB;
/// Nearly three times the limit.
const PROGRAM_MIB: u64 = 160;
/// After vswap is killed, all of them must be gone within this time.
const GONE_WITHIN: Duration = Duration::from_secs(5);

/// The ways to make a child, and whether the child gets an agent.
const WAYS: [(&str, bool); 5] = [
    ("bare", false),
    ("syscall", true),
    ("syscall3", true),
    ("_Fork", true),
    ("clone", true),
];

pub fn vswap_killed(context: &Context) -> Outcome {
    let program = clones(context)?;
    for (way, has_agent) in WAYS {
        let log = context.place().join(format!("{way}.log"));
        let launcher = context.limited(LIMIT_BYTES)?;
        let job = Job::new(&program)
            .arg(&log)
            .arg(PROGRAM_MIB.to_string())
            .arg(way);
        let running = launcher.start(&job.own_group())?;
        // In the child's first pass most of its memory is still in swap.
        running.until("the child to begin", || {
            Ok(read(&log).contains("begins child").then_some(()))
        })?;
        let parent = running.program_pid()?;
        let all = procfs::living_descendants(running.pid());
        let is_child = |pid: &&u32| procfs::stat(**pid).is_some_and(|stat| stat.parent == parent);
        let child = all.iter().find(is_child).copied();
        let threads = child.map_or(0, threads);
        ensure!(
            threads == if has_agent { 2 } else { 1 },
            "a child of {way} has {threads} threads"
        );
        running.signal(Signal::KILL)?;
        let killed = Instant::now();
        running.wait()?.must_be_ended_by(Signal::KILL)?;
        while all.iter().any(|&pid| procfs::is_alive(pid)) {
            must_be_right(way, &log)?;
            ensure!(
                killed.elapsed() < GONE_WITHIN,
                "of {way} {:?} live on after {GONE_WITHIN:?}",
                all.iter()
                    .map(|&pid| procfs::describe(pid))
                    .collect::<Vec<_>>()
            );
            thread::sleep(Duration::from_millis(2));
        }
        context.say(format!("{way}: gone in {:?}", killed.elapsed()));
        nothing_left("the killed vswap")?;
        must_be_right(way, &log)?;
    }
    Ok(())
}

/// A run ends as its program does, also if the last process of it was a child of a bare clone. Nobody told the pager
/// which process that was, and its memory may not have been given up yet when the run ends.
pub fn program_ends(context: &Context) -> Outcome {
    let program = clones(context)?;
    let log = context.place().join("ends.log");
    let words = [PROGRAM_MIB.to_string(), "bare".to_owned()];
    let job = Job::new(&program).arg(&log).args(words).vswap_options([
        "--debug-evict-every",
        "5ms",
        "--swap",
        "none",
    ]);
    // The less of the limit is used, the less often the pager looks whether memory has gone.
    let running = context.limited(16 * LIMIT_BYTES)?.start(&job)?;
    running.until("the child to begin", || {
        Ok(read(&log).contains("begins child").then_some(()))
    })?;
    let parent = running.program_pid()?;
    let all = procfs::living_descendants(parent);
    ensure!(all.len() == 1, "the program has {} children", all.len());
    for pid in [parent, all[0]] {
        signal_pid(pid, Signal::TERM)?;
    }
    let ended = running.wait()?;
    ended.must_be_ended_by(Signal::TERM)?;
    ensure!(ended.summary.is_some(), "the run has left no summary");
    ended.must_leave_nothing()?;
    must_be_right("bare", &log)
}

fn must_be_right(way: &str, log: &Path) -> Outcome {
    let text = read(log);
    let wrong: Vec<&str> = text.lines().filter(|line| line.contains("WRONG")).collect();
    ensure!(wrong.is_empty(), "{way}: {}", wrong.join("; "));
    Ok(())
}

fn read(log: &Path) -> String {
    fs::read_to_string(log).unwrap_or_default()
}

fn threads(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count)
}

fn clones(context: &Context) -> Outcome<PathBuf> {
    compile(
        context,
        GCC,
        include_str!("../../inputs/clones.c"),
        "clones",
        &["-O2"],
    )
}
