//! One group: its limits, what is charged to it, and what it was refused.
//!
//! A record is made with the first group of its number, and later groups of that number reuse it, because threads find
//! it without a lock. Each change of a counter is one atomic operation. No counter is ever above its limit, not even
//! for a moment.

use std::sync::atomic::{AtomicBool, AtomicU64 as Figure};

use crossbeam_utils::CachePadded;

use super::GroupIndex;
use crate::base::sync::{AtomicU32, AtomicU64, Ordering};
use crate::words::tier::{TIERS_MAX, TierId, TierSet};

/// What a group and those inside it may have together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupLimits {
    /// Bytes in physical areas.
    pub swap_max_bytes: u64,
    /// Bytes of payload in the pool.
    pub pool_max_bytes: u64,
    /// Whether pages may go to physical areas at all. Pages that are already there stay.
    pub writeback: bool,
    /// Bytes in the areas of each tier, by number. With 0 no page goes to the tier. All of them count to
    /// `swap_max_bytes` as well.
    pub tier_max_bytes: [u64; TIERS_MAX],
}

impl GroupLimits {
    /// The value that means no limit.
    pub const NO_LIMIT: u64 = u64::MAX;
}

impl Default for GroupLimits {
    /// No limits.
    fn default() -> GroupLimits {
        GroupLimits {
            swap_max_bytes: GroupLimits::NO_LIMIT,
            pool_max_bytes: GroupLimits::NO_LIMIT,
            writeback: true,
            tier_max_bytes: [GroupLimits::NO_LIMIT; TIERS_MAX],
        }
    }
}

/// How often a group's limits held up a page, since the group was made. A page that waits counts each time it is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GroupEvents {
    /// Pages that found this group itself at its limit of bytes in areas. Pages of groups inside it count, too.
    pub swap_max: u64,
    /// Pages of this group that got no slot in an area, because of a limit or because there was none.
    pub swap_fail: u64,
    /// Pages that found this group itself at its limit of bytes in the pool. Pages of groups inside it count, too.
    pub pool_max: u64,
    /// Pages of this group that would have gone to an area, but the group or one around it may not write back.
    pub writeback_refused: u64,
}

/// The mark in a group's life that it is about to be removed.
const ENDING: u32 = 1 << 31;
/// The largest life.
pub(super) const LIFE_MAX: u32 = ENDING - 1;

/// What is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Resource {
    /// Bytes in physical areas.
    Swap,
    /// Bytes of payload in the pool.
    Pool,
    /// Bytes in the areas of a tier.
    Tier(TierId),
}

impl Resource {
    /// All that there are.
    pub(crate) fn all() -> impl Iterator<Item = Resource> {
        let tiers = TierId::all().map(Resource::Tier);
        [Resource::Swap, Resource::Pool].into_iter().chain(tiers)
    }
}

/// What is charged, and the most that may be charged. In bytes.
#[derive(Debug)]
struct Counter {
    charged: AtomicU64,
    max: AtomicU64,
    /// How many units were refused here. For people.
    hits: Figure,
}

impl Counter {
    fn new() -> Counter {
        Counter {
            charged: AtomicU64::new(0),
            max: AtomicU64::new(0),
            hits: Figure::new(0),
        }
    }

    /// Charges as many of `bytes` as the limit allows, in whole `unit_bytes`, and counts the others as refused. Returns
    /// the number of bytes charged.
    fn charge(&self, bytes: u64, unit_bytes: u64) -> u64 {
        let granted = self.take(bytes, unit_bytes);
        if granted < bytes {
            let refused = (bytes - granted) / unit_bytes;
            self.hits.fetch_add(refused, Ordering::Relaxed);
        }
        granted
    }

    /// Like `charge`, but counts nothing as refused.
    fn take(&self, bytes: u64, unit_bytes: u64) -> u64 {
        let max = self.max.load(Ordering::Relaxed);
        let mut charged = self.charged.load(Ordering::Relaxed);
        loop {
            let room = max.saturating_sub(charged).min(bytes);
            let granted = room - room % unit_bytes;
            if granted == 0 {
                return 0;
            }
            // Acquire pairs with the Release in `uncharge`: what was given up is free for whoever is charged next.
            match self.charged.compare_exchange_weak(
                charged,
                charged + granted,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return granted,
                Err(now) => charged = now,
            }
        }
    }

    fn uncharge(&self, bytes: u64) {
        let before = self.charged.fetch_sub(bytes, Ordering::Release);
        debug_assert!(before >= bytes, "more was uncharged than charged");
    }
}

/// One group's record.
#[derive(Debug)]
pub(crate) struct Group {
    /// The life of the group that has the number now; 0 means none. [`ENDING`] is added while somebody finds out
    /// whether the group can go. Changed under the lock of the tree, except that a user of the group clears the mark
    /// without it.
    life: AtomicU32,
    /// Number of the group around this one. Written while the record has no group.
    parent: AtomicU32,
    swap: CachePadded<Counter>,
    pool: CachePadded<Counter>,
    tiers: CachePadded<[Counter; TIERS_MAX]>,
    writeback: AtomicBool,
    swap_fails: Figure,
    writeback_refused: Figure,
}

impl Group {
    /// A record without a group.
    pub(super) fn new() -> Group {
        Group {
            life: AtomicU32::new(0),
            parent: AtomicU32::new(0),
            swap: CachePadded::new(Counter::new()),
            pool: CachePadded::new(Counter::new()),
            tiers: CachePadded::new(std::array::from_fn(|_| Counter::new())),
            writeback: AtomicBool::new(true),
            swap_fails: Figure::new(0),
            writeback_refused: Figure::new(0),
        }
    }

    /// Makes this the record of a new group. Whoever uses the group gets its number from us, and so sees all this.
    pub(super) fn begin(&self, life: u32, parent: GroupIndex, limits: GroupLimits) {
        self.parent.store(parent.raw().into(), Ordering::Relaxed);
        self.set_limits(limits);
        for figure in [
            &self.swap.hits,
            &self.pool.hits,
            &self.swap_fails,
            &self.writeback_refused,
        ] {
            figure.store(0, Ordering::Relaxed);
        }
        self.life.store(life, Ordering::Relaxed);
    }

    /// The life of the group, which exists. The caller holds the lock of the tree.
    pub(super) fn life(&self) -> u32 {
        self.life.load(Ordering::Relaxed) & !ENDING
    }

    /// Whether the record still belongs to that group.
    pub(super) fn is_alive(&self, life: u32) -> bool {
        self.life() == life
    }

    /// Keeps a group that is needed: a removal under way fails. False if the group is gone. The caller holds a
    /// cluster's lock or that of the tree, which orders this against the removal.
    pub(super) fn keep(&self, life: u32) -> bool {
        let now = self.life.load(Ordering::Relaxed);
        if now != life | ENDING {
            return now == life;
        }
        match self.exchange_life(now, life) {
            Ok(_) => true,
            Err(other) => other == life,
        }
    }

    /// From here on the group can go unless somebody keeps it. The caller holds the lock of the tree.
    pub(super) fn begin_end(&self, life: u32) {
        self.life.store(life | ENDING, Ordering::Relaxed);
    }

    /// Removes the group. False if it was kept. The caller holds the lock of the tree.
    pub(super) fn end(&self, life: u32) -> bool {
        self.exchange_life(life | ENDING, 0).is_ok()
    }

    fn exchange_life(&self, from: u32, to: u32) -> Result<u32, u32> {
        let order = Ordering::Relaxed;
        self.life.compare_exchange(from, to, order, order)
    }

    pub(super) fn set_limits(&self, limits: GroupLimits) {
        let swap_max = &self.swap.max;
        swap_max.store(limits.swap_max_bytes, Ordering::Relaxed);
        let pool_max = &self.pool.max;
        pool_max.store(limits.pool_max_bytes, Ordering::Relaxed);
        for (tier, max_bytes) in self.tiers.iter().zip(limits.tier_max_bytes) {
            tier.max.store(max_bytes, Ordering::Relaxed);
        }
        self.writeback.store(limits.writeback, Ordering::Relaxed);
    }

    pub(super) fn limits(&self) -> GroupLimits {
        GroupLimits {
            swap_max_bytes: self.swap.max.load(Ordering::Relaxed),
            pool_max_bytes: self.pool.max.load(Ordering::Relaxed),
            writeback: self.writes_back(),
            tier_max_bytes: self.of_tiers(|tier| tier.max.load(Ordering::Relaxed)),
        }
    }

    /// Bytes in each tier.
    pub(super) fn tier_bytes(&self) -> [u64; TIERS_MAX] {
        self.of_tiers(|tier| tier.charged.load(Ordering::Relaxed))
    }

    fn of_tiers(&self, figure: impl Fn(&Counter) -> u64) -> [u64; TIERS_MAX] {
        std::array::from_fn(|at| figure(&self.tiers[at]))
    }

    /// Those of `tiers` of which the group may have another page.
    pub(super) fn tiers_with_room(&self, tiers: TierSet, bytes: u64) -> TierSet {
        tiers.filter(|tier| self.has_room(Resource::Tier(tier), bytes))
    }

    pub(super) fn parent(&self) -> GroupIndex {
        GroupIndex::from_raw(self.parent.load(Ordering::Relaxed))
    }

    fn counter(&self, of: Resource) -> &Counter {
        match of {
            Resource::Swap => &self.swap,
            Resource::Pool => &self.pool,
            Resource::Tier(tier) => &self.tiers[tier.index()],
        }
    }

    /// Charges as many of `bytes` as the group's limit allows, in whole `unit_bytes`. Returns the number of bytes
    /// charged. A page that a tier refuses may go to another, so that does not count as refused.
    pub(super) fn charge(&self, of: Resource, bytes: u64, unit_bytes: u64) -> u64 {
        match of {
            Resource::Tier(_) => self.counter(of).take(bytes, unit_bytes),
            _ => self.counter(of).charge(bytes, unit_bytes),
        }
    }

    pub(super) fn uncharge(&self, of: Resource, bytes: u64) {
        self.counter(of).uncharge(bytes);
    }

    /// Bytes charged now. Acquire: whoever sees that none are left also sees that those who had them are done.
    pub(super) fn charged(&self, of: Resource) -> u64 {
        self.counter(of).charged.load(Ordering::Acquire)
    }

    /// Whether another page may be charged.
    pub(super) fn has_room(&self, of: Resource, bytes: u64) -> bool {
        let counter = self.counter(of);
        let max = counter.max.load(Ordering::Relaxed);
        max.saturating_sub(self.charged(of)) >= bytes
    }

    pub(super) fn writes_back(&self) -> bool {
        self.writeback.load(Ordering::Relaxed)
    }

    pub(super) fn count_swap_fails(&self, pages: u64) {
        self.swap_fails.fetch_add(pages, Ordering::Relaxed);
    }

    pub(super) fn count_writeback_refused(&self, pages: u64) {
        self.writeback_refused.fetch_add(pages, Ordering::Relaxed);
    }

    pub(super) fn events(&self) -> GroupEvents {
        GroupEvents {
            swap_max: self.swap.hits.load(Ordering::Relaxed),
            swap_fail: self.swap_fails.load(Ordering::Relaxed),
            pool_max: self.pool.hits.load(Ordering::Relaxed),
            writeback_refused: self.writeback_refused.load(Ordering::Relaxed),
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn counter(max: u64) -> Counter {
        let counter = Counter::new();
        counter.max.store(max, Ordering::Relaxed);
        counter
    }

    #[test]
    fn a_charge_takes_whole_units_up_to_the_limit() {
        let counter = counter(10);
        assert_eq!(counter.charge(4, 4), 4);
        assert_eq!(counter.charge(12, 4), 4, "as many as there is room for");
        assert_eq!(counter.charge(4, 4), 0);
        assert_eq!(counter.charge(2, 1), 2);
        assert_eq!(counter.hits.load(Ordering::Relaxed), 3);
        counter.uncharge(10);
        assert_eq!(counter.charge(11, 11), 0, "all or nothing");
        assert_eq!(counter.charged.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_limit_below_what_is_charged_refuses_and_none_is_no_limit() {
        let counter = counter(GroupLimits::NO_LIMIT);
        assert_eq!(counter.charge(1 << 62, 4096), 1 << 62);
        counter.max.store(4096, Ordering::Relaxed);
        assert_eq!(counter.charge(4096, 4096), 0);
        counter.uncharge(1 << 62);
        assert_eq!(counter.charge(4096, 4096), 4096);
    }
}
