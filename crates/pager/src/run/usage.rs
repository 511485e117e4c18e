//! What a run has of its store.
//!
//! A run with a store of its own has all of it. Of a shared one it has what its group is charged for, and as large a
//! part of what that costs beside: the pool's own waste goes by bytes of payload, tables go by slots. How many slots
//! are the run's takes a look through the clusters, so that figure is as old as the governor's last look.

use std::sync::atomic::{AtomicU64, Ordering};

use vswap_engine::{PoolFill, Stats};

use crate::base::page_run::PAGE_BYTES;
use crate::run::core::Core;

/// What is a run's at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Slots of the virtual area.
    pub swapped_pages: u64,
    /// Memory of the pool.
    pub pool_bytes: u64,
    /// Bytes of payload in it.
    pub payload_bytes: u64,
    /// Pages in it.
    pub pool_pages: u64,
    /// Pages in physical areas.
    pub physical_pages: u64,
    /// Memory of tables.
    pub table_bytes: u64,
}

/// What is known of a run's part of a shared store between two samples.
#[derive(Debug)]
pub struct Part {
    slots: AtomicU64,
    /// Memory of the pool that is the run's part and holds no payload.
    waste_bytes: AtomicU64,
    /// Average payload of a page.
    page_bytes: AtomicU64,
}

impl Default for Part {
    fn default() -> Part {
        Part {
            slots: AtomicU64::new(0),
            waste_bytes: AtomicU64::new(0),
            page_bytes: AtomicU64::new(PAGE_BYTES / 2),
        }
    }
}

impl Usage {
    /// What the run has of a store with these figures.
    pub fn of(core: &Core, all: &Stats) -> Usage {
        let in_pool = all.compressed + all.raw;
        if core.own_group.is_none() {
            return Usage {
                swapped_pages: all.slots_used,
                pool_bytes: all.pool_bytes,
                payload_bytes: all.payload_bytes,
                pool_pages: in_pool,
                physical_pages: all.physical,
                table_bytes: all.table_bytes,
            };
        }
        let charges = core.engine.group_charges(core.group);
        let of_pool = |whole| share(whole, charges.pool_bytes, all.payload_bytes);
        let slots = core.part.slots.load(Ordering::Relaxed);
        Usage {
            swapped_pages: slots,
            pool_bytes: of_pool(all.pool_bytes),
            payload_bytes: charges.pool_bytes,
            pool_pages: of_pool(in_pool),
            physical_pages: charges.swap_bytes / PAGE_BYTES,
            table_bytes: share(all.table_bytes, slots, all.slots_used),
        }
    }

    /// Memory of vswap's that the run counts as its own in a shared store.
    pub fn own_bytes(&self, core: &Core) -> u64 {
        core.own_fixed_bytes() + self.pool_bytes + self.table_bytes
    }
}

impl Part {
    /// Takes a sample in.
    pub fn settle(&self, usage: &Usage) {
        let waste_bytes = usage.pool_bytes.saturating_sub(usage.payload_bytes);
        self.waste_bytes.store(waste_bytes, Ordering::Relaxed);
        if let Some(bytes) = usage.payload_bytes.checked_div(usage.pool_pages) {
            self.page_bytes.store(bytes.max(1), Ordering::Relaxed);
        }
    }

    /// Counts the run's slots.
    pub fn count_slots(&self, core: &Core) {
        let slots = core.engine.group_slots(core.group);
        self.slots.store(slots, Ordering::Relaxed);
    }

    /// Bytes of payload that the run may have where it may have so much of the pool's memory.
    pub fn payload_in(&self, bytes: u64) -> u64 {
        bytes.saturating_sub(self.waste_bytes.load(Ordering::Relaxed))
    }

    /// How full the pool is as far as the run is concerned, which may have `limit_bytes` of it.
    pub fn fill(&self, core: &Core, limit_bytes: u64) -> PoolFill {
        let payload_bytes = core.engine.group_charges(core.group).pool_bytes;
        let taken_bytes = payload_bytes + self.waste_bytes.load(Ordering::Relaxed);
        PoolFill {
            limit_bytes,
            span_bytes: taken_bytes,
            needed_bytes: taken_bytes,
            objects: payload_bytes / self.page_bytes.load(Ordering::Relaxed),
        }
    }
}

/// `part` parts of `whole`, which has `parts`: not more than all, as the figures are not of one moment.
fn share(whole: u64, part: u64, parts: u64) -> u64 {
    let product = u128::from(whole) * u128::from(part.min(parts));
    let share = product.checked_div(u128::from(parts)).unwrap_or(0);
    u64::try_from(share).unwrap_or(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_in_proportion_and_nothing_of_nothing() {
        assert_eq!(share(1000, 1, 4), 250);
        assert_eq!(share(u64::MAX, 3, 3), u64::MAX);
        assert_eq!(share(1000, 1, 0), 0);
        assert_eq!(share(1000, 9, 4), 1000, "the part was seen later");
    }

    #[test]
    fn the_pools_waste_is_the_runs_as_well() {
        let part = Part::default();
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
