//! Runs a job natively or under `vswap run`, watches it, waits for it within the test's time, and checks what must hold
//! for every run: the limit, that it swapped, and that nothing is left behind.
//!
//! Runs are started only from the main thread: the kernel ties "kill when the parent dies" to the thread that forked.

use std::cell::{Cell, RefCell};
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::failure::During;

use crate::need::require_user;
use crate::sampler::Sampler;

use crate::ended::{Ended, last_words};
use crate::{Failure, Job, Outcome, ensure, procfs};

/// The pause between two looks at a process that is waited for.
const WAIT_EVERY: Duration = Duration::from_millis(3);
/// How a launcher runs its jobs.
#[derive(Debug, Clone)]
pub enum How {
    /// Natively.
    Native,
    /// Under this vswap with this limit in bytes.
    Limited {
        /// The vswap binary.
        vswap: PathBuf,
        /// `--ram`.
        limit_bytes: u64,
    },
}

/// Runs jobs in one way, in one directory, until a deadline.
#[derive(Debug)]
pub struct Launcher {
    how: How,
    place: PathBuf,
    deadline: Instant,
    is_plain_user: bool,
    started: Cell<usize>,
    ended: RefCell<Vec<Ended>>,
}

/// A running job, killed when dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    waited: bool,
    sampler: Option<Sampler>,
    began: Instant,
    deadline: Instant,
    name: String,
    limit_bytes: Option<u64>,
    stdout: PathBuf,
    stderr: PathBuf,
    summary: PathBuf,
}

impl Launcher {
    /// A launcher that makes its files in `place`. A plain user has no capability, see `Context::be_a_plain_user`.
    pub fn new(how: How, place: &Path, deadline: Instant, is_plain_user: bool) -> Launcher {
        let place = place.to_owned();
        Launcher {
            how,
            place,
            deadline,
            is_plain_user,
            started: Cell::new(0),
            ended: RefCell::new(Vec::new()),
        }
    }

    /// The directory for the files of these runs.
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// True when jobs run under vswap.
    pub fn is_limited(&self) -> bool {
        matches!(self.how, How::Limited { .. })
    }

    /// Time that the test has left.
    pub fn time_left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// The runs so far that ended through [`Launcher::finish`].
    pub fn ended(&self) -> Vec<Ended> {
        self.ended.borrow().clone()
    }

    /// Starts a job and the sampler.
    pub fn start(&self, job: &Job) -> Outcome<Running> {
        let number = self.started.replace(self.started.get() + 1);
        let file = |kind: &str| self.place.join(format!("{kind}-{number}"));
        let (stdout, stderr, summary) = (file("stdout"), file("stderr"), file("summary"));
        let (words, limit_bytes) = self.words(job, &summary)?;
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .env("TMPDIR", &self.place)
            .envs(job.env.iter().cloned());
        command.current_dir(job.cwd.as_deref().unwrap_or(&self.place));
        command.stdin(match &job.stdin {
            Some(path) => File::open(path)
                .during(|| format!("open {}", path.display()))?
                .into(),
            None => Stdio::null(),
        });
        command.stdout(File::create(&stdout).during(|| format!("create {}", stdout.display()))?);
        command.stderr(File::create(&stderr).during(|| format!("create {}", stderr.display()))?);
        if job.own_group {
            command.process_group(0);
        }
        die_with_parent(&mut command);
        let child = command
            .spawn()
            .during(|| format!("start {}", words[0].display()))?;
        Ok(Running {
            sampler: Some(Sampler::start(child.id(), limit_bytes.is_some())),
            child,
            waited: false,
            began: Instant::now(),
            deadline: self.deadline,
            name: job.program.display().to_string(),
            limit_bytes,
            stdout,
            stderr,
            summary,
        })
    }

    fn words(&self, job: &Job, summary: &Path) -> Outcome<(Vec<OsString>, Option<u64>)> {
        let mut words: Vec<OsString> = Vec::new();
        let nobody = self.is_plain_user.then_some("nobody");
        if let Some(user) = job.user.as_deref().or(nobody) {
            let owner = require_user(user, "the package that makes it")?;
            std::os::unix::fs::chown(&self.place, Some(owner.uid), Some(owner.gid))
                .during(|| format!("give {} to {user}", self.place.display()))?;
            words.extend(["/usr/bin/unshare", "--mount", "/bin/sh"].map(Into::into));
            words.push(concat!(env!("CARGO_MANIFEST_DIR"), "/inputs/open_device.sh").into());
            words.push("/usr/bin/setpriv".into());
            words.extend(
                [
                    format!("--reuid={}", owner.uid),
                    format!("--regid={}", owner.gid),
                ]
                .map(Into::into),
            );
            words.extend(
                ["--clear-groups", "--inh-caps=-all", "--bounding-set=-all"].map(Into::into),
            );
        }
        let mut limit = None;
        if let How::Limited { vswap, limit_bytes } = &self.how {
            words.push(self.vswap_for(job, vswap)?.into());
            words.extend(["run", "--ram"].map(Into::into));
            words.push(format!("{}M", limit_bytes / crate::MIB).into());
            words.extend(["--summary".into(), summary.into()]);
            words.extend(job.vswap_options.iter().cloned());
            words.push("--".into());
            limit = Some(*limit_bytes);
        }
        words.push(job.program.clone().into());
        words.extend(job.args.iter().cloned());
        Ok((words, limit))
    }

    /// A path of the binary that this job's user can reach. The build directory may be closed to others.
    fn vswap_for(&self, job: &Job, vswap: &Path) -> Outcome<PathBuf> {
        if job.user.is_none() && !self.is_plain_user {
            return Ok(vswap.to_owned());
        }
        let copy = self.place.join("vswap");
        if !copy.exists() {
            fs::copy(vswap, &copy).during(|| format!("copy {}", vswap.display()))?;
        }
        Ok(copy)
    }

    /// Starts a job, waits for it to succeed, and checks what must hold for every run.
    pub fn run(&self, job: &Job) -> Outcome<Ended> {
        self.finish(self.start(job)?)
    }

    /// Waits for a run to succeed, and checks what must hold for every run.
    pub fn finish(&self, running: Running) -> Outcome<Ended> {
        let ended = running.wait()?;
        ended.must_succeed()?;
        ended.must_leave_nothing()?;
        ended.must_hold_limit()?;
        self.ended.borrow_mut().push(ended.clone());
        Ok(ended)
    }
}

/// If the test is killed, its programs must die too.
pub fn die_with_parent(command: &mut Command) {
    let ask = || {
        let kill = Some(Signal::KILL);
        rustix::process::set_parent_process_death_signal(kill).map_err(Into::into)
    };
    // SAFETY: between fork and exec the closure makes one system call and neither allocates nor takes a lock. Only
    // `pre_exec`, which is unsafe, runs code in the child.
    unsafe { command.pre_exec(ask) };
}

/// The names of vswap's own processes.
const NAMES: [&str; 2] = ["vswap", "vswap-guard"];

impl Running {
    /// The process that the test started: vswap, or the program itself in a native run.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The first process of the program, once it exists. vswap has another child, its guardian. Both are named like
    /// vswap until they have become what they are.
    pub fn program_pid(&self) -> Outcome<u32> {
        if self.limit_bytes.is_none() {
            return Ok(self.pid());
        }
        // One look at the name: the guardian gets its own in between two.
        let is_program =
            |pid| procfs::name(pid).is_some_and(|name| !NAMES.contains(&name.as_str()));
        self.until("the program to start", || {
            let children = procfs::living_descendants(self.pid());
            Ok(children
                .into_iter()
                .filter(|&pid| procfs::stat(pid).is_some_and(|s| s.parent == self.pid()))
                .find(|&pid| is_program(pid)))
        })
    }

    /// Asks again and again until `ready` has an answer, the run ends or the time is over.
    pub fn until<T>(
        &self,
        what: &str,
        mut ready: impl FnMut() -> Outcome<Option<T>>,
    ) -> Outcome<T> {
        loop {
            if let Some(answer) = ready()? {
                return Ok(answer);
            }
            let words = || last_words(&self.stderr);
            ensure!(
                procfs::is_alive(self.pid()),
                "{} ended before {what}: {}",
                self.name,
                words()
            );
            ensure!(
                Instant::now() < self.deadline,
                "no time left to wait for {what}: {}",
                words()
            );
            thread::sleep(WAIT_EVERY);
        }
    }

    /// The file that takes standard output.
    pub fn stdout(&self) -> &Path {
        &self.stdout
    }

    /// The file that takes standard error.
    pub fn stderr(&self) -> &Path {
        &self.stderr
    }

    /// Sends a signal to the process that the test started.
    pub fn signal(&self, signal: Signal) -> Outcome {
        signal_pid(self.pid(), signal)
    }

    /// Waits for any end. If the time is over, the run is ended and counts as failed.
    pub fn wait(mut self) -> Outcome<Ended> {
        let status = loop {
            let status = self
                .child
                .try_wait()
                .during(|| format!("wait for {}", self.name))?;
            if let Some(status) = status {
                self.waited = true;
                break status;
            }
            let name = &self.name;
            ensure!(
                Instant::now() < self.deadline,
                "{name} had not ended when the time of the test was over, after {:?}: {}",
                self.began.elapsed(),
                last_words(&self.stderr)
            );
            thread::sleep(WAIT_EVERY);
        };
        let peak = self.sampler.take().map(Sampler::finish).unwrap_or_default();
        let text = fs::read(&self.summary).ok();
        Ok(Ended {
            name: self.name.clone(),
            pid: self.pid(),
            status,
            took: self.began.elapsed(),
            peak,
            stdout: self.stdout.clone(),
            stderr: self.stderr.clone(),
            limit_bytes: self.limit_bytes,
            summary: text.and_then(|text| serde_json::from_slice(&text).ok()),
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.waited {
            return;
        }
        for pid in procfs::living_descendants(self.pid())
            .into_iter()
            .chain([self.pid()])
        {
            // It is fine if the process is gone already.
            let _gone = signal_pid(pid, Signal::KILL);
        }
        let _status = self.child.wait();
    }
}

/// Sends a signal to one process.
pub fn signal_pid(pid: u32, signal: Signal) -> Outcome {
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = raw.ok_or_else(|| Failure::wrong(format!("{pid} is no process id")))?;
    rustix::process::kill_process(pid, signal).during(|| format!("signal {signal:?} to {pid:?}"))
}
