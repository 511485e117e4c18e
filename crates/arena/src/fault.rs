//! Serving a fault: bringing a page back, or making it writable. Runs in handlers, in the thread that touched the page,
//! and in calls that want a page in memory.
//!
//! Allocates nothing and takes no lock that a faulting thread can hold (see the head of `lib.rs`). Signals are blocked.
//! Room is taken before the page is claimed: the evictor waits for claims, and who waits for room waits for the
//! evictor.
//!
//! Who touches pages in order gets the next ones along (`streams.rs`), as far as there is room without waiting.

use std::sync::atomic::Ordering;

use vswap_engine::Entry;
use vswap_sys::uffd::UffdError;

use crate::state::{Core, PAGE_BYTES, count};
use crate::word::{State, Word};

/// How often a call is repeated that the kernel puts off, or has no memory for.
const TRIES_MAX: usize = 1000;

/// Why a fault is not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// No room can be made.
    Full,
    /// The content is lost.
    Lost,
    /// The kernel does not do what it is asked to.
    Kernel,
}

impl Refused {
    /// What is said before the process is left to what it would do without the arena.
    pub fn text(self) -> &'static str {
        match self {
            Refused::Full => {
                "vswap-arena: RAM, pool and areas are full, and a page that was touched has no room\n"
            }
            Refused::Lost => {
                "vswap-arena: the content of a page is lost: it was damaged in memory, or its swap area cannot be \
                 read\n"
            }
            Refused::Kernel => "vswap-arena: the kernel gives no page to memory that was touched\n",
        }
    }
}

/// What a page without content is filled with.
static ZEROS: [u8; PAGE_BYTES] = [0; PAGE_BYTES];

impl Core {
    /// As [`Core::serve`], for a thread that has touched the page: it may go on with the next ones.
    ///
    /// # Errors
    /// As for `serve`.
    pub fn serve_touch(&self, page: usize, is_write: bool) -> Result<(), Refused> {
        // What is being brought already, perhaps along with another, leaves the stream as it is.
        let is_first = matches!(self.words.load(page).state(), State::Absent | State::Out(_));
        self.serve(page, is_write)?;
        if is_first {
            self.bring_along(page, is_write);
        }
        Ok(())
    }

    /// Takes one step so that the access can be repeated. It may fault again.
    ///
    /// # Errors
    /// [`Refused`]: repeating it would not help.
    pub fn serve(&self, page: usize, is_write: bool) -> Result<(), Refused> {
        let word = self.words.load(page);
        match word.state() {
            State::Absent => self.bring_zeros(page, word, is_write),
            State::Out(entry) => self.bring_in(page, word, entry, is_write),
            State::Lost(_) => Err(Refused::Lost),
            State::Busy | State::Reading(_) | State::Copying | State::Dropping => {
                self.words.wait(page, word);
                Ok(())
            }
            _ if is_write => self.make_writable(page, word),
            // Somebody has brought it meanwhile.
            _ => Ok(()),
        }
    }

    fn bring_zeros(&self, page: usize, word: Word, is_write: bool) -> Result<(), Refused> {
        self.room.take().map_err(|_| Refused::Full)?;
        count(&self.counts.zero_faults);
        self.fill_with_zeros(page, word, is_write)
    }

    /// For a page that is counted already.
    fn fill_with_zeros(&self, page: usize, word: Word, is_write: bool) -> Result<(), Refused> {
        if !self.words.change(page, word, word.with(State::Busy)) {
            self.room.give_back(1);
            return Ok(());
        }
        let filled = patiently(|| {
            if is_write {
                self.memory.fill(page, &ZEROS, false)
            } else {
                self.memory.zero(page)
            }
        });
        match filled {
            Ok(()) => {
                self.words.settle(page, word.with(State::Plain));
                Ok(())
            }
            Err(_) => self.fail(page, word, Refused::Kernel),
        }
    }

    /// Ends a claim that came to nothing.
    fn fail(&self, page: usize, word: Word, why: Refused) -> Result<(), Refused> {
        self.words.settle(page, word);
        self.room.give_back(1);
        Err(why)
    }

    fn bring_in(
        &self,
        page: usize,
        word: Word,
        entry: Entry,
        is_write: bool,
    ) -> Result<(), Refused> {
        self.room.take().map_err(|_| Refused::Full)?;
        match self.fill_from_pool(page, word, entry) {
            Some(done) => {
                count(&self.counts.pool_faults);
                done
            }
            None => {
                if let Some(reading) = self.ask_for(page, word, entry, is_write) {
                    self.words.wait(page, reading);
                } else {
                    std::thread::yield_now();
                }
                Ok(())
            }
        }
    }

    /// For a page that is counted already. `None` if it is not in the pool.
    fn fill_from_pool(&self, page: usize, word: Word, entry: Entry) -> Option<Result<(), Refused>> {
        // Held until the page is here. Nothing goes from the pool to an area meanwhile.
        let gate = self.gate.try_read().ok();
        if self.areas.any() && (gate.is_none() || self.engine.is_physical(entry)) {
            return None;
        }
        if !self.words.change(page, word, word.with(State::Busy)) {
            self.room.give_back(1);
            return Some(Ok(()));
        }
        let brought = self.desks.with(|desk| {
            let (content, scratch) = desk.parts();
            let read = self.engine.swap_in(entry, content, scratch);
            read.map_err(|_| Refused::Lost)?;
            patiently(|| self.memory.fill(page, &content.0, false)).map_err(|_| Refused::Kernel)
        });
        Some(self.arrive(page, word, entry, brought, State::Owed(entry)))
    }

    /// Brings pages that are likely to be touched after this one, which is there or about to be.
    fn bring_along(&self, page: usize, is_write: bool) {
        let window = self.streams.window(page).min(self.room.along());
        let mut next = page + 1;
        if window > 0 {
            let last = page.saturating_add(usize::try_from(window).unwrap_or(0));
            let end = self.end_of_used(page).min(last + 1);
            while next < end && self.bring_neighbour(next, is_write) {
                next += 1;
            }
            self.room.look();
        }
        self.streams.expect(page, next, window);
    }

    /// The end of the pages in use around this one, as far as that can be told without waiting: a handler must not.
    fn end_of_used(&self, page: usize) -> usize {
        let space = self.space.try_lock().ok();
        space.map_or(page + 1, |space| space.end_of_used(page))
    }

    /// Brings a page that nobody waits for. False if it stays where it is.
    fn bring_neighbour(&self, page: usize, is_write: bool) -> bool {
        let word = self.words.load(page);
        let is_out = matches!(word.state(), State::Absent | State::Out(_));
        if !is_out {
            return word.is_resident() && !word.is_claimed();
        }
        if !self.room.try_take() {
            return false;
        }
        let brought = match word.state() {
            State::Out(entry) => match self.fill_from_pool(page, word, entry) {
                Some(done) => done.is_ok(),
                None => self.ask_for(page, word, entry, is_write).is_some(),
            },
            _ => self.fill_with_zeros(page, word, is_write).is_ok(),
        };
        self.counts
            .brought_along
            .fetch_add(u64::from(brought), Ordering::Relaxed);
        brought
    }

    /// Ends the claim of a page that was brought in, or was not.
    ///
    /// # Errors
    /// Why it was not.
    pub fn arrive(
        &self,
        page: usize,
        word: Word,
        entry: Entry,
        brought: Result<(), Refused>,
        to: State,
    ) -> Result<(), Refused> {
        match brought {
            Ok(()) => {
                self.words.settle(page, word.with(to));
                if let State::Owed(_) = to {
                    self.mark_owed(page);
                }
                Ok(())
            }
            // Nobody ever reads anything in its place.
            Err(Refused::Lost) => {
                self.fail(page, word.with(State::Lost(Some(entry))), Refused::Lost)
            }
            Err(why) => self.fail(page, word.with(State::Out(entry)), why),
        }
    }

    /// Has a thread read the page from its area. Returns the word until it is there; `None` if it is not asked for.
    fn ask_for(&self, page: usize, word: Word, entry: Entry, is_write: bool) -> Option<Word> {
        let reading = word.with(State::Reading(entry));
        if !self.words.change(page, word, reading) {
            self.room.give_back(1);
            return None;
        }
        if !self.reads.ask(page, is_write) {
            self.words.settle(page, word);
            self.room.give_back(1);
            return None;
        }
        Some(reading)
    }

    /// Lifts the protection of a page. The evictor finds that it has lost one that was leaving.
    fn make_writable(&self, page: usize, word: Word) -> Result<(), Refused> {
        if !self.words.change(page, word, word.with(State::Busy)) {
            return Ok(());
        }
        let lifted = patiently(|| self.memory.unprotect(page..page + 1));
        if lifted.is_err() {
            // A page that was leaving stays protected, so it is not plain. It goes on as one that may leave.
            self.words.settle(page, word);
            return Err(Refused::Kernel);
        }
        count(&self.counts.write_faults);
        let to = match word.state() {
            State::Kept(entry) => State::Owed(entry),
            State::Leaving => State::Plain,
            State::Raw => {
                self.counts.raw.fetch_sub(1, Ordering::Relaxed);
                State::Plain
            }
            other => other,
        };
        self.words.settle(page, word.with(to));
        if let State::Owed(_) = to {
            self.mark_owed(page);
        }
        Ok(())
    }

    /// Has a page in memory and writable, as far as that lasts.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn have(&self, page: usize) -> Result<(), Refused> {
        loop {
            let word = self.words.load(page);
            if word.is_resident() && !word.is_claimed() && !word.is_protected() {
                return Ok(());
            }
            self.serve(page, true)?;
        }
    }
}

/// Repeats a call that the kernel puts off. A page that is there already is as good.
pub fn patiently(mut call: impl FnMut() -> Result<(), UffdError>) -> Result<(), UffdError> {
    let mut tries = 0;
    loop {
        match call() {
            Err(UffdError::Again { .. } | UffdError::NoMemory { .. }) if tries < TRIES_MAX => {
                tries += 1;
                std::thread::yield_now();
            }
            done => return done,
        }
    }
}
