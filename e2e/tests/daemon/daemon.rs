//! A daemon for a test, in its own runtime directory.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;
use vswap_e2e::failure::During;
use vswap_e2e::launch::{die_with_parent, signal_pid};
use vswap_e2e::{Context, Failure, Job, Outcome, ensure};

/// The pause between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Seconds that a command such as `vswap status` may take.
const COMMAND_BOUND_S: &str = "20";

/// A daemon, killed when dropped.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    runtime: TempDir,
    vswap: PathBuf,
    stderr: PathBuf,
    deadline: Instant,
}

impl Daemon {
    /// Starts a daemon and waits until it is ready.
    pub fn start(context: &Context, options: &[&str]) -> Outcome<Daemon> {
        // Root's runs must be in a place that other users can pass through. The path is short, so that sockets' paths
        // fit.
        let runtime = tempfile::Builder::new()
            .prefix("vd")
            .permissions(fs::Permissions::from_mode(0o755))
            .tempdir_in("/tmp")
            .during(|| "make the runtime directory".to_owned())?;
        let vswap = context.require_vswap()?;
        let stderr = context.place().join("daemon.err");
        let file = File::create(&stderr).during(|| format!("create {}", stderr.display()))?;
        let mut command = Command::new(&vswap);
        command
            .arg("daemon")
            .args(options)
            .env("XDG_RUNTIME_DIR", runtime.path())
            .current_dir(context.place())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file);
        die_with_parent(&mut command);
        let child = command.spawn().during(|| "start the daemon".to_owned())?;
        let mut daemon = Daemon {
            child,
            runtime,
            vswap,
            stderr,
            deadline: context.deadline(),
        };
        daemon.until("the daemon to be ready", |daemon| {
            Ok(daemon.said().contains("ready").then_some(()))
        })?;
        let dirs = daemon.dirs_with("daemon-");
        ensure!(dirs.len() == 1, "the daemon has the directories {dirs:?}");
        Ok(daemon)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its runtime directory.
    pub fn runtime(&self) -> &Path {
        self.runtime.path()
    }

    /// Its output so far.
    pub fn said(&self) -> String {
        fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    /// The same job with the environment in which `vswap run` finds the daemon.
    pub fn job(&self, job: Job) -> Job {
        job.env("XDG_RUNTIME_DIR", self.runtime())
    }

    /// Runs a vswap command that finds the daemon.
    pub fn vswap(&self, args: &[&str]) -> Outcome<Output> {
        Command::new("/usr/bin/timeout")
            .arg(COMMAND_BOUND_S)
            .arg(&self.vswap)
            .args(args)
            .env("XDG_RUNTIME_DIR", self.runtime())
            .stdin(Stdio::null())
            .output()
            .during(|| format!("run vswap {}", args.join(" ")))
    }

    /// The report of this process, which is a run or daemon. `None` if it does not answer.
    pub fn report_of(&self, pid: u32) -> Outcome<Option<Value>> {
        let output = self.vswap(&["status", "--json"])?;
        let all: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let is_it = |report: &Value| report["pid"] == pid && report["error"].is_null();
        Ok(all.into_iter().find(is_it))
    }

    /// The daemon's own report.
    pub fn report(&mut self) -> Outcome<Value> {
        self.until("the daemon to answer", |daemon| {
            daemon.report_of(daemon.pid())
        })
    }

    /// Waits until the daemon has nothing of any run, and checks that no directory of a run is left.
    pub fn until_empty(&mut self) -> Outcome {
        let mut last = Value::Null;
        let empty = self.until("the daemon to be empty", |daemon| {
            let report = daemon.report()?;
            let names = [
                "swapped_pages",
                "pool_bytes",
                "payload_bytes",
                "physical_pages",
            ];
            let holds_nothing = names.iter().all(|name| report[name] == 0);
            let groups = report["groups"].as_array().map_or(0, Vec::len);
            let is_alone = report["runs"] == Value::Array(Vec::new()) && groups == 1;
            last = report;
            Ok((holds_nothing && is_alone).then_some(()))
        });
        empty.map_err(|error| Failure::wrong(format!("{error}; it says {last}")))?;
        let dirs = self.run_dirs();
        ensure!(dirs.is_empty(), "directories of runs are left: {dirs:?}");
        Ok(())
    }

    /// Directories of runs.
    pub fn run_dirs(&self) -> Vec<PathBuf> {
        self.dirs_with("run-")
    }

    /// Entries of the user's directory whose names begin with `prefix`.
    pub fn dirs_with(&self, prefix: &str) -> Vec<PathBuf> {
        let inner = fs::read_dir(self.runtime().join("vswap-0"));
        let names = inner.into_iter().flatten().flatten();
        let found = names.filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
        found.map(|entry| entry.path()).collect()
    }

    pub fn signal(&self, signal: Signal) -> Outcome {
        signal_pid(self.pid(), signal)
    }

    /// Waits for the daemon to end.
    pub fn wait(&mut self) -> Outcome<ExitStatus> {
        self.until_ended("the daemon to end", |daemon| {
            daemon
                .child
                .try_wait()
                .during(|| "wait for the daemon".to_owned())
        })
    }

    /// Asks again and again until there is an answer, the daemon ends or the time of the test is over.
    pub fn until<T>(
        &mut self,
        what: &str,
        mut ready: impl FnMut(&mut Daemon) -> Outcome<Option<T>>,
    ) -> Outcome<T> {
        self.until_ended(what, |daemon| {
            let ended = daemon
                .child
                .try_wait()
                .during(|| "look at the daemon".to_owned())?;
            let said = daemon.said();
            ensure!(ended.is_none(), "the daemon ended before {what}: {said}");
            ready(daemon)
        })
    }

    fn until_ended<T>(
        &mut self,
        what: &str,
        mut ready: impl FnMut(&mut Daemon) -> Outcome<Option<T>>,
    ) -> Outcome<T> {
        loop {
            if let Some(answer) = ready(self)? {
                return Ok(answer);
            }
            let said = self.said();
            ensure!(
                Instant::now() < self.deadline,
                "no time left to wait for {what}: {said}"
            );
            thread::sleep(LOOK_EVERY);
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // The daemon may have ended.
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }
}
