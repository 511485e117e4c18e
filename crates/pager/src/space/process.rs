//! The process behind a space, once its agent has said hello, and the ways to ask about it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use vswap_sys::process::memory_file::MemoryFile;
use vswap_sys::process::procfs::{self, Sizes, Statm};
use vswap_sys::process::task;

use crate::base::kernel::pagemap::Pagemap;
use crate::base::kernel::process::{self, LocalSpan, PidFd, RemoteSpan};
use crate::base::kernel::procmap::ProcMap;
use crate::base::kernel::uffd::Userfaultfd;
use crate::space::agent::Agent;
use crate::space::leader::Leader;
use crate::space::proofs::Proofs;

/// Where a thread that is made to run the agent from outside begins.
#[derive(Debug, Clone, Copy)]
pub struct EntryPoint {
    /// The address of the code.
    pub address: u64,
    /// Where its stack ends.
    pub stack_end: u64,
}

/// Why memory of a process could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// What the kernel said.
    #[error(transparent)]
    Refused(#[from] process::ReadError),
    /// The process id names another process, or the process runs another program by now.
    #[error("the process has other memory than it had: forget it")]
    Stranger,
}

/// The process behind a space, known once its agent has said hello.
#[derive(Debug)]
pub struct Process {
    /// Process id, for what has to be asked by a number.
    pub pid: u32,
    /// The process itself. It never names another one.
    pub pidfd: PidFd,
    /// Its agent.
    pub agent: Agent,
    /// Its page table, for scans.
    pub pagemap: Pagemap,
    /// Its memory counters.
    pub statm: Statm,
    /// Its mappings.
    pub map: ProcMap,
    /// Its memory, for all that `process::read_memory` does not do.
    pub memory: MemoryFile,
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
    /// Of a process in another pid namespace: the id of the agent's thread there in the upper half, and here in the
    /// lower. 0 if it is not known.
    pub agent_elsewhere: AtomicU64,
    /// Show whose memory is read.
    pub proofs: Proofs,
}

impl Process {
    /// Are its forks followed because the kernel tells of none?
    pub fn is_followed(&self) -> bool {
        !self.has_fork_events
    }

    /// Do something through a thread of the process. Try the agent's thread, then the main thread, because either may
    /// have ended before the other.
    pub fn by_a_thread<T, E>(&self, mut work: impl FnMut(u32) -> Result<T, E>) -> Result<T, E> {
        // The program can write any number there.
        let is_own = |tid: &u32| task::process_of(*tid) == Some(self.pid);
        match self.agent_thread().filter(is_own) {
            Some(agent) => work(agent).or_else(|_| work(self.pid)),
            None => work(self.pid),
        }
    }

    /// The id of the agent's thread here, if the process says the truth. None if it is the main thread, or cannot be
    /// found.
    fn agent_thread(&self) -> Option<u32> {
        let agent = self.agent.tid().cast_unsigned();
        if self.is_found_by_agent {
            return (agent != self.pid).then_some(agent);
        }
        // Relaxed: one word with both ids in it.
        let known = self.agent_elsewhere.load(Ordering::Relaxed);
        if known >> 32 == u64::from(agent) {
            return u32::try_from(known & u64::from(u32::MAX)).ok();
        }
        let here = self.find_thread(agent)?;
        let found = u64::from(agent) << 32 | u64::from(here);
        self.agent_elsewhere.store(found, Ordering::Relaxed);
        Some(here)
    }

    /// The id here of the thread that the process's own pid namespace numbers `there`, unless it is the main thread.
    fn find_thread(&self, there: u32) -> Option<u32> {
        let threads = procfs::threads(self.pid).ok()?;
        let is_it = |tid: &u32| procfs::innermost_tid(self.pid, *tid).is_ok_and(|tid| tid == there);
        threads
            .into_iter()
            .filter(|tid| *tid != self.pid)
            .find(is_it)
    }

    /// Has it not ended?
    pub fn is_alive(&self) -> bool {
        self.pidfd.exited(Some(Duration::ZERO)) == Ok(false)
    }

    /// Read the `remote` spans, one after the other, into the `local` ones. Returns how many bytes were read, up to the
    /// first remote span that could not be read whole.
    ///
    /// # Errors
    /// [`ReadError`]; what is in the local spans then means nothing.
    ///
    /// # Safety
    /// Each local span is memory that may be written for the length of the call and that no reference covers.
    pub unsafe fn read(
        &self,
        mut remote: Vec<RemoteSpan>,
        mut local: Vec<LocalSpan>,
    ) -> Result<usize, ReadError> {
        const PROOF_BYTES: usize = size_of::<u64>();
        let mut found = 0_u64;
        let proof = self.proofs.begin(&self.agent);
        proof.note(&remote);
        remote.insert(
            0,
            RemoteSpan {
                address: proof.address,
                bytes: PROOF_BYTES,
            },
        );
        local.insert(
            0,
            LocalSpan {
                pointer: (&raw mut found).cast(),
                bytes: PROOF_BYTES,
            },
        );
        let mut result = Err(ReadError::Stranger);
        // The main thread may have ended.
        for tid in self.agent_thread().into_iter().chain([self.pid]) {
            // SAFETY: the caller answers for its spans. The first is `found`, which nothing refers to during the call.
            let read = unsafe {
                process::read_memory(tid, &remote, &local)
                    .or_else(|error| self.read_untraced(error, &remote, &local))
            };
            result = read.map_err(ReadError::from).and_then(|read| {
                let rest = read.checked_sub(PROOF_BYTES);
                rest.filter(|_| found == proof.number)
                    .ok_or(ReadError::Stranger)
            });
            if result.is_ok() {
                break;
            }
        }
        result
    }

    /// Read a process that could be traced when it said hello, and has forbidden it since (PR_SET_DUMPABLE).
    ///
    /// # Safety
    /// As for `read`.
    unsafe fn read_untraced(
        &self,
        error: process::ReadError,
        remote: &[RemoteSpan],
        local: &[LocalSpan],
    ) -> Result<usize, process::ReadError> {
        if error != process::ReadError::NotPermitted {
            return Err(error);
        }
        // SAFETY: the caller answers for the local spans.
        unsafe { self.memory.read(remote, local) }.map_err(|_| error)
    }

    /// Fill `words` from `address` on in the process's memory. False if not all of it can be read.
    pub fn read_words(&self, address: u64, words: &mut [u64]) -> bool {
        let bytes = size_of_val(words);
        let local = LocalSpan {
            pointer: words.as_mut_ptr().cast(),
            bytes,
        };
        // SAFETY: the local span is `words`, which is borrowed for writing during the call and takes any bytes.
        unsafe { self.read(vec![RemoteSpan { address, bytes }], vec![local]) == Ok(bytes) }
    }

    /// Put `words` to `address` and on in the process's memory. False if the process may not write all of it.
    pub fn write_words(&self, address: u64, words: &[u64]) -> bool {
        let last = address.saturating_add((size_of_val(words) as u64).saturating_sub(1));
        // Where nothing is mapped the writing fails by itself. Before Linux 6.11 nobody tells.
        let may_write = |address| self.map.at(address).is_none_or(|vma| vma.writable);
        let proof = self.proofs.begin(&self.agent);
        let is_own = self.memory.word(proof.address) == Some(proof.number);
        drop(proof);
        is_own && may_write(address) && may_write(last) && self.memory.put(address, words)
    }

    /// Resident anonymous memory, 0 when the process is gone.
    pub fn anonymous_bytes(&self) -> u64 {
        self.sizes().anonymous_bytes()
    }

    /// How much memory it has, nothing when it is gone.
    pub fn sizes(&self) -> Sizes {
        let sizes = self.statm.sizes().unwrap_or_default();
        if sizes.virtual_bytes > 0 {
            return sizes;
        }
        self.leader.notice();
        let late = self
            .late_statm
            .get_or_init(|| self.by_a_thread(Statm::open).ok());
        let sizes = late.as_ref().and_then(|statm| statm.sizes().ok());
        sizes.unwrap_or_default()
    }
}
