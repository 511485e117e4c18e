//! Now and then vswap can have no descriptors, threads or memory. The program itself is not short of anything, because
//! it was not natively either.
//!
//! Unsafe is needed here because this crate calls libc directly.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use vswap_drive::random::Random;
use vswap_drive::{processes, threads};

/// Where the kernel counts processes and threads of a group.
const PIDS: &str = "/sys/fs/cgroup/pids";
/// How many descriptors vswap may have beyond those that it has when the shortage begins.
const SPARE_DESCRIPTORS: u32 = 6;
/// What some concurrent forks need. A program that has just started is refused if there are fewer than 32.
const FOR_FORKS: u64 = 44;
const SPARE_THREADS: u32 = 2;
const SPARE_KIB: u32 = 2048;
/// How often removing a group whose processes have just ended is tried, and the pause in between.
const REMOVE_TRIES: u32 = 100;
const REMOVE_PACE: Duration = Duration::from_millis(10);

/// What is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    Descriptors,
    /// Descriptors, but enough are left for forks that are under way.
    DescriptorsForForks,
    Threads,
    Memory,
}

/// One run's shortage.
#[derive(Debug)]
pub(crate) struct Shortage {
    of: Of,
    /// The earlier limit, while the shortage has replaced it.
    before: Option<libc::rlimit>,
    group: Option<Group>,
    is_short: bool,
}

impl Shortage {
    pub(crate) const fn of(of: Of) -> Self {
        Self {
            of,
            before: None,
            group: None,
            is_short: false,
        }
    }

    /// Begins the shortage, or ends it if there is one. It does not begin before the program runs: the program inherits
    /// limits and would be short too.
    pub(crate) fn begin_or_end(&mut self, run: u32, random: &mut Random) {
        if self.is_short {
            self.end(run);
        } else if processes::below(run)
            .iter()
            .any(|pid| threads::name(*pid).starts_with("vswap-chaos"))
        {
            self.begin(run, random);
        }
        self.is_short = !self.is_short;
    }

    fn begin(&mut self, run: u32, random: &mut Random) {
        match self.of {
            Of::Descriptors | Of::DescriptorsForForks => {
                let used = count(&format!("/proc/{run}/fd"));
                let kept = if self.of == Of::Descriptors {
                    0
                } else {
                    FOR_FORKS
                };
                let most = used + kept + u64::from(random.below(SPARE_DESCRIPTORS));
                self.before = limit(run, libc::RLIMIT_NOFILE, most);
            }
            Of::Memory => {
                let kib = virtual_kib(run) + u64::from(random.below(SPARE_KIB));
                self.before = limit(run, libc::RLIMIT_AS, kib << 10);
            }
            Of::Threads => {
                let most = count(&format!("/proc/{run}/task"));
                let most = most + u64::from(random.below(SPARE_THREADS));
                if self.group.is_none() {
                    self.group = Group::of(run);
                }
                if let Some(group) = &self.group {
                    group.limit(&most.to_string());
                }
            }
        }
    }

    fn end(&mut self, run: u32) {
        if let Some(group) = &self.group {
            group.limit("max");
        }
        let which = if self.of == Of::Memory {
            libc::RLIMIT_AS
        } else {
            libc::RLIMIT_NOFILE
        };
        if let Some(before) = self.before.take() {
            limit(run, which, before.rlim_cur);
        }
    }
}

fn count(directory: &str) -> u64 {
    fs::read_dir(directory).map_or(0, Iterator::count) as u64
}

fn virtual_kib(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number
        .and_then(|number| number.parse().ok())
        .unwrap_or(u64::MAX >> 10)
}

/// Sets the soft limit of a process. Returns the earlier limits, if that worked.
fn limit(pid: u32, which: libc::__rlimit_resource_t, soft: u64) -> Option<libc::rlimit> {
    let mut before = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: reads the limits of a process into a local variable.
    if unsafe { libc::prlimit(pid as i32, which, std::ptr::null(), &raw mut before) } != 0 {
        return None;
    }
    let new = libc::rlimit {
        rlim_cur: soft.min(before.rlim_max),
        ..before
    };
    // SAFETY: sets the limits of a process from a local variable.
    let set = unsafe { libc::prlimit(pid as i32, which, &raw const new, std::ptr::null_mut()) };
    (set == 0).then_some(before)
}

/// A group with only vswap's process, removed on drop.
#[derive(Debug)]
struct Group(PathBuf);

impl Group {
    fn of(pid: u32) -> Option<Self> {
        let path = Path::new(PIDS).join(format!("vswap-chaos-{pid}"));
        fs::create_dir(&path).ok()?;
        let group = Self(path);
        fs::write(group.0.join("cgroup.procs"), pid.to_string()).ok()?;
        Some(group)
    }

    fn limit(&self, most: &str) {
        // The run may just have ended.
        let _gone = fs::write(self.0.join("pids.max"), most);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..REMOVE_TRIES {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            thread::sleep(REMOVE_PACE);
        }
    }
}
