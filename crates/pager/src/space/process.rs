//! The process behind a space, once its agent has said hello: what it is asked through.

use std::sync::OnceLock;

use vswap_sys::process;
use vswap_sys::process::procfs::Statm;

use crate::base::kernel::pagemap::Pagemap;
use crate::base::kernel::procmap::ProcMap;
use crate::base::kernel::uffd::Userfaultfd;
use crate::space::agent::Agent;
use crate::space::leader::Leader;

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
    /// The userfaultfd of staging, which has no events: it can always be asked.
    pub staging: Userfaultfd,
    /// Its main thread.
    pub leader: Leader,
    /// The counters by another thread, once the main thread has ended.
    pub late_statm: OnceLock<Option<Statm>>,
    /// The ids of its agent's threads are the same here.
    pub is_found_by_agent: bool,
}

impl Process {
    /// Do something by a thread of the process: by the agent's, if that can be found here, or else by the main thread.
    /// Each may have ended where the other has not.
    pub fn by_a_thread<T, E>(&self, mut work: impl FnMut(u32) -> Result<T, E>) -> Result<T, E> {
        let agent = self.agent.tid().cast_unsigned();
        if self.is_found_by_agent && agent != self.pid {
            work(agent).or_else(|_| work(self.pid))
        } else {
            work(self.pid)
        }
    }

    /// Fills `words` from `address` on in its memory. False where not all of it can be read.
    pub fn read_words(&self, address: u64, words: &mut [u64]) -> bool {
        let read = |tid| {
            process::read_words(tid, address, words)
                .then_some(())
                .ok_or(())
        };
        self.by_a_thread(read).is_ok()
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
