//! The races that the engine must win, each as a small scenario. Loom runs each with every interleaving (within its
//! preemption bound), and shuttle with many random ones.
//!
//! Clusters have 4 slots here. Pages are filled with one byte. A reader must get the byte of the entry that it asked
//! for in every place, or nothing. Each scenario ends with everything put and nothing left behind.

#[cfg(shuttle)]
mod clusters;
mod demote;
mod direct;
mod groups;
mod read_ahead;
mod repack;
mod swap_off;
mod tiers;
mod write_back;

use std::sync::Arc as StdArc;

#[cfg(loom)]
use loom::{sync::Arc, thread};
#[cfg(shuttle)]
use shuttle::{sync::Arc, thread};

pub use demote::*;
pub use direct::*;
pub use groups::*;
pub use read_ahead::*;
pub use repack::*;
pub use swap_off::*;
pub use tiers::*;
pub use write_back::*;

use vswap_engine::{
    AllocError, Codec, Config, Discard, DupError, Engine, Entry, GroupId, HeapPages, Lookup,
    NewArea, PAGE_BYTES, PRIORITY_DEFAULT, Page, RamStorage, Scratch, Shadow, Storage,
    StorageError, SwapInError, TierId, WriteOutError, Written,
};

/// A test of each race that loom does not get through, for shuttle alone. These races have too many interleavings. In
/// the second, loom also sees a deadlock, because it blocks a thread that is about to *try* a lock when another takes
/// that lock.
#[cfg(shuttle)]
macro_rules! each_large_race {
    ($run:ident) => {
        each_race!($run:
            batches_of_two_orders_share_clusters,
            a_run_is_freed_while_a_page_wants_its_slots,
            another_area_of_another_tier_against_write_out,
            bug_14_read_ahead_against_swap_off,
            demotion_against_put,
            demotion_against_swap_off,
            faults_against_clusters_that_go_and_come,
            repack_against_swap_in_put_and_write_back,
            two_threads_write_back,
            write_back_against_swap_in_and_put,
        );
    };
}

/// A test for each race, which passes the race to the named function.
macro_rules! each_race {
    ($run:ident) => {
        each_race!($run:
            bug_01_lookup_against_free_and_reuse_of_the_frame,
            bug_32_lookup_against_a_cluster_that_goes_and_comes,
            allocation_against_free,
            two_allocations_find_the_cluster_full,
            dup_against_put,
            dup_against_put_at_the_overflow,
            write_out_against_put,
            write_out_of_zeros_against_put,
            write_out_against_write_out,
            swap_in_against_write_out,
            swap_in_of_zeros_against_write_out,
            swap_in_of_stored_against_put,
            two_swap_ins_of_stored_against_put,
            swap_in_against_write_out_and_put,
            frames_are_taken_and_given_back,
            two_writers_fill_an_area,
            a_batch_and_a_page_take_from_one_cluster,
            write_out_to_an_area_against_put,
            swap_in_from_an_area_against_put_and_reuse,
            read_ahead_against_put,
            read_ahead_against_swap_in_of_the_neighbour,
            a_clean_frame_is_wanted_while_it_is_read,
            bug_03_swap_off_against_swap_in,
            swap_off_against_put,
            bug_02_swap_off_against_write_out,
            another_area_against_write_out,
            discard_against_write_out,
            two_writers_at_a_groups_limit,
            two_groups_at_the_limit_of_the_one_they_are_in,
            write_out_at_a_groups_limit_against_put,
            removing_a_group_against_swap_out,
            removing_a_group_against_put,
            swap_off_of_a_groups_page_against_put,
            two_writers_at_the_limit_of_a_tier,
            a_page_leaves_its_tier_against_put,
            a_page_stays_in_its_tier_against_put,
            write_back_against_swap_in,
            write_back_against_put,
            write_back_against_dup,
            write_back_against_swap_off,
            repack_against_swap_in,
            repack_against_put,
            repack_against_dup,
            repack_against_write_back,
            two_threads_repack,
            demotion_against_swap_in,
            direct_put_against_write_back,
            direct_swap_in_against_write_back,
            direct_swap_in_against_put_and_reuse,
            a_stale_name_against_a_slot_that_is_filled,
        );
    };
    ($run:ident: $($race:ident),* $(,)?) => {
        $(
            #[test]
            fn $race() {
                $run(races::$race);
            }
        )*
    };
}

#[cfg(shuttle)]
pub use clusters::faults_against_clusters_that_go_and_come;

type Shared = Arc<Engine>;

fn engine(frames: usize) -> Shared {
    engine_with_pool(frames, 1 << 20)
}

fn engine_with_pool(frames: usize, pool_limit_bytes: u64) -> Shared {
    let config = Config {
        frames,
        cpus: 1,
        // Stored pages are raw: the engine is modelled, not a codec.
        codec: Codec::None,
        pool_limit_bytes,
        checksums: false,
    };
    Arc::new(Engine::new(&config, StdArc::new(HeapPages::new())).expect("memory"))
}

/// An engine without a pool and with an area of `slots` slots.
fn engine_with_area(frames: usize, slots: usize) -> Shared {
    let engine = engine_with_pool(frames, 0);
    swap_on(&engine, slots, PRIORITY_DEFAULT);
    engine
}

fn swap_on(engine: &Engine, slots: usize, priority: i16) {
    swap_on_in(engine, slots, priority, TierId::default());
}

fn swap_on_in(engine: &Engine, slots: usize, priority: i16, tier: TierId) {
    let area = NewArea {
        slots: slots as u64,
        bad: Vec::new(),
        priority,
        tier,
        discard: Discard::Pages,
        rotating: false,
        storage: Box::new(Waited(RamStorage::new(slots))),
    };
    engine.swap_on(area).expect("a good area");
}

/// Storage that is slow enough for reading ahead.
#[derive(Debug)]
struct Waited(RamStorage);

impl Storage for Waited {
    fn read(&self, slot: u64, pages: &mut [&mut Page]) -> Result<(), StorageError> {
        self.0.read(slot, pages)
    }

    fn write(&self, slot: u64, pages: &[&Page]) -> Result<(), StorageError> {
        self.0.write(slot, pages)
    }
}

fn out(engine: &Engine, byte: u8) -> Entry {
    out_of(engine, GroupId::ROOT, byte).expect("a slot")
}

fn out_of(engine: &Engine, group: GroupId, byte: u8) -> Result<Entry, AllocError> {
    let mut frame = engine.frame().expect("a free frame");
    frame.0.fill(byte);
    let shadow = Shadow::truncated(u64::from(byte));
    let swapped_out = engine.swap_out(0, frame, shadow, group);
    swapped_out.map_err(|(_, error)| error)
}

fn written(engine: &Engine, byte: u8) -> Entry {
    let entry = out(engine, byte);
    engine.write_out(entry, &mut Scratch::new()).expect("room");
    entry
}

/// The byte that fills the entry's page, or `None` if the entry is gone. Panics if the page is not filled with one
/// byte.
fn read(engine: &Engine, entry: Entry) -> Option<u8> {
    let mut page = Box::new(Page([0xee; PAGE_BYTES]));
    match engine.swap_in(entry, &mut page, &mut Scratch::new()) {
        Ok(_) => {
            assert!(page.0.iter().all(|&byte| byte == page.0[0]), "a torn page");
            Some(page.0[0])
        }
        Err(SwapInError::Gone) => None,
        Err(error) => panic!("{error}"),
    }
}

fn assert_empty(engine: &Engine) {
    let stats = engine.stats();
    assert_eq!((stats.slots_used, stats.zero, stats.frames_used), (0, 0, 0));
    assert_eq!((stats.compressed, stats.raw, stats.pool_bytes), (0, 0, 0));
    assert_eq!(stats.physical, 0);
}

/// Starts a thread that works on the engine.
fn spawn<R: Send + 'static>(
    engine: &Shared,
    work: impl FnOnce(&Engine) -> R + Send + 'static,
) -> thread::JoinHandle<R> {
    let engine = Arc::clone(engine);
    spawn_deep(move || work(&engine))
}

/// Starts a thread whose stack has room for an engine under construction and a page or two.
pub fn spawn_deep<R: Send + 'static>(
    work: impl FnOnce() -> R + Send + 'static,
) -> thread::JoinHandle<R> {
    /// In words under loom, in bytes under shuttle. Enough in either.
    const STACK_SIZE: usize = 0x4_0000;
    thread::Builder::new()
        .stack_size(STACK_SIZE)
        .spawn(work)
        .expect("a thread")
}

/// A reader has read the frame's index when the frame is freed and reused for another page.
pub fn bug_01_lookup_against_free_and_reuse_of_the_frame() {
    let engine = engine(1);
    let entry = out(&engine, 1);
    let free = spawn(&engine, move |engine| {
        engine.put(entry);
        let mut frame = engine.frame()?;
        frame.0.fill(2);
        Some(
            engine
                .swap_out(0, frame, Shadow::ABSENT, GroupId::ROOT)
                .expect("a slot"),
        )
    });
    match engine.lookup(entry) {
        Lookup::Cached(frame) => assert!(frame.0.iter().all(|&byte| byte == 1)),
        Lookup::Gone => {}
        other => panic!("{other:?}"),
    }
    if let Some(second) = free.join().expect("no panic") {
        assert_eq!(read(&engine, second), Some(2));
        engine.put(second);
    }
    assert_empty(&engine);
}

/// A reader is on its way into a cluster that is emptied, given back and used again.
pub fn bug_32_lookup_against_a_cluster_that_goes_and_comes() {
    let engine = engine(6);
    // A full cluster of four, and one slot in the next, which is the CPU's current one from then on.
    let entries: Vec<Entry> = (1..=5).map(|byte| out(&engine, byte)).collect();
    for &entry in &entries[1..4] {
        engine.put(entry);
    }
    let (last, kept) = (entries[0], entries[4]);
    let emptier = spawn(&engine, move |engine| {
        engine.put(last);
        // Fills the second cluster and takes the first again.
        (6..10).map(|byte| out(engine, byte)).collect::<Vec<_>>()
    });
    // 9 went where 1 was, if the reader is late enough.
    assert!(matches!(read(&engine, last), None | Some(1 | 9)));
    let fresh = emptier.join().expect("no panic");
    for (byte, entry) in (5..).zip([kept].into_iter().chain(fresh)) {
        assert_eq!(read(&engine, entry), Some(byte));
        engine.put(entry);
    }
    assert_empty(&engine);
}

/// Slots are taken while others are freed in a full cluster.
pub fn allocation_against_free() {
    let engine = engine(8);
    let entries: Vec<Entry> = (1..=4).map(|byte| out(&engine, byte)).collect();
    let (first, second) = (entries[0], entries[1]);
    let free = spawn(&engine, move |engine| {
        engine.put(first);
        engine.put(second);
    });
    let fresh = [out(&engine, 5), out(&engine, 6)];
    free.join().expect("no panic");
    // Enough to take what was freed. No slot may be lost on a list, and none given out twice.
    let more: Vec<Entry> = (7..11).map(|byte| out(&engine, byte)).collect();
    let mut alive: Vec<Entry> = entries[2..]
        .iter()
        .copied()
        .chain(fresh)
        .chain(more)
        .collect();
    for (byte, &entry) in (3..).zip(&alive) {
        assert_eq!(read(&engine, entry), Some(byte));
    }
    alive.sort_unstable();
    alive.dedup();
    assert_eq!(alive.len(), 8);
    assert_eq!(engine.stats().clusters, 2);
    alive.into_iter().for_each(|entry| engine.put(entry));
    assert_empty(&engine);
}

/// Two threads with the same CPU number find its cluster full, and both look for another.
pub fn two_allocations_find_the_cluster_full() {
    let engine = engine(6);
    let entries: Vec<Entry> = (1..=4).map(|byte| out(&engine, byte)).collect();
    let other = spawn(&engine, |engine| out(engine, 5));
    let mine = out(&engine, 6);
    let other = other.join().expect("no panic");
    assert_ne!(mine, other);
    assert_eq!(
        (read(&engine, other), read(&engine, mine)),
        (Some(5), Some(6))
    );
    // Both use one new cluster. No cluster may be left that no CPU knows of.
    assert_eq!(engine.stats().clusters, 2);
    for entry in entries.into_iter().chain([mine, other]) {
        engine.put(entry);
    }
    assert_empty(&engine);
}

/// The only reference is duplicated and put at the same time.
pub fn dup_against_put() {
    let engine = engine(1);
    let entry = written(&engine, 1);
    let put = spawn(&engine, move |engine| engine.put(entry));
    let dup = engine.dup(entry);
    put.join().expect("no panic");
    match dup {
        Ok(()) => {
            assert_eq!(engine.count(entry), 1);
            assert_eq!(read(&engine, entry), Some(1));
            engine.put(entry);
        }
        Err(error) => assert_eq!(error, DupError::Gone),
    }
    assert_eq!((engine.count(entry), read(&engine, entry)), (0, None));
    assert_empty(&engine);
}

/// The same where the count moves between word and extend table.
pub fn dup_against_put_at_the_overflow() {
    let engine = engine(1);
    let entry = out(&engine, 1);
    (1..14).for_each(|_| engine.dup(entry).expect("in use"));
    let put = spawn(&engine, move |engine| engine.put(entry));
    engine.dup(entry).expect("fourteen references");
    put.join().expect("no panic");
    for left in (0..14).rev() {
        engine.put(entry);
        assert_eq!(engine.count(entry), left);
    }
    assert_empty(&engine);
}

fn write_out_against_put_of(engine: &Shared, byte: u8) {
    let entry = out(engine, byte);
    let put = spawn(engine, move |engine| engine.put(entry));
    // Written before the put, freed by us, or already gone: each is right if nothing stays.
    let result = engine.write_out(entry, &mut Scratch::new());
    assert!(
        matches!(result, Ok(_) | Err(WriteOutError::NotCached)),
        "{result:?}"
    );
    put.join().expect("no panic");
    assert_eq!(read(engine, entry), None);
    assert_empty(engine);
}

/// A page is written out while its last reference is put.
pub fn write_out_against_put() {
    write_out_against_put_of(&engine(1), 1);
}

/// The same for a page of zeros.
pub fn write_out_of_zeros_against_put() {
    write_out_against_put_of(&engine(1), 0);
}

/// A page is written out twice at once.
pub fn write_out_against_write_out() {
    let engine = engine(1);
    let entry = out(&engine, 1);
    let other = spawn(&engine, move |engine| {
        engine.write_out(entry, &mut Scratch::new()).is_ok()
    });
    let mine = engine.write_out(entry, &mut Scratch::new()).is_ok();
    assert!(other.join().expect("no panic") ^ mine, "exactly one writes");
    assert_eq!(read(&engine, entry), Some(1));
    engine.put(entry);
    assert_empty(&engine);
}

fn swap_in_against_write_out_of(byte: u8) {
    let engine = engine(1);
    let entry = out(&engine, byte);
    let writer = spawn(&engine, move |engine| {
        engine.write_out(entry, &mut Scratch::new()).expect("room");
        // The frame is free for another page unless the reader still holds it.
        engine.frame().map(|mut frame| {
            frame.0.fill(9);
            engine
                .swap_out(0, frame, Shadow::ABSENT, GroupId::ROOT)
                .expect("a slot")
        })
    });
    assert_eq!(read(&engine, entry), Some(byte));
    let other = writer.join().expect("no panic");
    assert_eq!(read(&engine, entry), Some(byte));
    engine.put(entry);
    if let Some(other) = other {
        assert_eq!(read(&engine, other), Some(9));
        engine.put(other);
    }
    assert_empty(&engine);
}

/// A page is read while it goes from its frame to the pool and the frame to another page.
pub fn swap_in_against_write_out() {
    swap_in_against_write_out_of(1);
}

/// The same for a page of zeros.
pub fn swap_in_of_zeros_against_write_out() {
    swap_in_against_write_out_of(0);
}

/// A stored page is read while its last reference is put and another page takes its place in the pool.
pub fn swap_in_of_stored_against_put() {
    let engine = engine(1);
    let entry = written(&engine, 1);
    let put = spawn(&engine, move |engine| {
        engine.put(entry);
        written(engine, 2)
    });
    assert!(matches!(read(&engine, entry), None | Some(1)));
    let other = put.join().expect("no panic");
    assert_eq!(read(&engine, entry), None);
    assert_eq!(read(&engine, other), Some(2));
    engine.put(other);
    assert_empty(&engine);
}

/// Two readers and the last put. Whoever leaves last frees the page, once.
pub fn two_swap_ins_of_stored_against_put() {
    let engine = engine(1);
    let entry = written(&engine, 1);
    let reader = spawn(&engine, move |engine| read(engine, entry));
    let put = spawn(&engine, move |engine| engine.put(entry));
    assert!(matches!(read(&engine, entry), None | Some(1)));
    assert!(matches!(reader.join().expect("no panic"), None | Some(1)));
    put.join().expect("no panic");
    assert_empty(&engine);
}

/// Read, write out and put, all at once.
pub fn swap_in_against_write_out_and_put() {
    let engine = engine(1);
    let entry = out(&engine, 1);
    let writer = spawn(&engine, move |engine| {
        // Written, freed or gone: the count decides, at the end.
        let _ = engine.write_out(entry, &mut Scratch::new());
    });
    let put = spawn(&engine, move |engine| engine.put(entry));
    assert!(matches!(read(&engine, entry), None | Some(1)));
    writer.join().expect("no panic");
    put.join().expect("no panic");
    assert_eq!(read(&engine, entry), None);
    assert_empty(&engine);
}

/// Two threads take and give back frames, so that a frame comes back to the top of the stack with another under it. No
/// frame may be lost or given out twice.
pub fn frames_are_taken_and_given_back() {
    let engine = engine(3);
    let other = spawn(&engine, move |engine| {
        let first = engine.frame().expect("three frames");
        let mut second = engine.frame().expect("three frames");
        drop(first);
        second.0.fill(1);
        assert!(second.0.iter().all(|&byte| byte == 1));
    });
    let mut frame = engine.frame().expect("the other thread has two at most");
    frame.0.fill(2);
    assert!(frame.0.iter().all(|&byte| byte == 2));
    drop(frame);
    other.join().expect("no panic");
    let all = [engine.frame(), engine.frame(), engine.frame()];
    assert!(all.iter().all(Option::is_some) && engine.frame().is_none());
    drop(all);
    assert_empty(&engine);
}

/// Two threads write out to an area whose cluster has room for both, and then to its last slots.
pub fn two_writers_fill_an_area() {
    let engine = engine_with_area(3, 3);
    let first = written(&engine, 1);
    let other = spawn(&engine, |engine| written(engine, 2));
    let mine = written(&engine, 3);
    let other = other.join().expect("no panic");
    for (entry, byte) in [(first, 1), (other, 2), (mine, 3)] {
        assert_eq!(read(&engine, entry), Some(byte));
    }
    let fourth = out(&engine, 4);
    let result = engine.write_out(fourth, &mut Scratch::new());
    assert_eq!(result, Err(WriteOutError::Full));
    assert_eq!(engine.stats().physical, 3);
    for entry in [first, other, mine, fourth] {
        engine.put(entry);
    }
    assert_empty(&engine);
}

/// Writes pages out together and returns their entries.
fn written_together(engine: &Engine, bytes: std::ops::Range<u8>) -> Vec<Entry> {
    let entries: Vec<Entry> = bytes.map(|byte| out(engine, byte)).collect();
    engine.write_out_all(0, &entries, &mut Scratch::new(), |_, result| {
        result.expect("room");
    });
    entries
}

/// Reads and puts entries whose pages were made of the bytes from `first` on.
fn assert_all_written(engine: &Engine, first: u8, entries: impl IntoIterator<Item = Entry>) {
    for (byte, entry) in (first..).zip(entries) {
        assert_eq!(read(engine, entry), Some(byte));
        engine.put(entry);
    }
}

/// A run and a single slot are taken from an area of one cluster. Whoever comes second shares the other's cluster.
pub fn a_batch_and_a_page_take_from_one_cluster() {
    let engine = engine_with_area(4, 4);
    let other = spawn(&engine, |engine| written(engine, 1));
    let batch = written_together(&engine, 2..4);
    let other = other.join().expect("no panic");
    assert_eq!(engine.stats().physical, 3);
    let last = written(&engine, 4);
    assert_all_written(&engine, 1, [other].into_iter().chain(batch).chain([last]));
    assert_empty(&engine);
}

/// Runs of two orders and single slots fill an area of two clusters to its last slot.
#[cfg(shuttle)]
pub fn batches_of_two_orders_share_clusters() {
    let engine = engine_with_area(8, 8);
    let other = spawn(&engine, |engine| {
        let batch = written_together(engine, 1..3);
        let single = written(engine, 3);
        batch.into_iter().chain([single])
    });
    let large = written_together(&engine, 4..8);
    let small = other.join().expect("no panic");
    assert_eq!(engine.stats().physical, 7);
    let last = written(&engine, 8);
    assert_all_written(&engine, 1, small.chain(large).chain([last]));
    assert_empty(&engine);
}

/// The slots of a run are freed while a page is written that has no other place to go.
#[cfg(shuttle)]
pub fn a_run_is_freed_while_a_page_wants_its_slots() {
    let engine = engine_with_area(5, 4);
    let batch = written_together(&engine, 1..3);
    let kept = written_together(&engine, 3..5);
    let free = spawn(&engine, move |engine| {
        batch.into_iter().for_each(|entry| engine.put(entry));
    });
    let page = out(&engine, 5);
    let early = engine.write_out(page, &mut Scratch::new());
    assert!(
        matches!(early, Ok(_) | Err(WriteOutError::Full)),
        "{early:?}"
    );
    free.join().expect("no panic");
    if early.is_err() {
        engine.write_out(page, &mut Scratch::new()).expect("room");
    }
    // Both slots are found again, as a run or one by one.
    let last = written(&engine, 6);
    assert_all_written(&engine, 3, kept.into_iter().chain([page, last]));
    assert_empty(&engine);
}

/// A page is written to an area while its last reference is put.
pub fn write_out_to_an_area_against_put() {
    write_out_against_put_of(&engine_with_area(1, 1), 1);
}

/// A page is read from an area while its last reference is put and another page takes the area's only slot.
pub fn swap_in_from_an_area_against_put_and_reuse() {
    let engine = engine_with_area(1, 1);
    let entry = written(&engine, 1);
    let put = spawn(&engine, move |engine| {
        engine.put(entry);
        let other = out(engine, 2);
        // As long as the reader has it pinned, the slot is not free.
        let result = engine.write_out(other, &mut Scratch::new());
        assert!(
            matches!(result, Ok(_) | Err(WriteOutError::Full)),
            "{result:?}"
        );
        other
    });
    assert!(matches!(read(&engine, entry), None | Some(1)));
    let other = put.join().expect("no panic");
    assert_eq!(
        (read(&engine, entry), read(&engine, other)),
        (None, Some(2))
    );
    engine.put(other);
    assert_empty(&engine);
}

/// An engine whose only page is in an area although the pool now has room for it.
fn in_an_area(byte: u8) -> (Shared, Entry) {
    let engine = engine_with_area(1, 1);
    let entry = written(&engine, byte);
    engine.set_pool_limit(1 << 20);
    (engine, entry)
}

/// Swaps the first area off and checks that nothing of it is left.
/// An area's only cluster, emptied before, is discarded while a page looks for a slot.
pub fn discard_against_write_out() {
    const SLOTS: usize = 4;
    let engine = engine_with_area(SLOTS, SLOTS);
    let entries: Vec<Entry> = (1..=4).map(|byte| written(&engine, byte)).collect();
    entries.into_iter().for_each(|entry| engine.put(entry));
    let entry = out(&engine, 5);
    let discarder = spawn(&engine, |engine| engine.discard(1));
    // One of the two threads discards the cluster. While the other does, there is no slot.
    let result = engine.write_out(entry, &mut Scratch::new());
    assert!(
        matches!(result, Ok(Written::Physical) | Err(WriteOutError::Full)),
        "{result:?}"
    );
    assert!(discarder.join().expect("no panic") == 1 || result.is_ok());
    if result.is_err() {
        engine
            .write_out(entry, &mut Scratch::new())
            .expect("free now");
    }
    assert_eq!(read(&engine, entry), Some(5));
    assert_eq!(engine.areas()[0].pages_discarded, SLOTS as u64);
    engine.put(entry);
    assert_empty(&engine);
}
