//! Serving faults: first touches, and writes to pages whose entry was kept. `swap_in` brings pages back.
//!
//! The readers call this with the space lock held. So does the evictor, for faults that waited. Threads whose faults
//! were served are woken only after the lock was released (`release`). The kernel may run a woken thread at once in
//! place of the thread that wakes it. The next fault of the woken thread would then wait for a lock whose holder does
//! not run. The one exception is the thread that waits for a lone swapped page: it is woken before, see `swap_in`.

pub mod serving;
pub mod lost;
mod swap_in;
pub mod bring_in;
pub mod held;
pub mod recent;
pub mod area_reads;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use vswap_engine::Page;

use crate::base::kernel::clock;
use crate::base::kernel::uffd::{UffdError, copy_mode};
use crate::base::page_run::PAGE_BYTES;
use crate::base::rules::{self, Rule};
use crate::fault::serving::Serving;
use crate::layout::words::{PageState, PageWord};
use crate::run::buffers::Buffers;
use crate::space::fault::Fault;
use crate::space::giving::SharedGuard;
use crate::space::wait::Wait;
use crate::space::{Space, State, present};

/// Zeros for first touches that write: one window of a stream.
static ZEROS: [Page; 64] = [const { Page([0; 4096]) }; 64];

/// What became of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Served, or noted where it will be found again.
    Done,
    /// The kernel wants layout events to be read first. The caller must serve the fault again.
    Again,
}

/// Serves the faults of one space, for one thread.
pub struct FaultServer<'a> {
    pub(crate) serving: &'a Serving,
    pub(crate) space: &'a Arc<Space>,
    buffers: Option<Buffers>,
    /// The thread has buffers of its own. Others borrow some until they release the lock.
    owns_buffers: bool,
}

impl<'a> FaultServer<'a> {
    /// A server that borrows buffers when it needs them.
    pub fn new(serving: &'a Serving, space: &'a Arc<Space>) -> FaultServer<'a> {
        FaultServer {
            serving,
            space,
            buffers: None,
            owns_buffers: false,
        }
    }

    /// A server with the buffers of its thread.
    pub fn with(serving: &'a Serving, space: &'a Arc<Space>, buffers: Buffers) -> FaultServer<'a> {
        FaultServer {
            serving,
            space,
            buffers: Some(buffers),
            owns_buffers: true,
        }
    }

    /// Take the buffers, for another server.
    pub fn into_buffers(mut self) -> Buffers {
        self.buffers.take().unwrap_or_else(|| {
            self.serving
                .spare_buffers
                .take(&self.serving.engine, &self.serving.stats)
        })
    }

    pub(crate) fn buffers(&mut self) -> &mut Buffers {
        let serving = self.serving;
        self.buffers
            .get_or_insert_with(|| serving.spare_buffers.take(&serving.engine, &serving.stats))
    }

    /// Release the lock, and wake the threads whose faults were served under it. Faults that waited for a claim of this
    /// server, and that nobody has looked at since, go to the evictor: a reader may not come by again.
    pub fn release<'g>(&mut self, state: impl Into<SharedGuard<'g>>) {
        let mut state = state.into();
        let ready = state.take_ready();
        if !ready.is_empty() {
            state.deferred.extend(ready);
            self.space.mailbox.ask(|wanted| wanted.deferred = true);
        }
        drop(state);
        let Some(buffers) = &mut self.buffers else {
            return;
        };
        let served = buffers.served.len() as u64;
        self.space
            .faults_served
            .fetch_add(served, Ordering::Relaxed);
        for (page, pages) in buffers.served.drain(..) {
            // The range is aligned and mapped, because the addresses came from the kernel. A dead space needs no wake.
            let _ = self.space.uffd.wake(page * PAGE_BYTES, pages * PAGE_BYTES);
        }
        if !self.owns_buffers
            && let Some(buffers) = self.buffers.take()
        {
            self.serving.spare_buffers.give(buffers);
        }
    }

    /// Serve one fault. Returns the lock, which may have been released in between. Others may be giving pages then:
    /// whoever goes on with anything but serving has to exclude them.
    pub fn serve<'g>(
        &mut self,
        state: impl Into<SharedGuard<'g>>,
        fault: &Fault,
    ) -> (SharedGuard<'g>, Outcome)
    where
        'a: 'g,
    {
        let mut state = state.into();
        let word = state.layout.words.get(fault.page);
        if word.is_claimed() {
            // A page whose loss is unexplained stays claimed for long. A thread in a system call that has a signal
            // pending asks again and again meanwhile.
            let is_like = |known: &Fault| known.is_like(fault);
            if !state.is_unexplained(fault.page) || !state.waiting.iter().any(is_like) {
                state.waiting.push(fault.clone());
            }
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
                let outcome = self.look_again(&mut state, fault);
                (state, outcome)
            }
            PageState::Plain if self.must_wait(fault) => self.defer(state, fault),
            PageState::Plain if fault.protected => {
                let outcome = self.first_write(&mut state, fault);
                (state, outcome)
            }
            PageState::Plain => self.first_touch(state, fault),
        }
    }

    /// Serve the faults that wait for memory: the urgent ones and those that `admit` allows. Up to the first that the
    /// kernel refuses because an event is unread: it would refuse all of them. It comes last then.
    pub fn serve_deferred(&mut self, admit: impl Fn(&State, &Fault) -> bool) {
        let mut state = SharedGuard::from(self.space.lock_thawed());
        let mut faults = std::mem::take(&mut state.deferred).into_iter();
        while let Some(mut fault) = faults.next() {
            if !fault.urgent && !admit(&state, &fault) {
                state.deferred.push(fault);
                continue;
            }
            fault.urgent = true;
            let (after, outcome) = self.serve(state, &fault);
            state = after;
            if outcome == Outcome::Again {
                state.deferred.extend(faults.by_ref());
                state.deferred.push(fault);
            }
        }
        self.release(state);
    }

    /// Have a page that is not out present and unprotected, because the kernel will write to it when it cannot wait for
    /// a fault. False if a layout event prevents it.
    pub fn make_writable<'g>(
        &mut self,
        state: SharedGuard<'g>,
        page: u64,
    ) -> (SharedGuard<'g>, bool)
    where
        'a: 'g,
    {
        if !state.layout.registered.contains(page) {
            return (state, true);
        }
        if !present::present_parts(self.space, page..page + 1).is_empty() {
            let lifted = self
                .space
                .uffd
                .write_unprotect(page * PAGE_BYTES, PAGE_BYTES, true);
            return (state, !matches!(lifted, Err(UffdError::Again { .. })));
        }
        let fault = Fault {
            page,
            write: true,
            protected: false,
            urgent: true,
            ahead: false,
            since: clock::now(),
            wait: Wait::nobody(),
        };
        let (state, outcome) = self.first_touch(state, &fault);
        (state, outcome != Outcome::Again)
    }

    /// Does the limit make this fault wait, or that the run is about to be parked? Not if eviction itself waits for the
    /// faulting thread.
    fn must_wait(&self, fault: &Fault) -> bool {
        let is_free = self.serving.limit.has_headroom() && !self.serving.parking.is_holding();
        if is_free || self.space.has_ended() {
            return false;
        }
        let evictable = self.space.process.get().is_some() && !self.space.is_confined();
        let evictable = evictable && !fault.urgent;
        // Without its agent nothing leaves either, and the fault would wait for ever.
        evictable && self.space.forks_open.load(Ordering::Acquire) == 0 && !self.space.is_hung_up()
    }

    fn defer<'g>(&self, mut state: SharedGuard<'g>, fault: &Fault) -> (SharedGuard<'g>, Outcome)
    where
        'a: 'g,
    {
        self.serving.stats.faults_deferred.add(1);
        // Rule P5: the fault waits, the reader does not.
        if !rules::holds(Rule::ReadAlways) {
            return self.wait_here(state);
        }
        // A thread in a system call that has a signal pending does not sleep: it asks again and again.
        let is_known = state.deferred.iter().any(|known| known.is_like(fault));
        if !is_known {
            state.deferred.push(fault.clone());
        }
        self.space.mailbox.ask(|wanted| wanted.deferred = true);
        (state, Outcome::Done)
    }

    /// What `defer` does without rule P5.
    fn wait_here<'g>(&self, state: SharedGuard<'g>) -> (SharedGuard<'g>, Outcome)
    where
        'a: 'g,
    {
        drop(state);
        while !self.serving.limit.has_headroom() && !self.space.has_ended() {
            clock::sleep(std::time::Duration::from_millis(1));
        }
        (self.space.lock_shared(), Outcome::Again)
    }

    /// Have the thread look again.
    pub(crate) fn wake(&mut self, fault: &Fault) {
        self.buffers().served.push((fault.page, 1));
    }

    /// A page is missing that should be there. The message may be older than the page's return, or the page was
    /// unmapped since. Otherwise the page has gone without an event. Then nobody knows what it should hold, and a woken
    /// thread would fault for ever.
    fn look_again(&mut self, state: &mut State, fault: &Fault) -> Outcome {
        if !present::present_parts(self.space, fault.page..fault.page + 1).is_empty() {
            self.wake(fault);
        } else if (state.undecided.contains(fault.page) && rules::holds(Rule::LateFault))
            || self.space.uffd.events_pending()
        {
            return Outcome::Again;
        } else if self.space.marks.load(Ordering::Acquire) {
            // Discarded through an io_uring, see `marks`.
            self.serving
                .references
                .put(state.layout.words.set(fault.page, PageWord::PLAIN));
            return Outcome::Again;
        } else {
            let why = "it has gone from memory without an event";
            lost::fail_closed_later(self.space, state, fault.page, fault, &why);
        }
        Outcome::Done
    }

    /// Remove a marker from a page's place. UFFDIO_ZEROPAGE and UFFDIO_POISON take a marker for a page, so the thread
    /// would fault for ever. The marker may be ours (see `marks`), or a protection: another thread discarded a zero
    /// page before it was protected. Nobody relies on protection where there is no entry. If this fails, the thread
    /// faults again.
    pub(crate) fn lift_marker(&self, page: u64) {
        let address = page * PAGE_BYTES;
        let _ = self.space.uffd.write_unprotect(address, PAGE_BYTES, true);
    }

    /// A write to a page with a kept entry. The page will differ from the entry.
    fn unprotect(&mut self, state: &mut State, fault: &Fault) -> Outcome {
        let address = fault.page * PAGE_BYTES;
        let answer = self.space.uffd.write_unprotect(address, PAGE_BYTES, true);
        if let Err(UffdError::Again { .. }) = answer {
            return Outcome::Again;
        }
        self.wake(fault);
        if answer.is_err() {
            // Unmapped meanwhile. The UNMAP event follows.
            return Outcome::Done;
        }
        let words = &mut state.layout.words;
        let word = words.get(fault.page);
        words.set(fault.page, word.written());
        self.serving.references.put(word);
        self.serving.references.kept_was_written();
        self.serving.stats.faults.add(1);
        self.serving.stats.faults_unprotect.add(1);
        Outcome::Done
    }

    /// A write to a protected page without an entry. It is the zero page, which the kernel replaces by fresh memory, or
    /// a page whose entry was shed.
    fn first_write(&mut self, state: &mut State, fault: &Fault) -> Outcome {
        let pages = self.plain_window(state, fault);
        let address = fault.page * PAGE_BYTES;
        let uffd = &self.space.uffd;
        let lift = |pages| uffd.write_unprotect(address, pages * PAGE_BYTES, true);
        // A window may cross the end of a mapping.
        let (answer, pages) = match lift(pages) {
            Err(UffdError::NoEntry { .. } | UffdError::Invalid { .. }) if pages > 1 => (lift(1), 1),
            answer => (answer, pages),
        };
        if let Err(UffdError::Again { .. }) = answer {
            return Outcome::Again;
        }
        self.buffers().served.push((fault.page, pages));
        if answer.is_err() {
            // Unmapped meanwhile. The UNMAP event follows.
            return Outcome::Done;
        }
        state.first_touches.reached(fault.page, pages);
        self.took(pages);
        self.serving.stats.faults.add(1);
        self.serving.stats.faults_first_touch.add(1);
        Outcome::Done
    }

    /// The page was never touched or was discarded: give it zeros, and those behind it in a stream.
    fn first_touch<'g>(
        &mut self,
        mut state: SharedGuard<'g>,
        fault: &Fault,
    ) -> (SharedGuard<'g>, Outcome)
    where
        'a: 'g,
    {
        let window = self.plain_window(&mut state, fault);
        let (mut state, given) = self.space.give(state, || self.give_zeros(fault, window));
        let done = match given {
            Ok(done) => done,
            Err(UffdError::Again { .. } | UffdError::NoMemory { .. }) => {
                return (state, Outcome::Again);
            }
            // Present already, or its mapping is gone: have the thread look again.
            Err(error) => {
                if matches!(error, UffdError::Exists { .. }) {
                    self.lift_marker(fault.page);
                }
                self.wake(fault);
                return (state, Outcome::Done);
            }
        };
        if done == 0 {
            // It became a guard page after the message was sent. The thread shall run into the guard.
            self.wake(fault);
            return (state, Outcome::Done);
        }
        self.buffers().served.push((fault.page, done));
        state.layout.seen_missing(fault.page..fault.page + done);
        state.first_touches.reached(fault.page, done);
        if fault.write {
            self.took(done);
        }
        self.serving.stats.faults.add(1);
        self.serving.stats.faults_first_touch.add(1);
        (state, Outcome::Done)
    }

    /// Give zeros to at most `window` pages from the fault on. Returns to how many; none if there is a guard page.
    fn give_zeros(&self, fault: &Fault, window: u64) -> Result<u64, UffdError> {
        let Some(pages) = self.before_guards(fault, window) else {
            return Ok(0);
        };
        let uffd = &self.space.uffd;
        let address = fault.page * PAGE_BYTES;
        if fault.write {
            let zeros = ZEROS.as_ptr().cast();
            return fill(pages, |bytes| {
                uffd.copy(address, zeros, bytes, copy_mode::DONTWAKE)
            });
        }
        let done = fill(pages, |bytes| uffd.zeropage(address, bytes, true))?;
        // Protect the zero pages, so that the write that makes memory of one faults and asks for it. If an unread event
        // prevents that, the window grows unasked, and the next sample notices it.
        let _ = uffd.write_protect(address, done * PAGE_BYTES);
        Ok(done)
    }

    /// How many of `pages` pages from the fault on lie before the next guard page (MADV_GUARD_INSTALL)? UFFDIO_COPY
    /// would replace a guard by a page, UFFDIO_ZEROPAGE refuses to. None if the fault's own page is a guard.
    fn before_guards(&self, fault: &Fault, pages: u64) -> Option<u64> {
        if !fault.write {
            return Some(pages);
        }
        // A child without an agent cannot be asked, and may have inherited guards.
        if self.space.process.get().is_none() {
            return Some(1);
        }
        let guards = present::guard_pages(self.space, fault.page..fault.page + pages);
        let first = guards.unwrap_or_default().first().copied();
        let clear = first.map_or(pages, |guard| guard - fault.page);
        (clear > 0).then_some(clear)
    }

    pub(crate) fn took(&self, pages: u64) {
        self.serving.limit.took_pages(pages);
        self.space.gave(pages.cast_signed());
    }

    /// How many pages from the fault on can be served with it: the stream's window, up to the first page in swap.
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

/// Fill `pages` pages with `call`, which takes a number of bytes. Returns the pages done. A window may cross the end of
/// a mapping, and one call cannot fill two mappings. Then only the first page is filled.
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
