//! Forks of which the kernel does not tell, because vswap may not have fork events (CAP_SYS_PTRACE).
//!
//! A child comes out of such a fork without a userfaultfd. Where its parent has swapped a page it has a hole, which
//! reads as zeros. So the pager copies the parent's layout before the fork, and has the child put its memory under a
//! userfaultfd of its own before its first instruction (`followed_fork`).
//!
//! The layout must be that of the moment at which the kernel copies the page table. From the copy until there is a
//! child the agent's slot is held and the space is closed. So no page moves out, nothing is mapped or moved for the
//! program, and no message is read. A thread that discards or unmaps meanwhile waits in its call until its event is
//! read, which happens after the fork. It may find its call made before the fork or after it: nobody can tell. What it
//! has unmapped before the fork the child does not have, and its mappings say so. A page that somebody brings back
//! meanwhile is present in the child if that came before the fork, and its page table says so
//! (`regions::watch_copied`).
//!
//! Nobody serves faults meanwhile, so the kernel must not fault on behalf of the forking thread. What the call names is
//! brought back before. And the kernel must not touch holes of the child before these are watched: the word that it
//! sets at the child's birth is among what the call names, and what it writes whenever a thread goes on (rseq) is put
//! in place while the child stands still.
//!
//! A fork that cannot be traced fails with EAGAIN. Before one whose child could have no agent (a seccomp filter of the
//! program's own) everything is brought back, and the process is let go of. A child that cannot be made ready is
//! killed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use vswap_sys::inject::Stopped;
use vswap_sys::machine::untagged;
use vswap_sys::ring::origin;
use vswap_sys::{abi, random};

use crate::base::kernel::clock;
use crate::base::kernel::pagemap::{Pagemap, Query, Region, category};
use crate::base::lock::MutexGuard;
use crate::base::page_run::{PAGE_BYTES, pages_of};
use crate::calls::followed_fork::{Waiting, begin_child, kin};
use crate::calls::{confine, thread_exit};
use crate::events::fork::{self, Caller as _};
use crate::events::layout_events;
use crate::events::listening::Listening;
use crate::fault::FaultServer;
use crate::layout::Layout;
use crate::space::agent::Slot;
use crate::space::process::Process;
use crate::space::{Space, State};

/// How often a fork under way is looked at.
const PACE: Duration = Duration::from_millis(1);
/// How often what the call names is brought back, if it leaves again before the space is closed.
const BRING_BACK_TRIES: u32 = 100;
/// How long to wait for a moment without unread events, and how often to look. Without such a moment it is done all the
/// same: those who raised the events wait.
const QUIET_PATIENCE: Duration = Duration::from_millis(100);
const QUIET_PACE: Duration = Duration::from_micros(50);
/// How long the space stays closed. Forks take a second for a hundred GiB. After this long the kernel waits for a fault
/// of the forking thread: another thread has discarded what its call names.
const CLOSED_PATIENCE: Duration = Duration::from_secs(20);

const CLONE_PIDFD: u64 = 0x1000;
const CLONE_PARENT_SETTID: u64 = 0x10_0000;
const CLONE_CHILD_SETTID: u64 = 0x100_0000;
const CLONE_UNTRACED: u64 = 0x80_0000;

/// What a call that makes a process is told.
#[derive(Debug, Default, PartialEq, Eq)]
struct Arguments {
    flags: u64,
    /// Address and bytes of what the kernel reads and writes.
    named: Vec<(u64, u64)>,
}

impl Arguments {
    /// Of fork, clone or clone3. `read` reads words of the caller's memory. None if it cannot.
    fn of(
        nr: i32,
        args: &[u64; 6],
        read: impl FnOnce(u64, &mut [u64]) -> bool,
    ) -> Option<Arguments> {
        const WORD: u64 = 4;
        if nr == abi::call::FORK.cast_signed() {
            return Some(Arguments::default());
        }
        let mut named = Vec::new();
        // Flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size.
        let mut words = [0; 10];
        if nr == abi::call::CLONE.cast_signed() {
            let [flags, ..] = *args;
            let [parent, child] =
                [abi::call::CLONE_PARENT, abi::call::CLONE_CHILD].map(|at| args[at]);
            words[..4].copy_from_slice(&[flags, parent, child, parent]);
        } else {
            let [address, bytes, ..] = *args;
            let count = usize::try_from(bytes / 8).unwrap_or(0).min(words.len());
            if !read(address, &mut words[..count]) {
                return None;
            }
            named.push((address, bytes.min(PAGE_BYTES)));
        }
        let [flags, pidfd, child, parent, .., set_tid, set_tid_size] = words;
        let mut name = |flag: u64, address: u64| {
            if flags & flag != 0 {
                named.push((address, WORD));
            }
        };
        name(CLONE_PIDFD, pidfd);
        name(CLONE_PARENT_SETTID, parent);
        name(CLONE_CHILD_SETTID, child);
        if set_tid_size > 0 {
            named.push((set_tid, set_tid_size.saturating_mul(WORD).min(PAGE_BYTES)));
        }
        Some(Arguments { flags, named })
    }

    fn pages(&self) -> Vec<u64> {
        let pages = |&(address, bytes): &(u64, u64)| pages_of(untagged(address), bytes.max(1));
        self.named.iter().flat_map(pages).collect()
    }
}

/// Let the process fork, and have its child watched before it runs.
pub fn carry_out(
    listening: &Arc<Listening>,
    space: &Arc<Space>,
    process: &Process,
    waiting: &Waiting<'_>,
    obstacle: Option<&str>,
) {
    let outcome = follow(listening, space, process, waiting, obstacle);
    if let Err(why) = outcome {
        waiting.refuse();
        say(listening, process, why);
    }
}

fn follow(
    listening: &Arc<Listening>,
    space: &Arc<Space>,
    process: &Process,
    waiting: &Waiting<'_>,
    obstacle: Option<&str>,
) -> Result<(), &'static str> {
    let Some(call) = waiting.call() else {
        return Ok(());
    };
    let read = |address, words: &mut [u64]| process.read_words(address, words);
    let Some(arguments) = Arguments::of(call.nr, &call.args, read) else {
        // The kernel cannot read them either.
        waiting.go();
        return Ok(());
    };
    if let Some(obstacle) = obstacle {
        // The child would get no agent, and so nothing may be out when it is made.
        confine::confine(&listening.serving, space, process, obstacle);
        waiting.go();
        return Ok(());
    }
    if arguments.flags & CLONE_UNTRACED != 0 {
        return Err("wants it untraced (CLONE_UNTRACED)");
    }
    let token = random::word().map_err(|_| "got no random number for it")?;
    if !fork::open(listening, space, token, waiting) {
        return Ok(());
    }
    let outcome = copy(
        listening,
        space,
        process,
        waiting,
        &arguments.pages(),
        token,
    );
    listening.forks.close(token);
    outcome
}

/// The fork is open: have it made, and the child begun.
fn copy(
    listening: &Arc<Listening>,
    space: &Arc<Space>,
    process: &Process,
    waiting: &Waiting<'_>,
    pages: &[u64],
    token: u64,
) -> Result<(), &'static str> {
    let mut closed = Closed::new(listening, space, process, pages)?;
    if !waiting.trace() {
        // Who has died forks no more.
        if !waiting.is_waiting() {
            return Ok(());
        }
        return Err("is traced by another program (strace, gdb)");
    }
    listening.forks.lay_by(token, closed.copy());
    waiting.go();
    let is_exact = closed.await_fork(waiting);
    let begun = begin_child(waiting, &kin(process, origin::COPIED, token), |child| {
        if !is_exact {
            return Err("nobody knows what was out when it was made".to_owned());
        }
        put_in_place(listening, child, token)
    });
    if let Some(mut unclaimed) = listening.forks.take_copy(token) {
        unclaimed.clear(&mut listening.serving.references.puts());
    }
    if let Err(why) = begun
        && !listening.serving.quiet
    {
        tracing::warn!(
            "a child of process {} was killed before it ran, because it could not be given its memory: {why}",
            process.pid
        );
    }
    Ok(())
}

/// A space that is about to fork: nobody reads its messages, and its agent gets no commands.
struct Closed<'a> {
    listening: &'a Listening,
    space: &'a Space,
    is_closed: bool,
    /// Until it is taken.
    copy: Option<Layout>,
    _slot: Slot<'a>,
}

impl<'a> Closed<'a> {
    /// Closes the space with these pages in memory, and copies its layout.
    fn new(
        listening: &'a Listening,
        space: &'a Arc<Space>,
        process: &'a Process,
        pages: &[u64],
    ) -> Result<Closed<'a>, &'static str> {
        let serving = &listening.serving;
        let references = &serving.references;
        for _ in 0..BRING_BACK_TRIES {
            let mut server = FaultServer::new(serving, space);
            for &page in pages {
                thread_exit::bring_back(space, &mut server, page);
            }
            let slot = process.agent.slot();
            let mut state = space.freeze(await_quiet(listening, space, &slot));
            let is_in_memory = |&page: &u64| {
                let word = state.layout.words.get(page);
                word.entry().is_none() && !word.is_claimed()
            };
            if pages.iter().all(is_in_memory) {
                let copy = fork::copy_layout(references, &state);
                return Ok(Closed {
                    listening,
                    space,
                    is_closed: true,
                    copy: Some(copy),
                    _slot: slot,
                });
            }
            space.thaw(&mut state);
        }
        Err("does not keep in memory what the call needs")
    }

    /// The copy, once.
    fn copy(&mut self) -> Layout {
        self.copy.take().unwrap_or_default()
    }

    /// Waits until the fork is over, and opens the space. False if it had to be opened before: the copy may be old.
    fn await_fork(mut self, waiting: &Waiting<'_>) -> bool {
        let since = Instant::now();
        while !waiting.has_ended(PACE) {
            if self.is_closed && since.elapsed() > CLOSED_PATIENCE {
                self.open();
            }
        }
        self.space.begin_sharing();
        self.is_closed
    }

    fn open(&mut self) {
        if std::mem::take(&mut self.is_closed) {
            self.space.thaw(&mut self.space.lock());
        }
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.open();
        self.copy()
            .clear(&mut self.listening.serving.references.puts());
    }
}

/// The space lock at a moment at which no event is unread.
fn await_quiet<'a>(
    listening: &Listening,
    space: &'a Space,
    slot: &Slot<'_>,
) -> MutexGuard<'a, State> {
    let since = clock::now();
    loop {
        let mut state = space.lock_thawed();
        layout_events::decide(&listening.serving.references, space, &mut state, slot);
        if !space.uffd.events_pending() || since.elapsed() > QUIET_PATIENCE {
            return state;
        }
        drop(state);
        clock::sleep(QUIET_PACE);
    }
}

/// Put what the kernel writes when the child goes on where it belongs, if it is out.
fn put_in_place(listening: &Listening, child: &mut Stopped, token: u64) -> Result<(), String> {
    let Some((address, bytes)) = child.rseq() else {
        return Ok(());
    };
    for page in pages_of(address, bytes) {
        let Some(entry) = listening.forks.entry_in_copy(token, page) else {
            continue;
        };
        // It may have come back before the fork, and been changed.
        if is_present(child.tid(), page)? {
            continue;
        }
        let engine = &listening.serving.engine;
        let mut content = engine.buffer(1);
        let read = engine.swap_in(entry, &mut content[0], &mut engine.scratch());
        read.map_err(|error| error.to_string())?;
        let written = child.write(page * PAGE_BYTES, &content[0].0);
        written.map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn is_present(pid: u32, page: u64) -> Result<bool, String> {
    let present = Query {
        any_of: category::PRESENT | category::SWAPPED,
        ..Query::default()
    };
    let mut found = [Region::default(); 1];
    let (start, end) = (page * PAGE_BYTES, (page + 1) * PAGE_BYTES);
    let scan = Pagemap::open(pid).and_then(|map| map.scan(start, end, &present, &mut found));
    Ok(scan.map_err(|error| error.to_string())?.regions > 0)
}

fn say(listening: &Listening, process: &Process, why: &str) {
    if !listening.serving.quiet {
        tracing::warn!(
            "a fork of process {} fails, because vswap cannot follow it: the process {why} (with CAP_SYS_PTRACE \
             vswap need not follow forks)",
            process.pid
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = PAGE_BYTES;

    fn of(nr: u32, args: [u64; 6], words: Option<&[u64]>) -> Option<Arguments> {
        Arguments::of(nr.cast_signed(), &args, |_, to| {
            let Some(words) = words else { return false };
            for (to, word) in to.iter_mut().zip(words) {
                *to = *word;
            }
            true
        })
    }

    /// Arguments of `clone`.
    fn clone(flags: u64, parent: u64, child: u64) -> [u64; 6] {
        let mut arguments = [0; 6];
        arguments[0] = flags;
        arguments[abi::call::CLONE_PARENT] = parent;
        arguments[abi::call::CLONE_CHILD] = child;
        arguments
    }

    #[test]
    fn what_the_kernel_reads_and_writes_is_named() {
        let fork = of(abi::call::FORK, [7; 6], None);
        assert_eq!(fork, Some(Arguments::default()));
        // As glibc forks: the child's word is set, and cleared at its end, when nobody can see that any more.
        let (set, clear) = (CLONE_CHILD_SETTID, 0x20_0000);
        let found = of(
            abi::call::CLONE,
            clone(set | clear | 17, 0, 3 * PAGE + 16),
            None,
        );
        assert_eq!(found.map(|it| it.pages()), Some(vec![3]));
        // A word that lies across two pages, and the parent's, which is the pidfd's too.
        let both = CLONE_PARENT_SETTID | CLONE_CHILD_SETTID;
        let found = of(abi::call::CLONE, clone(both, PAGE - 2, 5 * PAGE), None);
        assert_eq!(found.map(|it| it.pages()), Some(vec![0, 1, 5]));
        let found = of(abi::call::CLONE, clone(CLONE_PIDFD, PAGE, 9 * PAGE), None);
        assert_eq!(found.map(|it| it.pages()), Some(vec![1]));
    }

    #[test]
    fn the_structure_of_clone3_is_named_with_what_it_names() {
        let flags = CLONE_PIDFD | CLONE_CHILD_SETTID;
        let words = [
            flags,
            2 * PAGE,
            3 * PAGE,
            4 * PAGE,
            17,
            0,
            0,
            0,
            6 * PAGE,
            2,
        ];
        let of =
            |bytes, words: Option<&[u64]>| of(abi::call::CLONE3, [PAGE, bytes, 0, 0, 0, 0], words);
        let whole = of(88, Some(&words)).map(|it| it.pages());
        assert_eq!(
            whole,
            Some(vec![1, 2, 3, 6]),
            "the parent's word is not asked for"
        );
        let first = of(64, Some(&words)).map(|it| it.pages());
        assert_eq!(
            first,
            Some(vec![1, 2, 3]),
            "the first version has no list of ids"
        );
        assert_eq!(of(88, None), None);
        let huge = [0, 0, 0, 0, 0, 0, 0, 0, u64::MAX, u64::MAX];
        assert!(of(u64::MAX, Some(&huge)).is_some_and(|it| it.pages().len() < 8));
    }
}
