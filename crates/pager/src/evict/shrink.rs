//! The shrinker: it moves cold pages from the pool to areas in good time, so that evicted pages find room in the pool.
//!
//! It begins before the pool is full and goes on until a tenth of the pool is free. A writer checks the pool before it
//! stores a batch. If the pool is nearly full, the shrinker does not keep up. The writer then first writes back as many
//! cold pages as it is about to store. Otherwise the pages just evicted would go to an area while older ones stay in
//! the pool. This costs the same request to the device, and one decompression for each page. Pages that still find no
//! room go straight to an area, as do pages that do not compress.
//!
//! While there is room for another batch, pages that come back from areas too early slow the shrinker down: each spares
//! one page. The refault distance tells which they are (`working_set.rs`): a pool of twice the size would have kept
//! the page. The shrinker also slows down where pages compress well, because each page that goes frees little. Rules
//! and hysteresis are those of the kernel's zswap.
//!
//! Areas of different priority are tiers. When nearly all clusters of a higher tier are in use, its coldest pages go
//! down, between the same marks. A page that comes back too early from a lower tier does not keep its slot there, so it
//! leaves for a higher tier.
//!
//! The shrinker runs only with areas.

use std::sync::Arc;
use std::time::Duration;

use vswap_engine::{Engine, PoolFill, Scratch, WriteBack};

use crate::base::page_run::PAGE_BYTES;
use crate::base::threads;
use crate::evict::evicting::Evicting;
use crate::fault::serving::Serving;

/// The shrinker begins when less than one part in this many of the pool's limit is free.
const LOW_PART: u64 = 20;
/// It ends when one part in this many is free. The kernel, too, accepts pages again at 90 % of the limit.
const ACCEPT_PART: u64 = 10;
/// Writers help when less than one part in this many is free. A batch may need a new span for each size in it.
const FULL_PART: u64 = 40;
/// Pages that the shrinker writes back before it checks the pool again: one request.
const BATCH: usize = 64;
/// Fewer pages than this are not worth a request when there is no hurry.
const WORTH_PAGES: u64 = 8;
/// Most pages that compaction gives back before pages are written back: less than a millisecond of copying.
const COMPACT_PAGES: usize = 128;
/// Compaction runs if more than one part in this many of the limit could be given back.
const COMPACT_PART: u64 = 32;
/// Pause before areas without room are tried again.
const NO_ROOM_PACE: Duration = Duration::from_millis(200);

/// Called before a writer stores `pages` pages. Wakes the shrinker, or makes room itself. Blocks while it writes to an
/// area.
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

/// How full the pool is. Begins a new generation of its pages when it is time.
pub fn look(evicting: &Evicting) -> PoolFill {
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

/// One step towards room in areas and pool. False if there is nothing more to do.
fn step(evicting: &Evicting, scratch: &mut Scratch) -> bool {
    // Areas first, because what leaves the pool goes to the highest one with room.
    evicting.serving.areas.any_stays()
        && (demote(&evicting.serving, scratch) | empty_pool(evicting, scratch))
}

/// Move pages out of the pool. False if it has room, or nothing more can be moved.
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
    // If pages are read while they are written, the shrinker has reached warm ones.
    done.pages > 0 && done.warm == 0
}

fn write_back(evicting: &Evicting, pages: usize, scratch: &mut Scratch) -> WriteBack {
    let group = evicting.part.group_in_pool();
    let cpu = threads::current_cpu();
    let engine = &evicting.serving.engine;
    let done = engine.write_back_of(group, cpu, pages, scratch);
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
        // Only the shrinker's thread ends this state.
        evicting.serving.shrinker.wake();
    }
    done
}

/// The pool may have less from now on.
pub fn wake(serving: &Serving) {
    serving.shrinker.set_no_room(false);
    serving.shrinker.wake();
}

/// Start the thread, once, before the first area is used.
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

/// Move a batch of pages down from an area that is nearly full. False if there is no such area or nothing moves.
fn demote(serving: &Serving, scratch: &mut Scratch) -> bool {
    let cpu = threads::current_cpu();
    let done = serving.engine.demote(cpu, ACCEPT_PART, BATCH, scratch);
    serving.stats.pages_demoted.add(done.pages as u64);
    let failed = done.refused + done.unreadable;
    serving.stats.write_back_failures.add(failed as u64);
    done.pages > 0
}

/// Give back the space between objects if there is much of it. Otherwise new objects fill the holes of old ones.
fn compact(engine: &Engine, fill: &PoolFill) {
    if fill.span_bytes - fill.needed_bytes > fill.limit_bytes / COMPACT_PART {
        engine.compact(COMPACT_PAGES);
    }
}

/// Is less than one part in `part` of the limit free when `used_bytes` are used? Never if there is no pool.
fn is_short(fill: &PoolFill, used_bytes: u64, part: u64) -> bool {
    fill.limit_bytes.saturating_sub(used_bytes) < fill.limit_bytes / part
}

/// Pages that may be written back when there is no hurry: what the pool has too much, minus one for each page that came
/// back too early. The better pages compress, the fewer.
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
