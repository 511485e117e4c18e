//! What a slot's backing word can become: every state, every step between them, and who takes it. No other file writes
//! a backing word.
//!
//! A slot that page tables name, virtual or directly mapped, has two words that say where its page is: the slot word
//! (`table.rs`: free, cached in a frame, or a shadow; the zero flag) and the backing word (`backing.rs`: none,
//! compressed, physical). Nothing is in both. Together they are one of these states; a zero flag and a stored page
//! exclude each other.
//!
//! | state | slot word | backing word | the page is |
//! |---|---|---|---|
//! | *free* | null | none | |
//! | *placed* | cached, count 0 | none | on its way into its frame; of no use to anybody yet |
//! | *cached* | cached | none | in its frame alone |
//! | *zero* | shadow, Z | none | all zeros, nowhere |
//! | *pool* | shadow | compressed | in the pool |
//! | *area* | shadow | physical | in a slot of an area |
//! | *ahead* | cached | stored, or Z | in its place, and read ahead from an area into a frame |
//! | *going* | shadow or cached | stored, pinned, A | freed by the last reader |
//! | (lost) | shadow without Z | none | nowhere: no step leads here, and reading it is an error |
//!
//! For a virtual slot "physical" names any slot of an area, which points back; for a directly mapped one it names
//! the slot itself, never another: it was taken at swap-out, is freed with its entry, and [`place_fits`] says so.
//!
//! | from | to | done by | decided by |
//! |---|---|---|---|
//! | free | placed, cached | `take_slot` (`swap_out.rs`) | cluster's lock |
//! | placed | cached, free | `Placed::publish`, its drop (`swap_out.rs`) | cluster's lock |
//! | cached | zero | `finish` (`write_out.rs`) | cluster's lock, claim of the frame |
//! | cached | pool, area | `finish`: [`ClusterGuard::store_backing`] | the same; word was none |
//! | pool | area | `write_back.rs`: [`ClusterGuard::exchange_backing`] | exchange, lock, pinned by us alone |
//! | area, ahead | another area, pool, zero | `swap_off.rs`, `demote.rs`, virtual slots alone: the same | the same |
//! | area | ahead | `add_to_cache` (`read_ahead.rs`) | cluster's lock; slot word alone |
//! | ahead | area, pool, zero | `drop_clean` (`read_ahead.rs`) | cluster's lock; slot word alone |
//! | pool, area, ahead | pinned once more | [`BackingWord::pin`], [`BackingWord::pin_idle`] | exchange, no lock |
//! | pinned | pinned once less | [`BackingWord::unpin`] | subtraction, no lock |
//! | pool | older, damaged | [`BackingWord::age`], [`BackingWord::mark_damaged`] | exchange, or; no lock |
//! | all these, unpinned | free | `free` (`engine.rs`): [`ClusterGuard::take_backing`] | exchange, cluster's lock |
//! | cached, claimed | free | `finish`, which finds count 0 | cluster's lock |
//! | pool, area, ahead, pinned | going | the same | the same |
//! | going | free | `unpin` (`swap_in.rs`): [`ClusterGuard::clear_backing`] | cluster's lock; nobody pins A |
//!
//! A step that fails half-way leaves the state before it: what was stored for the new state is freed, what was charged
//! is uncharged. Steps that are not in the table do not exist: a word other than none is never stored over, an
//! exchange names what it replaces, nothing is pinned that is none or going, and a slot is freed over none alone.

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

use crate::backing::{Backing, ONE_PIN, PINS_MAX, Stored};
use crate::cluster::ClusterGuard;
use crate::entry::Entry;
use crate::sync::{AtomicU64, Ordering};

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

/// What is left of a slot whose count is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    /// Readers are at its bytes: the last of them frees them and the slot.
    ToReaders,
    /// Ours to free, with these bytes if it had any.
    Here(Option<Stored>),
}

/// How [`ClusterGuard::exchange_backing`] ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exchanged {
    /// The word is the new one, without a pin.
    Done,
    /// Others have the bytes pinned just now.
    Shared,
    /// The word is another one but for pins: the page was read, put or moved.
    Changed,
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
pub(crate) struct BackingWord<'a>(&'a AtomicU64);

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

/// The steps that are taken under the cluster's lock.
impl ClusterGuard<'_> {
    /// Says where the bytes of a cached page are, which were nowhere.
    #[inline]
    pub(crate) fn store_backing(&mut self, slot: usize, backing: Backing) {
        debug_assert_eq!(self.backing(slot), Backing::NONE);
        debug_assert!(self.record().backing(slot).is_some());
        if let Some(BackingWord(word)) = self.record().backing(slot) {
            // Release lets whoever reads the word find the bytes. Nobody changes a word that is none without the lock.
            word.store(backing.raw(), Ordering::Release);
        }
    }

    /// Exchanges what we have pinned, and what was `old` when we did, for `new`.
    pub(crate) fn exchange_backing(
        &mut self,
        slot: usize,
        old: Backing,
        new: Backing,
    ) -> Exchanged {
        let Some(BackingWord(word)) = self.record().backing(slot) else {
            return Exchanged::Changed;
        };
        if Backing::from_raw(word.load(Ordering::Acquire)).unpinned() != old {
            return Exchanged::Changed;
        }
        // AcqRel: Release lets whoever reads the word find the bytes; Acquire orders the freeing of the old place after
        // the reads of those who have let go of it.
        let ours = old.pinned().raw();
        match word.compare_exchange(ours, new.raw(), Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Exchanged::Done,
            Err(_) => Exchanged::Shared,
        }
    }

    /// Takes away what is behind a slot whose count is 0.
    #[inline]
    pub(crate) fn take_backing(&mut self, slot: usize) -> Left {
        let Some(BackingWord(word)) = self.record().backing(slot) else {
            return Left::Here(None);
        };
        let mut raw = word.load(Ordering::Acquire);
        loop {
            let backing = Backing::from_raw(raw);
            let Some(stored) = backing.stored() else {
                return Left::Here(None);
            };
            let pinned = backing.pins() > 0;
            let new = if pinned {
                backing.abandoned()
            } else {
                Backing::NONE
            };
            // AcqRel: Acquire orders the freeing after the readers that have left; Release hands it to the one that
            // stays.
            match word.compare_exchange_weak(raw, new.raw(), Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) if pinned => return Left::ToReaders,
                Ok(_) => return Left::Here(Some(stored)),
                Err(now) => raw = now,
            }
        }
    }

    /// Takes away what is behind a slot that is going and that its last reader has let go of.
    pub(crate) fn clear_backing(&mut self, slot: usize) -> Option<Stored> {
        let BackingWord(word) = self.record().backing(slot)?;
        // Nobody pins such a word, so it is ours alone.
        let before = Backing::from_raw(word.swap(Backing::NONE.raw(), Ordering::AcqRel));
        debug_assert!(before.is_abandoned() && before.pins() == 0);
        before.stored()
    }
}
