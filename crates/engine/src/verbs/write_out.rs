//! Second half of a swap-out: from the frame to the zero flag, the pool, or a physical area.
//!
//! The frame's claim is held from start to end, so there is one writer; the cluster's lock only at both ends, not while
//! the page is compressed or written. A put that reaches count 0 in between leaves the slot to the writer, who looks at
//! the count when it gives the claim back. Readers are not held up: they find the frame until the word says otherwise.
//!
//! Pages are written out several at a time; `homes.rs` finds them places.

use super::charge::Uncharges;
use super::leaving::{Coming, Destination, Leaving, Written};
use crate::base::storage::StorageError;
use crate::codec::Scratch;
use crate::engine::Engine;
use crate::frames::FrameRef;
use crate::words::backing_word::place_fits;
use crate::words::entry::Entry;

/// Why a page was not written out. Nothing is lost in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WriteOutError {
    /// The pool is at its limit, and no area has room. The page stays in its frame.
    #[error(
        "the compressed pool is at its limit and no area has room: the page stays in its frame; raise the limit, add \
         an area or free entries, and repeat"
    )]
    Full,
    /// There may be room, but not for the page's group. The page stays in its frame.
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
    /// The entry has no frame whose content is nowhere else: it is free or was written out before.
    #[error(
        "the entry is not waiting to be written out, expected one that was swapped out: nothing is to be done"
    )]
    NotCached,
}

impl Engine {
    /// Second half, of one page: as [`Engine::write_out_all`].
    ///
    /// # Errors
    /// [`WriteOutError`]; the content is where it was.
    pub fn write_out(&self, entry: Entry, scratch: &mut Scratch) -> Result<Written, WriteOutError> {
        let mut outcome = Err(WriteOutError::NotCached);
        self.write_out_all(0, &[entry], scratch, |_, of_one| outcome = of_one);
        outcome
    }

    /// Second half: finds the content of each page a place (zero flag, pool or area) and takes its frame out of
    /// the cache. The words keep count, zero flag and shadow. If the last reference of one goes away meanwhile,
    /// everything behind it is freed. `done` hears how it went for each. `cpu` is a hint where in an area to take slots
    /// from. Blocks while an area is written.
    pub fn write_out_all(
        &self,
        cpu: usize,
        entries: &[Entry],
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
        leaving.iter_mut().for_each(|page| self.pack(page, scratch));
        self.write_to_areas(cpu, &mut leaving, Coming::FromMemory);
        for page in leaving {
            done(page.entry, self.finish(&page));
        }
    }

    /// Claims the entry's frame: from here until `finish` a put leaves the slot to us.
    pub(crate) fn claim(&self, entry: Entry) -> Result<Leaving<FrameRef<'_>>, WriteOutError> {
        let (cluster, slot) = self.lock(entry).ok_or(WriteOutError::NotCached)?;
        if cluster.is_clean(slot) {
            return Err(WriteOutError::NotCached);
        }
        let word = cluster.word(slot);
        let index = word.frame().ok_or(WriteOutError::NotCached)?;
        if word.count_field() == 0 {
            // Put while another thread writes it out, or not published yet.
            return Err(WriteOutError::NotCached);
        }
        // The word names the frame and we hold the cluster, so the cache's reference is there to add ours to.
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
        // While we hold the claim nobody else takes the frame away from the slot.
        debug_assert_eq!(word.frame(), Some(index));
        self.frames.unclaim(index);
        if word.count_field() == 0 {
            // The last reference was put meanwhile and left the slot to us.
            self.release_slot(&mut cluster, page.entry);
            drop(cluster);
            self.frames.release(index);
            let stored = match page.to {
                Destination::Stored(stored, _) => Some(stored),
                _ => None,
            };
            let mut uncharges = Uncharges::new(&self.groups);
            self.lose_all(page.entry, page.group, stored, &mut uncharges);
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
                // The backing first: whoever sees the word without a frame finds it.
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
