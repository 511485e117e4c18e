//! Copying an entry's content back, without a lock.
//!
//! A reference holds a frame in place (`lookup.rs`), and a pin holds stored bytes (`pins.rs`). So the content of
//! another entry is never returned.

use super::lookup::Lookup;
use super::runs::{self, Wanted};
use crate::base::pages::Page;
use crate::base::storage::StorageError;
use crate::base::sync::yield_now;
use crate::cluster::Cluster;
use crate::codec::Scratch;
use crate::engine::Engine;
use crate::words::backing::Stored;
use crate::words::backing_word::Pin;
use crate::words::entry::Entry;
use crate::words::slot::Kind;
use crate::zpool::Handle;

/// Where [`Engine::swap_in`] found the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SwapIn {
    /// The page is all zeros.
    Zero,
    /// In the frame from which it was swapped out.
    Cached,
    /// In the frame into which it was read ahead. Nobody has asked for it before.
    ReadAhead,
    /// In the pool.
    Compressed,
    /// In a physical area.
    Physical,
}

/// Why a page could not be brought back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SwapInError {
    /// The entry is free.
    #[error("the entry is not in use: its last reference was put before or during the swap-in")]
    Gone,
    /// The stored bytes are damaged; the destination holds anything.
    #[error(
        "entry {raw:#x}: the stored bytes are damaged ({what}): the page cannot be brought back; check the \
         machine's memory"
    )]
    Corrupt {
        /// The entry.
        raw: u64,
        /// What did not fit.
        what: &'static str,
    },
    /// The area could not be read; the destination holds anything.
    #[error(
        "entry {raw:#x}: its area cannot be read: {error}: the page cannot be brought back; check the device"
    )]
    Unreadable {
        /// The entry.
        raw: u64,
        /// What the storage said.
        error: StorageError,
    },
}

/// How far a swap-in has come without reading an area.
pub(crate) enum Begun {
    /// The content is copied.
    Done(SwapIn),
    /// The content is in this physical slot, which is now pinned and must be read.
    Pinned(Entry),
    /// Like [`Pin::Crowded`].
    Crowded,
}

impl Engine {
    /// Copies the entry's content to `dst`. Keeps the count. Takes no lock; blocks while an area is read.
    ///
    /// # Errors
    /// [`SwapInError`]; `dst` may have been written to.
    pub fn swap_in(
        &self,
        entry: Entry,
        dst: &mut Page,
        scratch: &mut Scratch,
    ) -> Result<SwapIn, SwapInError> {
        loop {
            match self.begin(entry, dst, scratch)? {
                Begun::Done(from) => return Ok(from),
                Begun::Pinned(physical) => {
                    let mut wanted = [Wanted::new(0, entry, physical, dst)];
                    self.read_runs(&mut wanted);
                    let [one] = wanted;
                    return self.end(entry, one.read);
                }
                Begun::Crowded => yield_now(),
            }
        }
    }

    /// Copies the content of each entry to the page at the same place in `pages`, as [`Engine::swap_in`] does. Content
    /// in neighbouring slots of an area is read with one request. `done` gets the result for each entry, by its place,
    /// in any order.
    pub fn swap_in_all(
        &self,
        entries: &[Entry],
        pages: &mut [&mut Page],
        scratch: &mut Scratch,
        mut done: impl FnMut(usize, Result<SwapIn, SwapInError>),
    ) {
        debug_assert_eq!(entries.len(), pages.len());
        let mut pinned = Vec::new();
        for (at, (&entry, page)) in entries.iter().zip(pages).enumerate() {
            let begun = loop {
                match self.begin(entry, page, scratch) {
                    Ok(Begun::Crowded) => {
                        // The readers that crowd it may be waiting for what we have pinned, or be ourselves.
                        self.read_pinned(&mut pinned, &mut done);
                        yield_now();
                    }
                    begun => break begun,
                }
            };
            match begun {
                Ok(Begun::Pinned(physical)) => {
                    pinned.push(Wanted::new(at, entry, physical, page));
                }
                Ok(Begun::Done(from)) => done(at, Ok(from)),
                Ok(Begun::Crowded) => {}
                Err(error) => done(at, Err(error)),
            }
        }
        self.read_pinned(&mut pinned, &mut done);
    }

    /// Reads and unpins all gathered pages.
    fn read_pinned(
        &self,
        pinned: &mut Vec<Wanted<'_>>,
        done: &mut impl FnMut(usize, Result<SwapIn, SwapInError>),
    ) {
        runs::sort(pinned);
        self.read_runs(pinned);
        for one in pinned.drain(..) {
            done(one.at, self.end(one.entry, one.read));
        }
    }

    /// Copies the content if that needs no area. Otherwise pins it there.
    pub(crate) fn begin(
        &self,
        entry: Entry,
        dst: &mut Page,
        scratch: &mut Scratch,
    ) -> Result<Begun, SwapInError> {
        let Some((cluster, slot)) = self.locate(entry) else {
            return Err(SwapInError::Gone);
        };
        loop {
            match self.lookup(entry) {
                Lookup::Gone => return Err(SwapInError::Gone),
                Lookup::Cached(frame) => {
                    dst.0.copy_from_slice(&frame.0);
                    let from = if frame.is_first_use() {
                        SwapIn::ReadAhead
                    } else {
                        SwapIn::Cached
                    };
                    return Ok(Begun::Done(from));
                }
                Lookup::Zero => {
                    dst.0.fill(0);
                    return Ok(Begun::Done(SwapIn::Zero));
                }
                Lookup::Stored => {}
            }
            match self.pin(cluster, slot) {
                Pin::Taken(Stored::Pool(handle)) => {
                    let read = self.unpack(entry, handle, dst, scratch);
                    self.unpin(entry, cluster, slot);
                    return read.map(Begun::Done);
                }
                Pin::Taken(Stored::Physical(physical)) => return Ok(Begun::Pinned(physical)),
                Pin::Crowded => return Ok(Begun::Crowded),
                // The slot may have been freed and taken again between our looks at the two words. Then look again.
                Pin::Nothing if self.is_lost(cluster, slot) => {
                    return Err(SwapInError::Corrupt {
                        raw: entry.raw(),
                        what: "the slot is in use and nothing is behind it",
                    });
                }
                Pin::Nothing => {}
            }
        }
    }

    /// Unpins what `begin` pinned, after it was read.
    pub(crate) fn end(
        &self,
        entry: Entry,
        read: Result<(), StorageError>,
    ) -> Result<SwapIn, SwapInError> {
        self.unpin_entry(entry);
        let raw = entry.raw();
        match read {
            Ok(()) => Ok(SwapIn::Physical),
            Err(error) => Err(SwapInError::Unreadable { raw, error }),
        }
    }

    pub(crate) fn unpack(
        &self,
        entry: Entry,
        handle: Handle,
        dst: &mut Page,
        scratch: &mut Scratch,
    ) -> Result<SwapIn, SwapInError> {
        self.unpack_payload(entry, handle, dst, scratch)?;
        Ok(SwapIn::Compressed)
    }

    /// The same, and says in how many bytes the page was packed.
    pub(crate) fn unpack_payload(
        &self,
        entry: Entry,
        handle: Handle,
        dst: &mut Page,
        scratch: &mut Scratch,
    ) -> Result<usize, SwapInError> {
        self.with_payload(entry, handle, |payload| {
            let bytes = payload.len();
            scratch.decompress(payload, dst).map(|()| bytes)
        })?
        .map_err(|_| corrupt(entry, "they do not decompress to a page"))
    }

    /// Copies the payload as it lies in the pool to the beginning of `dst`. Returns its length in bytes.
    pub(crate) fn copy_packed(
        &self,
        entry: Entry,
        handle: Handle,
        dst: &mut Page,
    ) -> Result<usize, SwapInError> {
        self.with_payload(entry, handle, |payload| {
            let place = dst.0.get_mut(..payload.len())?;
            place.copy_from_slice(payload);
            Some(payload.len())
        })?
        .ok_or(corrupt(entry, "they are more than a page"))
    }

    fn with_payload<R>(
        &self,
        entry: Entry,
        handle: Handle,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, SwapInError> {
        self.at_pool.pass();
        let read = self.pool.with(handle, read);
        read.map_err(|_| corrupt(entry, "the checksum does not fit"))
    }

    /// Whether a used slot has no frame, no zero flag and no backing. No operation leaves such a slot.
    #[cold]
    fn is_lost(&self, cluster: &Cluster, slot: usize) -> bool {
        cluster.lock().is_some_and(|cluster| {
            let word = cluster.word(slot);
            let stored = matches!(word.kind(), Kind::Shadow(_)) && !word.is_zero();
            stored && word.count_field() > 0 && cluster.backing(slot).stored().is_none()
        })
    }
}

fn corrupt(entry: Entry, what: &'static str) -> SwapInError {
    let raw = entry.raw();
    SwapInError::Corrupt { raw, what }
}
