//! A slot's backing word in memory, with the steps that need no lock. What they are steps between, and those that are
//! taken under the cluster's lock: `cluster/transition.rs`.

use super::backing::{Backing, ONE_PIN, PINS_MAX, Stored};
use super::entry::Entry;
use crate::base::sync::{AtomicU64, Ordering};

/// What [`BackingWord::pin`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pin {
    /// Added a pin: the bytes stay there until it is taken away.
    Taken(Stored),
    /// Nothing is stored, or it is about to be freed.
    Nothing,
    /// There are as many readers as can be: wait, with nothing pinned.
    Crowded,
}

/// Whether bytes of the page of `entry` may be there: a directly mapped page has no slot but its own.
pub(crate) fn place_fits(entry: Entry, stored: Stored) -> bool {
    match stored {
        Stored::Pool(_) => true,
        Stored::Physical(slot) => (slot == entry) == entry.is_direct(),
    }
}

/// A slot's backing word, with the steps that need no lock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BackingWord<'a>(pub(crate) &'a AtomicU64);

impl<'a> BackingWord<'a> {
    #[inline]
    pub(crate) fn new(word: &'a AtomicU64) -> BackingWord<'a> {
        BackingWord(word)
    }

    #[inline]
    pub(crate) fn load(self) -> Backing {
        // Acquire pairs with the Release of whoever stored it: the bytes are there.
        Backing::from_raw(self.0.load(Ordering::Acquire))
    }

    /// A look at the word by somebody who reads nothing through it.
    #[inline]
    pub(crate) fn peek(self) -> Backing {
        Backing::from_raw(self.0.load(Ordering::Relaxed))
    }

    /// Adds a reader if what is stored is `wanted`; in the pool it is of the generation `youngest` from now on.
    #[inline]
    pub(crate) fn pin(self, youngest: u8, wanted: impl Fn(Stored) -> bool) -> Pin {
        let mut backing = self.load();
        loop {
            let stored = match backing.stored() {
                Some(stored) if !backing.is_abandoned() && wanted(stored) => stored,
                _ => return Pin::Nothing,
            };
            if backing.pins() == PINS_MAX {
                return Pin::Crowded;
            }
            // Acquire pairs with the Release with which the word was stored: the bytes are there.
            match self.0.compare_exchange_weak(
                backing.raw(),
                backing.pinned().touched(youngest).raw(),
                Ordering::Acquire,
                Ordering::Acquire,
            ) {
                Ok(_) => return Pin::Taken(stored),
                Err(now) => backing = Backing::from_raw(now),
            }
        }
    }

    /// Adds a reader, who is no sign of warmth, if the word is still `was`: then the page was neither read nor put nor
    /// moved since the look at it.
    pub(crate) fn pin_idle(self, was: Backing) -> bool {
        debug_assert!(was.pins() == 0 && !was.is_abandoned() && was.stored().is_some());
        let is = was.pinned().raw();
        // Acquire as for `pin`.
        let order = (Ordering::Acquire, Ordering::Relaxed);
        let pinned = self.0.compare_exchange(was.raw(), is, order.0, order.1);
        pinned.is_ok()
    }

    /// Takes a reader away. True if it was the last of a slot that is going: then it is the caller's to free.
    #[inline]
    pub(crate) fn unpin(self) -> bool {
        // AcqRel: our reads are done before the bytes are freed, and if we free them, after everybody's reads.
        let before = Backing::from_raw(self.0.fetch_sub(ONE_PIN, Ordering::AcqRel));
        debug_assert!(before.pins() > 0);
        before.is_abandoned() && before.pins() == 1
    }

    /// Gives a page of the pool another generation, unless somebody is at it meanwhile: then it is young, or gone.
    pub(crate) fn age(self, was: Backing, generation: u8) {
        let is = was.touched(generation).raw();
        // Relaxed: nothing is read through it.
        let order = Ordering::Relaxed;
        let _ = self.0.compare_exchange(was.raw(), is, order, order);
    }

    /// Marks bytes of the pool, which we have pinned, as damaged.
    pub(crate) fn mark_damaged(self) {
        debug_assert!(matches!(self.peek().stored(), Some(Stored::Pool(_))));
        // Relaxed: nothing is read through it.
        self.0.fetch_or(Backing::DAMAGED, Ordering::Relaxed);
    }
}
