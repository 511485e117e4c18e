//! A slot's backing word in memory, and the steps that need no lock. `cluster/transition.rs` has the states, and the
//! steps under the cluster's lock.

use super::backing::{Backing, ONE_PIN, PINS_MAX, Stored};
use super::entry::Entry;
use crate::base::sync::{AtomicU64, Ordering};

/// What [`BackingWord::pin`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pin {
    /// Added a pin: the bytes stay in place until the pin is taken away.
    Taken(Stored),
    /// Nothing is stored, or the bytes are about to be freed.
    Nothing,
    /// There are already [`PINS_MAX`](crate::words::backing::PINS_MAX) readers. Nothing was pinned; the caller waits.
    Crowded,
}

/// Whether the page of `entry` may be stored there. A directly mapped page can only be in its own slot.
pub(crate) fn place_fits(entry: Entry, stored: Stored) -> bool {
    match stored {
        Stored::Pool(_) => true,
        Stored::Physical(slot) => (slot == entry) == entry.is_direct(),
    }
}

/// Reference to a slot's backing word.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BackingWord<'a>(pub(crate) &'a AtomicU64);

impl<'a> BackingWord<'a> {
    #[inline]
    pub(crate) fn new(word: &'a AtomicU64) -> BackingWord<'a> {
        BackingWord(word)
    }

    #[inline]
    pub(crate) fn load(self) -> Backing {
        // Acquire pairs with the Release that stored the word: the bytes are in place.
        Backing::from_raw(self.0.load(Ordering::Acquire))
    }

    /// Loads the word for a caller that reads nothing through it.
    #[inline]
    pub(crate) fn peek(self) -> Backing {
        Backing::from_raw(self.0.load(Ordering::Relaxed))
    }

    /// Adds a pin if what is stored is `wanted`. A page in the pool gets the generation `youngest`.
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
            // Acquire pairs with the Release that stored the word: the bytes are in place.
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

    /// Adds a pin if the word is still `was`, which means that nobody read, put or moved the page since. Leaves the
    /// generation alone, because this reader does not make the page warm.
    pub(crate) fn pin_idle(self, was: Backing) -> bool {
        debug_assert!(was.pins() == 0 && !was.is_abandoned() && was.stored().is_some());
        let is = was.pinned().raw();
        // Acquire as in `pin`.
        let order = (Ordering::Acquire, Ordering::Relaxed);
        let pinned = self.0.compare_exchange(was.raw(), is, order.0, order.1);
        pinned.is_ok()
    }

    /// Takes a pin away. True if it was the last pin of a slot that is going: then the caller must free the slot.
    #[inline]
    pub(crate) fn unpin(self) -> bool {
        // AcqRel: our reads end before another thread frees the bytes. If we free them, everybody's reads have ended
        // before.
        let before = Backing::from_raw(self.0.fetch_sub(ONE_PIN, Ordering::AcqRel));
        debug_assert!(before.pins() > 0);
        before.is_abandoned() && before.pins() == 1
    }

    /// Gives a page of the pool another generation. Does nothing if the word changed meanwhile: then the page is young,
    /// or gone.
    pub(crate) fn age(self, was: Backing, generation: u8) {
        let is = was.touched(generation).raw();
        // Relaxed: nothing is read through the word.
        let order = Ordering::Relaxed;
        let _ = self.0.compare_exchange(was.raw(), is, order, order);
    }

    /// Marks bytes in the pool as damaged. The caller has them pinned.
    pub(crate) fn mark_damaged(self) {
        self.mark(Backing::DAMAGED);
    }

    /// Marks bytes in the pool as packed as densely as they can be. The caller has them pinned.
    pub(crate) fn mark_dense(self) {
        self.mark(Backing::DENSE);
    }

    fn mark(self, flag: u64) {
        debug_assert!(matches!(self.peek().stored(), Some(Stored::Pool(_))));
        // Relaxed: nothing is read through the word.
        self.0.fetch_or(flag, Ordering::Relaxed);
    }
}
