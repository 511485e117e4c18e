//! Runs the tests of a suite one after the other, limits their time, counts skips and cleans up after each.
//!
//! `libtest-mimic` gives the usual command line (`--list`, filters, `--skip`). Unlike `#[test]`, it has tests that say
//! at run time that they were skipped and why. Only one test runs at a time: the tests measure memory and time, and two
//! programs of this size at once would measure each other.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use rustix::process::{Signal, WaitOptions};

use crate::launch::signal_pid;
use crate::{Context, Failure, Outcome, procfs};

/// How long after its time limit a test is ended if it waits at a place that does not check the limit.
const WATCHDOG_GRACE: Duration = Duration::from_secs(10);
/// Killed processes must be gone within this time.
const CLEAN_WITHIN: Duration = Duration::from_secs(10);

/// A limit is held by reacting within milliseconds. If the whole machine stands still for longer, as shared machines
/// do, the run shows too much memory for a moment. Only a test that fails for this reason is tried this many times.
const LIMIT_TRIES: u32 = 3;

/// A test that takes longer says so, because it is the first to be looked at when continuous integration is too slow.
const SAID_FROM: Duration = Duration::from_secs(5);

/// How the directories of tests begin. The pid of the test process follows.
const PLACE_PREFIX: &str = "vswap-e2e-";

/// Set when the test process was started again to get rid of inherited signal dispositions. It does that only once.
const RESTARTED: &str = "VSWAP_E2E_RESTARTED";

/// Signals 32 and 33. No program can change them, because the C library keeps them for itself.
const OF_THE_C_LIBRARY: u64 = 0x1_8000_0000;

/// Tests that could not run here. Those that are left out because they take long do not count.
static SKIPPED: AtomicU32 = AtomicU32::new(0);

/// One test of a suite.
#[derive(Debug, Clone, Copy)]
pub struct Test {
    /// Its name, for filters.
    pub name: &'static str,
    /// Seconds that the test may take in all, including its native run.
    pub bound_s: u64,
    /// The test itself.
    pub body: fn(&Context) -> Outcome,
    /// It takes long, and others of its kind are shorter. It runs only with `--include-ignored` or `--ignored`.
    pub is_long: bool,
}

impl Test {
    /// A test with this name that may take this many seconds.
    pub const fn new(name: &'static str, bound_s: u64, body: fn(&Context) -> Outcome) -> Test {
        Test {
            name,
            bound_s,
            body,
            is_long: false,
        }
    }

    /// The same test, left out of runs that should be short.
    pub const fn long(self) -> Test {
        Test {
            is_long: true,
            ..self
        }
    }
}

/// Runs a suite. This is the `main` of each test binary.
pub fn run_suite(tests: &[Test]) -> ExitCode {
    if let Err(error) = start_undisturbed() {
        eprintln!("cannot give the tests signal dispositions of their own: {error}");
        return ExitCode::FAILURE;
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    // Orphans of a run come to this process instead of to init, so that they are seen and killed.
    if let Err(error) = rustix::process::set_child_subreaper(Some(rustix::process::getpid())) {
        eprintln!("cannot become the reaper of the tests' processes: {error}");
        return ExitCode::FAILURE;
    }
    sweep_places();
    let trials = tests.iter().copied().map(|test| {
        Trial::ignorable_test(test.name, move || run(test)).with_ignored_flag(test.is_long)
    });
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    println!("SKIPPED: {}", SKIPPED.load(Ordering::Relaxed));
    conclusion.exit_code()
}

/// Starts this program again with every signal at its default, if it has inherited ignored signals. nohup and shells
/// that start background jobs leave some, and everything that the tests start would ignore them too.
fn start_undisturbed() -> std::io::Result<()> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let ignored = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .ok_or_else(|| std::io::Error::other("/proc/self/status has no readable line SigIgn"))?;
    // Rust's runtime ignores SIGPIPE here and undoes that in the processes that it starts.
    let inherited = ignored & !(1 << (Signal::PIPE.as_raw() - 1)) & !OF_THE_C_LIBRARY;
    if inherited == 0 {
        return Ok(());
    }
    if std::env::var_os(RESTARTED).is_some() {
        let what = format!("signals {inherited:#x} are still ignored after env --default-signal");
        return Err(std::io::Error::other(what));
    }
    Err(Command::new("/usr/bin/env")
        .arg("--default-signal")
        .arg(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(RESTARTED, "1")
        .exec())
}

/// Removes the directories of test processes that were killed and could not do it themselves.
fn sweep_places() {
    let entries = std::fs::read_dir(std::env::temp_dir())
        .into_iter()
        .flatten()
        .flatten();
    for entry in entries {
        let name = entry.file_name();
        let rest = name
            .to_str()
            .and_then(|name| name.strip_prefix(PLACE_PREFIX));
        let pid = rest.and_then(|rest| rest.split_once('-')?.0.parse().ok());
        if pid.is_some_and(|pid| procfs::stat(pid).is_none()) {
            // A directory that cannot be removed belongs to somebody else.
            let _removed = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// One try: gives the test its own directory and time, and leaves nothing of it.
fn attempt(test: &Test) -> Outcome {
    let bound = Duration::from_secs(test.bound_s);
    let prefix = format!("{PLACE_PREFIX}{}-{}-", std::process::id(), test.name);
    let context = Context::new(&prefix, bound)?;
    let outcome = watched(bound, || (test.body)(&context));
    let cleaned = kill_descendants();
    drop(context);
    outcome.and(cleaned)
}

fn run(test: Test) -> Result<Completion, Failed> {
    let since = Instant::now();
    let mut outcome = attempt(&test);
    for _ in 1..LIMIT_TRIES {
        let Err(failure @ Failure::Limit(_)) = &outcome else {
            break;
        };
        println!("    {failure}; once more");
        outcome = attempt(&test);
    }
    if since.elapsed() >= SAID_FROM {
        println!("    {:.0} s", since.elapsed().as_secs_f64());
    }
    match outcome {
        Ok(()) => Ok(Completion::Completed),
        Err(skip @ Failure::Skip(_)) => {
            let text = skip.to_string();
            if std::env::var_os("VSWAP_E2E_NO_SKIP").is_some_and(|value| value == "1") {
                return Err(format!("{text} (and VSWAP_E2E_NO_SKIP=1 allows none)").into());
            }
            println!("{text}");
            SKIPPED.fetch_add(1, Ordering::Relaxed);
            Ok(Completion::ignored_with(text))
        }
        Err(failure) => {
            // The harness prints failures only at its end, which may be ten minutes away.
            println!("    {failure}");
            Err(failure.to_string().into())
        }
    }
}

/// Runs the body, turns a panic into a failure, and kills everything that the body started when its time is over.
fn watched(bound: Duration, body: impl FnOnce() -> Outcome) -> Outcome {
    let (done, waiting) = mpsc::channel::<()>();
    let watchdog = thread::spawn(move || {
        if waiting.recv_timeout(bound + WATCHDOG_GRACE) == Err(RecvTimeoutError::Timeout) {
            eprintln!("the time of the test is over: killing what it started");
            let _left = kill_descendants();
        }
    });
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
    drop(done);
    let _ended = watchdog.join();
    outcome.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
        Err(Failure::wrong(format!(
            "the test panicked: {}",
            text.unwrap_or_default()
        )))
    })
}

/// Kills all descendants of this process by pid, and waits until they are gone.
fn kill_descendants() -> Outcome {
    let own = std::process::id();
    let until = Instant::now() + CLEAN_WITHIN;
    loop {
        let left = procfs::living_descendants(own);
        for &pid in &left {
            // The process may have ended since it was listed.
            let _gone = signal_pid(pid, Signal::KILL);
        }
        while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() > until {
            let list: Vec<String> = left.into_iter().map(procfs::describe).collect();
            return Err(Failure::wrong(format!(
                "these processes survive SIGKILL: {}",
                list.join(", ")
            )));
        }
        thread::sleep(Duration::from_millis(10));
    }
}
