//! Finding an entry's content and copying it back, without a lock.
//!
//! A frame is held by a reference, stored bytes by a pin in the backing word; each is taken first and the slot looked
//! at again (the frame) or decided by the same compare-exchange (the pin), so that content of another entry is never
//! returned. Pins are few, so nobody waits for one while he holds another.

use crate::backing::Stored;
use crate::charge::Uncharges;
use crate::cluster::Cluster;
use crate::codec::Scratch;
use crate::engine::Engine;
use crate::entry::Entry;
use crate::frame::FrameRef;
use crate::pages::Page;
use crate::runs::{self, Wanted};
use crate::shadow::Shadow;
use crate::storage::StorageError;
use crate::sync::yield_now;
use crate::table::Kind;
use crate::transition::{BackingWord, Pin};
use crate::zpool::Handle;

/// Where [`Engine::swap_in`] found the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SwapIn {
    /// The page is all zeros.
    Zero,
    /// In the frame it was swapped out in.
    Cached,
    /// In the frame it was read ahead into, and this is the first time that somebody asks for it.
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

/// What [`Engine::lookup`] found.
#[derive(Debug)]
pub enum Lookup<'a> {
    /// The entry is free.
    Gone,
    /// The content is in this frame, held in place as long as the reference lives.
    Cached(FrameRef<'a>),
    /// The page is all zeros.
    Zero,
    /// The content is in the pool or in a physical area (or was, a moment ago): swap it in.
    Stored,
}

/// How far a swap-in has come without reading an area.
pub(crate) enum Begun {
    /// The content is copied.
    Done(SwapIn),
    /// It is to be read from this physical slot, and pinned.
    Pinned(Entry),
    /// As [`Pin::Crowded`].
    Crowded,
}

impl Engine {
    /// Finds out where an entry's content is, and holds the frame if it is in one. Takes no lock.
    #[inline]
    pub fn lookup(&self, entry: Entry) -> Lookup<'_> {
        if entry.is_direct() {
            return self.lookup_direct(entry);
        }
        match self.space.locate_own(entry) {
            Some((cluster, slot)) => self.lookup_at(cluster, slot),
            None => Lookup::Gone,
        }
    }

    /// Apart, so that looking up a virtual slot stays short.
    #[cold]
    #[inline(never)]
    fn lookup_direct(&self, entry: Entry) -> Lookup<'_> {
        match self.locate(entry) {
            Some((cluster, slot)) => self.lookup_at(cluster, slot),
            None => Lookup::Gone,
        }
    }

    #[inline]
    fn lookup_at(&self, cluster: &Cluster, slot: usize) -> Lookup<'_> {
        let mut word = cluster.word(slot);
        loop {
            if word.count_field() == 0 {
                return Lookup::Gone;
            }
            let Kind::Cached(index) = word.kind() else {
                return if word.is_zero() {
                    Lookup::Zero
                } else {
                    Lookup::Stored
                };
            };
            let frame = self.frames.try_get(index);
            // The frame was perhaps reused between the two steps. While we hold it, it cannot be; so if the word names
            // it now, its content is this slot's.
            let again = cluster.word(slot);
            match frame {
                Some(frame) if again.frame() == Some(index) && again.count_field() > 0 => {
                    return Lookup::Cached(frame);
                }
                // Freed already, and the word says so in a moment: the owner changes it before it drops the frame.
                _ => word = again,
            }
        }
    }

    /// Whether the entry's content lies in a physical area just now, so that bringing it back may block. A hint: by the
    /// time of the call it may lie elsewhere. Takes no lock.
    #[inline]
    #[must_use]
    pub fn is_physical(&self, entry: Entry) -> bool {
        self.physical_of(entry).is_some()
    }

    /// The physical slot that the entry's content lies in alone; a hint.
    #[inline]
    pub(crate) fn physical_of(&self, entry: Entry) -> Option<Entry> {
        let (cluster, slot) = self.locate(entry)?;
        let Kind::Shadow(_) = cluster.word(slot).kind() else {
            // One that was read ahead is in a frame as well.
            return None;
        };
        match cluster.backing(slot)?.peek().stored() {
            Some(Stored::Physical(physical)) => Some(physical),
            _ => None,
        }
    }

    /// Copies the entry's content to `dst`. The count stays. Takes no lock; blocks while an area is read.
    ///
    /// # Errors
    /// [`SwapInError`]; `dst` may have been written to.
    pub fn swap_in(
        &self,
        entry: Entry,
        dst: &mut Page,
        scratch: &mut Scratch,
    ) -> Result<SwapIn, SwapInError> {
        let (from, _) = self.swap_in_around(entry, 1, dst, scratch)?;
        Ok(from)
    }

    /// Copies the content of each entry to the page at the same place in `pages`, as [`Engine::swap_in`] does; what
    /// lies in neighbouring slots of an area is read with one request. `done` hears how it went for each, by its place,
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
                        // Those who crowd it may wait for what we have pinned, or be we ourselves.
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

    /// Reads and unpins all that was gathered.
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

    /// Copies the content if that needs no area; else pins it there.
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
                // Between the looks at the two words the slot was perhaps freed and taken again: then look again.
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

    /// Pins a slot's stored bytes to read them: in the pool they are young from now on.
    pub(crate) fn pin(&self, cluster: &Cluster, slot: usize) -> Pin {
        self.pin_if(cluster, slot, |_| true)
    }

    /// Pins what is behind `entry` if it is this physical slot.
    pub(crate) fn pin_behind(&self, physical: Entry, entry: Entry) -> Pin {
        let is_ours = |stored| stored == Stored::Physical(physical);
        self.locate(entry).map_or(Pin::Nothing, |(cluster, slot)| {
            self.pin_if(cluster, slot, is_ours)
        })
    }

    /// As `pin`, of what is `wanted`; anything else is as nothing.
    fn pin_if(&self, cluster: &Cluster, slot: usize, wanted: impl Fn(Stored) -> bool) -> Pin {
        let word = cluster.backing(slot);
        word.map_or(Pin::Nothing, |word| word.pin(self.aging.youngest(), wanted))
    }

    /// Undoes `pin`; frees the slot if its last reference was put meanwhile and we are the last reader.
    pub(crate) fn unpin(&self, entry: Entry, cluster: &Cluster, slot: usize) {
        if !cluster.backing(slot).is_some_and(BackingWord::unpin) {
            return;
        }
        let Some(mut cluster) = cluster.lock() else {
            return;
        };
        let group = cluster.group(slot);
        let stored = cluster.clear_backing(slot);
        self.release_slot(&mut cluster, entry);
        drop(cluster);
        let mut uncharges = Uncharges::new(&self.groups);
        self.lose_all(entry, group, stored, &mut uncharges);
    }

    /// As `unpin`.
    pub(crate) fn unpin_entry(&self, entry: Entry) {
        if let Some((cluster, slot)) = self.locate(entry) {
            self.unpin(entry, cluster, slot);
        }
    }

    pub(crate) fn unpack(
        &self,
        entry: Entry,
        handle: Handle,
        dst: &mut Page,
        scratch: &mut Scratch,
    ) -> Result<SwapIn, SwapInError> {
        let corrupt = |what| SwapInError::Corrupt {
            raw: entry.raw(),
            what,
        };
        self.at_pool.pass();
        match self.pool.with(handle, |payload| {
            self.codec.decompress(payload, dst, scratch)
        }) {
            Ok(Ok(())) => Ok(SwapIn::Compressed),
            Ok(Err(_)) => Err(corrupt("they do not decompress to a page")),
            Err(_) => Err(corrupt("the checksum does not fit")),
        }
    }

    /// Whether a used slot has neither frame nor zero flag nor backing, which no operation leaves behind.
    #[cold]
    fn is_lost(&self, cluster: &Cluster, slot: usize) -> bool {
        cluster.lock().is_some_and(|cluster| {
            let word = cluster.word(slot);
            let stored = matches!(word.kind(), Kind::Shadow(_)) && !word.is_zero();
            stored && word.count_field() > 0 && cluster.backing(slot).stored().is_none()
        })
    }

    /// What the entry keeps of its page's age; `None` if it is free or nothing was known.
    #[must_use]
    pub fn shadow(&self, entry: Entry) -> Option<Shadow> {
        let (cluster, slot) = self.locate(entry)?;
        let shadow = match cluster.word(slot).kind() {
            Kind::Shadow(shadow) => shadow,
            // Between the look at the word and at the frame the frame may have gone to another slot: look with a hold.
            Kind::Cached(_) => match self.lookup(entry) {
                Lookup::Cached(frame) => self.frames.shadow(frame.index()),
                _ => match cluster.word(slot).kind() {
                    Kind::Shadow(shadow) => shadow,
                    _ => return None,
                },
            },
            _ => return None,
        };
        (shadow != Shadow::ABSENT).then_some(shadow)
    }
}
