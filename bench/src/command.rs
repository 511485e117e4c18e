//! Runs one command at a time to its end, and leaves nothing of it behind.
//!
//! The command has its own process group, as in a shell. Interrupts and time-outs end the whole group with SIGTERM, and
//! with SIGKILL if that takes too long. Call [`Supervisor::new`] before threads are made: it blocks the signals that it
//! waits for.
//!
//! Unsafe is needed here because rustix has no safe calls for signal masks, for waiting for signals, or for what a
//! child does between fork and exec.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the time-out is checked if no signal arrives.
const TICK: Duration = Duration::from_millis(100);
/// The most time from SIGTERM to the end. Freeing memory that is in swap takes a while.
const TERM_GRACE: Duration = Duration::from_secs(20);

/// A command that ended.
#[derive(Debug)]
pub struct Ended {
    /// Its status.
    pub status: ExitStatus,
    /// What it wrote to standard output.
    pub stdout: String,
    /// What it wrote to standard error.
    pub stderr: String,
    /// Wall time, in seconds.
    pub wall_s: f64,
    /// User and system time of the command and of all processes that it waited for, in seconds.
    pub cpu_s: f64,
}

/// Why there is no result.
#[derive(Debug)]
pub enum RunError {
    /// The command could not be started or waited for.
    Io(io::Error),
    /// The command was ended because this program was asked to end.
    Interrupted,
    /// The command was ended because it exceeded its time.
    TimedOut(Duration),
}

impl std::fmt::Display for RunError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(error) => write!(f, "cannot be run: {error}"),
            Self::Interrupted => write!(f, "was interrupted"),
            Self::TimedOut(after) => write!(f, "did not end within {} s", after.as_secs()),
        }
    }
}

impl std::error::Error for RunError {}

impl From<io::Error> for RunError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Owns the signals that end a run.
#[derive(Debug)]
pub struct Supervisor {
    awaited: libc::sigset_t,
    before: libc::sigset_t,
}

impl Supervisor {
    /// Blocks the awaited signals on this thread and on all threads that it makes.
    #[must_use]
    pub fn new() -> Self {
        // SAFETY: all-zero sets are empty sets. The calls change only the sets and the signal mask.
        unsafe {
            let mut awaited: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGCHLD] {
                libc::sigaddset(&raw mut awaited, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const awaited, &raw mut before);
            Self { awaited, before }
        }
    }

    /// Gives `command` its own process group and its former signal mask, and ends it if this process ends.
    pub fn prepare(&self, command: &mut Command) {
        let before = self.before;
        command.process_group(0);
        // SAFETY: the closure makes only two async-signal-safe calls.
        unsafe {
            command.pre_exec(move || {
                libc::sigprocmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
                Ok(())
            });
        }
    }

    /// Waits for a signal up to `timeout`. True if this program was asked to end.
    #[must_use]
    pub fn asked_to_end(&self, timeout: Duration) -> bool {
        let timeout = libc::timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        };
        // SAFETY: the set and the time are valid, and no information about the signal is requested.
        let signal = unsafe {
            libc::sigtimedwait(
                &raw const self.awaited,
                std::ptr::null_mut(),
                &raw const timeout,
            )
        };
        signal > 0 && signal != libc::SIGCHLD
    }

    /// Runs `command` to its end.
    ///
    /// # Errors
    /// It cannot be started, or was ended because of a signal or the time-out.
    pub fn run(&self, command: &mut Command, timeout: Duration) -> Result<Ended, RunError> {
        self.run_driven(command, None, timeout)
    }

    /// Runs `command` to its end, and beside it `driver`, which uses what the command offers and then makes it end.
    /// Times are the command's, output is that of both, and the status is the driver's if the driver failed.
    ///
    /// # Errors
    /// One of them cannot be started, or was ended because of a signal or the time-out.
    pub fn run_driven(
        &self,
        command: &mut Command,
        driver: Option<&mut Command>,
        timeout: Duration,
    ) -> Result<Ended, RunError> {
        let start = Instant::now();
        let running = self.start(command)?;
        let driver = match driver.map(|driver| self.start(driver)).transpose() {
            Ok(driver) => driver,
            Err(error) => {
                kill_group(running.pid, libc::SIGKILL);
                running.collect();
                return Err(error.into());
            }
        };
        let waited = self.wait(&running, start, timeout);
        let wall_s = start.elapsed().as_secs_f64();
        // Any process left in the group would keep the pipes open.
        kill_group(running.pid, libc::SIGKILL);
        let (stdout, stderr) = running.collect();
        let well = matches!(&waited, Ok((status, _)) if status.success());
        let driver = driver
            .map(|driver| self.end_driver(driver, well))
            .transpose();
        let (status, cpu_s) = waited?;
        let mut ended = Ended {
            status,
            stdout,
            stderr,
            wall_s,
            cpu_s,
        };
        if let Some((status, stdout, stderr)) = driver? {
            ended.stdout += &stdout;
            ended.stderr += &stderr;
            if ended.status.success() {
                ended.status = status;
            }
        }
        Ok(ended)
    }

    fn start(&self, command: &mut Command) -> io::Result<Running> {
        self.prepare(command);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn()?;
        Ok(Running {
            pid: child.id().cast_signed(),
            stdout: collect(child.stdout.take()),
            stderr: collect(child.stderr.take()),
        })
    }

    /// Waits for the processes to end, and ends them if necessary.
    fn wait(
        &self,
        running: &Running,
        start: Instant,
        timeout: Duration,
    ) -> Result<(ExitStatus, f64), RunError> {
        let pid = running.pid;
        let mut ending: Option<(RunError, Instant)> = None;
        let ended = loop {
            if let Some(ended) = reap(pid)? {
                break ended;
            }
            let asked = self.asked_to_end(TICK);
            match &ending {
                None if asked || start.elapsed() > timeout => {
                    let why = if asked {
                        RunError::Interrupted
                    } else {
                        RunError::TimedOut(timeout)
                    };
                    ending = Some((why, Instant::now()));
                    kill_group(pid, libc::SIGTERM);
                }
                Some((_, since)) if since.elapsed() > TERM_GRACE => {
                    kill_group(pid, libc::SIGKILL);
                }
                _ => {}
            }
        };
        match ending {
            Some((error, _)) => Err(error),
            None => Ok(ended),
        }
    }

    /// The driver's status and output. The driver gets a moment to end by itself, unless the command did not end
    /// `well`.
    fn end_driver(&self, driver: Running, well: bool) -> io::Result<(ExitStatus, String, String)> {
        let since = Instant::now();
        let status = loop {
            if let Some((status, _)) = reap(driver.pid)? {
                break status;
            }
            if !well || since.elapsed() > TERM_GRACE || self.asked_to_end(TICK) {
                kill_group(driver.pid, libc::SIGKILL);
            }
        };
        kill_group(driver.pid, libc::SIGKILL);
        let (stdout, stderr) = driver.collect();
        Ok((status, stdout, stderr))
    }
}

/// A running process and its output.
struct Running {
    pid: i32,
    stdout: JoinHandle<String>,
    stderr: JoinHandle<String>,
}

impl Running {
    /// All output, once the process has ended.
    fn collect(self) -> (String, String) {
        let text = |reader: JoinHandle<String>| reader.join().unwrap_or_default();
        (text(self.stdout), text(self.stderr))
    }
}

impl Default for Supervisor {
    fn default() -> Self {
        Self::new()
    }
}

/// Sends a signal to a process group.
pub fn kill_group(group: i32, signal: i32) {
    // SAFETY: the group was made for a child of this process. A group that is gone is no error.
    unsafe { libc::kill(-group, signal) };
}

/// Status and CPU seconds of a child, if it has ended.
#[expect(
    clippy::cast_precision_loss,
    reason = "seconds and microseconds of one run"
)]
fn reap(pid: i32) -> io::Result<Option<(ExitStatus, f64)>> {
    use std::os::unix::process::ExitStatusExt;
    let mut status = 0;
    // SAFETY: an all-zero rusage is valid, and both results are valid places. rustix does not have `wait4`.
    let (reaped, usage) = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        (
            libc::wait4(pid, &raw mut status, libc::WNOHANG, &raw mut usage),
            usage,
        )
    };
    match reaped {
        0 => Ok(None),
        reaped if reaped == pid => {
            let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
            let cpu_s = seconds(usage.ru_utime) + seconds(usage.ru_stime);
            Ok(Some((ExitStatus::from_raw(status), cpu_s)))
        }
        _ => Err(io::Error::last_os_error()),
    }
}

fn collect(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // After an error, what was read before is all there is to show.
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collects_output_status_and_time() {
        let supervisor = Supervisor::new();
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo err >&2; sleep 0.2; exit 3"]);
        let ended = supervisor
            .run(&mut command, Duration::from_secs(20))
            .unwrap();
        assert_eq!(
            (ended.stdout.as_str(), ended.stderr.as_str()),
            ("out\n", "err\n")
        );
        assert_eq!(ended.status.code(), Some(3));
        assert!((0.2..10.0).contains(&ended.wall_s), "{}", ended.wall_s);
    }

    #[test]
    fn a_timeout_lets_the_command_clean_up_and_takes_its_children_along() {
        let supervisor = Supervisor::new();
        let mark = std::env::temp_dir().join(format!("vswap-bench-test-{}", std::process::id()));
        let mut command = Command::new("sh");
        command
            .args([
                "-c",
                "trap 'echo cleaned > \"$0\"; exit' TERM; sleep 60 & wait",
            ])
            .arg(&mark);
        let start = Instant::now();
        let result = supervisor.run(&mut command, Duration::from_millis(300));
        assert!(matches!(result, Err(RunError::TimedOut(_))), "{result:?}");
        assert!(start.elapsed() < Duration::from_secs(20));
        assert_eq!(std::fs::read_to_string(&mark).unwrap(), "cleaned\n");
        std::fs::remove_file(&mark).unwrap();
    }

    #[test]
    fn a_driver_adds_its_output_and_its_failure() {
        let supervisor = Supervisor::new();
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        };
        let run = |driver: &str| {
            let (mut command, mut driver) = (shell("echo served; sleep 0.1"), shell(driver));
            let patience = Duration::from_secs(20);
            supervisor
                .run_driven(&mut command, Some(&mut driver), patience)
                .unwrap()
        };
        let good = run("echo asked");
        assert!(good.status.success());
        assert_eq!(good.stdout, "served\nasked\n");
        assert_eq!(run("exit 4").status.code(), Some(4));
    }
}
