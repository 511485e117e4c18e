//! Counts and figures: what is counted for whom, when, and under which lock.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use vswap_engine::{
    AllocError, Engine, Entry, GroupId, HeapPages, PageSource, SLOTS_PER_CLUSTER, Shadow,
    WriteOutError, Written,
};

use crate::support::{assert_empty, engine, engine_from, fill, out, read};

/// Memory that can be refused for a while.
#[derive(Default)]
struct Scarce {
    heap: HeapPages,
    is_refused: AtomicBool,
}

// SAFETY: All runs come from the heap source. Unsafe because the trait is.
unsafe impl PageSource for Scarce {
    fn alloc(&self, pages: usize) -> Option<NonNull<u8>> {
        match self.is_refused.load(Ordering::Relaxed) {
            true => None,
            false => self.heap.alloc(pages),
        }
    }

    unsafe fn free(&self, run: NonNull<u8>, pages: usize) {
        // SAFETY: The caller's contract is passed on.
        unsafe { self.heap.free(run, pages) };
    }
}

/// Pages of zeros without frames, at both ends of each of `clusters` clusters.
fn spread(engine: &Engine, clusters: usize) -> (Vec<Entry>, Vec<Entry>) {
    let all: Vec<Entry> = (0..clusters * SLOTS_PER_CLUSTER)
        .map(|_| {
            let entry = out(engine, 0);
            let written = engine.write_out(entry, &mut engine.scratch());
            assert_eq!(written, Ok(Written::Zero));
            entry
        })
        .collect();
    let ends = all
        .chunks(SLOTS_PER_CLUSTER)
        .flat_map(|cluster| [cluster[0], cluster[SLOTS_PER_CLUSTER - 1]])
        .collect();
    (all, ends)
}

const THREADS: usize = if cfg!(miri) { 2 } else { 4 };
const ROUNDS: usize = if cfg!(miri) { 2 } else { 300 };
/// More references than a word itself counts.
const TIMES: u32 = 17;

/// Each thread takes references to all entries and gives them back, again and again.
fn share(engine: &Engine, entries: &[Entry]) {
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    for &entry in entries {
                        (0..TIMES).for_each(|_| engine.dup(entry).expect("in use"));
                    }
                    for &entry in entries {
                        assert!(engine.count(entry) > TIMES, "our own and the first");
                        (0..TIMES).for_each(|_| engine.put(entry));
                    }
                }
            });
        }
    });
}

/// The mistake: large counts of several clusters are in one place, where each cluster's lock guards only its own slots.
#[test]
fn bug_04_large_counts_of_neighbouring_clusters_do_not_disturb_each_other() {
    let engine = engine(1, 1 << 20);
    let (all, ends) = spread(&engine, 3);
    share(&engine, &ends);
    assert!(all.iter().all(|&entry| engine.count(entry) == 1));
    all.into_iter().for_each(|entry| engine.put(entry));
    assert_empty(&engine);
}

/// The mistake: the table of large counts is made for a count that has fallen again meanwhile, and stays.
#[test]
fn bug_22_no_table_of_large_counts_is_left_behind() {
    let engine = engine(1, 1 << 20);
    let (all, _) = spread(&engine, 1);
    let before = engine.stats().table_bytes;
    share(&engine, &all[..1]);
    assert_eq!(engine.stats().table_bytes, before);
    (0..TIMES).for_each(|_| engine.dup(all[0]).expect("in use"));
    assert!(engine.stats().table_bytes > before, "it is seen when there");
    (0..=TIMES).for_each(|_| engine.put(all[0]));
    all[1..].iter().for_each(|&entry| engine.put(entry));
    assert_empty(&engine);
}

/// The mistake: free slots, pages or bytes are subtracted before they are really taken, and not added back when taking
/// fails.
#[test]
fn bug_21_what_fails_is_not_counted() {
    let pages = Arc::new(Scarce::default());
    let engine = engine_from(Arc::clone(&pages) as _, SLOTS_PER_CLUSTER + 1, 0);
    let entries: Vec<Entry> = (1..=SLOTS_PER_CLUSTER as u64)
        .map(|seed| out(&engine, seed))
        .collect();
    pages.is_refused.store(true, Ordering::Relaxed);
    let before = engine.stats();
    for tries in 1..=3 {
        let frame = engine.frame().expect("one is left");
        let (frame, error) = engine
            .swap_out(0, frame, Shadow::ABSENT, GroupId::ROOT)
            .expect_err("full");
        assert_eq!(error, AllocError::NoMemory);
        drop(frame);
        let written = engine.write_out(entries[0], &mut engine.scratch());
        assert_eq!(written, Err(WriteOutError::Full));
        let now = engine.stats();
        assert_eq!(now.alloc_reject, before.alloc_reject + tries);
        assert_eq!(now.slots_used, before.slots_used);
        assert_eq!(now.frames_used, before.frames_used);
        assert_eq!((now.payload_bytes, now.pool_bytes), (0, 0));
    }
    entries.into_iter().for_each(|entry| engine.put(entry));
    assert_empty(&engine);
}

/// The mistake: the lock is released to make a table, which fails, and what was known before is used afterwards. Here
/// threads take and free slots while memory for tables comes and goes.
#[test]
fn bug_18_a_table_that_cannot_be_made_changes_nothing() {
    let pages = Arc::new(Scarce::default());
    let engine = engine_from(Arc::clone(&pages) as _, 3 * SLOTS_PER_CLUSTER, 0);
    let rounds = if cfg!(miri) { 3 } else { 400 };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (1..=2_u64)
            .map(|thread| {
                scope.spawn({
                    let engine = &engine;
                    move || fill_and_empty(engine, thread, rounds)
                })
            })
            .collect();
        while workers.iter().any(|worker| !worker.is_finished()) {
            pages.is_refused.fetch_xor(true, Ordering::Relaxed);
            std::thread::yield_now();
        }
    });
    assert_empty(&engine);
}

/// Takes a cluster's worth of slots, as far as there is memory for them, checks each, and frees them.
fn fill_and_empty(engine: &Engine, thread: u64, rounds: usize) {
    for round in 0..rounds as u64 {
        let mut held = Vec::new();
        for at in 0..=SLOTS_PER_CLUSTER as u64 {
            let seed = (round << 20 | at << 2) + thread;
            let Some(mut frame) = engine.frame() else {
                break;
            };
            fill(&mut frame, seed);
            match engine.swap_out(0, frame, Shadow::ABSENT, GroupId::ROOT) {
                Ok(entry) => held.push((entry, seed)),
                Err((frame, error)) => {
                    assert_eq!(error, AllocError::NoMemory);
                    assert_eq!(crate::support::seed_of(&frame), seed, "it came back whole");
                }
            }
        }
        for (entry, seed) in held {
            assert_eq!(read(engine, entry).expect("in use").1, seed);
            engine.put(entry);
        }
    }
}
