//! Bringing back what was in memory before the run was parked, before anybody touches it: in address order, which is
//! the order of the slots, so that an area reads it with large requests.
//!
//! Entries in areas are kept, as after a read fault: pages that nobody has written to leave again for nothing.

use std::ops::Range;

use vswap_engine::Entry;

use crate::base::kernel::clock;
use crate::base::lock::MutexGuard;
use crate::fault::FaultServer;
use crate::fault::swap_in::Why;
use crate::space::fault::Fault;
use crate::space::incoming;
use crate::space::wait::Wait;
use crate::space::{AREA_WINDOW_PAGES_MAX, State};

/// Pages whose words are looked at with the space locked.
const LOOK_PAGES: u64 = 4096;

impl FaultServer<'_> {
    /// Bring back the next window of pages from page `from` on that are swapped to `wanted` entries, as far as nothing
    /// prevents it. Returns where to go on, none at the end. The lock is released.
    pub fn bring_recent(
        &mut self,
        mut state: MutexGuard<'_, State>,
        from: u64,
        wanted: impl Fn(Entry) -> bool,
    ) -> Option<u64> {
        let range = next_range(&state, from)?;
        let end = range.end;
        let incoming = incoming::claim_matching(&mut state, range, AREA_WINDOW_PAGES_MAX, wanted);
        drop(state);
        let (Some(first), Some(last)) = (incoming.first(), incoming.last()) else {
            return Some(end);
        };
        let next = if incoming.len() as u64 == AREA_WINDOW_PAGES_MAX {
            last.page + 1
        } else {
            end
        };
        let fault = unasked(first.page);
        let (state, _) = self.fetch_because(Why::Woken, &fault, &incoming, 1);
        self.release(state);
        Some(next)
    }
}

/// The next registered pages from page `from` on, at most as many as are looked at at a time.
fn next_range(state: &State, from: u64) -> Option<Range<u64>> {
    let ahead = state.layout.registered.overlaps(from..u64::MAX).next()?;
    let end = ahead.end.min(ahead.start + LOOK_PAGES);
    Some(ahead.start..end)
}

/// The fault that nobody has raised. It reads, so entries may be kept.
fn unasked(page: u64) -> Fault {
    Fault {
        page,
        write: false,
        protected: false,
        urgent: true,
        ahead: true,
        since: clock::now(),
        wait: Wait::nobody(),
    }
}
