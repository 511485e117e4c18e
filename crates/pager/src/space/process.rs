//! The process behind a space, once its agent has said hello, and the ways to ask about it.

use std::sync::OnceLock;

use vswap_sys::process;
use vswap_sys::process::procfs::Statm;

use crate::base::kernel::pagemap::Pagemap;
use crate::base::kernel::procmap::ProcMap;
use crate::base::kernel::uffd::Userfaultfd;
use crate::space::agent::Agent;
use crate::space::leader::Leader;

/// Where a thread that is made to run the agent from outside begins.
#[derive(Debug, Clone, Copy)]
pub struct EntryPoint {
    /// The address of the code.
    pub address: u64,
    /// Where its stack ends.
    pub stack_end: u64,
}

/// The process behind a space, known once its agent has said hello.
#[derive(Debug)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Its agent.
    pub agent: Agent,
    /// Its page table, for scans.
    pub pagemap: Pagemap,
    /// Its memory counters.
    pub statm: Statm,
    /// Its mappings.
    pub map: ProcMap,
    /// The userfaultfd of staging. It has no events, so it always answers.
    pub staging: Userfaultfd,
    /// Its main thread.
    pub leader: Leader,
    /// The counters as another thread shows them, once the main thread has ended.
    pub late_statm: OnceLock<Option<Statm>>,
    /// Where the agent of a child begins that was forked without hooks.
    pub entry: EntryPoint,
    /// Its agent was attached from outside, so it has no hooks.
    pub is_attached: bool,
    /// The kernel tells of its forks.
    pub has_fork_events: bool,
    /// The pager sees the agent's threads under the ids that the process itself sees.
    pub is_found_by_agent: bool,
}

impl Process {
    /// Are its forks followed because the kernel tells of none?
    pub fn is_followed(&self) -> bool {
        !self.has_fork_events
    }

    /// Do something through a thread of the process. Try the agent's thread if its id is known here, then the main
    /// thread, because either may have ended before the other.
    pub fn by_a_thread<T, E>(&self, mut work: impl FnMut(u32) -> Result<T, E>) -> Result<T, E> {
        let agent = self.agent.tid().cast_unsigned();
        if self.is_found_by_agent && agent != self.pid {
            work(agent).or_else(|_| work(self.pid))
        } else {
            work(self.pid)
        }
    }

    /// Fill `words` from `address` on in the process's memory. False if not all of it can be read.
    pub fn read_words(&self, address: u64, words: &mut [u64]) -> bool {
        let read = |tid| {
            process::read_words(tid, address, words)
                .then_some(())
                .ok_or(())
        };
        self.by_a_thread(read).is_ok()
    }

    /// Put `words` to `address` and on in the process's memory. False if not all of it can be written.
    pub fn write_words(&self, address: u64, words: &[u64]) -> bool {
        let write = |tid| {
            process::write_words(tid, address, words)
                .then_some(())
                .ok_or(())
        };
        self.by_a_thread(write).is_ok()
    }

    /// Resident anonymous memory, 0 when the process is gone.
    pub fn anonymous_bytes(&self) -> u64 {
        let sizes = self.statm.sizes().unwrap_or_default();
        if sizes.virtual_bytes > 0 {
            return sizes.anonymous_bytes();
        }
        self.leader.notice();
        let late = self
            .late_statm
            .get_or_init(|| self.by_a_thread(Statm::open).ok());
        let sizes = late.as_ref().and_then(|statm| statm.sizes().ok());
        sizes.unwrap_or_default().anonymous_bytes()
    }
}
