//! Taking a physical area out of use while programs run: every page in it gets another home.
//!
//! 1. *Close.* From here on no slot of the area is given out (`area/close.rs`). The area keeps its place in the order
//!    of areas, where it is passed over. So if the rest fails, it is back where it was.
//! 2. *Fetch* (`fetch.rs`). Passes over the used slots are repeated until there are none. Pages are pinned in place and
//!    read. What somebody else is using is left to the next pass, which sees what became of it.
//! 3. *New home.* As for a page that is written out: zero flag, pool, or a slot of another area.
//! 4. *Exchange* (`exchange.rs`). One compare-exchange turns "in the old slot, pinned by us alone" into "in the new
//!    place". It fails while others read from the old slot; we wait for them, a little. Then only we have the old slot,
//!    and free it.
//! 5. *Retire.* When a pass finds no used slot and no discard under way, there will be none later, and nobody else uses
//!    the storage. So the storage is closed, and the area's number is free.
//!
//! A *directly mapped* page cannot be moved like that, because page tables name the slot itself. After each pass that
//! has found such pages, whoever keeps the page tables is asked to bring them back into memory and put their entries
//! (`BringBack`). That is the kernel's `try_to_unuse`, a walk of every page table. Virtual slots need none.
//!
//! Pins are taken in batches but never waited for: threads that wait while they hold pins could wait for each other.

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

use super::charge::Uncharges;
use super::exchange::Settled;
use super::fetch::Fetched;
use super::leaving::Coming;
use crate::areas::{Areas, CloseError, Physical};
use crate::base::buffer::PageBuffer;
use crate::base::sync::yield_now;
use crate::codec::Scratch;
use crate::engine::Engine;
use crate::words::backing::{Backing, Stored};
use crate::words::entry::{AreaId, Entry};
use crate::words::slot::Word;

/// Pages that are read and moved at a time. That is a large enough request for a disk, and little memory when memory
/// may be short. One under the model checkers, where each page is on a stack.
const BATCH_PAGES: usize = if cfg!(any(loom, shuttle)) { 1 } else { 32 };

/// How many pages other areas may refuse before there counts as being no room. An area that refused is passed over
/// until a page has left it. So many refusals mean that an area refuses again and again.
const REFUSALS_MAX: usize = 1024;

/// The CPU whose clusters moved pages share. Any would do.
const CPU: usize = 0;

/// Why an area is still in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SwapOffError {
    /// There is no such area.
    #[error("no such area is in use: it was swapped off before, or never on")]
    NotInUse,
    /// Somebody else is swapping it off.
    #[error("this area is being swapped off already: let that finish")]
    UnderWay,
    /// Nothing else takes its pages.
    #[error(
        "{pages} pages are left in the area and nothing else has room for them, or none that their groups may have: \
         raise the limit, add an area or let programs end, and repeat"
    )]
    NoRoom {
        /// Pages that are still in it.
        pages: u64,
    },
    /// Some pages cannot be read; all others were moved.
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
    /// The caller gave up.
    #[error("cancelled with {pages} pages left in the area")]
    Cancelled {
        /// Pages that are still in it.
        pages: u64,
    },
}

/// Answer to a request to bring directly mapped pages back, by whoever keeps the page tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BringBack {
    /// Those that could be brought back are back, or somebody is at them.
    Done {
        /// Pages that cannot be read, of all that were found.
        unreadable: u64,
    },
    /// There is no memory for the pages, and there will be none.
    NoRoom,
    /// Nobody brings pages back here.
    Nobody,
}

impl Engine {
    /// Like [`Engine::swap_off_mapped`], for an area without directly mapped slots.
    ///
    /// # Errors
    /// As there, and [`SwapOffError::Mapped`] if the area has such slots.
    pub fn swap_off(
        &self,
        id: AreaId,
        scratch: &mut Scratch,
        cancel: &dyn Fn() -> bool,
    ) -> Result<(), SwapOffError> {
        self.swap_off_mapped(id, scratch, cancel, &mut || BringBack::Nobody)
    }

    /// Takes a physical area out of use: moves every page in it to the pool or another area, and closes its storage.
    /// Everything else goes on meanwhile. `cancel` is asked again and again whether to give up. It may take its time to
    /// answer, and so sets the pace. `bring_back` is called repeatedly as long as slots of the area are directly
    /// mapped. It must swap in all pages with entries in the area and put the entries, and must not return too soon if
    /// it could do nothing. Blocks while areas are read and written, and while other threads use pages of the area.
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
            pages: self.buffer(BATCH_PAGES),
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

/// What one pass found. Each used slot is counted once.
#[derive(Debug, Default)]
struct Pass {
    moved: u64,
    /// Slots that somebody else is using. One of the next passes finds them free or can move them. A discard counts
    /// too.
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
    pages: PageBuffer,
    refusals: usize,
}

impl Emptying<'_> {
    /// Goes through the area until it is empty. The number of passes has no limit: each slot that a pass leaves is held
    /// by a thread that will let go of it.
    fn run(&mut self) -> Result<(), SwapOffError> {
        // How many directly mapped pages could not be brought back the last time.
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

    /// Has directly mapped pages brought back. Returns how many of them cannot be read.
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
        // A discard may have begun after the area was emptied. It must not hit what the storage is used for next.
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
            ..
        } = engine.fetch(batch, &mut self.pages, |_| true);
        pass.waiting += held as u64;
        pass.direct += direct as u64;
        pass.unreadable += unreadable as u64;
        let scratch = &mut *self.scratch;
        leaving
            .iter_mut()
            .for_each(|page| engine.pack(page, engine.codec.into(), scratch));
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
