//! Writing back: the coldest pages of the pool go to areas, so that the pool has room for warmer ones.
//!
//! 1. *Pick* (`area/aging.rs`). A hand finds the pages that have been left alone for longest. It pins each by a
//!    compare-exchange of the backing word. The word as it was is kept: it names the bytes and says when they were last
//!    read. It is compared again at the end. Only pinned bytes of the pool are read.
//! 2. *Slots.* The pages get neighbouring slots of the areas, as pages that are written out do. Pages that get none
//!    stay where they are, so a full area costs no decompression.
//! 3. *Unpack and write.* Each row of neighbours is written with one request. An area that keeps pages packed gets the
//!    payloads as they lie in the pool.
//! 4. *Exchange* (`exchange.rs`). If the backing word is what it was, it names the slot from now on, and the bytes in
//!    the pool are freed. A page that was read or put meanwhile keeps what it has, and the slot is freed instead.
//!
//! No page table is touched, and a page can be read all the time. Whatever fails, the page is in the pool as before.
//! Bytes that turn out to be damaged are marked, so that they are not tried again and again. No lock is held while
//! pages are unpacked or written.

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

use super::charge::Uncharges;
use super::exchange::Settled;
use super::homes::are_alike;
use super::leaving::Leaving;
use super::swap_in::SwapInError;
use crate::area::{Cold, Purpose};
use crate::base::pages::{PAGE_BYTES, Page};
use crate::codec::Scratch;
use crate::engine::Engine;
use crate::groups::{GroupId, GroupIndex};
use crate::words::backing::{Backing, Stored};
use crate::words::entry::Entry;

/// Pages that are picked and written together. A request of 256 KiB costs a device little more than one page. Few under
/// the model checkers, where each page is on a stack.
const BATCH_PAGES: usize = if cfg!(any(loom, shuttle)) { 2 } else { 64 };

/// What [`Engine::write_back`] did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WriteBack {
    /// Pages that were moved from the pool to an area.
    pub pages: usize,
    /// Pages that were read or put meanwhile, so not that cold. A page that was read stays in the pool.
    pub warm: usize,
    /// Pages that stay because an area could not be written.
    pub refused: usize,
    /// Pages that stay because their bytes are damaged.
    pub damaged: usize,
    /// Pages that stay because of the limits of their groups.
    pub limited: usize,
    /// Pages that stay because no area had room for them. Until areas have room, calling again gains nothing.
    pub homeless: usize,
}

impl WriteBack {
    fn tried(&self) -> usize {
        self.pages + self.warm + self.refused + self.damaged + self.limited + self.homeless
    }
}

impl Engine {
    /// Moves up to `budget_pages` pages from the pool to areas. Those stored or read the longest ago go first. Ends
    /// early when no area has room, when an area cannot be written, or when nothing is left in the pool. `cpu` is a
    /// hint where in an area to take slots. Several threads may call this at once and then share the work. Blocks while
    /// an area is written.
    pub fn write_back(&self, cpu: usize, budget_pages: usize, scratch: &mut Scratch) -> WriteBack {
        self.write_back_of(GroupId::ROOT, cpu, budget_pages, scratch)
    }

    /// Like `write_back`, for the pages of one group; the root stands for all pages. Looks at each cluster's table of
    /// groups under the cluster's lock.
    pub fn write_back_of(
        &self,
        group: GroupId,
        cpu: usize,
        budget_pages: usize,
        scratch: &mut Scratch,
    ) -> WriteBack {
        let mut done = WriteBack::default();
        let mut buffer = scratch.take_pages();
        while done.tried() < budget_pages && done.homeless + done.refused == 0 {
            let most = BATCH_PAGES.min(budget_pages - done.tried());
            let areas = || self.areas_to_age();
            let index = group.index();
            let cold = self.aging.pick(Purpose::WriteBack, areas, index, most);
            if cold.is_empty() {
                break;
            }
            buffer.grow(most);
            for cold in cold.chunk_by(|a, b| are_alike(a.entry, b.entry)) {
                self.write_batch_back(cpu, cold, &mut buffer, scratch, &mut done);
            }
        }
        scratch.give_pages(buffer);
        done
    }

    fn write_batch_back(
        &self,
        cpu: usize,
        cold: &[Cold],
        buffer: &mut [Page],
        scratch: &mut Scratch,
        done: &mut WriteBack,
    ) {
        let mut uncharges = Uncharges::new(&self.groups);
        let admitted = self.admit_cold(cold);
        done.limited += cold.len() - admitted.len();
        let mut placed = Vec::with_capacity(admitted.len());
        for of_one in admitted.chunk_by(|a, b| a.1 == b.1) {
            let entries = of_one.iter().map(|(page, _)| page.entry);
            let found = self.slots_for(cpu, of_one[0].1, None, entries);
            let (with, without) = of_one.split_at(found.slots.len());
            placed.extend(with.iter().zip(found.slots));
            if found.is_limited {
                done.limited += without.len();
            } else {
                done.homeless += without.len();
            }
            for &(page, group) in without {
                self.admitted_in_vain(group, &mut uncharges);
                self.unpin_entry(page.entry);
            }
        }
        let mut going: Vec<(Backing, Entry)> = Vec::with_capacity(placed.len());
        let mut leaving = Vec::with_capacity(placed.len());
        for ((&(page, group), slot), buffer) in placed.into_iter().zip(buffer) {
            let Ok(payload_bytes) = self.take_out(page, slot, buffer, scratch) else {
                self.lose_among(page.entry, group, Stored::Physical(slot), &mut uncharges);
                self.leave_damaged(page.entry);
                done.damaged += 1;
                continue;
            };
            going.push((page.backing, slot));
            leaving.push(Leaving::new(page.entry, group, &*buffer).with_payload(payload_bytes));
        }
        let slots: Vec<Entry> = going.iter().map(|&(_, slot)| slot).collect();
        self.write_runs(&slots, &mut leaving.iter_mut().collect::<Vec<_>>());
        for ((backing, _), page) in going.into_iter().zip(&leaving) {
            if page.is_refused() {
                uncharges.admitted_for(page.entry, page.group);
            }
            match self.settle(backing, page, &mut uncharges) {
                Settled::Moved => done.pages += 1,
                Settled::Held => done.warm += 1,
                Settled::Refused => done.refused += 1,
                Settled::NoRoom => done.homeless += 1,
            }
        }
    }

    /// Copies a pinned page out of the pool, as the area of `slot` wants it. Returns how many bytes it takes.
    fn take_out(
        &self,
        page: &Cold,
        slot: Entry,
        buffer: &mut Page,
        scratch: &mut Scratch,
    ) -> Result<usize, SwapInError> {
        if self.areas.keeps_packed(slot.area()) {
            return self.copy_packed(page.entry, page.handle, buffer);
        }
        self.unpack(page.entry, page.handle, buffer, scratch)?;
        Ok(PAGE_BYTES)
    }

    /// The pages that may have slots in areas, with their groups, which are charged for the slots. Unpins the others.
    fn admit_cold<'c>(&self, cold: &'c [Cold]) -> Vec<(&'c Cold, GroupIndex)> {
        let grouped: Vec<(&Cold, GroupIndex)> = cold
            .iter()
            .map(|page| (page, self.group_of(page.entry)))
            .collect();
        let mut admitted = Vec::with_capacity(cold.len());
        for run in grouped.chunk_by(|a, b| a.1 == b.1) {
            let count = self.admit_to_areas(run[0].0.entry, run[0].1, run.len());
            let (charged, limited) = run.split_at(count);
            admitted.extend_from_slice(charged);
            limited
                .iter()
                .for_each(|(page, _)| self.unpin_entry(page.entry));
        }
        admitted
    }
}
