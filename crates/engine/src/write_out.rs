//! Second half of a swap-out: from the frame to the zero flag or the pool.
//!
//! The frame's claim is held from start to end, so there is one writer; the cluster's lock only at both ends, not while
//! the page is compressed. A put that reaches count 0 in between leaves the slot to the writer, who looks at the count
//! when it gives the claim back. Readers are not held up: they find the frame until the word says otherwise.

use crate::backing::Backing;
use crate::codec::Scratch;
use crate::engine::Engine;
use crate::entry::Entry;
use crate::frame::FrameRef;
use crate::zpool::Handle;

/// What [`Engine::write_out`] made of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// All zeros: kept as a flag.
    Zero,
    /// Compressed to this many bytes.
    Compressed {
        /// Length of the payload.
        bytes: usize,
    },
    /// Did not compress; kept as it is.
    Raw,
    /// The last reference went away meanwhile: everything is freed.
    Freed,
}

/// Why a page was not written out. Nothing is lost in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WriteOutError {
    /// The pool is at its limit. The page stays in its frame.
    #[error(
        "the compressed pool is at its limit: the page stays in its frame; raise the limit or free entries, and repeat"
    )]
    PoolFull,
    /// Another thread is writing the entry out.
    #[error("another thread is writing this entry out: let it finish")]
    Busy,
    /// The entry has no frame: it is free or was written out before.
    #[error(
        "the entry holds no frame, expected one that was swapped out and not yet written out: nothing is to be done"
    )]
    NotCached,
}

/// How the frame of a page that was written out leaves the cache.
pub(crate) enum Outcome {
    Zero,
    Stored(Handle),
    Refused,
}

impl Engine {
    /// Second half: finds the content a place (the zero flag or the pool) and takes the frame out of the cache. The
    /// word keeps count, zero flag and shadow. If the last reference goes away meanwhile, everything is freed.
    ///
    /// # Errors
    /// [`WriteOutError`]; the content is where it was.
    pub fn write_out(&self, entry: Entry, scratch: &mut Scratch) -> Result<Written, WriteOutError> {
        let frame = self.claim(entry)?;
        if frame.is_zero() {
            return self.finish(entry, &frame, &Outcome::Zero, Written::Zero);
        }
        let (payload, written): (&[u8], _) = match self.codec.compress(&frame, scratch) {
            Ok(packed) => (
                packed,
                Written::Compressed {
                    bytes: packed.len(),
                },
            ),
            Err(_incompressible) => (&frame.0, Written::Raw),
        };
        self.at_pool.pass();
        let outcome = match self.pool.store(entry.raw(), payload) {
            Ok(handle) => Outcome::Stored(handle),
            Err(_full) => Outcome::Refused,
        };
        self.finish(entry, &frame, &outcome, written)
    }

    /// Claims the entry's frame: from here until `finish` a put leaves the slot to us.
    pub(crate) fn claim(&self, entry: Entry) -> Result<FrameRef<'_>, WriteOutError> {
        let (cluster, slot) = self.space.locate(entry).ok_or(WriteOutError::NotCached)?;
        let cluster = cluster.lock().ok_or(WriteOutError::NotCached)?;
        let word = cluster.word(slot);
        let index = word.frame().ok_or(WriteOutError::NotCached)?;
        // The word names the frame and we hold the cluster, so the cache's reference is there to add ours to.
        let frame = self.frames.try_get(index).ok_or(WriteOutError::NotCached)?;
        if word.count_field() == 0 || !self.frames.try_claim(index) {
            return Err(WriteOutError::Busy);
        }
        Ok(frame)
    }

    /// Gives the claim back and puts the slot into its new state.
    pub(crate) fn finish(
        &self,
        entry: Entry,
        frame: &FrameRef<'_>,
        outcome: &Outcome,
        written: Written,
    ) -> Result<Written, WriteOutError> {
        let located = self.space.locate(entry);
        let Some((mut cluster, slot)) = located.and_then(|(c, slot)| Some((c.lock()?, slot)))
        else {
            return Err(WriteOutError::NotCached);
        };
        let index = frame.index();
        let word = cluster.word(slot);
        // While we hold the claim nobody else takes the frame away from the slot.
        debug_assert_eq!(word.frame(), Some(index));
        self.frames.unclaim(index);
        if word.count_field() == 0 {
            // The last reference was put meanwhile and left the slot to us.
            self.space.release_slot(&mut cluster, entry);
            drop(cluster);
            self.frames.release(index);
            if let Outcome::Stored(handle) = *outcome {
                self.free_stored(handle);
            }
            return Ok(Written::Freed);
        }
        let word = word.into_shadow(self.frames.shadow(index));
        match *outcome {
            Outcome::Refused => return Err(WriteOutError::PoolFull),
            Outcome::Zero => cluster.set_word(slot, word.with_zero(true)),
            Outcome::Stored(handle) => {
                // The backing first: whoever sees the word without a frame finds it.
                cluster.set_backing(slot, Backing::compressed(handle));
                cluster.set_word(slot, word);
            }
        }
        drop(cluster);
        self.frames.release(index);
        Ok(written)
    }
}
