//! Second half of a swap-out: from the frame to the zero flag, the pool, or a physical area.
//!
//! The frame's claim is held from start to end, so there is only one writer. The cluster's lock is held only at both
//! ends, not while the page is compressed or written. A put that reaches count 0 in between leaves the slot to the
//! writer, who looks at the count when it gives the claim back. Readers are not delayed: they find the frame until the
//! word says otherwise.
//!
//! Several pages are written out at a time. `homes.rs` finds places for them.

use super::charge::Uncharges;
use super::leaving::{Coming, Destination, Leaving, Written};
use crate::base::storage::StorageError;
use crate::codec::{Pack, Scratch};
use crate::engine::Engine;
use crate::frames::FrameRef;
use crate::words::backing_word::place_fits;
use crate::words::entry::Entry;

/// Why a page was not written out. Nothing is lost in any of these cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WriteOutError {
    /// The pool is at its limit, and no area has room. The page stays in its frame.
    #[error(
        "the compressed pool is at its limit and no area has room: the page stays in its frame; raise the limit, add \
         an area or free entries, and repeat"
    )]
    Full,
    /// There may be room, but the limits of the page's group do not allow it. The page stays in its frame.
    #[error(
        "a limit of the page's group, or of one that it is in, leaves no room for it: the page stays in its frame; \
         raise the limit or free entries of the group, and repeat"
    )]
    Limited,
    /// An area could not be written. The page stays in its frame.
    #[error(
        "an area cannot be written: {0}: the page stays in its frame; check the device, and repeat"
    )]
    Unwritable(StorageError),
    /// Another thread is writing the entry out.
    #[error("another thread is writing this entry out: let it finish")]
    Busy,
    /// The entry has no frame that is the only place of its content: it is free, or was written out before.
    #[error(
        "the entry is not waiting to be written out, expected one that was swapped out: nothing is to be done"
    )]
    NotCached,
}

impl Engine {
    /// Writes one page out, as [`Engine::write_out_all`] does.
    ///
    /// # Errors
    /// [`WriteOutError`]; the content is where it was.
    pub fn write_out(&self, entry: Entry, scratch: &mut Scratch) -> Result<Written, WriteOutError> {
        let mut outcome = Err(WriteOutError::NotCached);
        self.write_out_all(0, &[entry], scratch, |_, of_one| outcome = of_one);
        outcome
    }

    /// Writes pages out as [`Engine::write_out_packed`] does, packed with the codec of the engine.
    pub fn write_out_all(
        &self,
        cpu: usize,
        entries: &[Entry],
        scratch: &mut Scratch,
        done: impl FnMut(Entry, Result<Written, WriteOutError>),
    ) {
        self.write_out_packed(cpu, entries, |_| self.codec, scratch, done);
    }

    /// Second half of a swap-out: finds a place for each page's content (zero flag, pool or area) and takes its frame
    /// out of the cache. The words keep count, zero flag and shadow. If the last reference of a page goes away
    /// meanwhile, everything behind it is freed. `how` says how a page is packed, and `done` gets the result for
    /// each entry. `cpu` is a hint where in an area to take slots. Blocks while an area is written.
    pub fn write_out_packed<P: Into<Pack>>(
        &self,
        cpu: usize,
        entries: &[Entry],
        how: impl Fn(Entry) -> P,
        scratch: &mut Scratch,
        mut done: impl FnMut(Entry, Result<Written, WriteOutError>),
    ) {
        let mut leaving = Vec::with_capacity(entries.len());
        for &entry in entries {
            match self.claim(entry) {
                Ok(page) => leaving.push(page),
                Err(error) => done(entry, Err(error)),
            }
        }
        for page in &mut leaving {
            let how = how(page.entry).into();
            self.pack(page, how, scratch);
        }
        self.write_to_areas(cpu, &mut leaving, Coming::FromMemory);
        for page in leaving {
            done(page.entry, self.finish(&page));
        }
    }

    /// Claims the entry's frame. From here until `finish` a put leaves the slot to us.
    pub(crate) fn claim(&self, entry: Entry) -> Result<Leaving<FrameRef<'_>>, WriteOutError> {
        let (cluster, slot) = self.lock(entry).ok_or(WriteOutError::NotCached)?;
        if cluster.is_clean(slot) {
            return Err(WriteOutError::NotCached);
        }
        let word = cluster.word(slot);
        let index = word.frame().ok_or(WriteOutError::NotCached)?;
        if word.count_field() == 0 {
            // The page was put while another thread writes it out, or is not published yet.
            return Err(WriteOutError::NotCached);
        }
        // The word names the frame and we hold the cluster's lock. So the cache holds a reference, and we can take
        // another.
        let frame = self.frames.try_get(index).ok_or(WriteOutError::NotCached)?;
        if !self.frames.try_claim(index) {
            return Err(WriteOutError::Busy);
        }
        Ok(Leaving::new(entry, cluster.state.groups.of(slot), frame))
    }

    /// Gives the claim back and puts the slot into its new state.
    pub(crate) fn finish(&self, page: &Leaving<FrameRef<'_>>) -> Result<Written, WriteOutError> {
        let Some((mut cluster, slot)) = self.lock(page.entry) else {
            return Err(WriteOutError::NotCached);
        };
        let index = page.page.index();
        let word = cluster.word(slot);
        // While we hold the claim nobody else takes the frame from the slot.
        debug_assert_eq!(word.frame(), Some(index));
        self.frames.unclaim(index);
        if word.count_field() == 0 {
            // The last reference was put meanwhile, and the put left the slot to us.
            let own = self.release_slot(&mut cluster, page.entry);
            drop(cluster);
            self.frames.release(index);
            let stored = match page.to {
                Destination::Stored(stored, _) => Some(stored),
                _ => None,
            };
            let mut uncharges = Uncharges::new(&self.groups);
            self.lose_all(page.entry, page.group, stored, own, &mut uncharges);
            return Ok(Written::Freed);
        }
        let word = word.into_shadow(self.frames.shadow(index));
        let written = match page.to {
            Destination::None { is_limited, .. } if is_limited => {
                return Err(WriteOutError::Limited);
            }
            Destination::None { .. } => return Err(WriteOutError::Full),
            Destination::Refused(error) => return Err(WriteOutError::Unwritable(error)),
            Destination::Zero => {
                cluster.set_word(slot, word.with_zero(true));
                Written::Zero
            }
            Destination::Stored(stored, written) => {
                debug_assert!(place_fits(page.entry, stored));
                // Backing first: whoever sees the word without a frame finds the bytes.
                cluster.store_backing(slot, self.backing_of(stored));
                cluster.set_word(slot, word);
                written
            }
        };
        drop(cluster);
        self.frames.release(index);
        Ok(written)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
