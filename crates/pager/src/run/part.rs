//! What a run has of its store.
//!
//! A run with its own store has all of it. In a shared store it has what its group is charged for, and in proportion to
//! that what the store costs besides. The pool's waste is divided by bytes of payload, tables are divided by slots.
//! Counting the run's slots takes a walk through the clusters. So that figure is as old as the governor's last look.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use vswap_engine::{Engine, GroupId, GroupLimits, GroupName, PoolFill, Stats};

use crate::base::lock::{Mutex, Row};
use crate::base::page_run::PAGE_BYTES;
use crate::store::config::{Config, SHARED_FRAMES};

/// Text, stacks and small data of the vswap process, measured at rest and rounded up.
const OWN_FIXED_BYTES: u64 = 6 << 20;
/// The pool is compacted when one part in this many of its pages could be given back.
pub const COMPACT_PART: u64 = 32;
/// A run may have one part in this many of a shared store's frames.
const FRAMES_PART: u64 = 8;
/// What a run in a shared store costs the daemon: threads, their buffers, and frames read ahead, measured at work. The
/// constant above then stands for the run's own process.
const SHARED_FIXED_BYTES: u64 = 6 << 20;

/// What a run has at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Slots of the virtual area.
    pub swapped_pages: u64,
    /// Memory of the pool.
    pub pool_bytes: u64,
    /// Bytes of payload in the pool.
    pub payload_bytes: u64,
    /// Pages in the pool.
    pub pool_pages: u64,
    /// Pages in physical areas.
    pub physical_pages: u64,
    /// Memory of tables.
    pub table_bytes: u64,
}

/// A run's part of its store, and figures on it between two samples.
#[derive(Debug)]
pub struct Part {
    engine: Arc<Engine>,
    /// The group of the run's pages.
    pub group: GroupId,
    /// The name of the run's own group in a shared store.
    pub own_group: Option<GroupName>,
    /// Frames that the run may take.
    frames: u64,
    slots: AtomicU64,
    in_pool: InPool,
    /// What the user limits the run's own group to.
    own_limits: Mutex<GroupLimits>,
}

/// Figures on the run's part of the pool.
#[derive(Debug)]
struct InPool {
    /// Memory of the pool that is the run's part but holds no payload.
    waste_bytes: AtomicU64,
    /// Average payload of a page.
    page_bytes: AtomicU64,
}

impl Default for InPool {
    fn default() -> InPool {
        InPool {
            waste_bytes: AtomicU64::new(0),
            page_bytes: AtomicU64::new(PAGE_BYTES / 2),
        }
    }
}

impl InPool {
    /// Take a sample in.
    fn settle(&self, usage: &Usage) {
        let waste_bytes = usage.pool_bytes.saturating_sub(usage.payload_bytes);
        self.waste_bytes.store(waste_bytes, Ordering::Relaxed);
        if let Some(bytes) = usage.payload_bytes.checked_div(usage.pool_pages) {
            self.page_bytes.store(bytes.max(1), Ordering::Relaxed);
        }
    }

    /// Bytes of payload that the run may have if it may take `bytes` of the pool's memory.
    fn payload_in(&self, bytes: u64) -> u64 {
        bytes.saturating_sub(self.waste_bytes.load(Ordering::Relaxed))
    }

    /// How full the pool is for a run with this payload that may have `limit_bytes` of the pool.
    fn fill(&self, payload_bytes: u64, limit_bytes: u64) -> PoolFill {
        let taken_bytes = payload_bytes + self.waste_bytes.load(Ordering::Relaxed);
        PoolFill {
            limit_bytes,
            span_bytes: taken_bytes,
            needed_bytes: taken_bytes,
            objects: payload_bytes / self.page_bytes.load(Ordering::Relaxed),
        }
    }
}

impl Part {
    /// The part of a run whose pages belong to `group`.
    pub fn new(
        engine: Arc<Engine>,
        config: &Config,
        group: GroupId,
        own_group: Option<GroupName>,
    ) -> Part {
        let frames = config.frames();
        Part {
            engine,
            group,
            frames: match own_group {
                Some(_) => frames.min(SHARED_FRAMES / FRAMES_PART),
                None => frames,
            },
            own_group,
            slots: AtomicU64::new(0),
            in_pool: InPool::default(),
            own_limits: Mutex::new(
                Row::Innermost,
                "limits of a run's own group",
                GroupLimits::default(),
            ),
        }
    }

    /// Does the whole store belong to the run?
    pub fn is_all(&self) -> bool {
        self.own_group.is_none()
    }

    /// What the run has of a store with the figures `all`.
    pub fn usage(&self, all: &Stats) -> Usage {
        let in_pool = all.compressed + all.raw;
        if self.is_all() {
            return Usage {
                swapped_pages: all.slots_used,
                pool_bytes: all.pool_bytes,
                payload_bytes: all.payload_bytes,
                pool_pages: in_pool,
                physical_pages: all.physical,
                table_bytes: all.table_bytes,
            };
        }
        let charges = self.engine.group_charges(self.group);
        let of_pool = |whole| share(whole, charges.pool_bytes, all.payload_bytes);
        let lasting_bytes = lasting_bytes(all.pool_bytes, all.compactable_pages * PAGE_BYTES);
        let slots = self.slots.load(Ordering::Relaxed);
        Usage {
            swapped_pages: slots,
            pool_bytes: of_pool(lasting_bytes),
            payload_bytes: charges.pool_bytes,
            pool_pages: of_pool(in_pool),
            physical_pages: charges.swap_bytes / PAGE_BYTES,
            table_bytes: share(all.table_bytes, slots, all.slots_used),
        }
    }

    /// Memory of vswap that counts as the run's in a shared store.
    pub fn own_bytes(&self, usage: &Usage) -> u64 {
        self.own_fixed_bytes() + usage.pool_bytes + usage.table_bytes
    }

    /// Bytes that vswap needs besides the pool under any load: program text, frames, threads.
    pub fn own_fixed_bytes(&self) -> u64 {
        let shared_bytes = if self.is_all() { 0 } else { SHARED_FIXED_BYTES };
        OWN_FIXED_BYTES + shared_bytes + self.frames * PAGE_BYTES
    }

    /// Frames that the run may take while `pending` pages wait to be written out. The frames of a shared store are for
    /// all runs, so a run that cannot empty its own must not take more.
    pub fn frames_left(&self, pending: usize) -> usize {
        let most = usize::try_from(self.frames).unwrap_or(usize::MAX);
        most.saturating_sub(pending)
    }

    /// Take a sample in.
    pub fn settle(&self, usage: &Usage) {
        self.in_pool.settle(usage);
    }

    /// Count the run's slots in a shared store.
    pub fn count_slots(&self) {
        if !self.is_all() {
            let slots = self.engine.group_slots(self.group);
            self.slots.store(slots, Ordering::Relaxed);
        }
    }

    /// May the run have more in areas?
    pub fn has_swap_room(&self) -> bool {
        self.engine.has_swap_room(self.group)
    }

    /// Limit what the run has in the pool.
    pub fn limit_pool(&self, limit_bytes: u64) {
        if self.is_all() {
            return self.engine.set_pool_limit(limit_bytes);
        }
        let own = *self.own_limits.lock();
        let payload_bytes = self.in_pool.payload_in(limit_bytes);
        let limits = GroupLimits {
            pool_max_bytes: payload_bytes.min(own.pool_max_bytes),
            ..own
        };
        // The group exists as long as the run.
        let _ = self.engine.set_group_limits(self.group, limits);
    }

    /// Change what the user limits the run's own group to. It holds when the pool's share is renewed.
    pub fn change_limits(&self, change: impl FnOnce(GroupLimits) -> GroupLimits) {
        let mut own = self.own_limits.lock();
        *own = change(*own);
    }

    /// The group whose pages the run may move out of the pool. In its own store all pages are the run's.
    pub fn group_in_pool(&self) -> GroupId {
        if self.is_all() {
            GroupId::ROOT
        } else {
            self.group
        }
    }

    /// How full the pool is for the run, which may have `limit_bytes` of it.
    pub fn pool_fill(&self, limit_bytes: u64) -> PoolFill {
        if self.is_all() {
            return self.engine.pool_fill();
        }
        let payload_bytes = self.engine.group_charges(self.group).pool_bytes;
        self.in_pool.fill(payload_bytes, limit_bytes)
    }
}

/// What a shared pool takes without what compaction is about to give back. A run that ends can leave many spans nearly
/// empty at once. That is not to be made up for by those that stay.
fn lasting_bytes(pool_bytes: u64, compactable_bytes: u64) -> u64 {
    let needed_bytes = pool_bytes.saturating_sub(compactable_bytes);
    pool_bytes.min(needed_bytes + needed_bytes / COMPACT_PART)
}

/// `part` parts of `whole`, which consists of `parts`. Never more than all, because the figures are not of one moment.
fn share(whole: u64, part: u64, parts: u64) -> u64 {
    let product = u128::from(whole) * u128::from(part.min(parts));
    let share = product.checked_div(u128::from(parts)).unwrap_or(0);
    u64::try_from(share).unwrap_or(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_about_to_be_given_back_is_nobody_s() {
        assert_eq!(lasting_bytes(3200, 0), 3200);
        assert_eq!(lasting_bytes(3200, 50), 3200);
        assert_eq!(lasting_bytes(3200, 1600), 1650);
        assert_eq!(lasting_bytes(0, 10), 0);
    }

    #[test]
    fn a_share_is_in_proportion_and_nothing_of_nothing() {
        assert_eq!(share(1000, 1, 4), 250);
        assert_eq!(share(u64::MAX, 3, 3), u64::MAX);
        assert_eq!(share(1000, 1, 0), 0);
        assert_eq!(share(1000, 9, 4), 1000, "the part was seen later");
    }

    #[test]
    fn the_pools_waste_is_the_runs_as_well() {
        let part = InPool::default();
        assert_eq!(part.payload_in(1 << 20), 1 << 20, "nothing is known yet");
        let usage = |pool_bytes, payload_bytes| Usage {
            pool_bytes,
            payload_bytes,
            ..Usage::default()
        };
        part.settle(&usage(3 << 20, 2 << 20));
        assert_eq!(part.payload_in(3 << 20), 2 << 20);
        assert_eq!(part.payload_in(1 << 19), 0);
        part.settle(&usage(1 << 20, 2 << 20));
        assert_eq!(part.payload_in(3 << 20), 3 << 20, "not of one moment");
    }
}
