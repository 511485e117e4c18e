//! Content that cannot be given back: who is told, and who is stopped.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use crate::base::kernel::maps::MapsError;
use crate::base::kernel::uffd::UffdError;
use crate::base::kernel::{self, clock, maps};
use crate::base::page_run::PAGE_BYTES;
use crate::base::threads;
use crate::run::stats::Stats;
use crate::space::fault::Fault;
use crate::space::process::Process;
use crate::space::unexplained::LostPage;
use crate::space::{Space, State};

/// Lost pages that are named one by one. The rest are only counted.
const LOST_NAMED_MAX: u64 = 16;

/// A call on a process's memory fails when the process ends. How long to wait for that explanation.
const ENDING_PATIENCE: Duration = Duration::from_millis(500);

/// What follows when a page cannot be brought back.
const STOPPED: &str = "stopping it, because it must not read anything else in its place";
const TOLD: &str = "a thread that touches it gets SIGBUS, everything else goes on";

/// Pause between two looks whether it is there.
const PACE: Duration = Duration::from_millis(1);

/// The content of a page cannot be given back. Stop the process before it reads anything else in its place. Waits for
/// an explanation before, so the caller does not hold the space lock.
pub fn fail_closed(space: &Space, page: u64, why: &dyn Display) {
    if is_ending(space) {
        return;
    }
    say_lost(space, page, why, STOPPED);
    match space.process.get() {
        Some(process) => drop(process.pidfd.kill()),
        // A child that has not told its pid cannot be stopped alone. Whoever touches the page gets SIGBUS.
        None if space
            .uffd
            .poison(page * PAGE_BYTES, PAGE_BYTES, false)
            .is_ok() => {}
        None => kernel::abort(),
    }
}

/// The same for a caller that holds the space lock, which others need meanwhile. A thread waits for the explanation,
/// and the page stays claimed until then. The fault on it is served again only if the process cannot be stopped and a
/// layout event has taken the page away.
pub fn fail_closed_later(
    space: &Arc<Space>,
    state: &mut State,
    page: u64,
    fault: &Fault,
    why: &dyn Display,
) {
    if ends_now(space) {
        return;
    }
    state.note_lost(page, why.to_string());
    if space.process.get().is_none() && !fault.ahead && fault.page == page {
        state.waiting.push(fault.clone());
    }
    if state.unexplained.is_awaited {
        return;
    }
    let waited_for = Arc::clone(space);
    let started = threads::try_spawn(&format!("lost-{}", space.id), move || explain(&waited_for));
    if started.is_ok() {
        state.unexplained.is_awaited = true;
    } else if !is_ending(space) {
        // Without a thread the others have to wait. What cannot be stopped yet stays claimed.
        stop(space, state);
    }
}

/// Wait until the end of the process explains the loss of its pages, or nothing does.
fn explain(space: &Space) {
    if is_ending(space) {
        return;
    }
    while !space.has_ended() {
        let mut state = space.lock();
        if stop(space, &mut state) {
            state.unexplained.is_awaited = !state.unexplained.pages.is_empty();
            return;
        }
        drop(state);
        clock::sleep(PACE);
    }
}

/// Nothing has explained why pages are lost: stop the process, or poison the pages of a child that has not told its pid
/// and cannot be stopped alone. False if the kernel wants layout events to be read first.
fn stop(space: &Space, state: &mut State) -> bool {
    if let Some(process) = space.process.get() {
        if let Some(first) = state.unexplained.pages.first() {
            say_lost(space, first.page, &first.why, STOPPED);
            let _ = process.pidfd.kill();
        }
        // The pages stay claimed until the process is gone.
        return true;
    }
    let mut pages = std::mem::take(&mut state.unexplained.pages);
    // A page that a layout event has taken away is lost no more, or elsewhere. The faults on it are served again.
    pages.retain(|lost| state.layout.carries(lost.ticket, lost.page));
    pages.retain(|lost| !poison(space, state, lost));
    state.unexplained.pages = pages;
    state.unexplained.pages.is_empty()
}

/// Whoever touches the page gets SIGBUS. False if the kernel wants layout events to be read first.
fn poison(space: &Space, state: &mut State, lost: &LostPage) -> bool {
    let address = lost.page * PAGE_BYTES;
    // A marker would be taken for a page.
    let _ = space.uffd.write_unprotect(address, PAGE_BYTES, true);
    match space.uffd.poison(address, PAGE_BYTES, true) {
        Ok(()) => say_lost(space, lost.page, &lost.why, TOLD),
        Err(UffdError::Again { .. } | UffdError::NoMemory { .. }) => return false,
        // A kernel before 6.6 cannot poison a page.
        Err(UffdError::Invalid { .. } | UffdError::Other { .. }) => kernel::abort(),
        // It is unmapped, or the program has a page there that vswap has not put there, or everything is gone.
        Err(_) => {}
    }
    state.layout.finish(lost.ticket);
    state.waiting.retain(|fault| fault.page != lost.page);
    let _ = space.uffd.wake(address, PAGE_BYTES);
    true
}

fn say_lost(space: &Space, page: u64, why: &dyn Display, what_follows: &str) {
    let pid = space.pid();
    tracing::error!(
        "cannot bring back the page at {:#x} of process {}: {why}; {what_follows}",
        page * PAGE_BYTES,
        pid.map_or_else(|| "?".to_owned(), |pid| pid.to_string()),
    );
}

/// A page could not be read back. Whoever touches it gets SIGBUS.
pub fn page_lost(stats: &Stats, space: &Space, page: u64, why: &dyn Display) {
    let before = stats.pages_lost.get();
    stats.pages_lost.add(1);
    if before < LOST_NAMED_MAX {
        tracing::warn!(
            "the page at {:#x} of process {} is lost: {why}; a thread that touches it gets SIGBUS, \
             everything else goes on",
            page * PAGE_BYTES,
            space.pid().unwrap_or(0),
        );
    } else if before == LOST_NAMED_MAX {
        tracing::warn!("more pages are lost; they are counted and not named any more");
    }
}

/// Is `page` mapped in the process now?
pub fn is_mapped(space: &Space, page: u64) -> bool {
    let Some(process) = space.process.get() else {
        return true;
    };
    let address = page * PAGE_BYTES;
    let asked = match process.map.is_mapped(address) {
        Ok(Some(is_mapped)) => Ok(is_mapped),
        Ok(None) => is_mapped_by_text(process, address),
        Err(error) => Err(error),
    };
    // Where nobody can tell, the thread must not go on.
    asked.unwrap_or_else(|error| !matches!(error, MapsError::Gone))
}

/// The same before Linux 6.11, which has to show all mappings.
fn is_mapped_by_text(process: &Process, address: u64) -> Result<bool, MapsError> {
    let mut text = Vec::new();
    process.by_a_thread(|tid| maps::read(tid, &mut text))?;
    let mut mappings = maps::parse(&text).filter_map(Result::ok);
    Ok(mappings.any(|mapping| mapping.start <= address && address < mapping.end))
}

/// Is the process exiting or replacing its image? Waits a little, because a call on its memory fails a moment before
/// the pager hears that the agent has hung up.
fn is_ending(space: &Space) -> bool {
    let since = clock::now();
    while clock::now().duration_since(since) < ENDING_PATIENCE {
        if ends_now(space) {
            return true;
        }
        clock::sleep(PACE);
    }
    false
}

fn ends_now(space: &Space) -> bool {
    space.has_ended() || space.is_hung_up() || space.uffd.is_gone()
}
