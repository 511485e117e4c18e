//! Serving faults: first touches, and writes to pages whose entry was kept. Pages that come back are in `swap_in`.
//!
//! Called with the space lock held by the readers and by the evictor (for faults that waited). Threads whose faults
//! were served are woken only when the lock has been given back (`release`): the kernel may run a woken thread at once
//! in place of the one that wakes it, and its next fault would then wait for a lock whose holder does not run. Only the
//! thread that waits for a lone page of swap is woken before, see `swap_in`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use vswap_engine::{Page, Scratch};
use vswap_sys::uffd::{UffdError, copy_mode};

use crate::core::Core;
use crate::lock::MutexGuard;
use crate::reader;
use crate::rules::{self, Rule};
use crate::run::PAGE_BYTES;
use crate::space::{Space, State, WINDOW_PAGES_MAX};
use crate::stats::LatencyRecorder;
use crate::words::{PageState, PageWord};

/// Zeros for first touches that write: one stream window.
static ZEROS: [Page; 64] = [const { Page([0; 4096]) }; 64];

/// A fault, as read from the userfaultfd.
#[derive(Debug, Clone, Copy)]
pub struct Fault {
    /// Number of the page.
    pub page: u64,
    /// The access is a write.
    pub write: bool,
    /// The page is there but write-protected.
    pub protected: bool,
    /// Served whatever the limit says: eviction may be waiting for it.
    pub urgent: bool,
    /// No fault yet: pages that a stream will touch next, which nobody waits for.
    pub ahead: bool,
    /// When it was read.
    pub since: Instant,
}

/// What became of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Served, or noted where it will be found again.
    Done,
    /// The kernel wants layout events read first; the caller must serve it again.
    Again,
}

/// What a thread needs to serve faults: made once, used for one space after another.
pub struct Buffers {
    pub(crate) scratch: Scratch,
    /// What is being brought in.
    pub(crate) pages: Box<[Page]>,
    pub(crate) recorder: LatencyRecorder,
}

impl Buffers {
    /// Buffers of one thread, for so many pages.
    pub fn new(core: &Core, pages: u64) -> Buffers {
        Buffers {
            scratch: core.engine.scratch(),
            pages: (0..pages).map(|_| Page([0; 4096])).collect(),
            recorder: core.stats.recorder(),
        }
    }
}

/// Serves faults of one space; one per thread, it owns the buffers.
pub struct FaultServer<'a> {
    pub(crate) core: &'a Core,
    pub(crate) space: &'a Arc<Space>,
    pub(crate) buffers: Buffers,
    /// First page and number of pages of what was served and not yet announced to the threads that wait.
    pub(crate) served: Vec<(u64, u64)>,
}

impl<'a> FaultServer<'a> {
    /// A server with buffers of its own.
    pub fn new(core: &'a Core, space: &'a Arc<Space>) -> FaultServer<'a> {
        FaultServer::with(core, space, Buffers::new(core, WINDOW_PAGES_MAX))
    }

    /// A server with buffers that another one has used.
    pub fn with(core: &'a Core, space: &'a Arc<Space>, buffers: Buffers) -> FaultServer<'a> {
        FaultServer {
            core,
            space,
            buffers,
            served: Vec::new(),
        }
    }

    /// The buffers, for another server.
    pub fn into_buffers(self) -> Buffers {
        self.buffers
    }

    /// Give the lock back, and wake the threads whose faults were served under it. Faults that waited for a claim of
    /// this server and that nobody has looked at since are handed to the evictor: a reader may not come by again.
    pub fn release(&mut self, mut state: MutexGuard<'_, State>) {
        let ready = state.take_ready();
        if !ready.is_empty() {
            state.deferred.extend(ready);
            self.space.evictor.ask(|wanted| wanted.deferred = true);
        }
        drop(state);
        let served = self.served.len() as u64;
        self.space
            .faults_served
            .fetch_add(served, Ordering::Relaxed);
        for (page, pages) in self.served.drain(..) {
            // An unaligned or unmapped range cannot be: the addresses came from the kernel. A dead space needs no wake.
            let _ = self.space.uffd.wake(page * PAGE_BYTES, pages * PAGE_BYTES);
        }
    }

    /// Serve one fault. The lock is handed back, possibly after having been released in between.
    pub fn serve<'g>(
        &mut self,
        mut state: MutexGuard<'g, State>,
        fault: &Fault,
    ) -> (MutexGuard<'g, State>, Outcome)
    where
        'a: 'g,
    {
        let word = state.layout.words.get(fault.page);
        if word.is_claimed() {
            state.waiting.push(*fault);
            return (state, Outcome::Done);
        }
        match word.state() {
            PageState::Swapped(_) if self.must_wait(fault) => self.defer(state, fault),
            PageState::Swapped(entry) => self.swap_in(state, fault, entry),
            PageState::Kept(_) if fault.protected => {
                let outcome = self.unprotect(&mut state, fault);
                (state, outcome)
            }
            PageState::Kept(_) => {
                let outcome = self.look_again(fault);
                (state, outcome)
            }
            PageState::Plain if self.must_wait(fault) => self.defer(state, fault),
            PageState::Plain if fault.protected => {
                let outcome = self.first_write(&mut state, fault);
                (state, outcome)
            }
            PageState::Plain => {
                let outcome = self.first_touch(&mut state, fault);
                (state, outcome)
            }
        }
    }

    /// Serve the faults that wait for memory: the urgent ones, and those that `admit` lets pass.
    pub fn serve_deferred(&mut self, admit: impl Fn(&State, &Fault) -> bool) {
        let mut state = self.space.lock_thawed();
        for mut fault in std::mem::take(&mut state.deferred) {
            if !fault.urgent && !admit(&state, &fault) {
                state.deferred.push(fault);
                continue;
            }
            fault.urgent = true;
            let (after, outcome) = self.serve(state, &fault);
            state = after;
            if outcome == Outcome::Again {
                state.deferred.push(fault);
            }
        }
        self.release(state);
    }

    /// Does the limit make this fault wait? Not while eviction itself waits for the faulting thread.
    fn must_wait(&self, fault: &Fault) -> bool {
        if self.core.governor.has_headroom() || self.space.has_ended() {
            return false;
        }
        let evictable = self.space.process.get().is_some() && !fault.urgent;
        evictable && self.space.forks_open.load(Ordering::Acquire) == 0
    }

    fn defer<'g>(
        &self,
        mut state: MutexGuard<'g, State>,
        fault: &Fault,
    ) -> (MutexGuard<'g, State>, Outcome)
    where
        'a: 'g,
    {
        self.core.stats.faults_deferred.add(1);
        // Rule P5: the fault waits, the reader does not.
        if !rules::holds(Rule::ReadAlways) {
            return self.wait_here(state);
        }
        state.deferred.push(*fault);
        self.space.evictor.ask(|wanted| wanted.deferred = true);
        (state, Outcome::Done)
    }

    /// What `defer` does without rule P5.
    fn wait_here<'g>(&self, state: MutexGuard<'g, State>) -> (MutexGuard<'g, State>, Outcome)
    where
        'a: 'g,
    {
        drop(state);
        while !self.core.governor.has_headroom() && !self.space.has_ended() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        (self.space.lock(), Outcome::Again)
    }

    /// The thread shall look again.
    pub(crate) fn wake(&mut self, fault: &Fault) {
        self.served.push((fault.page, 1));
    }

    /// A missing page that should be there. The message may be older than the page's return. Else the page has gone and
    /// nobody has told: what it should hold now is not known, and waking the thread would have it fault for ever.
    fn look_again(&mut self, fault: &Fault) -> Outcome {
        if !reader::present_pages(self.space, fault.page..fault.page + 1).is_empty() {
            self.wake(fault);
        } else if self.space.uffd.events_pending() {
            return Outcome::Again;
        } else {
            let why = "it has gone from memory without an event";
            self.core.fail_closed(self.space, fault.page, &why);
        }
        Outcome::Done
    }

    /// A write to a page with a kept entry: it is no longer the same.
    fn unprotect(&mut self, state: &mut State, fault: &Fault) -> Outcome {
        let address = fault.page * PAGE_BYTES;
        let answer = self.space.uffd.write_unprotect(address, PAGE_BYTES, true);
        if let Err(UffdError::Again { .. }) = answer {
            return Outcome::Again;
        }
        self.wake(fault);
        if answer.is_err() {
            // Unmapped meanwhile; the UNMAP event follows.
            return Outcome::Done;
        }
        let words = &mut state.layout.words;
        let word = words.get(fault.page);
        words.set(fault.page, word.written());
        self.core.put_word(word);
        self.core.kept_was_written();
        self.core.stats.faults.add(1);
        self.core.stats.faults_unprotect.add(1);
        Outcome::Done
    }

    /// A write to a protected page without an entry: the zero page, in place of which the kernel puts fresh memory, or
    /// a page whose entry was shed.
    fn first_write(&mut self, state: &mut State, fault: &Fault) -> Outcome {
        let pages = self.plain_window(state, fault);
        let address = fault.page * PAGE_BYTES;
        let uffd = &self.space.uffd;
        let lift = |pages| uffd.write_unprotect(address, pages * PAGE_BYTES, true);
        // A window may reach over the end of a mapping.
        let (answer, pages) = match lift(pages) {
            Err(UffdError::NoEntry { .. } | UffdError::Invalid { .. }) if pages > 1 => (lift(1), 1),
            answer => (answer, pages),
        };
        if let Err(UffdError::Again { .. }) = answer {
            return Outcome::Again;
        }
        self.served.push((fault.page, pages));
        if answer.is_err() {
            // Unmapped meanwhile; the UNMAP event follows.
            return Outcome::Done;
        }
        state.first_touches.reached(fault.page, pages);
        self.took(pages);
        self.core.stats.faults.add(1);
        self.core.stats.faults_first_touch.add(1);
        Outcome::Done
    }

    /// A page that was never touched, or was discarded: zeros.
    fn first_touch(&mut self, state: &mut State, fault: &Fault) -> Outcome {
        let pages = self.plain_window(state, fault);
        let uffd = &self.space.uffd;
        let answer = fill(pages, |bytes| {
            if fault.write {
                let zeros = ZEROS.as_ptr().cast();
                uffd.copy(fault.page * PAGE_BYTES, zeros, bytes, copy_mode::DONTWAKE)
            } else {
                uffd.zeropage(fault.page * PAGE_BYTES, bytes, true)
            }
        });
        let done = match answer {
            Ok(done) => done,
            Err(UffdError::Again { .. } | UffdError::NoMemory { .. }) => return Outcome::Again,
            // Present already, or its mapping is gone: the thread shall look again.
            Err(_) => {
                self.wake(fault);
                return Outcome::Done;
            }
        };
        self.served.push((fault.page, done));
        for page in fault.page..fault.page + done {
            // Seen missing: the discard that the REMOVE event announced has happened.
            if state.layout.words.get(page).is_stale() {
                state.layout.words.set(page, PageWord::PLAIN);
            }
        }
        state.first_touches.reached(fault.page, done);
        if fault.write {
            self.took(done);
        } else {
            // Fresh memory in place of the zero page has to be asked for. If this fails because an event is unread, the
            // window grows unasked, which the next sample sees.
            let _ = self
                .space
                .uffd
                .write_protect(fault.page * PAGE_BYTES, done * PAGE_BYTES);
        }
        self.core.stats.faults.add(1);
        self.core.stats.faults_first_touch.add(1);
        Outcome::Done
    }

    pub(crate) fn took(&self, pages: u64) {
        self.core.governor.took_pages(pages);
        self.space.gave(pages.cast_signed());
    }

    /// How many pages from the fault on may be served with it: the stream's window, as far as there is nothing in swap.
    fn plain_window(&self, state: &mut State, fault: &Fault) -> u64 {
        let window = state.first_touches.window(fault.page);
        let end = state
            .layout
            .registered
            .range_of(fault.page)
            .map_or(fault.page + 1, |r| r.end);
        let plain = |page: &u64| {
            let word = state.layout.words.get(*page);
            !word.is_claimed() && word.entry().is_none()
        };
        let most = u64::try_from(ZEROS.len())
            .unwrap_or(1)
            .min(window)
            .min(end - fault.page);
        let wanted = (fault.page..fault.page + most.max(1))
            .take_while(plain)
            .count();
        u64::try_from(wanted).unwrap_or(1).max(1)
    }
}

impl std::fmt::Debug for FaultServer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FaultServer")
            .field("space", &self.space.id)
            .finish_non_exhaustive()
    }
}

/// Fill `pages` pages with `call`, which takes bytes; the pages done. A window may reach over the end of a mapping
/// into the next, which one call cannot fill: then only the first page.
pub(crate) fn fill(
    pages: u64,
    call: impl Fn(u64) -> Result<(), UffdError>,
) -> Result<u64, UffdError> {
    match call(pages * PAGE_BYTES) {
        Ok(()) => Ok(pages),
        Err(error) if error.done_bytes() >= PAGE_BYTES => Ok(error.done_bytes() / PAGE_BYTES),
        Err(UffdError::NoEntry { .. } | UffdError::Invalid { .. }) if pages > 1 => {
            call(PAGE_BYTES).map(|()| 1)
        }
        Err(error) => Err(error),
    }
}
