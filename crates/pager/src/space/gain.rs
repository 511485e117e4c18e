//! Memory that the agent gains for a thread of the program, by mremap or brk.
//!
//! Such memory becomes part of a mapping that is watched already. No thread may touch it before the layout knows of it
//! (`regions::adopt`).
//!
//! Locked memory is the exception: the kernel fills it within the call. The agent then faults on pages that the layout
//! does not know, or for which it still has the words of an earlier mapping. These pages hold zeros. UFFDIO_COPY cannot
//! bring the zeros: while a mapping moves, the kernel refuses UFFDIO_COPY until the REMAP event is read, and it sends
//! that event only when the pages are there. So the pager unregisters what the call gains and lets the kernel fill it
//! until the call is over.

use crate::base::page_run::PAGE_BYTES;
use crate::space::agent::Slot;
use crate::space::{Space, State};

/// What a call may gain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gain {
    /// So many pages. Only the kernel knows where.
    Pages(u64),
    /// Everything up to this page.
    UpTo(u64),
}

/// Make a call that may gain memory.
pub fn during<R>(
    space: &Space,
    slot: &mut Slot<'_>,
    gain: Gain,
    call: impl FnOnce(&mut Slot<'_>) -> R,
) -> R {
    space.lock().gain = Some(gain);
    let result = call(slot);
    space.lock().gain = None;
    result
}

/// The agent's thread has faulted. Returns true if the page is gained by the call that the agent makes. The kernel then
/// fills this page and those behind it, because it begins with the first one.
pub fn fill(space: &Space, state: &State, page: u64) -> bool {
    let end = match state.gain {
        None => return false,
        Some(Gain::Pages(pages)) => page + pages,
        Some(Gain::UpTo(end)) => end.max(page + 1),
    };
    let bytes = (end - page) * PAGE_BYTES;
    // This wakes the agent. It fails only where nothing could be watched either.
    space.uffd.unregister(page * PAGE_BYTES, bytes).is_ok()
}
