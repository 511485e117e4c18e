//! Memory that a call of the agent gains for a thread of the program, by mremap or brk.
//!
//! It becomes part of a mapping that is watched already, and nobody may touch it before the layout knows of it
//! (`regions::adopt`). But where memory is locked the kernel fills it within the call: the agent faults, and the pager
//! hears of pages that it knows nothing of, or the words of what lay there before. They hold zeros. UFFDIO_COPY may not
//! bring those: while a mapping moves, the kernel refuses it until the REMAP event is read, which it sends only when
//! the pages are there. So the kernel is left to fill what it gains by itself, unwatched, until the call is over.

use crate::base::page_run::PAGE_BYTES;
use crate::space::agent::Slot;
use crate::space::{Space, State};

/// What a call may gain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gain {
    /// So many pages; where, only the kernel knows.
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

/// The agent's thread has faulted. True if the call that it makes has gained the page: the kernel fills it then, and
/// what follows it, for it begins with the first.
pub fn fill(space: &Space, state: &State, page: u64) -> bool {
    let end = match state.gain {
        None => return false,
        Some(Gain::Pages(pages)) => page + pages,
        Some(Gain::UpTo(end)) => end.max(page + 1),
    };
    let bytes = (end - page) * PAGE_BYTES;
    // Wakes the agent. Refused only where nothing can be watched either.
    space.uffd.unregister(page * PAGE_BYTES, bytes).is_ok()
}
