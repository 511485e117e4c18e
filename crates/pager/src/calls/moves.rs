//! mremap for a thread of the program, which waits.
//!
//! The agent makes the call, one at a time (rule P2). This runs on the thread that answers the calls of a space.

use std::ops::Range;

use vswap_sys::abi::remap;
use vswap_sys::memory::addresses;
use vswap_sys::ring::op;

use crate::base::page_run::{PAGE_BYTES, pages_of};
use crate::events::regions;
use crate::run::references::References;
use crate::space::Space;
use crate::space::agent::{AgentGone, Slot};
use crate::space::gain::{self, Gain};
use crate::space::process::Process;

const MREMAP_FIXED: u64 = remap::FIXED as u64;
const MREMAP_DONTUNMAP: u64 = remap::DONTUNMAP as u64;
const EFAULT: i64 = 14;

/// Have the agent make the call. Register what the mapping has gained before anybody knows that it is there.
pub fn mremap(
    references: &References,
    space: &Space,
    process: &Process,
    args: &[u64; 6],
) -> Result<i64, AgentGone> {
    let [old, old_bytes, new_bytes, flags, new, _] = *args;
    let mut slot = process.agent.slot();
    let result = match watched_parts(space, process, args) {
        Some(parts) => move_each(&mut slot, &parts, (old, new), flags)?,
        None => {
            let pages = |bytes: u64| bytes.div_ceil(PAGE_BYTES);
            let gain = Gain::Pages(pages(new_bytes).saturating_sub(pages(old_bytes)));
            gain::during(space, &mut slot, gain, |slot| {
                slot.call(op::MREMAP, args, &[])
            })?
        }
    };
    let Ok(place) = u64::try_from(result) else {
        if flags & MREMAP_FIXED != 0 {
            follow_failed(space, process, (old, new), old_bytes, &slot);
        }
        return Ok(result);
    };
    let pages = |start: u64, from: u64, to: u64| {
        let end_of = |bytes| pages_of(start, bytes).end;
        end_of(from)..end_of(to)
    };
    // Foreign memory stays foreign where it has moved to, and so does what it gains. No event tells of it.
    let (from, to) = (pages(old, 0, old_bytes), pages(place, 0, new_bytes));
    let keeps_old = flags & MREMAP_DONTUNMAP != 0;
    if space
        .lock()
        .layout
        .move_foreign(from.clone(), to.clone(), keeps_old)
    {
        return Ok(result);
    }
    let gained = pages(place, old_bytes, new_bytes);
    if !gained.is_empty() && is_known(space, place) {
        regions::adopt(references, space, gained, &slot);
    }
    // With MREMAP_DONTUNMAP the old place stays a mapping, an empty one.
    if keeps_old {
        let state = space.lock_thawed();
        let moved: Vec<Range<u64>> = state.layout.registered.overlaps(to).collect();
        drop(state);
        for part in moved {
            let back = |page: u64| page - place / PAGE_BYTES + from.start;
            let left = back(part.start)..back(part.end).min(from.end);
            regions::adopt(references, space, left, &slot);
        }
    }
    Ok(result)
}

/// A move that failed may have moved the first of several mappings. An event tells where watched memory is now. No
/// event tells of memory that is left alone for MADV_WIPEONFORK. It must stay alone in its new place.
fn follow_failed(
    space: &Space,
    process: &Process,
    (old, new): (u64, u64),
    bytes: u64,
    slot: &Slot<'_>,
) {
    let source = pages_of(old, bytes);
    let is_alone = space
        .lock()
        .layout
        .foreign
        .overlaps(source)
        .next()
        .is_some();
    if is_alone {
        regions::leave_wiped_alone(space, process, &pages_of(new, bytes), slot);
    }
}

/// Does vswap manage the mapping that moved or grew? Others are left alone.
fn is_known(space: &Space, address: u64) -> bool {
    let state = space.lock_thawed();
    state.layout.registered.contains(address / PAGE_BYTES)
}

/// The mappings that have to be moved one by one. None if the kernel answers the call as it would natively.
///
/// Since Linux 6.17 one call moves several mappings and the gaps between them. But it stops half-way, before the first
/// mapping that a userfaultfd watches.
fn watched_parts(space: &Space, process: &Process, args: &[u64; 6]) -> Option<Vec<Range<u64>>> {
    let [old, old_bytes, new_bytes, flags, new, _] = *args;
    let only_moves = flags & MREMAP_FIXED != 0 && old_bytes == new_bytes;
    let is_aligned = old.is_multiple_of(PAGE_BYTES) && new.is_multiple_of(PAGE_BYTES);
    if !only_moves || !is_aligned || !vswap_sys::memory::mremap::moves_several_mappings() {
        return None;
    }
    let bytes = old_bytes.checked_next_multiple_of(PAGE_BYTES)?;
    let (end, new_end) = (old.checked_add(bytes)?, new.checked_add(bytes)?);
    let is_apart = new_end <= old || end <= new;
    if !is_apart || new_end > addresses::end() {
        return None;
    }
    let parts = process.map.mapped(old, end).ok()?;
    // The kernel takes its new way only if a mapping begins at the start, and if there is more than that mapping.
    if parts.first()?.start != old || *parts.first()? == (old..end) {
        return None;
    }
    let state = space.lock_thawed();
    let pages = old / PAGE_BYTES..end / PAGE_BYTES;
    let is_watched = state.layout.registered.overlaps(pages).next().is_some();
    is_watched.then_some(parts)
}

/// Move mappings one by one, in the kernel's order, up to the first that fails.
fn move_each(
    slot: &mut Slot<'_>,
    parts: &[Range<u64>],
    (old, new): (u64, u64),
    flags: u64,
) -> Result<i64, AgentGone> {
    for part in parts {
        let length = part.end - part.start;
        let to = new + (part.start - old);
        let moved = slot.call(op::MREMAP, &[part.start, length, length, flags, to], &[])?;
        if moved < 0 {
            return Ok(moved);
        }
    }
    Ok(i64::try_from(new).unwrap_or(-EFAULT))
}
