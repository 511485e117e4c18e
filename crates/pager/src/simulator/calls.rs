//! System calls of a simulated process, in the steps that the kernel takes.
//!
//! Between two steps anybody may run.
//!
//! - munmap, and calls that replace mappings, collect their events before they know whether they will succeed. They do
//!   their work and then wait until the events were read.
//! - madvise waits first and discards then.
//! - mremap moves and then tells: first of what it has replaced, then of the move, then of what it has left.
//! - A fork copies and then tells.
//!
//! A layout event holds up the pager's calls (`mmap_changing`) until the thread that raised it has gone on.

use std::ops::Range;

use super::actors::{self, world, world_is};
use super::memory::{Memory, Pte, Touch, Watch};
use super::uffd::{Event, What};

pub const EAGAIN: i64 = 11;
pub const ENOMEM: i64 = 12;
pub const EFAULT: i64 = 14;
pub const EINVAL: i64 = 22;

/// How mremap may move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// In place, or anywhere.
    Anywhere,
    /// To this place, replacing what is there.
    At(u64),
    /// To this place, while the old mapping stays, empty. The truth stays there too, because only the agent does this.
    Aside(u64),
}

fn change<R>(memory: usize, change: impl FnOnce(&mut Memory) -> R) -> R {
    world(|world| change(&mut world.memories[memory]))
}

fn is_watched(watch: Watch) -> bool {
    matches!(watch, Watch::Program | Watch::Events)
}

/// Now and then a thread loses its processor in the middle of a call.
fn dawdle() {
    if actors::once_in(4) {
        let most_us = actors::below(60) + 1;
        actors::wait_until_or(|| false, most_us);
    }
}

/// Tell the pager, and wait until it has read the event.
fn tell(memory: usize, what: What) {
    actors::step("tells", memory as u64, 0);
    let id = world(|world| {
        let id = world.id();
        world.memories[memory].events.push_back(Event { id, what });
        id
    });
    actors::wait_until(world_is(move |world| {
        let memory = &world.memories[memory];
        memory.gone || memory.events.iter().all(|event| event.id != id)
    }));
    actors::step("was heard", memory as u64, 0);
    dawdle();
    change(memory, |memory| memory.changing -= 1);
}

/// Collect the events of an unmapping. From now on each of them holds up the pager's calls.
fn prepare_unmap(memory: &mut Memory, range: Range<u64>) -> Vec<What> {
    let watched: Vec<What> = memory
        .parts(range)
        .into_iter()
        .filter(|(_, vma)| is_watched(vma.watch))
        .map(|(part, _)| What::Unmap {
            start: part.start,
            end: part.end,
        })
        .collect();
    memory.changing += u32::try_from(watched.len()).expect("few mappings");
    watched
}

/// munmap, which may fail.
pub fn unmap(memory: usize, range: Range<u64>, fails: bool) {
    actors::step("munmap", range.start, range.end);
    let events = change(memory, |memory| {
        let events = prepare_unmap(memory, range.clone());
        if !fails {
            memory.unmap(range);
        }
        events
    });
    dawdle();
    events.into_iter().for_each(|event| tell(memory, event));
}

/// mmap of private anonymous memory: at a place, replacing what is there, or where nothing is.
pub fn map(memory: usize, at: Option<u64>, pages: u64) -> Result<u64, i64> {
    actors::step("mmap", at.unwrap_or(0), pages);
    let (place, events) = change(memory, |memory| {
        let place = at.or_else(|| memory.free_place(pages))?;
        let range = place..place + pages;
        let events = prepare_unmap(memory, range.clone());
        memory.unmap(range.clone());
        memory.map(range);
        Some((place, events))
    })
    .ok_or(ENOMEM)?;
    events.into_iter().for_each(|event| tell(memory, event));
    Ok(place)
}

/// madvise(MADV_DONTNEED).
pub fn discard(memory: usize, range: Range<u64>) -> Result<(), i64> {
    let (mut at, mut outcome) = (range.start, Ok(()));
    while at < range.end {
        actors::step("madvise", at, range.end);
        let part = change(memory, |memory| {
            let (part, vma) = memory.parts(at..range.end).first()?.clone();
            if is_watched(vma.watch) {
                memory.changing += 1;
            }
            memory.begin_discard(part.clone());
            Some((part, vma))
        });
        let Some((part, vma)) = part else {
            return Err(ENOMEM);
        };
        if part.start > at {
            outcome = Err(ENOMEM);
        }
        at = part.end;
        let (start, end) = (part.start, part.end);
        if is_watched(vma.watch) {
            tell(memory, What::Remove { start, end });
            actors::step("discards", start, end);
            dawdle();
        }
        change(memory, |memory| {
            // Discards what lies there by now, as far as one mapping goes.
            let whole = memory.vma(start).map_or(start, |(whole, _)| whole.end);
            memory.discard(start..end.min(whole), &(start..end));
        });
    }
    outcome
}

/// MADV_GUARD_INSTALL, or MADV_GUARD_REMOVE.
pub fn guard(memory: usize, range: Range<u64>, on: bool) -> Result<(), i64> {
    actors::step("guards", range.start, range.end);
    change(memory, |memory| {
        let parts = memory.parts(range.clone());
        let mapped: u64 = parts.iter().map(|(part, _)| part.end - part.start).sum();
        for (part, _) in parts {
            if on {
                memory.guard(part);
            } else {
                memory.unguard(part);
            }
        }
        if mapped == range.end - range.start {
            Ok(())
        } else {
            Err(ENOMEM)
        }
    })
}

/// mprotect.
pub fn protect(memory: usize, range: Range<u64>, writable: bool) {
    actors::step("mprotect", range.start, range.end);
    change(memory, |memory| memory.protect(range, writable));
}

/// What one mremap still has to tell.
#[derive(Default)]
struct Moved {
    place: u64,
    early: Vec<What>,
    moved: Option<What>,
    late: Vec<What>,
}

/// mremap of `old` to `pages` pages.
pub fn remap(memory: usize, old: Range<u64>, pages: u64, target: Target) -> Result<u64, i64> {
    actors::step("mremap", old.start, pages);
    let moved = change(memory, |memory| {
        let (whole, vma) = memory.vma(old.start).ok_or(EFAULT)?;
        if old.end > whole.end || pages == 0 || old.is_empty() {
            return Err(EFAULT);
        }
        let is_watched = is_watched(vma.watch);
        if target == Target::Anywhere {
            if pages <= old.end - old.start {
                let late = prepare_unmap(memory, old.start + pages..old.end);
                memory.unmap(old.start + pages..old.end);
                return Ok(Moved {
                    place: old.start,
                    late,
                    ..Moved::default()
                });
            }
            let grown = old.end..old.start + pages;
            let is_free = grown.end <= super::memory::PROGRAM.end;
            if whole.end == old.end && is_free && memory.parts(grown.clone()).is_empty() {
                grow(memory, grown, vma.watch, vma.writable);
                return Ok(Moved {
                    place: old.start,
                    ..Moved::default()
                });
            }
        }
        move_mapping(
            memory,
            old,
            pages,
            target,
            (vma.watch, vma.writable),
            is_watched,
        )
    })?;
    moved
        .early
        .into_iter()
        .for_each(|event| tell(memory, event));
    moved
        .moved
        .into_iter()
        .for_each(|event| tell(memory, event));
    moved.late.into_iter().for_each(|event| tell(memory, event));
    Ok(moved.place)
}

fn grow(memory: &mut Memory, range: Range<u64>, watch: Watch, writable: bool) {
    memory.map(range.clone());
    memory.set_watch(range.clone(), watch);
    memory.protect(range, writable);
}

fn move_mapping(
    memory: &mut Memory,
    old: Range<u64>,
    pages: u64,
    target: Target,
    (watch, writable): (Watch, bool),
    is_watched: bool,
) -> Result<Moved, i64> {
    let place = match target {
        Target::Anywhere => memory.free_place(pages).ok_or(ENOMEM)?,
        Target::At(place) | Target::Aside(place) => place,
    };
    let new = place..place + pages;
    if new.start < old.end && old.start < new.end {
        return Err(EINVAL);
    }
    let early = prepare_unmap(memory, new.clone());
    memory.unmap(new.clone());
    // The cut-off end goes first.
    let kept = old.start..old.end.min(old.start + pages);
    let mut late = prepare_unmap(memory, kept.end..old.end);
    memory.unmap(kept.end..old.end);
    grow(memory, new, watch, writable);
    let moved = is_watched.then_some(What::Remap {
        from: old.start,
        to: place,
        pages: kept.end - kept.start,
    });
    memory.changing += u32::from(is_watched);
    if let Target::Aside(_) = target {
        memory.carry_aside(kept, place);
    } else {
        memory.carry(kept.clone(), place);
        late.extend(prepare_unmap(memory, kept.clone()));
        memory.unmap(kept);
    }
    Ok(Moved {
        place,
        early,
        moved,
        late,
    })
}

/// A fork. Returns the child's address space. The child's thread begins when the event was read.
pub fn fork(memory: usize) -> usize {
    actors::step("fork", memory as u64, 0);
    let (child, is_watched) = world(|world| {
        let parent = &mut world.memories[memory];
        let is_watched = parent.vmas.values().any(|vma| is_watched(vma.watch));
        parent.changing += u32::from(is_watched);
        let child = parent.fork();
        world.memories.push(child);
        let child = world.memories.len() - 1;
        world.memories[memory].unborn.push(child);
        (child, is_watched)
    });
    if is_watched {
        dawdle();
        tell(memory, What::Fork { child });
    }
    change(memory, |memory| {
        memory.unborn.retain(|unborn| *unborn != child);
    });
    child
}

/// What a thread found in a page, or what it wrote. None if nothing may be touched there.
pub fn touch(memory: usize, page: u64, write: bool, tid: u32) -> Option<u64> {
    loop {
        actors::step(if write { "writes" } else { "reads" }, page, 0);
        let touched = world(|world| {
            let (tag, id) = (world.id(), world.id());
            world.memories[memory].touch(page, write.then_some(tag), tid, id)
        });
        match touched {
            Touch::Done(tag) => return Some(tag),
            Touch::Refused => return None,
            Touch::Waits(id) => wait_for_page(memory, id),
            Touch::Wrong { found, expected } => actors::fail(&format!(
                "page {page:#x} of process {memory} holds {found:#x}, but should hold {expected:#x}"
            )),
        }
    }
}

/// A signal may interrupt a thread that waits for a page. Then its message is outdated.
fn wait_for_page(memory: usize, id: u64) {
    let is_woken = world_is(move |world| {
        let memory = &world.memories[memory];
        memory.gone || memory.faults.iter().all(|fault| fault.id != id)
    });
    if actors::once_in(8) {
        actors::wait_until_or(is_woken, actors::below(40) + 1);
        change(memory, |memory| {
            memory.faults.retain(|fault| fault.id != id);
        });
    } else {
        actors::wait_until(is_woken);
    }
}

/// MADV_POPULATE_WRITE of one page by the agent.
pub fn populate(memory: usize, page: u64, tid: u32) -> bool {
    loop {
        actors::step("populates", page, 0);
        let waits = world(|world| {
            let id = world.id();
            let memory = &mut world.memories[memory];
            if memory.gone {
                return None;
            }
            let (_, vma) = memory.vma(page)?;
            if !vma.writable || memory.pages.get(&page) == Some(&Pte::Guard) {
                return None;
            }
            if memory.make_exclusive(page) {
                return Some(None);
            }
            if vma.watch != Watch::Program {
                memory.pages.insert(page, Pte::own(0));
                return Some(None);
            }
            match memory.touch(page, Some(id), tid, id) {
                Touch::Waits(id) => Some(Some(id)),
                _ => None,
            }
        });
        match waits {
            None => return false,
            Some(None) => return true,
            Some(Some(id)) => wait_for_page(memory, id),
        }
    }
}
