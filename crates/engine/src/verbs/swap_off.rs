//! Taking a physical area out of use while programs go on: every page in it is given another home.
//!
//! 1. *Close.* No slot of the area is given out from here on (`area/close.rs`). It keeps its place in the order of
//!    areas, where it is passed over, so that it is back where it was if the rest fails.
//! 2. *Fetch* (`fetch.rs`). The slots in use are gone through, again and again until there are none. Pages are pinned
//!    where they lie, and read. What somebody else is at is left to the next pass, which sees what became of it.
//! 3. *New home.* As for a page that is written out: zero flag, pool, a slot of another area.
//! 4. *Exchange* (`exchange.rs`). One compare-exchange turns "in the old slot, pinned by us alone" into "in the new
//!    place". It fails while others read from the old slot; they are waited for, a little. Then the old slot is ours
//!    alone and is freed.
//! 5. *Retire.* When a pass finds no slot in use and no discard under way, there is none and will be none, and nobody
//!    else is at the storage. So it is closed, and the area's number is free.
//!
//! A *directly mapped* page cannot be moved like that: page tables name the slot itself. Whoever keeps them is asked to
//! bring such pages back into memory and put their entries, after each pass that has found some (`BringBack`). That is
//! the kernel's `try_to_unuse`, a walk of every page table there is; virtual slots need none.
//!
//! Pins are taken in batches, but never waited for: waiting with pins held could go in a circle.

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

use super::charge::Uncharges;
use super::exchange::Settled;
use super::fetch::Fetched;
use super::leaving::Coming;
use crate::areas::{Areas, CloseError, Physical};
use crate::base::pages::Page;
use crate::base::sync::yield_now;
use crate::codec::Scratch;
use crate::engine::Engine;
use crate::words::backing::{Backing, Stored};
use crate::words::entry::{AreaId, Entry};
use crate::words::slot::Word;

/// Pages that are read and moved at a time: large enough a request for a disk, and little memory at a time when there
/// may be none. One under the model checkers, where each is a page of a stack.
const BATCH_PAGES: usize = if cfg!(any(loom, shuttle)) { 1 } else { 32 };

/// How many pages other areas may refuse before there counts as being no room. An area that refused is passed over
/// until a page has left it, so more than a few mean that one does so again and again.
const REFUSALS_MAX: usize = 1024;

/// The CPU with which moved pages share their clusters: as good as any.
const CPU: usize = 0;

/// Why an area is still in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SwapOffError {
    /// There is no such area.
    #[error("no such area is in use: it was swapped off before, or never on")]
    NotInUse,
    /// Somebody else is at it.
    #[error("this area is being swapped off already: let that finish")]
    UnderWay,
    /// Nothing else takes its pages.
    #[error(
        "{pages} pages are left in the area and nothing else has room for them: raise the limit, add an area or free \
         entries, and repeat"
    )]
    NoRoom {
        /// Pages that are still in it.
        pages: u64,
    },
    /// Some pages cannot be read, all others were moved.
    #[error(
        "{pages} pages of the area cannot be read, all others were moved: check the device, or end the programs that \
         they belong to, and repeat"
    )]
    Unreadable {
        /// How many.
        pages: u64,
    },
    /// Page tables name slots of the area, and nobody brings their pages back.
    #[error(
        "{pages} pages are directly mapped to the area, all others were moved: bring them back into memory, and repeat"
    )]
    Mapped {
        /// Pages that are still in it.
        pages: u64,
    },
    /// The caller wanted no more.
    #[error("cancelled with {pages} pages left in the area")]
    Cancelled {
        /// Pages that are still in it.
        pages: u64,
    },
}

/// What whoever keeps the page tables answers when asked to bring directly mapped pages back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BringBack {
    /// Those that could be brought back are back, or somebody is at them.
    Done {
        /// Pages that cannot be read, of all that were found.
        unreadable: u64,
    },
    /// There is no memory for them, and will be none.
    NoRoom,
    /// Nobody does that here.
    Nobody,
}

impl Engine {
    /// As [`Engine::swap_off_mapped`], of an area without directly mapped slots.
    ///
    /// # Errors
    /// As there, and [`SwapOffError::Mapped`] if it has some.
    pub fn swap_off(
        &self,
        id: AreaId,
        scratch: &mut Scratch,
        cancel: &dyn Fn() -> bool,
    ) -> Result<(), SwapOffError> {
        self.swap_off_mapped(id, scratch, cancel, &mut || BringBack::Nobody)
    }

    /// Takes a physical area out of use: moves every page in it to the pool or another area and closes its storage.
    /// Everything else goes on meanwhile. `cancel` is asked again and again whether to give up; it may take its time to
    /// answer and so sets the pace. `bring_back` is called again and again as long as slots of the area are directly
    /// mapped: it is to swap in all pages whose entries are of the area, put the entries, and not come back too soon if
    /// it could do nothing. Blocks while areas are read and written, and while other threads are at pages of the area.
    ///
    /// # Errors
    /// [`SwapOffError`]; the area is in use as before, without the pages that were moved.
    pub fn swap_off_mapped(
        &self,
        id: AreaId,
        scratch: &mut Scratch,
        cancel: &dyn Fn() -> bool,
        bring_back: &mut dyn FnMut() -> BringBack,
    ) -> Result<(), SwapOffError> {
        let area = self.areas.close(id).map_err(|error| match error {
            CloseError::NotInUse => SwapOffError::NotInUse,
            CloseError::UnderWay => SwapOffError::UnderWay,
        })?;
        let mut emptying = Emptying {
            engine: self,
            area,
            scratch,
            cancel,
            bring_back,
            pages: vec![Page::zeroed(); BATCH_PAGES],
            refusals: 0,
        };
        let emptied = emptying.run();
        match emptied {
            Ok(()) => self.areas.retire(id),
            Err(_) => Areas::reopen(area),
        }
        emptied
    }
}

/// What one pass found. Every slot in use is counted once.
#[derive(Debug, Default)]
struct Pass {
    moved: u64,
    /// Somebody else is at them: they will be free, or can be moved, by one of the next passes. A discard counts too.
    waiting: u64,
    unreadable: u64,
    /// Directly mapped.
    direct: u64,
}

/// A swap-off under way.
struct Emptying<'a> {
    engine: &'a Engine,
    area: &'a Physical,
    scratch: &'a mut Scratch,
    cancel: &'a dyn Fn() -> bool,
    bring_back: &'a mut dyn FnMut() -> BringBack,
    pages: Vec<Page>,
    refusals: usize,
}

impl Emptying<'_> {
    /// Goes through the area until it is empty. There is no limit to the passes: each slot that one leaves is held by a
    /// thread that will let go of it.
    fn run(&mut self) -> Result<(), SwapOffError> {
        // Of the directly mapped pages, those that could not be brought back the last time.
        let mut lost = 0;
        loop {
            let pass = self.pass()?;
            if pass.moved == 0 && pass.waiting == 0 && pass.direct <= lost {
                let pages = pass.unreadable + pass.direct;
                return match pages {
                    0 => Ok(()),
                    _ => Err(SwapOffError::Unreadable { pages }),
                };
            }
            if pass.direct > 0 {
                lost = self.bring_back()?;
            }
            if pass.moved == 0 {
                yield_now();
            }
            self.check()?;
        }
    }

    /// Has directly mapped pages brought back, and returns how many of them cannot be read.
    fn bring_back(&mut self) -> Result<u64, SwapOffError> {
        let brought_back = (self.bring_back)();
        let pages = self.pages_left();
        match brought_back {
            BringBack::Done { unreadable } => Ok(unreadable),
            BringBack::NoRoom => Err(SwapOffError::NoRoom { pages }),
            BringBack::Nobody => Err(SwapOffError::Mapped { pages }),
        }
    }

    fn pass(&mut self) -> Result<Pass, SwapOffError> {
        // A discard that has begun, after the area was emptied, must not meet what its storage is used for next.
        let mut pass = Pass {
            waiting: u64::from(self.area.area.is_discarding()),
            ..Pass::default()
        };
        for (id, cluster) in self.area.area.clusters() {
            let used = self.area.area.used_in(id, cluster);
            for batch in used.chunks(BATCH_PAGES) {
                self.check()?;
                self.move_batch(batch, &mut pass)?;
            }
        }
        Ok(pass)
    }

    fn check(&self) -> Result<(), SwapOffError> {
        if (self.cancel)() {
            let pages = self.pages_left();
            return Err(SwapOffError::Cancelled { pages });
        }
        Ok(())
    }

    fn pages_left(&self) -> u64 {
        self.area.area.stats().slots_used
    }

    fn move_batch(&mut self, batch: &[(Entry, Word)], pass: &mut Pass) -> Result<(), SwapOffError> {
        let engine = self.engine;
        let Fetched {
            mut leaving,
            slots,
            held,
            direct,
            unreadable,
        } = engine.fetch(batch, &mut self.pages);
        pass.waiting += held as u64;
        pass.direct += direct as u64;
        pass.unreadable += unreadable as u64;
        let scratch = &mut *self.scratch;
        leaving
            .iter_mut()
            .for_each(|page| engine.pack(page, scratch));
        engine.write_to_areas(CPU, &mut leaving, Coming::FromArea);
        let mut is_full = false;
        let mut uncharges = Uncharges::new(&engine.groups);
        for (old, page) in slots.into_iter().zip(&leaving) {
            let old = Backing::of(Stored::Physical(old));
            match engine.settle(old, page, &mut uncharges) {
                Settled::Moved => pass.moved += 1,
                Settled::Held => pass.waiting += 1,
                Settled::Refused => {
                    pass.waiting += 1;
                    self.refusals += 1;
                }
                Settled::NoRoom => is_full = true,
            }
        }
        if is_full || self.refusals > REFUSALS_MAX {
            let pages = self.pages_left();
            return Err(SwapOffError::NoRoom { pages });
        }
        Ok(())
    }
}
