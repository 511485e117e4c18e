//! The shrinker: what is cold in the pool goes to areas in good time, so that what is evicted finds room in the pool.
//!
//! It begins before the pool is full and goes on until a tenth of it is free. Every writer looks how full the pool is
//! before it stores a batch. If it is nearly full, so that the shrinker does not keep up, the writer first writes back
//! as many cold pages as it is about to store: otherwise what was just evicted would go to an area while older pages
//! stay in the pool. That costs the same request to the device, and one decompression a page. What finds no room all
//! the same goes straight to an area, as does what does not compress.
//!
//! As long as there is room for another batch, pages that come back from areas too early slow the shrinker down: each
//! spares one page. Which they are is told by refault distance (`working_set.rs`): the page would have stayed in a
//! pool that holds as much again. The same holds where pages compress well, as each that goes frees little. Rules and
//! hysteresis are those of the kernel's zswap.
//!
//! Areas of different priority are tiers: when the clusters of a higher one are nearly all in use, what has been left
//! alone for longest in it goes down, between the same marks. What comes back too early from a lower one does not keep
//! its slot there, so that it leaves for a higher tier.
//!
//! Runs only with areas.

use std::sync::Arc;
use std::time::Duration;

use vswap_engine::{Engine, PoolFill, Scratch, WriteBack};

use crate::base::page_run::PAGE_BYTES;
use crate::base::threads;
use crate::evict::evicting::Evicting;
use crate::fault::serving::Serving;

/// The shrinker begins when less than one part in this many of the pool's limit is free.
const LOW_PART: u64 = 20;
/// It ends when one part in this many is free: the kernel accepts pages again at 90 % of the limit.
const ACCEPT_PART: u64 = 10;
/// Writers help when less than one part in this many is free: a batch may need a new span of each size that it has.
const FULL_PART: u64 = 40;
/// Pages that the shrinker writes back before it looks again how full the pool is: one request.
const BATCH: usize = 64;
/// Fewer pages than this are not worth a request while there is no hurry.
const WORTH_PAGES: u64 = 8;
/// Pages that compaction gives back at the most before pages are written back: less than a millisecond of copying.
const COMPACT_PAGES: usize = 128;
/// It is done when more than one part in this many of the limit could be given back.
const COMPACT_PART: u64 = 32;
/// Pause before areas without room are tried again.
const NO_ROOM_PACE: Duration = Duration::from_millis(200);
/// CPU whose clusters of the areas the shrinker shares: as good as any.
const CPU: usize = 0;

/// A writer is about to store `pages`: has room made for them, or makes it. Blocks while an area is written.
pub fn make_room(evicting: &Evicting, pages: usize, scratch: &mut Scratch) {
    if !evicting.serving.areas.any_stays() {
        return;
    }
    if evicting.serving.engine.is_tier_crowded(LOW_PART) {
        evicting.serving.shrinker.wake();
    }
    let fill = look(evicting);
    if !is_short(&fill, fill.span_bytes, LOW_PART) || evicting.serving.shrinker.has_no_room() {
        return;
    }
    evicting.serving.shrinker.wake();
    if is_short(&fill, fill.needed_bytes, FULL_PART) {
        write_back(evicting, pages.max(BATCH), scratch);
    }
    if is_short(&fill, fill.span_bytes, FULL_PART) {
        compact(&evicting.serving.engine, &fill);
    }
}

/// How full the pool is; begins a generation of its pages when it is time.
fn look(evicting: &Evicting) -> PoolFill {
    let fill = evicting.part.pool_fill(evicting.serving.limit.pool.bytes());
    if evicting
        .serving
        .shrinker
        .note_fill(&fill, &evicting.serving.working_set)
    {
        evicting.serving.engine.begin_generation();
    }
    fill
}

/// One step towards areas and a pool that have room again. False if there is nothing more to do.
fn step(evicting: &Evicting, scratch: &mut Scratch) -> bool {
    // Areas first: what leaves the pool goes to the highest that has room.
    evicting.serving.areas.any_stays()
        && (demote(&evicting.serving, scratch) | empty_pool(evicting, scratch))
}

/// False if the pool has room, or nothing more can be moved from it.
fn empty_pool(evicting: &Evicting, scratch: &mut Scratch) -> bool {
    if evicting.serving.shrinker.has_no_room() {
        return false;
    }
    let fill = look(evicting);
    // What is in a pool that was taken away while the program ran.
    if fill.limit_bytes == 0 && fill.objects > 0 {
        return write_back(evicting, BATCH, scratch).pages > 0;
    }
    if !is_short(&fill, fill.span_bytes, ACCEPT_PART) {
        return false;
    }
    compact(&evicting.serving.engine, &fill);
    if is_short(&fill, fill.needed_bytes, FULL_PART) {
        return write_back(evicting, BATCH, scratch).pages > 0;
    }
    let pages = unhurried(&fill, evicting.serving.shrinker.take_refaults());
    if pages < WORTH_PAGES {
        return false;
    }
    let pages = usize::try_from(pages).unwrap_or(BATCH).min(BATCH);
    let done = write_back(evicting, pages, scratch);
    // Pages that are read while they are written are a sign of having come to warm ones.
    done.pages > 0 && done.warm == 0
}

fn write_back(evicting: &Evicting, pages: usize, scratch: &mut Scratch) -> WriteBack {
    let done =
        evicting
            .serving
            .engine
            .write_back_of(evicting.part.group_in_pool(), CPU, pages, scratch);
    evicting
        .serving
        .stats
        .pages_written_back
        .add(done.pages as u64);
    let failed = done.refused + done.damaged;
    evicting
        .serving
        .stats
        .write_back_failures
        .add(failed as u64);
    let none_may = done.pages == 0 && done.limited > 0;
    if done.homeless > 0 || none_may {
        evicting.serving.shrinker.set_no_room(true);
        // The thread has to end that.
        evicting.serving.shrinker.wake();
    }
    done
}

/// The pool may have less from now on.
pub fn wake(serving: &Serving) {
    serving.shrinker.set_no_room(false);
    serving.shrinker.wake();
}

/// Start the thread, once. Before the first area is used.
pub fn start(evicting: &Arc<Evicting>) {
    if !evicting.serving.shrinker.begin() {
        return;
    }
    let evicting = Arc::clone(evicting);
    threads::spawn_late("shrink", move || {
        let mut scratch = evicting.serving.engine.scratch();
        while evicting.serving.shrinker.wait() {
            while step(&evicting, &mut scratch) {}
            if evicting.serving.shrinker.has_no_room() {
                std::thread::sleep(NO_ROOM_PACE);
                evicting.serving.shrinker.set_no_room(false);
            }
        }
    });
}

/// Move a batch of pages down from an area that is nearly full. False if there is none, or nothing moves.
fn demote(serving: &Serving, scratch: &mut Scratch) -> bool {
    let done = serving.engine.demote(CPU, ACCEPT_PART, BATCH, scratch);
    serving.stats.pages_demoted.add(done.pages as u64);
    let failed = done.refused + done.unreadable;
    serving.stats.write_back_failures.add(failed as u64);
    done.pages > 0
}

/// Give back what is between objects, if that is much: objects that come fill the holes of those that go.
fn compact(engine: &Engine, fill: &PoolFill) {
    if fill.span_bytes - fill.needed_bytes > fill.limit_bytes / COMPACT_PART {
        engine.compact(COMPACT_PAGES);
    }
}

/// Is less than one part in `part` of the limit free while `used_bytes` are used? Never where there is no pool.
fn is_short(fill: &PoolFill, used_bytes: u64, part: u64) -> bool {
    fill.limit_bytes.saturating_sub(used_bytes) < fill.limit_bytes / part
}

/// Pages that may be written back while there is no hurry: what the pool holds too much, less one for each page that
/// came back too early, and the fewer the better they compress.
fn unhurried(fill: &PoolFill, refaults: u64) -> u64 {
    let accepted = fill.limit_bytes - fill.limit_bytes / ACCEPT_PART;
    let excess_bytes = fill.needed_bytes.saturating_sub(accepted);
    let page_bytes = (fill.needed_bytes / fill.objects.max(1)).clamp(1, PAGE_BYTES);
    let pages = (excess_bytes / page_bytes).saturating_sub(refaults);
    pages * page_bytes / PAGE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pool of 10 MiB whose pages take 1 KiB.
    fn fill(needed_bytes: u64) -> PoolFill {
        PoolFill {
            limit_bytes: 10 << 20,
            span_bytes: needed_bytes,
            needed_bytes,
            objects: needed_bytes >> 10,
        }
    }

    #[test]
    fn there_is_something_between_too_full_and_room_enough() {
        let parts = |needed_bytes| {
            let fill = fill(needed_bytes);
            [ACCEPT_PART, LOW_PART, FULL_PART].map(|part| is_short(&fill, needed_bytes, part))
        };
        assert_eq!(parts(9 << 20), [false; 3]);
        assert_eq!(parts((10 << 20) / 100 * 94), [true, false, false]);
        assert_eq!(parts((10 << 20) / 100 * 96), [true, true, false]);
        assert_eq!(parts((10 << 20) / 100 * 98), [true, true, true]);
        assert_eq!(parts(11 << 20), [true; 3], "the limit was lowered");
        assert!(!is_short(&PoolFill::default(), 0, FULL_PART), "no pool");
    }

    #[test]
    fn pages_that_come_back_too_early_spare_others() {
        // A tenth of 10 MiB too much, in pages that take a quarter of what they hold.
        let full = fill(10 << 20);
        assert_eq!(unhurried(&full, 0), 1024 / 4);
        assert_eq!(unhurried(&full, 512), 512 / 4);
        assert_eq!(unhurried(&full, 2000), 0);
        assert_eq!(unhurried(&fill(9 << 20), 0), 0);
        assert_eq!(unhurried(&PoolFill::default(), 0), 0);
    }
}
