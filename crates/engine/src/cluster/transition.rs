//! What a slot's backing word can become: every state, every step between states, and who takes the step. Only this
//! file and `words/backing_word.rs`, which has the steps without a lock, write a backing word.
//!
//! A slot that page tables name, virtual or directly mapped, has two words that say where its page is. The slot word
//! (`words/slot.rs`) says free, cached in a frame, or shadow, and has the zero flag. The backing word
//! (`words/backing.rs`) says none, compressed, or physical. No fact is in both words. Together they are in one of these
//! states. A zero flag and a stored page exclude each other.
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
//! In a virtual slot's word "physical" names any slot of an area, and that slot points back. In a directly mapped
//! slot's word "physical" always names the slot itself, which was taken at swap-out and is freed with its entry.
//! [`place_fits`](crate::words::backing_word::place_fits) checks this.
//!
//! | from | to | done by | decided by |
//! |---|---|---|---|
//! | free | placed, cached | `take_slot` (`verbs/swap_out.rs`) | cluster's lock |
//! | placed | cached, free | `Placed::publish`, its drop (`verbs/swap_out.rs`) | cluster's lock |
//! | cached | zero | `finish` (`verbs/write_out.rs`) | cluster's lock, claim of the frame |
//! | cached | pool, area | `finish`: [`ClusterGuard::store_backing`] | the same; word was none |
//! | pool | area | `verbs/write_back.rs`: [`ClusterGuard::exchange_backing`] | exchange, lock, pinned by us alone |
//! | pool | pool, packed again | `verbs/repack.rs`: the same | the same |
//! | area, ahead | another area, pool, zero | `verbs/{swap_off,demote}.rs`, virtual slots alone: the same | the same |
//! | area | ahead | `add_to_cache` (`verbs/read_ahead.rs`) | cluster's lock; slot word alone |
//! | ahead | area, pool, zero | `drop_clean` (`verbs/read_ahead.rs`) | cluster's lock; slot word alone |
//! | pool, area, ahead | pinned once more | [`BackingWord::pin`], [`BackingWord::pin_idle`] | exchange, no lock |
//! | pinned | pinned once less | [`BackingWord::unpin`] | subtraction, no lock |
//! | pool | older | [`BackingWord::age`] | exchange, no lock |
//! | pool | damaged, dense | [`BackingWord::mark_damaged`], [`BackingWord::mark_dense`] | or, no lock; pinned |
//! | all these, unpinned | free | `free` (`verbs/put.rs`): [`ClusterGuard::take_backing`] | exchange, cluster's lock |
//! | cached, claimed | free | `finish`, which finds count 0 | cluster's lock |
//! | pool, area, ahead, pinned | going | the same | the same |
//! | going | free | `unpin` (`verbs/pins.rs`): [`ClusterGuard::clear_backing`] | cluster's lock; nobody pins A |
//!
//! A step that fails half-way leaves the state before it: what was stored for the new state is freed, and what was
//! charged is uncharged. Steps that are not in the table do not exist. Nobody stores over a word other than none. An
//! exchange names the word that it replaces. Nobody pins a word that is none or going. A slot is freed only when its
//! backing word is none.

use super::guard::ClusterGuard;
use crate::base::sync::Ordering;
use crate::words::backing::{Backing, Stored};
use crate::words::backing_word::BackingWord;

/// What remains of a slot whose count is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    /// Readers are using its bytes. The last of them frees the bytes and the slot.
    ToReaders,
    /// The caller frees the slot, and these bytes if there are any.
    Here(Option<Stored>),
}

/// How [`ClusterGuard::exchange_backing`] ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exchanged {
    /// The word is now the new one, without a pin.
    Done,
    /// Other readers have the bytes pinned right now.
    Shared,
    /// The word differs in more than pins: the page was read, put or moved.
    Changed,
}

/// The steps that are taken under the cluster's lock.
impl ClusterGuard<'_> {
    /// Whether the content of a cached slot's frame is also stored, or is zeros by the zero flag.
    pub(crate) fn is_clean(&self, slot: usize) -> bool {
        self.backing(slot).stored().is_some() || self.word(slot).is_zero()
    }

    /// Says where the bytes of a cached page are. They were stored nowhere before.
    #[inline]
    pub(crate) fn store_backing(&mut self, slot: usize, backing: Backing) {
        debug_assert_eq!(self.backing(slot), Backing::NONE);
        debug_assert!(self.record().backing(slot).is_some());
        if let Some(BackingWord(word)) = self.record().backing(slot) {
            // Release: whoever reads the word finds the bytes. Without the lock nobody changes a word that is none.
            word.store(backing.raw(), Ordering::Release);
        }
    }

    /// Exchanges a word for `new`. The caller has it pinned, and it was `old` before that pin.
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
        // AcqRel. Release: whoever reads the word finds the bytes. Acquire: the old place is freed only after the reads
        // of those who have unpinned it.
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
            // AcqRel. Acquire: we free after the reads of those who have left. Release: the reader that stays sees our
            // writes.
            match word.compare_exchange_weak(raw, new.raw(), Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) if pinned => return Left::ToReaders,
                Ok(_) => return Left::Here(Some(stored)),
                Err(now) => raw = now,
            }
        }
    }

    /// Takes away what is behind a slot that is going, after its last reader has unpinned it.
    pub(crate) fn clear_backing(&mut self, slot: usize) -> Option<Stored> {
        let BackingWord(word) = self.record().backing(slot)?;
        // Nobody pins such a word, so only we change it.
        let before = Backing::from_raw(word.swap(Backing::NONE.raw(), Ordering::AcqRel));
        debug_assert!(before.is_abandoned() && before.pins() == 0);
        before.stored()
    }
}
