//! Bringing pages in that nobody has touched, because where they are is given up: an area, or swap as a whole.

use std::ops::Range;
use std::sync::Arc;

use vswap_engine::Entry;

use crate::base::kernel::clock;
use crate::base::lock::MutexGuard;
use crate::fault::FaultServer;
use crate::layout::words::PageState;
use crate::space::fault::Fault;
use crate::space::incoming;
use crate::space::wait::Wait;
use crate::space::{AREA_WINDOW_PAGES_MAX, Space, State};

/// What became of a window of pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BroughtIn {
    /// The first page of the window, and the page behind its last one.
    pub first: u64,
    /// See `first`.
    pub end: u64,
    /// How many pages the window had.
    pub pages: u64,
    /// The first page that has not come. Those behind it may have.
    pub stays: Option<(u64, Entry)>,
}

impl FaultServer<'_> {
    /// Bring in the next pages of `range` that are swapped to `wanted` entries and that nobody carries, at most a
    /// window, whatever the limit says. None if there are none. The lock is released.
    pub fn bring_in(
        &mut self,
        mut state: MutexGuard<'_, State>,
        range: Range<u64>,
        wanted: impl Fn(Entry) -> bool,
    ) -> Option<BroughtIn> {
        let incoming = incoming::claim_matching(&mut state, range, AREA_WINDOW_PAGES_MAX, wanted);
        drop(state);
        let (first, last) = (incoming.first()?, incoming.last()?);
        let (state, _) = self.fetch(&unasked(first.page), &incoming, 1);
        let is_out = |page: u64, entry: Entry| {
            state.layout.words.get(page).state() == PageState::Swapped(entry)
        };
        let stays = incoming.iter().map(|one| (one.page, one.entry));
        let stays = stays.into_iter().find(|&(page, entry)| is_out(page, entry));
        self.release(state);
        Some(BroughtIn {
            first: first.page,
            end: last.page + 1,
            pages: incoming.len() as u64,
            stays,
        })
    }
}

/// The fault that nobody has raised. It is a write, because no entry may be kept behind the page.
fn unasked(page: u64) -> Fault {
    Fault {
        page,
        write: true,
        protected: false,
        urgent: true,
        ahead: true,
        since: clock::now(),
        wait: Wait::nobody(),
    }
}

/// Bring in all that is out of `range`, as far as nothing prevents it.
pub fn bring_all_in(server: &mut FaultServer<'_>, space: &Arc<Space>, range: Range<u64>) {
    let mut from = range.start;
    while !space.has_ended() {
        let window = server.bring_in(space.lock_thawed(), from..range.end, |_| true);
        let Some(window) = window else { return };
        from = window.stays.map_or(window.end, |(page, _)| page + 1);
    }
}
