//! Charging groups for what their pages take up: slots of physical areas, and bytes in the pool.
//!
//! Nothing else in the engine changes a group's charges, and they change only at these moments:
//!
//! - *before* a page gets a slot (`admit_to_areas`) or a place in the pool (`store_charged`). What is not charged is
//!   never taken, so a group never has more than its limits allow. If the limits have room for only some pages of a
//!   batch, these go. If a page gets no place after all, its charge is taken back;
//! - *after* a slot or bytes were freed (`lose_all`, [`Uncharges`]), for the same reason. The kernel allocates first,
//!   then charges, and frees the slot if that fails. So there a group may for a moment have more slots than it may.
//!
//! A slot has two charges: that for areas as a whole, and that for the tier it is in. The second is made where the area
//! is chosen (`areas/payer.rs`), because a page that one tier may not have goes to the next. Whoever frees a slot is
//! told its tier, and takes that charge back.
//!
//! A directly mapped slot is the exception. It is charged right after it was taken (`charge_direct`), and given back if
//! the charge is refused, as in the kernel. This is because the slot keeps its group from being removed. The slot stays
//! charged as long as its entry lives, wherever the page's bytes are. Writing to it costs nothing more.
//!
//! When an area is swapped off or demoted from, a page goes from one slot to another and is not charged for areas
//! again. Its charge goes with it, so even a group at its limit can be moved. Where the slots are of different tiers,
//! the new one is charged first. So is the new place between slot and pool. A payload that a shorter one replaces
//! leaves its charge to that (`lose_longer`), for the same reason.
//!
//! Charges of neighbouring pages of one group are made and taken back together, with one atomic operation for each
//! group around the page. Locks: none.

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

use crate::base::pages::PAGE_BYTES;
use crate::engine::Engine;
use crate::groups::{GroupIndex, Groups, Resource};
use crate::words::backing::Stored;
use crate::words::entry::Entry;
use crate::words::tier::TierId;
use crate::zpool::Handle;

/// What a slot in an area costs, in bytes.
const SLOT_BYTES: u64 = PAGE_BYTES as u64;

/// Pages that compaction gives back for a payload that finds no room: one span of the largest kind.
const COMPACT_PAGES: usize = 8;

impl Engine {
    /// Charges a group for the slots of `pages` pages, or of as many as may go to areas. Returns how many may, and
    /// counts the others as refused. All pages are like `first`: virtual, or directly mapped and so charged since they
    /// were swapped out.
    pub(crate) fn admit_to_areas(&self, first: Entry, group: GroupIndex, pages: usize) -> usize {
        if !self.groups.writes_back(group) {
            self.groups.count_writeback_refused(group, pages);
            return 0;
        }
        if first.is_direct() {
            return pages;
        }
        let wanted = pages as u64 * SLOT_BYTES;
        let charged = self
            .groups
            .charge(group, Resource::Swap, wanted, SLOT_BYTES);
        // No more than was asked for.
        let admitted = usize::try_from(charged / SLOT_BYTES).unwrap_or(pages);
        if admitted < pages {
            self.groups.count_swap_fails(group, pages - admitted);
        }
        admitted
    }

    /// Charges a group for a directly mapped slot that was just taken in this tier.
    ///
    /// # Errors
    /// The limit that leaves no room for the slot. Nothing is charged then.
    pub(crate) fn charge_direct(&self, group: GroupIndex, tier: TierId) -> Result<(), Resource> {
        let charge = |of| self.groups.charge(group, of, SLOT_BYTES, SLOT_BYTES) == SLOT_BYTES;
        let tier = Resource::Tier(tier);
        if !charge(Resource::Swap) {
            return Err(Resource::Swap);
        }
        if charge(tier) {
            return Ok(());
        }
        self.groups.uncharge(group, Resource::Swap, SLOT_BYTES);
        Err(tier)
    }

    /// Takes back the charge for a directly mapped slot that was freed.
    pub(crate) fn uncharge_direct(&self, group: GroupIndex, tier: TierId) {
        Uncharges::new(&self.groups).slot(group, tier);
    }

    /// Takes back what `admit_to_areas` charged for a page that got no slot.
    pub(crate) fn admitted_in_vain(&self, group: GroupIndex, uncharges: &mut Uncharges<'_>) {
        self.groups.count_swap_fails(group, 1);
        uncharges.admitted(group);
    }

    /// Gives back a slot that could not be written, and the charge for it in its tier. What `admit_to_areas` charged
    /// stays. `from` is the tier of the slot in which the page still is: that one stays charged.
    pub(crate) fn lose_unwritten(&self, slot: Entry, group: GroupIndex, from: Option<TierId>) {
        let tier = self.areas.give_back(slot);
        if from != Some(tier) {
            Uncharges::new(&self.groups).in_tier(group, tier);
        }
    }

    /// Puts a payload into the pool if the group's limits allow it and there is room.
    pub(crate) fn store_charged(
        &self,
        group: GroupIndex,
        payload: &[u8],
    ) -> Result<Handle, PoolRefusal> {
        let bytes = payload.len() as u64;
        if self.groups.charge(group, Resource::Pool, bytes, bytes) < bytes {
            return Err(PoolRefusal::Limited);
        }
        self.at_pool.pass();
        let stored = self.store_compacting(|| self.pool.store(payload).ok());
        stored.ok_or_else(|| {
            self.groups.uncharge(group, Resource::Pool, bytes);
            PoolRefusal::Full
        })
    }

    /// Stores a payload by `store`, once more after payloads were moved together if the pool has no room. Free places
    /// of other sizes become a span of this one then.
    pub(crate) fn store_compacting(&self, store: impl Fn() -> Option<Handle>) -> Option<Handle> {
        store().or_else(|| (self.compact(COMPACT_PAGES) > 0).then(store)?)
    }

    /// Frees the bytes behind an entry that was just freed. Takes back the charges for them and for the entry's own
    /// slot, which was in tier `own`.
    pub(crate) fn lose_all(
        &self,
        entry: Entry,
        group: GroupIndex,
        stored: Option<Stored>,
        own: Option<TierId>,
        uncharges: &mut Uncharges<'_>,
    ) {
        if let Some(stored) = stored {
            self.lose_among(entry, group, stored, uncharges);
        }
        if let Some(tier) = own {
            self.areas.note_freed(entry);
            uncharges.slot(group, tier);
        }
    }

    /// Frees bytes of an entry's page that nothing names any more, and takes back the group's charge for them. A
    /// directly mapped slot is not freed here: it goes with its entry.
    pub(crate) fn lose_among(
        &self,
        entry: Entry,
        group: GroupIndex,
        stored: Stored,
        uncharges: &mut Uncharges<'_>,
    ) {
        match stored {
            Stored::Pool(handle) => {
                self.at_pool.pass();
                uncharges.payload(group, self.pool.free(handle));
            }
            Stored::Physical(own) if own == entry => {}
            Stored::Physical(slot) => {
                let tier = self.areas.free(slot);
                uncharges.slot(group, tier);
            }
        }
    }

    /// What two places of a page have in common. The caller has both of them pinned: a slot that others may free could
    /// be of another area by now.
    pub(crate) fn common_charges(&self, one: Option<Stored>, other: Option<Stored>) -> Common {
        match (one, other) {
            (Some(Stored::Physical(one)), Some(Stored::Physical(other))) => {
                if self.areas.tier_of(one) == self.areas.tier_of(other) {
                    Common::Tier
                } else {
                    Common::Areas
                }
            }
            _ => Common::Nothing,
        }
    }

    /// Frees one of two places of a page, after a move that worked or failed: the one that is not its home. The charges
    /// that they have in common stay with the page.
    pub(crate) fn lose_one_of_two(
        &self,
        entry: Entry,
        group: GroupIndex,
        lost: Stored,
        common: Common,
        uncharges: &mut Uncharges<'_>,
    ) {
        match (lost, common) {
            (Stored::Physical(slot), Common::Areas | Common::Tier) => {
                let tier = self.areas.free(slot);
                if common == Common::Areas {
                    uncharges.in_tier(group, tier);
                }
            }
            _ => self.lose_among(entry, group, lost, uncharges),
        }
    }

    /// Frees the payload of a page that has a shorter one of `bytes` now. The group stays charged for that one.
    pub(crate) fn lose_longer(&self, group: GroupIndex, longer: Handle, bytes: usize) {
        self.at_pool.pass();
        let saved_bytes = self.pool.free(longer).saturating_sub(bytes);
        Uncharges::new(&self.groups).payload(group, saved_bytes);
    }

    /// The group of an entry. The caller has the entry pinned, so the group does not change.
    pub(crate) fn group_of(&self, entry: Entry) -> GroupIndex {
        let locked = self.lock(entry);
        locked.map_or(GroupIndex::ROOT, |(cluster, slot)| {
            cluster.state.groups.of(slot)
        })
    }
}

/// Why the pool did not take a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PoolRefusal {
    /// It is full.
    Full,
    /// The group, or one that it is in, may not have more in it.
    Limited,
}

/// For what a page is charged once, though it has two places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Common {
    /// Each place has charges of its own.
    Nothing,
    /// Both are slots of areas, in different tiers.
    Areas,
    /// Both are slots of one tier.
    Tier,
}

/// Charges to be taken back, after what was charged was freed. Those of neighbours in one group are taken back
/// together. All are taken back by the time this is dropped.
#[derive(Debug)]
pub(crate) struct Uncharges<'a> {
    groups: &'a Groups,
    group: GroupIndex,
    swap_bytes: u64,
    pool_bytes: u64,
    tier: TierId,
    tier_bytes: u64,
}

impl<'a> Uncharges<'a> {
    pub(crate) fn new(groups: &'a Groups) -> Uncharges<'a> {
        Uncharges {
            groups,
            group: GroupIndex::ROOT,
            swap_bytes: 0,
            pool_bytes: 0,
            tier: TierId::default(),
            tier_bytes: 0,
        }
    }

    /// Adds a slot of an area in this tier.
    pub(crate) fn slot(&mut self, group: GroupIndex, tier: TierId) {
        self.admitted(group);
        self.in_tier(group, tier);
    }

    /// Adds what a slot is charged for in its tier, and not what it is charged for areas as a whole.
    fn in_tier(&mut self, group: GroupIndex, tier: TierId) {
        if tier != self.tier {
            self.flush();
            self.tier = tier;
        }
        self.turn_to(group);
        self.tier_bytes += SLOT_BYTES;
    }

    /// Adds what a page was admitted to areas for.
    fn admitted(&mut self, group: GroupIndex) {
        self.turn_to(group);
        self.swap_bytes += SLOT_BYTES;
    }

    /// Adds what the page of `entry` was admitted for, and did not get. A directly mapped page's own slot stays
    /// charged.
    pub(crate) fn admitted_for(&mut self, entry: Entry, group: GroupIndex) {
        if !entry.is_direct() {
            self.admitted(group);
        }
    }

    /// Adds a payload in the pool.
    fn payload(&mut self, group: GroupIndex, bytes: usize) {
        self.turn_to(group);
        self.pool_bytes += bytes as u64;
    }

    fn turn_to(&mut self, group: GroupIndex) {
        if group != self.group {
            self.flush();
            self.group = group;
        }
    }

    fn flush(&mut self) {
        let bytes = [
            (Resource::Swap, &mut self.swap_bytes),
            (Resource::Pool, &mut self.pool_bytes),
            (Resource::Tier(self.tier), &mut self.tier_bytes),
        ];
        for (of, bytes) in bytes {
            if *bytes > 0 {
                self.groups.uncharge(self.group, of, *bytes);
                *bytes = 0;
            }
        }
    }
}

impl Drop for Uncharges<'_> {
    fn drop(&mut self) {
        self.flush();
    }
}
