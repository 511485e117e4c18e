//! Threads that store, read, free and compact. Content depends on seeds and is compared byte for byte.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::testing::seeded;
use super::tests::{payload, pool};
use super::*;

/// Threads that store, read and free.
const WORKERS: u64 = if cfg!(miri) { 2 } else { 4 };
/// Steps of each thread: a second or two in all, without optimisation.
const STEPS: usize = if cfg!(miri) { 40 } else { 6_000 };
/// Steps between two compactions by a thread.
const COMPACT_STEPS: usize = 16;
/// Payloads that each thread keeps.
const KEPT_MAX: usize = if cfg!(miri) { 12 } else { 300 };

/// Less than one worker wants to keep, so that the limit is reached however the threads are scheduled.
const LIMIT_BYTES: u64 = if cfg!(miri) { 160 << 10 } else { 384 << 10 };
/// Refused stores after which a worker frees half of its payloads.
const REJECTED_MAX: u32 = 16;

fn length(random: u64) -> usize {
    // Few classes, so that threads meet in them.
    let length = [40, 700, 1400, 2700, 4096][usize::try_from(random % 5).expect("small")];
    length - usize::try_from(random >> 32 & 7).expect("small")
}

/// Stores, reads back and frees in bursts, so that spans become ragged. Compacts now and then while other threads run.
fn work(pool: &Pool, worker: u64, moved: &AtomicUsize) {
    let mut random = seeded(worker);
    let mut kept: VecDeque<(Handle, u64, usize)> = VecDeque::new();
    let mut rejected = 0;
    for step in 0..STEPS {
        let (seed, bytes) = (random(), length(random()));
        match pool.store(&payload(seed, bytes)) {
            Ok(handle) => kept.push_back((handle, seed, bytes)),
            Err(full) => {
                assert!(full.span_bytes <= full.limit_bytes);
                rejected += 1;
            }
        }
        let at = usize::try_from(random()).expect("64 bits") % kept.len().max(1);
        if let Some(&(handle, seed, bytes)) = kept.get(at) {
            let same = pool.with(handle, |stored| stored == payload(seed, bytes));
            assert_eq!(same, Ok(true), "worker {worker} step {step}");
        }
        if kept.len() >= KEPT_MAX || rejected == REJECTED_MAX {
            rejected = 0;
            for _ in 0..kept.len() / 2 {
                let at = usize::try_from(random()).expect("64 bits") % kept.len();
                if let Some((handle, ..)) = kept.swap_remove_back(at) {
                    pool.free(handle);
                }
            }
        }
        if step % COMPACT_STEPS == 0 {
            moved.fetch_add(pool.compact(16), Ordering::Relaxed);
        }
    }
    for (handle, seed, bytes) in kept {
        assert_eq!(
            pool.with(handle, |stored| stored == payload(seed, bytes)),
            Ok(true)
        );
        pool.free(handle);
    }
}

#[test]
fn bug_36_threads_store_read_and_free_beside_compaction() {
    let (pool, pages) = &pool(LIMIT_BYTES);
    let moved = &AtomicUsize::new(0);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| scope.spawn(move || work(pool, worker, moved)))
            .collect();
        let results: Vec<_> = workers
            .into_iter()
            .map(thread::ScopedJoinHandle::join)
            .collect();
        assert!(results.iter().all(Result::is_ok), "a worker failed");
    });
    assert_eq!(pool.is_valid(), Ok(()));
    let stats = pool.stats();
    assert_eq!(
        (stats.objects, stats.payload_bytes, stats.stale_frees),
        (0, 0, 0)
    );
    assert_eq!(
        (stats.damaged, stats.span_bytes, pages.pages_out()),
        (0, 0, 0)
    );
    if cfg!(not(miri)) {
        assert!(
            moved.load(Ordering::Relaxed) > 0,
            "compaction had nothing to do: the test is too tame"
        );
        assert!(
            stats.rejected > 0,
            "the limit was never met: the test is too tame"
        );
    }
}

/// Readers share payloads while these are moved, and in the end freed.
#[test]
fn readers_share_payloads_that_move_and_go() {
    const COUNT: u64 = if cfg!(miri) { 50 } else { 400 };
    const ROUNDS: u64 = if cfg!(miri) { 1 } else { 8 };
    /// Payloads between two compactions. Miri is slow at compaction.
    const STEP: usize = if cfg!(miri) { 8 } else { 2 };
    let (pool, pages) = pool(u64::MAX);
    for round in 0..ROUNDS {
        let store = |at: u64| {
            let content = payload(round + at, 1400);
            (pool.store(&content).expect("no limit"), content)
        };
        let stored: Vec<_> = (0..COUNT).map(store).enumerate().collect();
        let (kept, ragged): (Vec<_>, Vec<_>) = stored.into_iter().partition(|(at, _)| at % 3 == 0);
        let read_until_gone = |reader: usize| {
            let mut gone = 0;
            while gone < kept.len() {
                gone = 0;
                for at in 0..kept.len() {
                    let (_, (handle, content)) = &kept[(at + reader * 7) % kept.len()];
                    match pool.with(*handle, |stored| stored == content) {
                        Ok(same) => assert!(same, "{handle:?}"),
                        Err(ReadError::NotStored { .. }) => gone += 1,
                        Err(error) => panic!("{error}"),
                    }
                }
                thread::yield_now();
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| read_until_gone(0));
            scope.spawn(|| read_until_gone(1));
            for (at, (handle, _)) in ragged.into_iter().chain(kept.iter().cloned()) {
                pool.free(handle);
                if at.is_multiple_of(STEP) {
                    pool.compact(1);
                }
            }
        });
        assert_eq!(
            (pool.stats().objects, pages.pages_out()),
            (0, 0),
            "round {round}"
        );
    }
}
