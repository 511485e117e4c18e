//! Demotion: when an area is nearly full, the pages in it that have been left alone for longest go to areas of lower
//! priority, so that what leaves memory next finds room in the faster one.
//!
//! Which pages go is said by a hand (`area/cold.rs`), where they go by the order of areas (`areas/tiers.rs`). They are
//! fetched (`fetch.rs`), get neighbouring slots below, are written there in rows, and change places by one
//! compare-exchange each (`exchange.rs`), as in a swapoff. No page table is touched, a page can be read all the time,
//! and whatever fails leaves it where it was. No lock is held while areas are read and written.
//!
//! There is no promotion of its own: a page that is touched comes back to memory, and when it leaves again it goes to
//! the highest tier that has room, unless whoever manages memory has kept its slot.

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

use super::charge::Uncharges;
use super::exchange::Settled;
use super::fetch::Fetched;
use super::homes::slots_from;
use super::leaving::Leaving;
use crate::areas::Physical;
use crate::base::pages::Page;
use crate::codec::Scratch;
use crate::engine::Engine;
use crate::words::backing::{Backing, Stored};
use crate::words::entry::Entry;
use crate::words::slot::Word;

/// Pages that are moved together: a request of 256 KiB. Few under the model checkers, where each is a page of a stack.
const BATCH_PAGES: usize = if cfg!(any(loom, shuttle)) { 2 } else { 64 };

/// What [`Engine::demote`] did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Demotion {
    /// Pages that lie in an area of lower priority now.
    pub pages: usize,
    /// Pages that others were at: they stay.
    pub held: usize,
    /// Pages that stay because their area could not be read.
    pub unreadable: usize,
    /// Pages that stay because an area could not be written.
    pub refused: usize,
    /// Pages that stay because no area below had room for them.
    pub homeless: usize,
}

impl Demotion {
    fn tried(&self) -> usize {
        self.pages + self.held + self.unreadable + self.refused + self.homeless
    }
}

impl Engine {
    /// Whether there is an area less than one in `part` of whose slots is free while one of lower priority has room:
    /// then [`Engine::demote`] has something to do. Takes the lock of the order of areas.
    #[must_use]
    pub fn is_tier_crowded(&self, part: u64) -> bool {
        !self.areas.crowded(part).is_empty()
    }

    /// Whether the entry's page lies in an area below another, of higher priority. A hint, as [`Engine::is_physical`].
    #[must_use]
    pub fn lies_low(&self, entry: Entry) -> bool {
        let physical = self.physical_of(entry);
        physical.is_some_and(|physical| self.areas.is_lower(physical.area()))
    }

    /// Moves up to `budget_pages` pages from areas less than one in `part` of whose slots is free to areas of lower
    /// priority, those first that have been left alone for longest. Ends early when areas have as much room again,
    /// nothing below has any, or one cannot be written. `cpu` is a hint where to take slots from. Blocks while areas
    /// are read and written.
    pub fn demote(
        &self,
        cpu: usize,
        part: u64,
        budget_pages: usize,
        scratch: &mut Scratch,
    ) -> Demotion {
        let mut done = Demotion::default();
        let mut buffer = std::mem::take(&mut scratch.unpacked);
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
                buffer.resize_with(most.max(buffer.len()), Page::zeroed);
                self.move_down(cpu, from, &cold, &mut buffer, &mut done);
            }
            // A cluster that waits to be discarded is given out only when no area has room.
            from.discard_emptied();
        }
        scratch.unpacked = buffer;
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
            ..
        } = self.fetch(cold, buffer);
        done.held += held;
        done.unreadable += unreadable;
        let entries = leaving.iter().map(|page| page.entry);
        let slots = slots_from(entries, |words| {
            self.areas.allocate_below(from.priority, cpu, words)
        });
        let mut placed: Vec<&mut Leaving<&Page>> = leaving.iter_mut().take(slots.len()).collect();
        self.write_runs(&slots, &mut placed);
        // Charged as they are, one slot for another.
        let mut uncharges = Uncharges::new(&self.groups);
        for (slot, page) in old.into_iter().zip(&leaving) {
            let was = Backing::of(Stored::Physical(slot));
            match self.settle(was, page, &mut uncharges) {
                Settled::Moved => done.pages += 1,
                Settled::Held => done.held += 1,
                Settled::Refused => done.refused += 1,
                Settled::NoRoom => done.homeless += 1,
            }
        }
    }
}
