//! Clusters of the virtual area: taken, emptied, and given back.

use std::ptr::NonNull;
use std::sync::atomic::AtomicUsize;

use super::testing::{assert_sound, free, used};
use super::*;
use crate::area::{AllocError, NONFULL_FREE_MIN};
use crate::base::pages::HeapPages;
use crate::words::geometry::SLOTS_PER_CLUSTER;

/// Counts runs that were given back and not used since. Can refuse to give more.
#[derive(Default)]
struct Counting {
    heap: HeapPages,
    discards: AtomicUsize,
    refuse: AtomicBool,
}

// SAFETY: All runs come from the heap source. Unsafe because the trait is.
unsafe impl PageSource for Counting {
    fn alloc(&self, pages: usize) -> Option<NonNull<u8>> {
        if self.refuse.load(Ordering::Relaxed) {
            None
        } else {
            self.heap.alloc(pages)
        }
    }
    unsafe fn free(&self, run: NonNull<u8>, pages: usize) {
        // SAFETY: The caller's contract is passed on.
        unsafe { self.heap.free(run, pages) };
    }
    unsafe fn discard(&self, run: NonNull<u8>, pages: usize) {
        for at in 0..pages * PAGE_BYTES / 8 {
            // SAFETY: The run is valid and aligned.
            let word = unsafe { run.cast::<u64>().add(at).read() };
            assert!(
                word == 0 || size_of::<crate::cluster::Table>() <= at * 8,
                "word {at}"
            );
        }
        self.discards.fetch_add(1, Ordering::Relaxed);
    }
}

fn cluster_of(entry: Entry) -> u32 {
    entry.position().0
}

/// Clusters that a test fills: a few real ones, more of the small ones.
const CLUSTERS: usize = if SLOTS_PER_CLUSTER > 16 { 4 } else { 12 };

#[test]
fn entries_are_distinct_and_neighbours_on_one_cpu() {
    let area = Area::virtual_area(2, Arc::new(HeapPages::new())).expect("memory");
    let take = |cpu| {
        area.allocate(cpu, Order::SLOT, &[used()], None)
            .expect("room")
    };
    let mut entries: Vec<_> = (0..SLOTS_PER_CLUSTER * CLUSTERS).map(|_| take(0)).collect();
    assert!(
        entries
            .windows(2)
            .all(|pair| pair[1].raw() == pair[0].raw() + 1)
    );
    let other = take(1);
    assert!(
        entries
            .iter()
            .all(|&entry| cluster_of(entry) != cluster_of(other))
    );
    entries.push(other);
    assert_eq!(area.stats().slots_used, entries.len() as u64);
    assert_eq!(area.stats().clusters, CLUSTERS as u64 + 1);
    assert_eq!(assert_sound(&area), entries.len() as u64);
}

#[test]
fn an_empty_cluster_gives_its_table_memory_back_and_its_number_is_used_again() {
    let pages = Arc::new(Counting::default());
    let area = Area::virtual_area(1, Arc::clone(&pages) as _).expect("memory");
    let idle = area.stats().table_bytes;
    let count = SLOTS_PER_CLUSTER * CLUSTERS;
    for round in 1..=3 {
        let entries: Vec<_> = (0..count)
            .map(|_| {
                area.allocate(0, Order::SLOT, &[used()], None)
                    .expect("room")
            })
            .collect();
        assert_eq!(area.stats().clusters, CLUSTERS as u64);
        for entry in entries {
            free(&area, entry);
        }
        let stats = area.stats();
        assert_eq!((stats.slots_used, stats.clusters), (0, 0));
        assert_eq!(pages.discards.load(Ordering::Relaxed), round * 2 * CLUSTERS);
        assert_eq!(
            pages.heap.pages_out(),
            CLUSTERS * 2 * TABLE_PAGES,
            "addresses are kept"
        );
    }
    // Only the record of each cluster stays.
    let stays = area.stats().table_bytes - idle;
    assert!(stays <= area.directory.bytes() as u64);
    drop(area);
    assert_eq!(pages.heap.pages_out(), 0);
}

#[test]
fn a_cluster_that_waits_for_its_discard_has_no_table_memory() {
    let pages = Arc::new(Counting::default());
    let area = Area::virtual_area(1, Arc::clone(&pages) as _).expect("memory");
    area.set_discards(true);
    let idle = area.stats().table_bytes;
    let take = || area.allocate(0, Order::SLOT, &[used()], None);
    let entries: Vec<_> = (0..SLOTS_PER_CLUSTER * CLUSTERS).map(|_| take()).collect();
    for entry in entries {
        free(&area, entry.expect("room"));
    }
    assert_eq!(area.stats().clusters, 0);
    let stays = area.stats().table_bytes - idle;
    assert!(stays <= area.directory.bytes() as u64);
    assert_eq!(pages.discards.load(Ordering::Relaxed), 2 * CLUSTERS);
    // They are all taken again, as zero as before.
    while let Some((cluster, _)) = area.begin_discard() {
        assert_eq!(area.stats().clusters, 0);
        area.end_discard(cluster);
    }
    assert_eq!(pages.discards.load(Ordering::Relaxed), 2 * CLUSTERS, "once");
    for _ in 0..SLOTS_PER_CLUSTER * CLUSTERS {
        take().expect("room");
    }
    assert_sound(&area);
}

#[test]
fn a_cpu_that_allocates_and_frees_keeps_one_cluster() {
    let pages = Arc::new(Counting::default());
    let area = Area::virtual_area(1, Arc::clone(&pages) as _).expect("memory");
    for _ in 0..3 * SLOTS_PER_CLUSTER {
        let entry = area
            .allocate(0, Order::SLOT, &[used()], None)
            .expect("room");
        free(&area, entry);
    }
    assert_eq!(area.stats().clusters, 1);
    assert_eq!(pages.discards.load(Ordering::Relaxed), 0);
}

#[test]
fn nonfull_comes_before_new_and_new_before_frag() {
    let pages = Arc::new(Counting::default());
    let area = Area::virtual_area(1, Arc::clone(&pages) as _).expect("memory");
    let take = || area.allocate(0, Order::SLOT, &[used()], None);
    let all: Vec<_> = (0..3 * SLOTS_PER_CLUSTER)
        .map(|_| take().expect("room"))
        .collect();
    let (first, rest) = all.split_at(SLOTS_PER_CLUSTER);
    // With one free slot the first cluster is frag. With enough of them the second is nonfull.
    free(&area, first[1]);
    for &entry in &rest[..NONFULL_FREE_MIN] {
        free(&area, entry);
    }
    for _ in 0..NONFULL_FREE_MIN {
        assert_eq!(cluster_of(take().expect("room")), cluster_of(rest[0]));
    }
    let new = take().expect("room");
    assert_eq!(cluster_of(new), 3);
    // There is no memory for a fifth cluster: the rest of the newest comes first, then the frag one, then nothing.
    pages.refuse.store(true, Ordering::Relaxed);
    for _ in 1..SLOTS_PER_CLUSTER {
        assert_eq!(cluster_of(take().expect("room")), 3);
    }
    assert_eq!(take(), Ok(first[1]));
    assert_eq!(take(), Err(AllocError::NoMemory));
    assert_eq!(area.rejected(), 1);
    free(&area, first[0]);
    assert_eq!(take(), Ok(first[0]));
}
