//! Bringing directly mapped pages back from an area that is given up. This needs a walk of all page words. Virtual
//! slots spare a swapoff that walk.
//!
//! Page tables name the slots. So each page is swapped in as if its process had touched it. If there is no room, the
//! limit first pushes other pages out. None goes to this area, which gives out no slot any more. Entries kept behind
//! resident pages, and proposals to kin, are given up. The engine knows when nothing is left. Until then it has the
//! words walked again, because meanwhile forks copy words and others carry pages.

use std::sync::Arc;
use std::time::{Duration, Instant};

use vswap_engine::{AreaId, BringBack, Entry};

use crate::base::page_run::PAGE_BYTES;
use crate::events::listening::Listening;
use crate::fault::FaultServer;
use crate::life::run::Run;
use crate::run::buffers::Buffers;
use crate::space::{AREA_WINDOW_PAGES_MAX, Space};

/// Pause when a walk could do nothing or there is no room: others work on the pages, or move some out.
const PACE: Duration = Duration::from_millis(1);
/// Beyond the last page of any address space.
const PAGES_END: u64 = 1 << 52;
/// How long to wait for room. A program whose pages are being moved out makes room in far less time.
const ROOM_PATIENCE: Duration = Duration::from_secs(5);

/// Brings the pages of one run back from one area.
pub struct BringingBack<'a> {
    listening: &'a Listening,
    area: AreaId,
    cancel: &'a dyn Fn() -> bool,
    buffers: Option<Buffers>,
}

/// The result of one walk.
#[derive(Default)]
struct Walk {
    back: u64,
    unreadable: u64,
}

/// Why a walk ends early.
enum Stop {
    Cancelled,
    NoRoom,
}

/// Bring back what is possible, of all runs.
pub fn walk(runs: &mut [BringingBack<'_>]) -> BringBack {
    let mut walk = Walk::default();
    for run in runs {
        match run.walk_run(&mut walk) {
            Ok(()) => {}
            // The engine checks for itself.
            Err(Stop::Cancelled) => return BringBack::Done { unreadable: 0 },
            Err(Stop::NoRoom) => return BringBack::NoRoom,
        }
    }
    if walk.back == 0 {
        std::thread::sleep(PACE);
    }
    BringBack::Done {
        unreadable: walk.unreadable,
    }
}

impl<'a> BringingBack<'a> {
    pub fn of(
        runs: &'a [Arc<Run>],
        area: AreaId,
        cancel: &'a dyn Fn() -> bool,
    ) -> Vec<BringingBack<'a>> {
        let of_run = |run: &'a Arc<Run>| BringingBack {
            listening: &run.listening,
            area,
            cancel,
            buffers: None,
        };
        runs.iter().map(of_run).collect()
    }

    fn walk_run(&mut self, walk: &mut Walk) -> Result<(), Stop> {
        let spaces = self.listening.spaces.all();
        spaces
            .iter()
            .try_for_each(|space| self.walk_space(space, walk))
    }

    fn walk_space(&mut self, space: &Arc<Space>, walk: &mut Walk) -> Result<(), Stop> {
        let is_there = |entry: Entry| entry.area() == self.area;
        space
            .mailbox
            .put_proposals(&self.listening.serving.engine, is_there);
        // Whoever holds the lock for longer than a moment waits for a stopped process. Such a space is passed over.
        if let Some(mut state) = space.try_lock() {
            let serving = &self.listening.serving;
            let put = &mut serving.references.puts();
            state.layout.shed_kept(&is_there, put);
        }
        let mut from = 0;
        while let Some(next) = self.bring_window(space, from, walk)? {
            from = next;
        }
        Ok(())
    }

    /// Bring back the next pages in the area, from page `from` on. Returns where to go on.
    fn bring_window(
        &mut self,
        space: &Arc<Space>,
        from: u64,
        walk: &mut Walk,
    ) -> Result<Option<u64>, Stop> {
        self.wait_for_room()?;
        let Some(state) = space.try_lock() else {
            return Ok(None);
        };
        let area = self.area;
        let serving = &self.listening.serving;
        let buffers = self.buffers.take();
        let buffers = buffers.unwrap_or_else(|| Buffers::new(&serving.engine, &serving.stats));
        let mut server = FaultServer::with(serving, space, buffers);
        let window = server.bring_in(state, from..PAGES_END, |entry| entry.area() == area);
        self.buffers = Some(server.into_buffers());
        let Some(window) = window else {
            return Ok(None);
        };
        let Some((page, entry)) = window.stays else {
            walk.back += window.pages;
            return Ok(Some(window.end));
        };
        if page > window.first {
            walk.back += 1;
            return Ok(Some(page));
        }
        walk.unreadable += u64::from(self.is_unreadable(entry));
        Ok(Some(page + 1))
    }

    /// Did the page stay because it cannot be read? Otherwise others work on it.
    fn is_unreadable(&mut self, entry: Entry) -> bool {
        let engine = &self.listening.serving.engine;
        let Some(buffers) = &mut self.buffers else {
            return false;
        };
        let (scratch, pages) = buffers.parts(1);
        engine.count(entry) > 0 && engine.swap_in(entry, &mut pages[0], scratch).is_err()
    }

    fn wait_for_room(&self) -> Result<(), Stop> {
        let since = Instant::now();
        let window_bytes = AREA_WINDOW_PAGES_MAX * PAGE_BYTES;
        while !self.listening.serving.limit.has_room(window_bytes) {
            if (self.cancel)() {
                return Err(Stop::Cancelled);
            }
            if since.elapsed() > ROOM_PATIENCE {
                return Err(Stop::NoRoom);
            }
            std::thread::sleep(PACE);
        }
        if (self.cancel)() {
            return Err(Stop::Cancelled);
        }
        Ok(())
    }
}
