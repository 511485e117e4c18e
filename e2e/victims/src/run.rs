//! Options of all victims, their clock, their threads and their children.

use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use crate::content::{PAGE_BYTES, Random, mix};
use crate::wrong::{Checked, Wrong, call};

/// Exit status of a victim or child that found something wrong.
pub(crate) const EXIT_WRONG: i32 = 1;
/// Exit status if the machine does not permit what the victim tests.
pub(crate) const EXIT_UNAVAILABLE: i32 = 3;

/// Limits and seed of a victim.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// How long to go on. The current round is finished after that.
    #[arg(long, default_value_t = 5.0, global = true)]
    pub(crate) seconds: f64,
    /// Memory to use.
    #[arg(long, default_value_t = 64, global = true)]
    pub(crate) megabytes: usize,
    /// Threads; with 1 no thread is created.
    #[arg(long, default_value_t = 4, global = true)]
    pub(crate) threads: usize,
    /// Seed of content and of every choice.
    #[arg(long, default_value_t = 1, global = true)]
    pub(crate) seed: u64,
    /// Seconds beyond `--seconds` after which a victim counts as hanging.
    #[arg(long, default_value_t = 180, global = true)]
    pub(crate) grace: u32,
    /// Corrupt one byte, to see that the victim notices.
    #[arg(long, hide = true, global = true)]
    pub(crate) sabotage: bool,
}

impl Options {
    /// Pages that each of the threads may use, at least 32.
    pub(crate) fn pages_per_thread(&self) -> usize {
        (self.pages() / self.threads.max(1)).max(32)
    }

    /// Pages of the whole memory.
    pub(crate) fn pages(&self) -> usize {
        (self.megabytes << 20) / PAGE_BYTES
    }

    pub(crate) fn clock(&self) -> Clock {
        self.clock_of_part(1)
    }

    /// The clock of a victim's part, one of `parts` equal ones.
    pub(crate) fn clock_of_part(&self, parts: u32) -> Clock {
        Clock(Instant::now() + Duration::from_secs_f64(self.seconds) / parts)
    }

    /// Random numbers of a thread, different for each purpose.
    pub(crate) fn random(&self, thread: usize, purpose: u64) -> Random {
        Random::new(mix(self.seed) ^ (thread as u64) << 32 ^ purpose)
    }

    /// A tag for the content of a thread.
    pub(crate) fn tag(&self, thread: usize) -> u64 {
        mix(self.seed ^ (thread as u64 + 1) << 48)
    }

    /// Runs `work(thread)` on every thread and returns the first error.
    pub(crate) fn parallel(&self, work: impl Fn(usize) -> Checked + Sync) -> Checked {
        if self.threads <= 1 {
            return work(0);
        }
        let work = &work;
        std::thread::scope(|scope| {
            let handles: Vec<_> = (0..self.threads)
                .map(|thread| scope.spawn(move || work(thread)))
                .collect();
            let mut result = Ok(());
            for handle in handles {
                match handle.join() {
                    Ok(ended) => result = result.and(ended),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            result
        })
    }
}

/// The time at which a victim stops.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn running(self) -> bool {
        Instant::now() < self.0
    }
}

/// Seconds of the watchdog, so that children can set their own. Written once.
static WATCHDOG_SECONDS: AtomicI32 = AtomicI32::new(0);

extern "C" fn watchdog_bites(_: i32) {
    const MESSAGE: &[u8] = b"vswap-victims: hangs: did not end within its time and the grace\n";
    // SAFETY: write and _exit may be called in a signal handler.
    unsafe {
        libc::write(2, MESSAGE.as_ptr().cast(), MESSAGE.len());
        libc::_exit(EXIT_WRONG);
    }
}

/// Sets a watchdog that ends the process with a message after the time of `options` and the grace.
pub(crate) fn watchdog(options: &Options) {
    let seconds = Duration::from_secs_f64(options.seconds).as_secs();
    let seconds = i32::try_from(seconds + u64::from(options.grace)).unwrap_or(i32::MAX);
    WATCHDOG_SECONDS.store(seconds, Ordering::Relaxed);
    let handler: extern "C" fn(i32) = watchdog_bites;
    // SAFETY: the handler makes only async-signal-safe calls.
    unsafe { libc::signal(libc::SIGALRM, handler as libc::sighandler_t) };
    arm_watchdog();
}

fn arm_watchdog() {
    let seconds = WATCHDOG_SECONDS.load(Ordering::Relaxed);
    // SAFETY: alarm does not touch memory.
    unsafe { libc::alarm(u32::try_from(seconds).unwrap_or(0)) };
}

/// Writes a message to standard error in one piece and without locks, as a forked child must.
pub(crate) fn complain(wrong: &Wrong) {
    let message = format!("vswap-victims: pid {}: {wrong}\n", std::process::id());
    // SAFETY: the buffer is valid for its length.
    unsafe { libc::write(2, message.as_ptr().cast(), message.len()) };
}

/// A child process that makes checks of its own.
#[derive(Debug)]
#[must_use = "a child has to be waited for"]
pub(crate) struct Child(pub(crate) i32);

impl Child {
    /// Forks. The child runs `work` and ends.
    pub(crate) fn fork(work: impl FnOnce() -> Checked) -> Checked<Self> {
        // SAFETY: the child goes on with a copy of this thread only. It allocates and reads, which glibc permits after
        // a fork, and takes no lock that another thread holds.
        let pid = call("fork", unsafe { libc::fork() })?;
        if pid > 0 {
            return Ok(Self(pid));
        }
        arm_watchdog();
        let status = match work() {
            Ok(()) => 0,
            Err(wrong) => {
                complain(&wrong);
                EXIT_WRONG
            }
        };
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(status) }
    }

    /// Waits for the child's end. Fails if the child failed.
    pub(crate) fn wait(self) -> Checked {
        let status = self.wait_status()?;
        if status == 0 {
            Ok(())
        } else {
            Err(Wrong::Child { status })
        }
    }

    /// Waits for the child's end.
    pub(crate) fn wait_status(self) -> Checked<i32> {
        let mut status = 0;
        loop {
            // SAFETY: `status` is a valid place for the result.
            let pid = unsafe { libc::waitpid(self.0, &raw mut status, 0) };
            if pid == self.0 {
                return Ok(status);
            }
            let error = std::io::Error::last_os_error();
            if error.kind() != std::io::ErrorKind::Interrupted {
                return Err(Wrong::Call {
                    what: "waitpid",
                    error,
                });
            }
        }
    }
}
