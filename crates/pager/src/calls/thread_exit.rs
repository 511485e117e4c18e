//! Threads that end: what the kernel will write to then is in memory before.
//!
//! A thread that calls exit waits in the seccomp filter. Meanwhile the pages of its robust mutexes are looked up and
//! brought back, writable. They are pinned until the thread has ended (`pins.rs`). The list belongs to the thread, so
//! nobody changes it while the thread waits. A list that leads nowhere ends here as it does in the kernel. Words that
//! the kernel clears at the end of a thread (CLONE_CHILD_CLEARTID) are pinned from the call on that names them.
//!
//! This runs on the thread that answers the calls of the space. It holds no lock while it reads the program's memory.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use vswap_sys::abi::call;
use vswap_sys::machine::untagged;
use vswap_sys::process::{procfs, task};

use crate::base::kernel::clock;
use crate::base::page_run::PAGE_BYTES;
use crate::events::regions;
use crate::fault::FaultServer;
use crate::fault::serving::Serving;
use crate::layout::pins::AROUND_BYTES;
use crate::layout::words::PageState;
use crate::space::Space;
use crate::space::fault::Fault;
use crate::space::process::Process;
use crate::space::wait::Wait;

/// Most entries of a robust list that the kernel walks.
const ROBUST_LIST_MAX: usize = 2048;
/// Set in the address of an entry whose mutex has priority inheritance.
const ENTRY_FLAG: u64 = 1;
/// Bytes of a futex.
const FUTEX_BYTES: u64 = 4;
/// Pause while somebody else carries a page that must come back.
const CARRIED_PACE: Duration = Duration::from_micros(100);
/// How often a page that does not come is tried during a fork. It may have been unmapped.
const CARRIED_TRIES: u32 = 1000;

/// Pause between two looks whether the agent has left.
const LEAVE_PACE: Duration = Duration::from_micros(200);

/// How long to wait for threads that the pager does not know. Threads of a bare clone are rare, and most end soon.
const UNKNOWN_PATIENCE: Duration = Duration::from_millis(100);
const UNKNOWN_PACE: Duration = Duration::from_millis(1);

const CLONE_VM: u64 = 0x100;
const CLONE_CHILD_CLEARTID: u64 = 0x20_0000;

struct Ending<'a> {
    space: &'a Arc<Space>,
    server: FaultServer<'a>,
    process: &'a Process,
    tid: u32,
}

/// Thread `tid` of a process is about to end, if its call still waits. Returns when all memory that the kernel will
/// touch is present.
pub fn prepare(
    serving: &Serving,
    space: &Arc<Space>,
    process: &Process,
    tid: u32,
    is_waiting: &dyn Fn() -> bool,
) {
    let mut server = FaultServer::new(serving, space);
    let owed = space.lock().layout.pinned.take_owed();
    for page in owed {
        bring_back(space, &mut server, page);
    }
    let Some(head) = list_of_caller(tid, is_waiting) else {
        return;
    };
    let mut ending = Ending {
        space,
        server,
        process,
        tid,
    };
    ending.hold_robust_list(head);
}

/// The robust list of a thread whose call waits. If the caller has died, its id may be another thread's by now, whose
/// words must not be let go of.
fn list_of_caller(tid: u32, is_waiting: &dyn Fn() -> bool) -> Option<u64> {
    task::robust_list(tid).filter(|_| is_waiting())
}

/// A thread is about to end with this status. Waits while the agent leaves the process.
pub fn await_leave(space: &Space, tid: u32, status: u64) {
    while !space.exits.may_end(tid, status) && !space.has_ended() && !space.is_hung_up() {
        clock::sleep(LEAVE_PACE);
    }
}

impl Ending<'_> {
    /// Walk the list as the kernel will. None if the list ends early.
    fn hold_robust_list(&mut self, head: u64) -> Option<()> {
        // In a thread of libc the word that is cleared lies beside the head.
        self.hold_pages(head.saturating_sub(AROUND_BYTES), 2 * AROUND_BYTES);
        self.space.lock().layout.pinned.remove_block(head);
        let [mut entry, offset, pending] = read_words(self.process, head)?;
        self.hold_futex(pending, offset);
        for _ in 0..ROBUST_LIST_MAX {
            let address = entry & !ENTRY_FLAG;
            if address == head || address == 0 {
                break;
            }
            self.hold_pages(address, size_of::<u64>() as u64);
            self.hold_futex(entry, offset);
            [entry] = read_words(self.process, address)?;
        }
        Some(())
    }

    fn hold_futex(&mut self, entry: u64, offset: u64) {
        let address = entry & !ENTRY_FLAG;
        if address != 0 {
            self.hold_pages(address.wrapping_add(offset), FUTEX_BYTES);
        }
    }

    fn hold_pages(&mut self, address: u64, bytes: u64) {
        let address = untagged(address);
        let last = address.saturating_add(bytes - 1) / PAGE_BYTES;
        for page in address / PAGE_BYTES..=last {
            self.space.lock().layout.pinned.hold(self.tid, page);
            bring_back(self.space, &mut self.server, page);
        }
    }
}

/// A thread makes another by clone, with these `arguments`. The word that is cleared when the new thread ends stays in
/// memory from now on.
pub fn note_clone(serving: &Serving, space: &Arc<Space>, arguments: &[u64; 6]) {
    let (flags, word) = (arguments[0], arguments[call::CLONE_CHILD]);
    note_thread(serving, space, flags, word);
}

/// The same for clone3, whose arguments are in memory.
pub fn note_clone3(serving: &Serving, space: &Arc<Space>, process: &Process, arguments: &[u64; 6]) {
    let [address, bytes, ..] = *arguments;
    // Flags, pidfd, child_tid. These three words are the same in all versions of the structure.
    if bytes >= 3 * size_of::<u64>() as u64
        && let Some([flags, _, word]) = read_words(process, address)
    {
        note_thread(serving, space, flags, word);
    }
}

/// Only a thread has its word cleared in this memory.
fn note_thread(serving: &Serving, space: &Arc<Space>, flags: u64, word: u64) {
    if flags & CLONE_VM != 0 && flags & CLONE_CHILD_CLEARTID != 0 {
        note_word(serving, space, word);
    }
}

/// The word at `address` is cleared when a thread ends. Keep it.
pub fn note_word(serving: &Serving, space: &Arc<Space>, address: u64) {
    let address = untagged(address);
    space.lock().layout.pinned.add(address);
    let mut server = FaultServer::new(serving, space);
    bring_back(space, &mut server, address / PAGE_BYTES);
}

/// Threads whose robust lists are known.
#[derive(Debug, Default)]
pub struct Known(HashSet<u32>);

impl Known {
    /// Looks at those threads of a process that are not known yet. Returns the heads of their robust lists, and whether
    /// all threads are known now: one may not have set its list yet. Hold no lock, because this takes a call for each
    /// thread and there may be thousands.
    pub fn look(&mut self, process: &Process) -> (Vec<u64>, bool) {
        // A process that is gone needs nothing.
        let threads = procfs::threads(process.pid).unwrap_or_default();
        let is_agent = |tid: u32| i32::try_from(tid) == Ok(process.agent.tid());
        let all = threads.into_iter().filter(|tid| !is_agent(*tid));
        self.add(all, task::robust_list)
    }

    fn add(
        &mut self,
        threads: impl Iterator<Item = u32>,
        mut list_of: impl FnMut(u32) -> Option<u64>,
    ) -> (Vec<u64>, bool) {
        let mut heads = Vec::new();
        let mut are_all_known = true;
        for tid in threads {
            if self.0.contains(&tid) {
                continue;
            }
            match list_of(tid) {
                Some(head) => {
                    self.0.insert(tid);
                    heads.push(head);
                }
                None => are_all_known = false,
            }
        }
        (heads, are_all_known)
    }
}

/// Wait for a while until no thread is left that a bare clone made before the process's calls were trapped. Nobody
/// knows which word is cleared when such a thread ends. The main thread was made by no clone, and ends with the process
/// mostly: with musl it has no robust list, and waiting for it would only let the process grow beyond its limit.
pub fn await_unknown_threads(process: &Process) {
    let since = clock::now();
    let mut known = Known(HashSet::from([process.pid]));
    while clock::now().duration_since(since) < UNKNOWN_PATIENCE {
        let (_, are_all_known) = known.look(process);
        if are_all_known {
            return;
        }
        clock::sleep(UNKNOWN_PACE);
    }
}

/// Bring a page back, writable. Waits while others carry it. Gives up when the process ends, or when a fork is under
/// way that may wait for the caller. In that case the page is tried again before the next thread ends.
pub fn bring_back(space: &Arc<Space>, server: &mut FaultServer<'_>, page: u64) {
    let Some(process) = space.process.get() else {
        return;
    };
    let mut tries = 0;
    while !space.has_ended() {
        let state = space.lock_thawed();
        let word = state.layout.words.get(page);
        if word.is_claimed() {
            drop(state);
            clock::sleep(CARRIED_PACE);
            continue;
        }
        if word.entry().is_none() {
            let (state, is_done) = server.make_writable(state.into(), page);
            server.release(state);
            if is_done {
                return;
            }
            tries += 1;
            if tries > CARRIED_TRIES {
                return space.lock().layout.pinned.owe(page);
            }
            clock::sleep(CARRIED_PACE);
            continue;
        }
        let fault = Fault {
            page,
            write: true,
            protected: matches!(word.state(), PageState::Kept(_)),
            urgent: true,
            ahead: false,
            since: clock::now(),
            wait: Wait::nobody(),
        };
        let (state, _) = server.serve(state, &fault);
        let is_back = state.layout.words.get(page).entry().is_none();
        server.release(state);
        if !is_back {
            // Its mapping may be gone, with that still undecided.
            match process.agent.slot_unless_forking() {
                Some(slot) => {
                    regions::forget_unregistered(&server.serving.references, space, page, &slot);
                }
                // The forking thread may wait behind the caller. What is gone is known only after the fork.
                None if tries > CARRIED_TRIES => return space.lock().layout.pinned.owe(page),
                None => tries += 1,
            }
            clock::sleep(CARRIED_PACE);
        }
    }
}

/// Words of the program's memory. None if they cannot be read.
fn read_words<const WORDS: usize>(process: &Process, address: u64) -> Option<[u64; WORDS]> {
    let mut words = [0; WORDS];
    process.read_words(address, &mut words).then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_who_has_got_the_id_of_a_caller_that_died_is_nobodys() {
        // 0 is the calling thread, which has one.
        assert!(list_of_caller(0, &|| true).is_some());
        assert_eq!(list_of_caller(0, &|| false), None);
    }

    #[test]
    fn a_thread_is_looked_at_until_its_list_is_known() {
        let mut known = Known::default();
        let mut asked = 0;
        let mut look = |threads: u32, without_list: Option<u32>| {
            asked = 0;
            let found = known.add(1..=threads, |tid| {
                asked += 1;
                (Some(tid) != without_list).then(|| u64::from(tid) << 12)
            });
            (found.0.len(), found.1, asked)
        };
        assert_eq!(look(10_000, Some(77)), (9_999, false, 10_000));
        assert_eq!(look(10_000, Some(77)), (0, false, 1));
        assert_eq!(look(10_002, None), (3, true, 3));
        assert_eq!(look(10_002, None), (0, true, 0));
    }
}
