//! The governor: one thread that samples what the run uses and tells evictors how much to move out.

use std::sync::Arc;
use std::time::{Duration, Instant};

use vswap_engine::{Engine, Stats};
use vswap_sys::process::procfs::Statm;

use crate::base::page_run::PAGE_BYTES;
use crate::base::threads;
use crate::life::lifecycle;
use crate::life::run::Run;
use crate::run::limit::Sample;
use crate::space::Space;

/// The slow part of activation, the filter and the threads, is done when one part in this many of the limit is used.
const ARM_PART: u64 = 2;
/// The pool is compacted when one part in this many of its pages could be given back, so many pages at a time: about
/// a millisecond of copying.
const COMPACT_PART: u64 = 32;
const COMPACT_PAGES: usize = 256;
/// A new look at a space's mappings when its memory has grown by one part in this many of the limit beyond what its
/// registered memory explains.
const RESCAN_PART: u64 = 64;
/// How often areas that begin to fail are looked for, and the run's slots in a shared store are counted.
const STORE_EVERY: Duration = Duration::from_millis(500);
/// A space smaller than this is not worth threads and a seccomp filter while larger ones can give.
const SMALL_SPACE_PART: u64 = 64;

/// The sampling thread.
pub fn run(run: &Arc<Run>) {
    let limit = &run.serving.limit;
    let own = match Statm::open(std::process::id()) {
        Ok(own) => own,
        Err(error) => {
            eprintln!("vswap: cannot read /proc/self/statm: {error}; the limit cannot be held");
            return;
        }
    };
    threads::hurry_most();
    let mut store_seen = Instant::now();
    while !limit.has_stopped() {
        let spaces = run.listening.spaces.all();
        lifecycle::reap(&run.listening, &spaces);
        run.listening.watch.retry();
        let residents: Vec<(u64, &Arc<Space>)> = spaces
            .iter()
            .map(|space| (space.resident_bytes(), space))
            .collect();
        let strangers = run.listening.shares.strangers(&spaces);
        let own_bytes = |(resident, space): &(u64, &Arc<Space>)| {
            run.listening.shares.own_bytes(space, *resident)
        };
        let engine = run.serving.engine.stats();
        let usage = run.part.usage(&engine);
        let sample = Sample {
            resident_bytes: residents.iter().map(own_bytes).sum::<u64>() + strangers.bytes,
            own_bytes: match run.part.own_group {
                None => own.sizes().map_or(0, |m| m.resident_bytes),
                Some(_) => run.part.own_bytes(&usage),
            },
            unsure_bytes: limit.unsure_bytes(&residents),
            strangers: strangers.count,
        };
        let total = limit.settle(&sample, &usage);
        run.part.settle(&usage);
        limit.pool.look(
            &run.serving.stats,
            sample.own_bytes.saturating_sub(usage.pool_bytes),
        );
        limit.pool.renew(&run.part, &run.serving.areas);
        let growing = spaces.len().min(run.cpus.len()) as u64;
        steer(run, &residents, total, growing);
        compact(&run.serving.engine, &engine);
        if store_seen.elapsed() > STORE_EVERY {
            run.serving.areas.report(&run.serving.engine);
            run.part.count_slots();
            store_seen = Instant::now();
        }
        if limit.bounds.limit_bytes() > limit.bounds.wanted_bytes() {
            run.serving.shrinker.wake();
        }
        limit.sleep(limit.bounds.pause(total, growing));
    }
}

/// Give back what the pool holds in half-empty spans.
fn compact(engine: &Engine, pool: &Stats) {
    if pool.compactable_pages * COMPACT_PART > pool.pool_bytes / PAGE_BYTES {
        engine.compact(COMPACT_PAGES);
    }
}

/// Tell the spaces what to do: start watching, look again, move out, serve who waits.
fn steer(run: &Arc<Run>, residents: &[(u64, &Arc<Space>)], total: u64, growing: u64) {
    let limit = &run.serving.limit;
    let free = limit.limit_bytes().saturating_sub(total);
    let all_the_time = run.config.evict_all_every.is_some();
    if all_the_time || total > limit.limit_bytes() / ARM_PART {
        let small = limit.limit_bytes() / SMALL_SPACE_PART;
        for (bytes, space) in residents {
            if all_the_time || *bytes >= small {
                lifecycle::start_evictor(run, space);
            }
        }
    }
    // Armed spaces begin to be watched.
    if limit.set_short(all_the_time || free < limit.bounds.activate_bytes(growing)) {
        let spaces = run.listening.spaces.all();
        let rescan = |space: &Arc<Space>| space.mailbox.ask(|wanted| wanted.rescan = true);
        spaces.iter().for_each(rescan);
    }
    let resident: u64 = residents
        .iter()
        .filter(|(_, s)| s.is_active())
        .map(|(b, _)| b)
        .sum();
    let missing = (limit.watermark_bytes() / 4 * 5).saturating_sub(free);
    let wanted_pages = if free < limit.watermark_bytes() {
        missing / PAGE_BYTES
    } else {
        0
    };
    for (bytes, space) in residents.iter().filter(|(_, space)| space.is_active()) {
        let share = wanted_pages * bytes / resident.max(1);
        let rescan = space.grew_beyond(*bytes, limit.limit_bytes() / RESCAN_PART);
        let deferred = limit.has_headroom() || limit.is_stalled();
        if share > 0 || rescan || (deferred && space.has_deferred()) {
            space.mailbox.ask(|wanted| {
                wanted.pages = share;
                wanted.rescan |= rescan;
                wanted.deferred |= deferred;
            });
        }
    }
}
