//! Packing again: pages that have grown old in the pool are packed more densely, so that it holds more of them.
//!
//! Pages go out with a fast codec, because those that come back soon pay for it on their way. What nobody has touched
//! for long seldom pays, and takes room all the time. So the kernel's zram compresses idle pages again with another
//! algorithm (`zram_drv.c`, `recompress_slot`), and this does what that does.
//!
//! 1. *Pick* (`area/aging.rs`). A hand of its own finds the pages that have been left alone for longest, and pins each,
//!    as for writing back (`write_back.rs`). It passes over those that were packed again before, or in vain: their
//!    backing words say so.
//! 2. *Unpack*, which verifies the page, and *pack* with zstd. What does not get into a smaller size class gains
//!    nothing and stays.
//! 3. *Store* the new payload beside the old one, in a row of its own. Nobody knows of it yet. A full pool has no place
//!    of that size, because all its pages were packed less densely. So for this it may exceed its limit a little, until
//!    the old places have run empty and were moved together. Until then nobody else stores anything in it: pages that
//!    go out would fill the places that this needs to go on.
//! 4. *Exchange* (`exchange.rs`). If the backing word is what it was, it names the new payload from now on, with the
//!    age that the page had, and the old one is freed. A page that was read or put meanwhile keeps what it has, and the
//!    new payload is freed instead.
//!
//! A page can be read all the time. Whatever fails, the old payload stays as it was. No lock is held while a page is
//! unpacked, packed or stored.
//!
//! A group is charged for one payload at a time: for the old one, and after the exchange for the new one, which is
//! shorter. So the pages of a group at its limit can be packed again. While both payloads are there, which is one page
//! for each thread that does this, the pool has a payload that nobody is charged for.

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

use crate::area::{Cold, Purpose, SAFE_GENERATIONS};
use crate::base::pages::{PAGE_BYTES, Page};
use crate::codec::{Codec, Scratch};
use crate::engine::Engine;
use crate::groups::GroupId;
use crate::words::backing::{Backing, Stored};
use crate::words::entry::Entry;
use crate::zpool::{Handle, SPANS_BYTES, takes_less};

/// Pages that are picked together, and pinned until their turn has come. Nobody else moves them meanwhile, so they are
/// few; fewer under the model checkers.
const BATCH_PAGES: usize = if cfg!(any(loom, shuttle)) { 2 } else { 16 };

/// Packing again may take the pool above its limit by a span for each size. With so much, there is always a place for
/// one more payload once the others were moved together. But by no more than one part in this many.
const BEYOND_PART: u64 = 16;
/// The same for a small pool: four spans of the largest kind. There it may find no place.
const BEYOND_BYTES_MIN: u64 = 32 * PAGE_BYTES as u64;

/// What [`Engine::repack`] did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Repack {
    /// Pages that take less of the pool now.
    pub pages: usize,
    /// How many bytes shorter their payloads are, together.
    pub saved_bytes: u64,
    /// Pages that stay because packing them again gains nothing. They are not tried again.
    pub dense: usize,
    /// Pages that stay because they were read or put meanwhile, so not that cold.
    pub warm: usize,
    /// Pages that stay because the pool had no room for the smaller payload beside the old one. They are tried again
    /// when the hand comes round.
    pub full: usize,
    /// Pages that stay because their bytes are damaged.
    pub damaged: usize,
}

impl Repack {
    /// Pages that were looked at.
    #[must_use]
    pub fn tried(&self) -> usize {
        self.pages + self.dense + self.warm + self.full + self.damaged
    }
}

impl Engine {
    /// Packs up to `budget_pages` pages of the pool again with [`Codec::Zstd`], those stored or read the longest ago
    /// first, and keeps the result where it is smaller by at least one size class. Pages of the youngest two
    /// generations are left alone: without [`Engine::begin_generation`] there is nothing to do. Ends early when nothing
    /// is left, or when there is no room to work with. The pool may exceed its limit by 2.5 MiB or a 16th of it,
    /// whichever is less, and a small one by 128 KiB; while it does, nothing else is stored in it. Does nothing if the
    /// limit is 0. Several threads may call this at once and then share the work.
    ///
    /// Takes the processor time of unpacking and of packing with zstd: several times what packing took at first
    /// (`examples/repack_cost.rs`). A call that finds nothing goes through the words of all pages once or twice. Locks:
    /// the hand of packing again while it picks, and the cluster of each page for a moment; no caller may hold a lock
    /// of the engine.
    pub fn repack(&self, budget_pages: usize, scratch: &mut Scratch) -> Repack {
        self.repack_of(GroupId::ROOT, SAFE_GENERATIONS, budget_pages, scratch)
    }

    /// Like `repack`, for the pages of one group that are of none of the youngest `least_age` generations; the root
    /// stands for all pages. Looks at each cluster's table of groups under the cluster's lock.
    pub fn repack_of(
        &self,
        group: GroupId,
        least_age: u8,
        budget_pages: usize,
        scratch: &mut Scratch,
    ) -> Repack {
        let purpose = Purpose::Repack { least: least_age };
        let mut done = Repack::default();
        let mut buffer = scratch.take_pages();
        buffer.grow(1);
        while done.tried() < budget_pages && !self.pool.is_off() {
            let most = BATCH_PAGES.min(budget_pages - done.tried());
            let areas = || self.areas_to_age();
            let cold = self.aging.pick(purpose, areas, group.index(), most);
            let before = done;
            for page in &cold {
                self.repack_one(page, &mut buffer[0], scratch, &mut done);
            }
            let is_stuck = done.pages == before.pages && done.full > before.full;
            if cold.is_empty() || is_stuck {
                break;
            }
        }
        scratch.give_pages(buffer);
        self.keep_pool_limit();
        done
    }

    /// How the entry's page is packed, and in how many bytes, if it is in the pool. A hint: at the time of the call it
    /// may be elsewhere, and what is said of another page. Takes no lock. Leaves the page's age alone.
    #[must_use]
    pub fn packed_as(&self, entry: Entry) -> Option<(Codec, usize)> {
        let (cluster, slot) = self.locate(entry)?;
        let Some(Stored::Pool(handle)) = cluster.backing(slot)?.load().stored() else {
            return None;
        };
        self.at_pool.pass();
        let of = |payload: &[u8]| Some((Codec::of(payload)?, payload.len()));
        self.pool.with(handle, of).ok()?
    }

    /// Packs a pinned page again, and unpins it.
    fn repack_one(&self, cold: &Cold, page: &mut Page, scratch: &mut Scratch, done: &mut Repack) {
        // Many pages may have been packed with zstd at first. They need not be unpacked to see that.
        self.at_pool.pass();
        let codec = self.pool.with(cold.handle, Codec::of).ok();
        if codec == Some(Some(Codec::Zstd)) {
            self.leave_dense(cold.entry);
            done.dense += 1;
            return;
        }
        let unpacked = codec.and_then(|_| {
            self.unpack_payload(cold.entry, cold.handle, page, scratch)
                .ok()
        });
        let Some(old_bytes) = unpacked else {
            self.leave_damaged(cold.entry);
            done.damaged += 1;
            return;
        };
        let packed = Codec::Zstd.compress(page, scratch).ok();
        let Some(packed) = packed.filter(|packed| takes_less(packed.len(), old_bytes)) else {
            self.leave_dense(cold.entry);
            done.dense += 1;
            return;
        };
        let Some(handle) = self.store_beside(packed) else {
            self.unpin_entry(cold.entry);
            done.full += 1;
            return;
        };
        let new_bytes = packed.len();
        if self.replace_payload(cold, handle, new_bytes) {
            done.pages += 1;
            done.saved_bytes += (old_bytes - new_bytes) as u64;
        } else {
            done.warm += 1;
        }
    }

    /// Stores a payload that nobody is charged for. `None` if there is no room.
    fn store_beside(&self, payload: &[u8]) -> Option<Handle> {
        let beyond_bytes = beyond_bytes(self.pool.limit_bytes());
        self.at_pool.pass();
        self.store_compacting(|| self.pool.store_beyond(payload, beyond_bytes))
    }

    /// Moves payloads together until the pool is within its limit again, if it can be.
    fn keep_pool_limit(&self) {
        let excess_pages = self.pool.excess_bytes() / PAGE_BYTES as u64;
        if excess_pages > 0 {
            self.compact(usize::try_from(excess_pages).unwrap_or(usize::MAX));
        }
    }

    /// Exchanges a pinned payload for the shorter one of `handle`, and frees the one that is not the page's afterwards.
    /// True if that is the old one.
    fn replace_payload(&self, cold: &Cold, handle: Handle, new_bytes: usize) -> bool {
        // Now, because afterwards the entry may be put and be of another group.
        let group = self.group_of(cold.entry);
        let new = Backing::of(Stored::Pool(handle))
            .touched(cold.backing.generation())
            .dense();
        if self.exchange(cold.entry, cold.backing, new) {
            self.lose_longer(group, cold.handle, new_bytes);
            return true;
        }
        self.unpin_entry(cold.entry);
        self.at_pool.pass();
        self.pool.free(handle);
        false
    }
}

/// How far packing again may take a pool with this limit above it.
fn beyond_bytes(limit_bytes: u64) -> u64 {
    SPANS_BYTES
        .min(limit_bytes / BEYOND_PART)
        .max(BEYOND_BYTES_MIN)
}
