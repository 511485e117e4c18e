//! The page word: one atomic word for each page that says where its content is, and who may change that.
//!
//! ```text
//!   absent --fault--> busy --> plain                    no content: it reads as zeros
//!   out(e) --fault--> busy --> owed(e)                  from the pool, by the handler
//!   out(e) --fault--> reading(e) --> kept(e), owed(e)   from an area, by a thread that may block
//!   owed(e) --> plain                                   somebody has put the entry
//!   kept(e) --write--> busy --> owed(e)                 the protection is lifted
//!   plain, owed --evictor--> copying --> leaving --> dropping --> out(e), or absent if it is all zeros
//!   leaving --write--> busy --> plain                   the evictor finds that it has lost the page
//!   kept(e) --evictor--> dropping --> out(e)            nothing is to be compressed
//! ```
//!
//! A page is *claimed* while it is busy, reading, copying or dropping: everybody else waits for whoever claimed it. A
//! claim is short (a system call or a decompression), but for reading. A page that is leaving belongs to whoever takes
//! it from there by compare-exchange. Each state that names an entry owns the entry's reference: who takes the word to
//! a state that does not name it must put it.
//!
//! Only the evictor makes words copying, and there is one. So it cannot take a page that is leaving again for the one
//! that it left there.

use std::sync::atomic::Ordering;

use vswap_engine::Entry;
use vswap_sys::memory::{MemoryError, Words};

use crate::event::Event;

const STATE_SHIFT: u32 = Entry::BITS;
const VALUE_MASK: u64 = (1 << STATE_SHIFT) - 1;
/// The page is never to leave.
const STAYS: u64 = 1 << 63;
const STATE_MASK: u64 = 0xf << STATE_SHIFT;
/// Channels on which threads wait for claims: more than threads that are likely to wait at a time.
const CHANNELS: usize = 64;

const _: () = assert!(STATE_SHIFT + 4 <= 63);

/// Where a page's content is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Nowhere, and the page is missing. It reads as zeros.
    Absent,
    /// Behind the entry alone.
    Out(Entry),
    /// Somebody changes it.
    Busy,
    /// Behind the entry, and a thread brings it.
    Reading(Entry),
    /// In memory.
    Plain,
    /// In memory. The entry is to be put.
    Owed(Entry),
    /// In memory, write-protected, and the same behind the entry.
    Kept(Entry),
    /// In memory, and the evictor protects and copies it.
    Copying,
    /// In memory, write-protected, and the evictor has a copy.
    Leaving,
    /// The evictor takes it out of memory.
    Dropping,
    /// In memory, write-protected, and it did not compress. Moving it out would gain nothing until it is written to.
    Raw,
    /// In memory, where so many pins keep it.
    Pinned(u32),
    /// Lost. What is left of it behind the entry is to be put.
    Lost(Option<Entry>),
}

/// A page word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word(u64);

impl Word {
    /// The word with another state.
    pub fn with(self, state: State) -> Word {
        let (number, value) = match state {
            State::Absent => (0, 0),
            State::Out(entry) => (1, entry.raw()),
            State::Busy => (2, 0),
            State::Reading(entry) => (3, entry.raw()),
            State::Plain => (4, 0),
            State::Owed(entry) => (5, entry.raw()),
            State::Kept(entry) => (6, entry.raw()),
            State::Copying => (7, 0),
            State::Leaving => (8, 0),
            State::Dropping => (9, 0),
            State::Pinned(pins) => (10, u64::from(pins)),
            State::Lost(entry) => (11, entry.map_or(0, Entry::raw)),
            State::Raw => (12, 0),
        };
        Word((self.0 & STAYS) | (number << STATE_SHIFT) | value)
    }

    /// A word that nobody made reads as a lost page.
    pub fn state(self) -> State {
        let value = self.0 & VALUE_MASK;
        let entry = Entry::from_raw(value);
        match ((self.0 & STATE_MASK) >> STATE_SHIFT, entry) {
            (0, _) => State::Absent,
            (1, Some(entry)) => State::Out(entry),
            (2, _) => State::Busy,
            (3, Some(entry)) => State::Reading(entry),
            (4, _) => State::Plain,
            (5, Some(entry)) => State::Owed(entry),
            (6, Some(entry)) => State::Kept(entry),
            (7, _) => State::Copying,
            (8, _) => State::Leaving,
            (9, _) => State::Dropping,
            (10, _) => State::Pinned(u32::try_from(value).unwrap_or(u32::MAX)),
            (11, entry) => State::Lost(entry),
            (12, _) => State::Raw,
            _ => State::Lost(None),
        }
    }

    /// Is the page never to leave?
    pub fn stays(self) -> bool {
        self.0 & STAYS != 0
    }

    /// The word with that said or unsaid.
    pub fn with_stays(self, stays: bool) -> Word {
        Word(if stays {
            self.0 | STAYS
        } else {
            self.0 & !STAYS
        })
    }

    /// Does somebody change it, so that all others wait?
    pub fn is_claimed(self) -> bool {
        matches!(
            self.state(),
            State::Busy | State::Reading(_) | State::Copying | State::Dropping
        )
    }

    /// Does the page take memory?
    pub fn is_resident(self) -> bool {
        match self.state() {
            State::Plain
            | State::Owed(_)
            | State::Kept(_)
            | State::Copying
            | State::Leaving
            | State::Dropping
            | State::Raw
            | State::Pinned(_) => true,
            State::Absent | State::Out(_) | State::Busy | State::Reading(_) | State::Lost(_) => {
                false
            }
        }
    }

    /// Is it write-protected?
    pub fn is_protected(self) -> bool {
        matches!(self.state(), State::Kept(_) | State::Leaving | State::Raw)
    }

    /// The entry whose reference the word owns.
    pub fn entry(self) -> Option<Entry> {
        match self.state() {
            State::Out(entry) | State::Reading(entry) | State::Owed(entry) | State::Kept(entry) => {
                Some(entry)
            }
            State::Lost(entry) => entry,
            _ => None,
        }
    }
}

/// The words of all pages.
#[derive(Debug)]
pub struct PageWords {
    words: Words,
    channels: [Event; CHANNELS],
}

impl PageWords {
    /// Words of pages that are absent.
    ///
    /// # Errors
    /// No memory.
    pub fn new(pages: usize) -> Result<PageWords, MemoryError> {
        Ok(PageWords {
            words: Words::new(pages)?,
            channels: std::array::from_fn(|_| Event::default()),
        })
    }

    /// The word as it is.
    pub fn load(&self, page: usize) -> Word {
        // Pairs with the stores below: whoever sees a state sees what was done to the page before.
        Word(self.words[page].load(Ordering::SeqCst))
    }

    /// Takes the word from one state to another. False if it is no longer what it was.
    pub fn change(&self, page: usize, from: Word, to: Word) -> bool {
        // Pairs with the loads above and in other changes, and with those who count themselves as waiting.
        let changed =
            self.words[page].compare_exchange(from.0, to.0, Ordering::SeqCst, Ordering::SeqCst);
        changed.is_ok()
    }

    /// Ends the caller's claim, and wakes who waits for that.
    pub fn settle(&self, page: usize, to: Word) {
        // As above.
        self.words[page].store(to.0, Ordering::SeqCst);
        self.channels[page % CHANNELS].happened();
    }

    /// Waits until the word is no longer this one.
    pub fn wait(&self, page: usize, seen: Word) {
        while self.load(page) == seen {
            self.channels[page % CHANNELS].wait_unless(None, || self.load(page) != seen);
        }
    }

    /// Claims a page, waiting for whoever has it claimed. Returns the word that it had.
    pub fn claim(&self, page: usize) -> Word {
        loop {
            let word = self.load(page);
            if word.is_claimed() {
                self.wait(page, word);
            } else if self.change(page, word, word.with(State::Busy)) {
                return word;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_is_read_as_it_was_written() {
        let entry = Entry::from_raw((1 << 48) | 0x1234).expect("an entry");
        let states = [
            State::Absent,
            State::Out(entry),
            State::Busy,
            State::Reading(entry),
            State::Plain,
            State::Owed(entry),
            State::Kept(entry),
            State::Copying,
            State::Leaving,
            State::Dropping,
            State::Raw,
            State::Pinned(9),
            State::Lost(None),
            State::Lost(Some(entry)),
        ];
        for state in states {
            for stays in [false, true] {
                let word = Word(0).with_stays(stays).with(state);
                assert_eq!((word.state(), word.stays()), (state, stays));
                // Who owns an entry says so, and who is claimed is not taken for at rest.
                let owns = matches!(
                    state,
                    State::Out(_)
                        | State::Reading(_)
                        | State::Owed(_)
                        | State::Kept(_)
                        | State::Lost(Some(_))
                );
                assert_eq!(word.entry().is_some(), owns);
                assert!(!(word.is_claimed() && word.is_protected()));
            }
        }
        assert_eq!(Word(1 << STATE_SHIFT).state(), State::Lost(None));
        assert_eq!(Word(15 << STATE_SHIFT).state(), State::Lost(None));
    }

    #[test]
    fn one_of_many_claims_a_page_at_a_time() {
        let words = PageWords::new(4).expect("memory");
        let inside = std::sync::atomic::AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        let word = words.claim(1);
                        assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::Relaxed);
                        words.settle(1, word.with(State::Plain));
                    }
                });
            }
        });
        assert_eq!(words.load(1).state(), State::Plain);
    }
}
