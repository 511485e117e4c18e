//! Demotion. When an area is nearly full, the pages in it that have been left alone for longest go to areas of lower
//! priority. So pages that leave memory next find room in the faster area.
//!
//! A hand says which pages go (`area/cold.rs`), and the order of areas says where to (`areas/tiers.rs`). The pages are
//! fetched (`fetch.rs`), get neighbouring slots below, and are written there in rows. What a group may not have goes
//! past that tier, and stays if none is left; such pages are not even read. Each changes its place by one
//! compare-exchange (`exchange.rs`), as in a swapoff. No page table is touched, and a page can be read all the time.
//! Whatever fails leaves the page where it was. No lock is held while areas are read and written.
//!
//! There is no separate promotion. A page that is touched comes back to memory. When it leaves again it goes to the
//! highest tier that has room, unless whoever manages memory has kept its slot.

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

use super::charge::Uncharges;
use super::exchange::Settled;
use super::fetch::Fetched;
use super::homes::{have_one_payer, slots_from};
use super::leaving::Leaving;
use crate::areas::{Payer, Physical};
use crate::base::pages::Page;
use crate::codec::Scratch;
use crate::engine::Engine;
use crate::groups::GroupIndex;
use crate::words::backing::{Backing, Stored};
use crate::words::entry::Entry;
use crate::words::slot::Word;

/// Pages that are moved together: a request of 256 KiB. Few under the model checkers, where each page is on a stack.
const BATCH_PAGES: usize = if cfg!(any(loom, shuttle)) { 2 } else { 64 };

/// What [`Engine::demote`] did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Demotion {
    /// Pages that were moved to an area of lower priority.
    pub pages: usize,
    /// Pages that stay because others were using them.
    pub held: usize,
    /// Pages that stay because their area could not be read.
    pub unreadable: usize,
    /// Pages that stay because an area could not be written.
    pub refused: usize,
    /// Pages that stay because their groups may have no more of the tiers below.
    pub limited: usize,
    /// Pages that stay because no area below had room for them.
    pub homeless: usize,
}

impl Demotion {
    fn tried(&self) -> usize {
        self.pages + self.held + self.unreadable + self.refused + self.limited + self.homeless
    }
}

impl Engine {
    /// Whether some area has less than one in `part` of its slots free while an area of lower priority has room. Then
    /// [`Engine::demote`] has something to do. Takes the lock of the order of areas.
    #[must_use]
    pub fn is_tier_crowded(&self, part: u64) -> bool {
        !self.areas.crowded(part).is_empty()
    }

    /// Whether the entry's page lies in an area that is not of the highest priority. A hint, like
    /// [`Engine::is_physical`].
    #[must_use]
    pub fn lies_low(&self, entry: Entry) -> bool {
        let physical = self.physical_of(entry);
        physical.is_some_and(|physical| self.areas.is_lower(physical.area()))
    }

    /// Moves up to `budget_pages` pages to areas of lower priority, from areas with less than one in `part` of their
    /// slots free. Those left alone for longest go first. Ends early when the areas have enough room again, when
    /// nothing below has room, or when an area cannot be written. `cpu` is a hint where to take slots. Blocks while
    /// areas are read and written.
    pub fn demote(
        &self,
        cpu: usize,
        part: u64,
        budget_pages: usize,
        scratch: &mut Scratch,
    ) -> Demotion {
        let mut done = Demotion::default();
        let mut buffer = scratch.take_pages();
        for from in self.areas.crowded(part) {
            while done.tried() < budget_pages
                && done.homeless + done.refused == 0
                && from.is_crowded(part)
            {
                let most = BATCH_PAGES.min(budget_pages - done.tried());
                let cold = from.area.cold_slots(&mut from.hand.lock(), most);
                if cold.is_empty() {
                    break;
                }
                buffer.grow(most);
                self.move_down(cpu, from, &cold, &mut buffer, &mut done);
            }
            // A cluster that waits to be discarded is otherwise given out only when no area has room.
            from.discard_emptied();
        }
        scratch.give_pages(buffer);
        done
    }

    fn move_down(
        &self,
        cpu: usize,
        from: &Physical,
        cold: &[(Entry, Word)],
        buffer: &mut [Page],
        done: &mut Demotion,
    ) {
        let Fetched {
            mut leaving,
            slots: old,
            held,
            unreadable,
            unwanted,
            ..
        } = self.fetch(cold, buffer, self.may_go_below(from));
        done.held += held;
        done.unreadable += unreadable;
        done.limited += unwanted;
        let mut slots = Vec::with_capacity(leaving.len());
        let mut placed: Vec<&mut Leaving<&Page>> = Vec::with_capacity(leaving.len());
        for of_one in leaving.chunk_by_mut(have_one_payer) {
            let payer = Payer::pages(&self.groups, of_one[0].group, of_one[0].from);
            let entries = of_one.iter().map(|page| page.entry);
            let found = slots_from(entries, &payer, |words| {
                let priority = from.priority();
                self.areas.allocate_below(priority, cpu, words, &payer)
            });
            let (with, without) = of_one.split_at_mut(found.slots.len());
            for page in without {
                page.to = page.to.or_limited(found.is_limited);
            }
            slots.extend(found.slots);
            placed.extend(with);
        }
        self.write_runs(&slots, &mut placed);
        // What areas as a whole are charged for does not change: it goes from one slot to the other.
        let mut uncharges = Uncharges::new(&self.groups);
        for (slot, page) in old.into_iter().zip(&leaving) {
            let was = Backing::of(Stored::Physical(slot));
            match self.settle(was, page, &mut uncharges) {
                Settled::Moved => done.pages += 1,
                Settled::Held => done.held += 1,
                Settled::Refused => done.refused += 1,
                Settled::NoRoom if page.is_limited() => done.limited += 1,
                Settled::NoRoom => done.homeless += 1,
            }
        }
    }

    /// Which groups may have another page below this area. A hint, from now.
    fn may_go_below(&self, from: &Physical) -> impl Fn(GroupIndex) -> bool {
        let below = self.areas.tiers_below(from.priority());
        // Within the tier a page takes its charge along.
        let is_free = below.has(from.tier());
        move |group| {
            let has_room = || !self.groups.tiers_with_room(group, below).is_empty();
            is_free || below.is_empty() || has_room()
        }
    }
}
