//! Content that cannot be given back: who is told, and who is stopped.

use std::fmt::Display;
use std::time::Duration;

use crate::base::kernel::{self, clock, maps};
use crate::base::page_run::PAGE_BYTES;
use crate::run::stats::Stats;
use crate::space::Space;

/// Lost pages that are named one by one. The rest are only counted.
const LOST_NAMED_MAX: u64 = 16;

/// A call on a process's memory fails when the process ends. How long to wait for that explanation.
const ENDING_PATIENCE: Duration = Duration::from_millis(500);

/// The content of a page cannot be given back. Stop the process before it reads anything else in its place.
pub fn fail_closed(space: &Space, page: u64, why: &dyn Display) {
    if is_ending(space) {
        return;
    }
    let pid = space.pid();
    tracing::error!(
        "cannot bring back the page at {:#x} of process {}: {why}; stopping it, because it must not \
         read anything else in its place",
        page * PAGE_BYTES,
        pid.map_or_else(|| "?".to_owned(), |pid| pid.to_string()),
    );
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
    let mut text = Vec::new();
    if process
        .by_a_thread(|tid| maps::read(tid, &mut text))
        .is_err()
    {
        return false;
    }
    let mut mappings = maps::parse(&text).filter_map(Result::ok);
    mappings.any(|mapping| mapping.start <= address && address < mapping.end)
}

/// Is the process exiting or replacing its image? Waits a little, because a call on its memory fails a moment before
/// the pager hears that the agent has hung up.
fn is_ending(space: &Space) -> bool {
    let since = clock::now();
    while clock::now().duration_since(since) < ENDING_PATIENCE {
        if space.has_ended() || space.is_hung_up() || space.uffd.is_gone() {
            return true;
        }
        clock::sleep(Duration::from_millis(1));
    }
    false
}
