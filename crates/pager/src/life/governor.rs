//! The governor: one thread that samples what the run uses, and tells evictors how much to move out. It runs in the
//! real-time class, so what takes longer the more is swapped out is done elsewhere: `pressure_watch.rs` looks at the
//! store, and `run/remains.rs` gives up the pages of processes that have ended.

use std::sync::{Arc, Once};
use std::time::Duration;

use vswap_engine::{Engine, Recount, Stats};
use vswap_sys::memory::own_code;
use vswap_sys::process::cpu;
use vswap_sys::process::procfs::Statm;

use crate::base::page_run::PAGE_BYTES;
use crate::base::threads;
use crate::events::listening::Listening;
use crate::life::lifecycle;
use crate::life::residents::Residents;
use crate::life::run::Run;
use crate::run::limit::{Limit, Sample};
use crate::run::part::{COMPACT_PART, Usage};
use crate::space::Space;
use crate::store::more_room::Wish;

/// A space is armed (filter and threads, the slow part of activation) when one part in this many of the limit is used.
const ARM_PART: u64 = 2;
/// Pages that compaction gives back at a time, which is about a millisecond of copying.
const COMPACT_PAGES: usize = 256;
/// A space's mappings are looked at again when its memory has grown by one part in this many of the limit more than its
/// registered memory explains.
const RESCAN_PART: u64 = 64;
/// An area had better come when less than one part in this many of the pool is free: milliseconds before it is full.
const ROOM_PART: u64 = 16;
/// A full run stands still when it has not grown by more than this between samples, so many times in a row.
const STILL_BYTES: u64 = 256 << 10;
const STILL_SAMPLES: u32 = 50;
/// Pause between two samples of a parked run: nothing of it grows.
const PARKED_PAUSE: Duration = Duration::from_secs(1);
/// A smaller space is not worth threads and a seccomp filter while larger ones can give memory.
const SMALL_SPACE_PART: u64 = 64;

/// The smallest space of which pages are sampled.
const SAMPLED_SPACE_BYTES: u64 = 4 << 20;

/// The pause after a sample is at least so many times as long as the sample took, which matters with many processes.
const PAUSE_PARTS: u32 = 2;

/// The sampling thread.
pub fn run(run: &Arc<Run>) {
    let limit = &run.serving.limit;
    let own = match Statm::open(std::process::id()) {
        Ok(own) => own,
        Err(error) => {
            tracing::error!("cannot read /proc/self/statm: {error}; the limit cannot be held");
            return;
        }
    };
    threads::hurry_most();
    let mut recount = Recount::default();
    let mut still = Still::default();
    let mut seen = Residents::default();
    while !limit.has_stopped() {
        let began = cpu::thread_time();
        let spaces = run.listening.spaces.all();
        let has_more_to_end = lifecycle::reap(&run.listening, &spaces);
        give_up_remains(&run.listening);
        run.listening.watch.retry();
        let residents = seen.look(&spaces, Space::resident_bytes);
        let strangers = run.listening.shares.strangers(&spaces);
        let own_bytes = |(resident, space): &(u64, &Arc<Space>)| {
            run.listening.shares.own_bytes(space, *resident)
        };
        let engine = run.serving.engine.recount(&mut recount);
        let usage = run.part.usage(&engine);
        let resident_bytes = residents.iter().map(own_bytes).sum::<u64>() + strangers.bytes;
        // Asked last: what is measured in between counts as in use for this once.
        let shared = run.listening.shares.shared_pages();
        let sample = Sample {
            resident_bytes: resident_bytes.saturating_sub(shared.freed * PAGE_BYTES),
            own_bytes: own_bytes_of(run, &own, &usage),
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
        choose_packing(run);
        wish_for_room(run, usage.pool_bytes);
        let growing = spaces.len().min(run.cpus.len()) as u64;
        let is_held = run.serving.parking.is_holding();
        if limit.is_stalled() && !is_held && spaces.iter().any(|space| space.has_deferred()) {
            limit.stall.note_wait();
        }
        steer(run, &residents, total, shared.leaving, growing);
        let cost = cpu::thread_time().saturating_sub(began);
        compact(&run.serving.engine, &engine);
        if limit.bounds.limit_bytes() > limit.bounds.wanted_bytes() {
            run.serving.shrinker.wake();
        }
        let pause = limit.bounds.pause(total, growing);
        let pause = if has_more_to_end {
            Duration::ZERO
        } else {
            pause
        };
        let pause = pause.max(cost * PAUSE_PARTS);
        if run.serving.parking.is_parked() {
            limit.sleep(PARKED_PAUSE);
            continue;
        }
        limit.sleep(match still.is_so(limit.is_stalled(), total) {
            true => pause.max(Limit::stall_pause()),
            false => pause,
        });
    }
}

/// Memory of vswap itself that counts for this run.
fn own_bytes_of(run: &Run, own: &Statm, usage: &Usage) -> u64 {
    match run.part.own_group {
        None => own.sizes().map_or(0, |m| m.resident_bytes),
        Some(_) => run.part.own_bytes(usage),
    }
}

/// Samples in a row of a full run between which it has not grown.
#[derive(Debug, Default)]
struct Still {
    samples: u32,
    total: u64,
}

impl Still {
    /// Take in a sample. True when there were so many that looking seldom will do.
    fn is_so(&mut self, stalled: bool, total: u64) -> bool {
        let grew = total.saturating_sub(self.total) > STILL_BYTES;
        self.samples = if stalled && !grew {
            self.samples + 1
        } else {
            0
        };
        self.total = total;
        self.samples > STILL_SAMPLES
    }
}

/// Have what ended processes left behind given up, by a thread that is not in the real-time class. If there is none to
/// be had, the next sample asks again.
fn give_up_remains(listening: &Arc<Listening>) {
    if !listening.remains.attend() {
        return;
    }
    let attending = Arc::clone(listening);
    let started = threads::try_spawn("remains", move || {
        threads::hurry();
        let (remains, serving) = (&attending.remains, &attending.serving);
        remains.give_up(&serving.references, || serving.limit.has_more_room());
    });
    if started.is_err() {
        listening.remains.neglect();
    }
}

/// Let it be decided how densely pages are packed.
fn choose_packing(run: &Run) {
    let fill = run.part.pool_fill(run.serving.limit.pool.bytes());
    let has_areas = run.serving.areas.any_stays() && run.part.has_swap_room();
    let packed = run.serving.stats.compressed_pages.get();
    let waits = &run.serving.pressure.waits;
    run.serving.packing.look(&fill, has_areas, packed, waits);
}

/// Wish for an area if pages will soon have nowhere to go.
fn wish_for_room(run: &Run, pool_bytes: u64) {
    // One that is being given up on purpose may still turn out to be needed: then it stays.
    if run.serving.areas.any() || !run.part.has_swap_room() {
        return;
    }
    let limit = &run.serving.limit;
    let most = limit.pool.bytes();
    let is_nearly_full = pool_bytes >= most - most / ROOM_PART;
    let wish = match (is_nearly_full, limit.is_stalled()) {
        (true, stalled) if stalled || limit.is_short() => Wish::NearlyFull { pool_bytes: most },
        (false, true) => Wish::Stalled,
        _ => return,
    };
    run.serving.areas.more_room.want(wish);
}

/// Give back what the pool holds in half-empty spans.
fn compact(engine: &Engine, pool: &Stats) {
    if pool.compactable_pages * COMPACT_PART > pool.pool_bytes / PAGE_BYTES {
        engine.compact(COMPACT_PAGES);
    }
}

/// Tell the spaces what to do: start watching, look again, move out, serve waiting faults. So many shared pages are
/// `leaving` anyway.
fn steer(run: &Arc<Run>, residents: &[(u64, &Arc<Space>)], total: u64, leaving: u64, growing: u64) {
    let limit = &run.serving.limit;
    let free = limit.limit_bytes().saturating_sub(total);
    let samples = run.serving.samples.session().is_some();
    let all_the_time = samples || run.config.evict_all_every.is_some();
    if all_the_time || total > limit.limit_bytes() / ARM_PART {
        // What was needed for the start alone does not count from now on.
        static STARTED: Once = Once::new();
        STARTED.call_once(own_code::unmap);
        let small = match samples {
            true => SAMPLED_SPACE_BYTES,
            false if all_the_time => 0,
            false => limit.limit_bytes() / SMALL_SPACE_PART,
        };
        for (bytes, space) in residents {
            if *bytes >= small {
                lifecycle::start_evictor(run, space);
            }
        }
    }
    // Armed spaces become active now.
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
    let missing = (limit.watermark_bytes() / 4 * 5).saturating_sub(free + leaving * PAGE_BYTES);
    let wanted_pages = if free < limit.watermark_bytes() {
        missing / PAGE_BYTES
    } else {
        0
    };
    for (bytes, space) in residents.iter().filter(|(_, space)| space.is_active()) {
        let share = match space.is_left_to_kin() {
            true => 0,
            false => wanted_pages * bytes / resident.max(1),
        };
        let rescan = space.process.get().is_some_and(|process| {
            let sizes = || process.sizes();
            space
                .mappings_seen
                .grew_beyond(*bytes, limit.limit_bytes() / RESCAN_PART, sizes)
        });
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
