//! Arenas that are granted less than they asked for, and more again, with every byte verified.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::arena::{Arena, Builder};
use crate::region::Region;
use crate::registry;
use crate::state::{Core, PAGE_BYTES};

const MIB: u64 = 1 << 20;
const ASKED_BYTES: u64 = 48 * MIB;
const PATIENCE: Duration = Duration::from_secs(60);

fn builder() -> Builder {
    Arena::builder().ram(ASKED_BYTES)
}

fn core_of(region: &Region) -> Arc<Core> {
    let address = region.as_ptr().addr().get();
    let cores = registry::cores_with(&(address..address + PAGE_BYTES)).expect("one arena");
    Arc::clone(&cores[0])
}

/// A word of content: random words do not compress, the others do.
fn word(seed: u64, at: usize, is_noise: bool) -> u64 {
    let mixed = (seed ^ at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    if is_noise || at.is_multiple_of(8) {
        mixed ^ (mixed >> 32)
    } else {
        at as u64 >> 3
    }
}

fn fill(region: &mut Region, seed: u64, is_noise: bool) {
    for (at, bytes) in region.chunks_exact_mut(8).enumerate() {
        bytes.copy_from_slice(&word(seed, at, is_noise).to_ne_bytes());
    }
}

fn verify(region: &Region, seed: u64, is_noise: bool) {
    for (at, bytes) in region.chunks_exact(8).enumerate() {
        assert_eq!(bytes, word(seed, at, is_noise).to_ne_bytes(), "word {at}");
    }
}

/// Grants so much, and waits until the arena does with it.
fn grant(arena: &Arena, core: &Core, granted: &Arc<AtomicU64>, bytes: u64) {
    granted.store(bytes, Ordering::SeqCst);
    core.allowance.follow(granted);
    core.room.wanted.happened();
    let began = Instant::now();
    while arena.stats().ram_bytes != bytes || arena.stats().used_bytes > bytes {
        assert!(began.elapsed() < PATIENCE, "{:?}", arena.stats());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Comes down and up again while the content is read.
fn comes_down_and_up(arena: &Arena, bytes: usize, least: u64, is_noise: bool) {
    let mut region = arena.allocate(bytes).expect("addresses");
    fill(&mut region, 7, is_noise);
    let core = core_of(&region);
    let granted = Arc::new(AtomicU64::new(0));
    for (round, grants) in [least, ASKED_BYTES / 2, least, ASKED_BYTES]
        .iter()
        .enumerate()
    {
        grant(arena, &core, &granted, *grants);
        verify(&region, 7 + round as u64, is_noise);
        // What may be taken beyond, to make progress.
        let slack = (grants / 16).max(MIB);
        let stats = arena.stats();
        assert!(stats.used_bytes <= grants + slack, "{stats:?}");
        fill(&mut region, 8 + round as u64, is_noise);
    }
    verify(&region, 11, is_noise);
}

#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn what_compresses_does_with_less_in_the_pool() {
    let arena = builder().build().expect("an arena");
    comes_down_and_up(&arena, 64 << 20, 32 * MIB, false);
}

#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn what_does_not_compress_does_with_less_and_an_area() {
    let place = tempfile::tempdir().expect("a directory");
    let arena = builder()
        .swap(place.path(), 128 * MIB)
        .build()
        .expect("an arena");
    comes_down_and_up(&arena, 64 << 20, 10 * MIB, true);
}

#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn who_has_nowhere_to_go_takes_more_than_is_granted() {
    let arena = builder().build().expect("an arena");
    let mut region = arena.allocate(24 << 20).expect("addresses");
    fill(&mut region, 1, true);
    let core = core_of(&region);
    let granted = Arc::new(AtomicU64::new(10 * MIB));
    core.allowance.follow(&granted);
    core.room.wanted.happened();
    for seed in 1..4 {
        verify(&region, seed, true);
        fill(&mut region, seed + 1, true);
        std::thread::sleep(Duration::from_millis(300));
    }
    // And there is room for more, as far as it was asked for.
    let mut more = arena.allocate(12 << 20).expect("room");
    fill(&mut more, 9, true);
    verify(&region, 4, true);
    verify(&more, 9, true);
    let stats = arena.stats();
    assert!(stats.used_bytes > 36 * MIB, "{stats:?}");
    assert!(stats.ram_bytes <= ASKED_BYTES, "{stats:?}");
    drop((region, more));
    grant(&arena, &core, &granted, 10 * MIB);
}
