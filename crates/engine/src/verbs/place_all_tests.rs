//! Slots for many pages before they come, and memory for tables that is refused.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::area::AllocError;
use crate::base::pages::{HeapPages, PAGE_BYTES, PageSource};
use crate::codec::Codec;
use crate::engine::{Config, Engine};
use crate::frames::FrameMut;
use crate::groups::GroupId;
use crate::testing::{engine_with_areas, group, read};
use crate::verbs::swap_out::{Mapping, Placed};
use crate::words::entry::Entry;
use crate::words::geometry::SLOTS_PER_CLUSTER;
use crate::words::shadow::Shadow;
use crate::zpool::testing::{Content, page_bytes};

/// More than a cluster has slots.
const FRAMES: usize = SLOTS_PER_CLUSTER + 2 * WINDOW;
const WINDOW: usize = 8;

/// Memory that gives so many pages more.
struct Scarce {
    heap: HeapPages,
    left: AtomicUsize,
}

// SAFETY: All runs come from the heap source. Unsafe because the trait is.
unsafe impl PageSource for Scarce {
    fn alloc(&self, pages: usize) -> Option<NonNull<u8>> {
        let take = |left: usize| left.checked_sub(pages);
        let relaxed = Ordering::Relaxed;
        self.left.fetch_update(relaxed, relaxed, take).ok()?;
        self.heap.alloc(pages)
    }

    unsafe fn free(&self, run: NonNull<u8>, pages: usize) {
        // SAFETY: The caller's contract is passed on.
        unsafe { self.heap.free(run, pages) };
    }
}

fn scarce_engine() -> (Engine, Arc<Scarce>) {
    let config = Config {
        frames: FRAMES,
        cpus: 1,
        codec: Codec::Lz4,
        pool_limit_bytes: 1 << 30,
        checksums: true,
    };
    let source = Arc::new(Scarce {
        heap: HeapPages::new(),
        left: AtomicUsize::new(usize::MAX),
    });
    let engine = Engine::new(&config, source.clone()).expect("memory");
    (engine, source)
}

fn frames(engine: &Engine, count: usize) -> Vec<FrameMut<'_>> {
    let frames = std::iter::from_fn(|| engine.frame());
    frames.take(count).collect()
}

/// Publishes pages with the contents of the seeds from `seed` on. Every eighth page is all zeros.
fn fill(placed: Vec<Placed<'_>>, seed: u64, entries: &mut Vec<Entry>) {
    for (mut page, seed) in placed.into_iter().zip(seed..) {
        page.0 = content(seed);
        entries.push(page.publish(Shadow::ABSENT));
    }
}

fn content(seed: u64) -> [u8; PAGE_BYTES] {
    if seed.is_multiple_of(8) {
        [0; PAGE_BYTES]
    } else {
        *page_bytes(Content::Text, seed)
    }
}

/// Each entry holds all bytes of its page, in its frame and when it is written out. Puts them.
fn check_and_put(engine: &Engine, entries: &[Entry]) {
    for place in ["frame", "pool"] {
        for (&entry, seed) in entries.iter().zip(0..) {
            let (_, page) = read(engine, entry).expect("not lost");
            assert!(page.0 == content(seed), "{place}: page {seed}");
        }
        for &entry in entries.iter().filter(|_| place == "frame") {
            let written = engine.write_out(entry, &mut engine.scratch());
            written.expect("room in the pool");
        }
    }
    entries.iter().for_each(|&entry| engine.put(entry));
    let stats = engine.stats();
    assert_eq!((stats.slots_used, stats.frames_used), (0, 0));
}

#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn without_memory_for_tables_there_are_as_many_slots_as_before() {
    let (engine, source) = scarce_engine();
    let root = GroupId::ROOT;
    // The tables of one cluster.
    source.left.store(2, Ordering::Relaxed);
    let mut entries = Vec::new();
    loop {
        let wanted = frames(&engine, WINDOW);
        let (placed, error) = engine.place_all(0, wanted, root, Mapping::Virtual);
        let is_all = placed.len() == WINDOW;
        assert_eq!(error, (!is_all).then_some(AllocError::NoMemory));
        let seed = entries.len() as u64;
        fill(placed, seed, &mut entries);
        assert_eq!(engine.stats().frames_used, entries.len() as u64);
        if !is_all {
            break;
        }
    }
    assert_eq!(entries.len(), SLOTS_PER_CLUSTER);
    // A slot that is free again serves. For more, there has to be memory.
    engine.put(entries[1]);
    let (placed, error) = engine.place_all(0, frames(&engine, 2), root, Mapping::Virtual);
    assert_eq!((placed.len(), error), (1, Some(AllocError::NoMemory)));
    assert_eq!(placed[0].entry(), entries[1]);
    fill(placed, 1, &mut Vec::new());
    source.left.store(usize::MAX, Ordering::Relaxed);
    let (placed, error) = engine.place_all(0, frames(&engine, WINDOW), root, Mapping::Virtual);
    assert_eq!((placed.len(), error), (WINDOW, None));
    fill(placed, entries.len() as u64, &mut entries);
    check_and_put(&engine, &entries);
}

#[test]
fn slots_of_pages_that_do_not_come_leave_no_gap() {
    let (engine, _) = scarce_engine();
    let mut entries = Vec::new();
    let rounds = SLOTS_PER_CLUSTER / WINDOW;
    for round in 0..rounds {
        let wanted = frames(&engine, WINDOW);
        let (mut placed, _) = engine.place_all(0, wanted, GroupId::ROOT, Mapping::Virtual);
        placed.truncate(round % WINDOW);
        let seed = entries.len() as u64;
        fill(placed, seed, &mut entries);
    }
    let slots: Vec<_> = entries.iter().map(|entry| entry.position()).collect();
    let expected = (0..entries.len()).map(|at| (0, at));
    assert!(slots.iter().copied().eq(expected), "{slots:?}");
    check_and_put(&engine, &entries);
}

#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn many_pages_belong_to_their_group_and_take_no_more_slots_than_it_may() {
    let (engine, _) = engine_with_areas(FRAMES, 1 << 30, &[64]);
    let id = group(&engine, "a", 3);
    for (mapping, count) in [(Mapping::Virtual, WINDOW), (Mapping::Direct, 3)] {
        let wanted = frames(&engine, WINDOW);
        let (placed, error) = engine.place_all(0, wanted, id, mapping);
        let limited = (mapping == Mapping::Direct).then_some(AllocError::Limited);
        assert_eq!((placed.len(), error), (count, limited));
        assert!(engine.remove_group(id).is_err(), "its slots keep it");
        let mut entries = Vec::new();
        fill(placed, 0, &mut entries);
        check_and_put(&engine, &entries);
    }
    engine.remove_group(id).expect("nothing is left");
    let wanted = frames(&engine, WINDOW);
    let (placed, error) = engine.place_all(0, wanted, id, Mapping::Virtual);
    assert_eq!((placed.len(), error), (0, Some(AllocError::NoGroup)));
}
