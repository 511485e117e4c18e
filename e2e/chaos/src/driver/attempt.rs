//! Runs one plan in one way: natively or under vswap, watched, with a fault meanwhile. Then looks at what is left.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use vswap_drive::patience::Patience;
use vswap_drive::{processes, threads};

use crate::driver::companion::Companion;
use crate::driver::faults::{Fault, Injector};
use crate::driver::watch;
use crate::plan::Plan;
use crate::program::log::{DONE, Log, Wrong};

const POLL: Duration = Duration::from_millis(4);
/// Everything that a run leaves must be gone by itself within this time.
const GONE_WITHIN: Duration = Duration::from_secs(10);

/// How a plan is run.
#[derive(Clone, Debug)]
pub(crate) enum Way {
    Native,
    Under {
        vswap: PathBuf,
        options: Vec<String>,
        fault: Fault,
        /// vswap comes while the program runs, and goes perhaps, as this seed says.
        late: Option<u64>,
    },
}

/// The final content of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) done: bool,
    pub(crate) result: i64,
    pub(crate) errno: u32,
    pub(crate) layout: u64,
}

/// The result of an attempt.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) status: Option<ExitStatus>,
    /// What the program itself has found wrong: a kind, and a text for people.
    pub(crate) finding: Option<(String, String)>,
    /// What the watchdog saw before it ended the run.
    pub(crate) hang: Option<String>,
    /// What was wrong with a vswap that came late.
    pub(crate) beside: Option<String>,
    pub(crate) left: Option<String>,
    pub(crate) said: Vec<Said>,
    /// The end of standard error.
    pub(crate) errors: String,
}

/// Where runs have their files, and how long they may show no progress.
#[derive(Clone, Debug)]
pub(crate) struct Bench {
    pub(crate) place: PathBuf,
    /// The runs' XDG_RUNTIME_DIR.
    pub(crate) run_dir: PathBuf,
    pub(crate) patience: Duration,
    /// Is there a daemon in the directory of runs?
    pub(crate) has_daemon: bool,
    /// The program starts with an empty environment, so its agent is attached from outside.
    pub(crate) is_attached: bool,
    /// vswap keeps the capabilities of whoever runs chaos.
    pub(crate) has_capability: bool,
}

/// Runs a command without CAP_SYS_PTRACE.
const WITHOUT_CAPABILITY: [&str; 3] = [
    "setpriv",
    "--bounding-set=-sys_ptrace",
    "--inh-caps=-sys_ptrace",
];

impl Bench {
    /// Runs the plan.
    ///
    /// # Errors
    /// The run could not be started at all.
    pub(crate) fn run(&self, plan: &Plan, way: &Way) -> Result<Outcome, String> {
        let cannot = |what: &str, error: &dyn std::fmt::Display| format!("cannot {what}: {error}");
        if !self.has_daemon {
            let _absent = fs::remove_dir_all(&self.run_dir);
        }
        fs::create_dir_all(&self.run_dir).map_err(|error| cannot("make a directory", &error))?;
        let (plan_file, log_file) = (self.place.join("plan"), self.place.join("log"));
        let _absent = fs::remove_file(&log_file);
        fs::write(&plan_file, plan.text()).map_err(|error| cannot("write the plan", &error))?;
        let log = Log::open(&log_file, plan.lines.len())
            .map_err(|error| cannot("make the log", &error))?;
        let errors = self.place.join("stderr");
        let mut command = self.command(way, &plan_file, &log_file)?;
        command
            .current_dir(&self.place)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&errors).map_err(|error| cannot("make a file", &error))?);
        processes::die_with_parent(&mut command);
        let child = command
            .spawn()
            .map_err(|error| cannot("start the run", &error))?;
        let mut outcome = self.wait(child, way, plan, log)?;
        if outcome.finding.is_some() {
            // A process that has found something wrong ends without waiting for its children.
            processes::kill_below(std::process::id());
        }
        if let Way::Under { vswap, fault, .. } = way
            && fault.may_end_the_run()
        {
            // The guardian keeps the directory until all processes are gone.
            wait_for_ends();
            sweep(vswap, &self.run_dir);
        }
        outcome.left = left_over(&self.run_dir, self.has_daemon);
        log.close(plan.lines.len());
        let text = fs::read(&errors).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let tail: Vec<&str> = text.lines().rev().take(5).collect();
        outcome.errors = tail.into_iter().rev().collect::<Vec<_>>().join("\n");
        Ok(outcome)
    }

    fn command(&self, way: &Way, plan: &Path, log: &Path) -> Result<Command, String> {
        let own =
            std::env::current_exe().map_err(|error| format!("cannot find myself: {error}"))?;
        let mut command = match way {
            Way::Native | Way::Under { late: Some(_), .. } => Command::new(own),
            Way::Under { vswap, options, .. } => {
                let mut command = self.vswap(vswap);
                command.arg("run").args(options);
                if !self.has_daemon {
                    // Nor somebody else's.
                    command.arg("--no-daemon");
                }
                command.arg("--");
                if self.is_attached {
                    command.args(["/usr/bin/env", "-i"]);
                }
                command.arg(own);
                command
            }
        };
        command.arg("program").arg(plan).arg("--log").arg(log);
        if matches!(way, Way::Native) {
            command.arg("--fast");
        }
        command.env("XDG_RUNTIME_DIR", &self.run_dir);
        // A process that prints a backtrace when it gets no memory may hang in it. vswap must not.
        command.env("RUST_BACKTRACE", "1");
        Ok(command)
    }

    fn vswap(&self, vswap: &Path) -> Command {
        if self.has_capability {
            return Command::new(vswap);
        }
        let [setpriv, options @ ..] = WITHOUT_CAPABILITY;
        let mut command = Command::new(setpriv);
        command.args(options).arg(vswap);
        command
    }

    fn wait(&self, mut child: Child, way: &Way, plan: &Plan, log: Log) -> Result<Outcome, String> {
        let (mut injector, mut companion) = (None, None);
        match way {
            Way::Native => {}
            Way::Under {
                vswap,
                options,
                late: Some(seed),
                ..
            } => {
                let vswap = self.vswap(vswap);
                companion = Some(Companion::new(*seed, vswap, options, self)?);
            }
            Way::Under { vswap, fault, .. } => {
                injector = Some(Injector::new(*fault, plan, vswap, self));
            }
        }
        let (mut seen, mut patience) = (0, Patience::new(self.patience));
        let mut hang = None;
        let status = loop {
            let ended = child
                .try_wait()
                .map_err(|error| format!("cannot wait: {error}"))?;
            if let Some(status) = ended {
                break Some(status);
            }
            let now = progress(&log);
            if now != seen {
                seen = now;
                patience.renew();
            }
            if patience.is_over() {
                hang = Some(watch::report(plan, &log));
                processes::kill_below(std::process::id());
                let _killed = child.wait();
                break None;
            }
            if let Some(injector) = &mut injector {
                injector.act(child.id());
            }
            if let Some(companion) = &mut companion {
                companion.act(child.id());
            }
            thread::sleep(POLL);
        };
        if let Some(injector) = injector {
            injector.finish();
        }
        Ok(Outcome {
            status,
            finding: finding(&log, plan),
            hang,
            beside: companion.and_then(Companion::finish),
            left: None,
            said: said(&log),
            errors: String::new(),
        })
    }
}

/// A number that grows as long as the run makes progress.
fn progress(log: &Log) -> u64 {
    log.records()
        .iter()
        .map(|record| {
            let state = u64::from(record.state.load(Ordering::Relaxed));
            state + record.beats.load(Ordering::Relaxed)
        })
        .sum()
}

fn said(log: &Log) -> Vec<Said> {
    let of = |record: &crate::program::log::Record| Said {
        done: record.state.load(Ordering::SeqCst) == DONE,
        result: record.result.load(Ordering::SeqCst),
        errno: record.errno.load(Ordering::SeqCst),
        layout: record.layout.load(Ordering::SeqCst),
    };
    log.records().iter().map(of).collect()
}

/// The kind of the finding, and a sentence about it.
fn finding(log: &Log, plan: &Plan) -> Option<(String, String)> {
    let finding = log.finding();
    let what = finding.what.load(Ordering::SeqCst);
    if finding.claimed.load(Ordering::SeqCst) == 0 {
        return None;
    }
    let line = finding.line.load(Ordering::SeqCst) as usize;
    let step = plan.lines.get(line).map_or_else(
        || "in no step that can be named".to_owned(),
        |line| format!("actor {} {:?}", line.actor, line.step),
    );
    let address = finding.address.load(Ordering::SeqCst);
    let (expected, found) = (
        finding.expected.load(Ordering::SeqCst),
        finding.found.load(Ordering::SeqCst),
    );
    let name = Wrong::name(what);
    let text = format!(
        "{name} at {address:#x} in process {}: expected {expected:#x}, found {found:#x}; line {}: {step}",
        finding.pid.load(Ordering::SeqCst),
        line + 2,
    );
    Some((name.to_owned(), text))
}

/// A vswap that was killed cannot remove its directory. The next command must do it.
fn sweep(vswap: &Path, run_dir: &Path) {
    let mut command = Command::new(vswap);
    command.arg("status").env("XDG_RUNTIME_DIR", run_dir);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // What the command fails to do is found next.
    let _status = command.status();
}

/// Waits until no process lives below this one, or the time is over.
fn wait_for_ends() {
    let until = Instant::now() + GONE_WITHIN;
    while Instant::now() < until {
        processes::reap();
        if processes::below(std::process::id()).is_empty() {
            return;
        }
        thread::sleep(POLL);
    }
}

/// Processes and files that the run has left behind, after it had time to remove them.
fn left_over(run_dir: &Path, has_daemon: bool) -> Option<String> {
    let until = Instant::now() + GONE_WITHIN;
    loop {
        processes::reap();
        let living = processes::below(std::process::id());
        let files: Vec<String> = fs::read_dir(run_dir)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|_| !has_daemon)
            .collect();
        if living.is_empty() && files.is_empty() {
            return None;
        }
        if Instant::now() > until {
            let names: Vec<String> = living.iter().map(|pid| threads::name(*pid)).collect();
            processes::kill_below(std::process::id());
            return Some(format!("left behind: processes {names:?}, files {files:?}"));
        }
        thread::sleep(POLL);
    }
}
