//! A private file that keeps pages packed, as they come out of the pool: several in one block of 4 KiB.
//!
//! A block is what the disk reads, writes and encrypts at once. A payload lies in one block alone, so reading a page
//! reads one block ([`record`], [`filling`]). Nothing is ever written over live payloads: what is written goes to free
//! blocks, and what the slots had before is given up (`write.rs`). A block in which nothing is live any more is free
//! ([`tables`], [`map`]).
//!
//! An area has [`SLOTS_PER_BLOCK`] slots for each block, so blocks run short before slots do, and the file stays within
//! its size. When blocks run short, what lives in the emptiest ones is moved together (`clean.rs`). Readers hold
//! nothing: they see by the slot's word that a payload was moved, and read again (`read.rs`).
//!
//! What a slot holds is given up when the engine says that the slot is free ([`Storage::freed`]), not only when a whole
//! cluster is discarded: otherwise blocks would fill up with what nobody needs.
//!
//! Locks: *room* is held while payloads are moved together, or blocks are given back to the file system, across
//! requests of the disk. Innermost are the map of blocks and the spare buffers, under which no other lock is taken. For
//! any number of threads.

mod place;
mod record;
mod filling;
mod map;
mod tables;
mod write;
mod read;
mod clean;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use vswap_engine::header::PAGES_MAX;
use vswap_engine::{
    Codec, PAGE_BYTES, Page, ReadRun, Scratch, Storage, StorageError, StorageExtent,
};
use vswap_sys::disk::{Disk, LANE_PAGES};
use vswap_sys::memory::MemoryError;

use clean::Cleaner;
use filling::Buffer;
use tables::Tables;

/// Slots for each block. Heaps of real programs pack to a half or a quarter. A slot that is not used costs nothing.
pub const SLOTS_PER_BLOCK: u64 = 4;

/// What a thread works with while it reads or writes.
struct Work {
    scratch: Scratch,
    /// Blocks. Wiped between two uses: it has content of programs.
    buffer: Buffer,
}

/// A private file that keeps pages packed.
pub struct PackedDisk {
    disk: Disk,
    tables: Tables,
    /// How pages are packed that come as they are. What comes packed says by itself how.
    codec: Codec,
    room: Mutex<Cleaner>,
    spare: Mutex<Vec<Work>>,
}

impl PackedDisk {
    /// A disk from which nothing was read yet. `codec` is the engine's.
    ///
    /// # Errors
    /// No address space for its tables: 36 bytes for each block and its slots.
    pub fn new(disk: Disk, codec: Codec) -> Result<PackedDisk, MemoryError> {
        let blocks = (disk.bytes() / PAGE_BYTES as u64).min(PAGES_MAX);
        let slots = (blocks * SLOTS_PER_BLOCK).min(PAGES_MAX);
        let whole = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        Ok(PackedDisk {
            disk,
            tables: Tables::new(whole(slots), whole(blocks))?,
            codec,
            room: Mutex::new(Cleaner::default()),
            spare: Mutex::new(Vec::new()),
        })
    }

    /// How many slots it has.
    #[must_use]
    pub fn slots(&self) -> u64 {
        self.tables.slots()
    }

    /// What the pages lie on.
    #[must_use]
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// Lends a buffer and what packs and unpacks. No lock is held meanwhile.
    fn with_work<T>(&self, what: impl FnOnce(&mut Work) -> T) -> T {
        let spare = || self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = spare().pop();
        let mut work = taken.unwrap_or_else(|| Work {
            scratch: self.codec.scratch(),
            // As much as a request has as a rule, so that it is not copied about.
            buffer: Buffer::new(Vec::with_capacity(LANE_PAGES * PAGE_BYTES)),
        });
        let done = what(&mut work);
        work.buffer.fill(0);
        spare().push(work);
        done
    }
}

impl fmt::Debug for PackedDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("PackedDisk");
        shown.field("disk", &self.disk);
        shown.field("slots", &self.slots()).finish_non_exhaustive()
    }
}

impl Storage for PackedDisk {
    fn read(&self, slot: u64, pages: &mut [&mut Page]) -> Result<(), StorageError> {
        ReadRun::alone(self, slot, pages)
    }

    fn read_runs(&self, runs: &mut [ReadRun<'_>]) {
        self.read_all(runs);
    }

    fn write(&self, slot: u64, pages: &[&Page]) -> Result<(), StorageError> {
        self.write_pages(slot, pages)
    }

    fn keeps_packed(&self) -> bool {
        true
    }

    fn write_packed(&self, slot: u64, payloads: &[&[u8]]) -> Result<(), StorageError> {
        let payloads = payloads.iter().copied();
        self.with_work(|work| self.write_payloads(slot, payloads, &mut work.buffer))
    }

    fn freed(&self, slot: u64) {
        self.tables.clear(slot);
    }

    fn extent(&self) -> Option<StorageExtent> {
        let bytes = |blocks: usize| (blocks * PAGE_BYTES) as u64;
        let (in_use, free) = {
            let map = self.tables.map();
            (map.in_use(), map.free())
        };
        Some(StorageExtent {
            used_bytes: bytes(in_use),
            size_bytes: bytes(self.tables.blocks()),
            free_bytes: bytes(free.saturating_sub(self.kept())).max(self.can_gain()),
        })
    }

    fn discard(&self, slots: Range<u64>) -> Result<(), StorageError> {
        slots.for_each(|slot| self.tables.clear(slot));
        self.give_back()
    }
}
