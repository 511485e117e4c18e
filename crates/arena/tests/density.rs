//! Where nobody names a codec an arena holds what zstd can pack, and every byte is right.

mod support;

use std::time::{Duration, Instant};

use support::{PAGE, Random, page_mut};
use vswap_arena::{Advice, Arena, ArenaError, Builder, Codec, Region};

fn ram() -> Builder {
    Arena::builder().ram("16M")
}

/// Random bytes of which four bits are used: lz4 makes nothing of them, and zstd a half.
fn digits(number: usize) -> [u8; PAGE] {
    let mut random = Random(number as u64);
    std::array::from_fn(|_| b'a' + (random.next() % 16) as u8)
}

/// Words of a small vocabulary at random: zstd makes of them about two thirds of what lz4 makes.
fn words(number: usize) -> [u8; PAGE] {
    let mut random = Random(number as u64 ^ 0xfeed);
    let mut page = [b' '; PAGE];
    for word in page.as_chunks_mut::<8>().0 {
        let mut spelt = Random(random.next() % 512);
        let letters = spelt.next().to_ne_bytes().map(|byte| b'a' + byte % 20);
        word[..6].copy_from_slice(&letters[..6]);
    }
    page
}

/// Writes pages until they are all there or the arena says that it is full.
fn fill(
    arena: &Arena,
    pages: usize,
    content: fn(usize) -> [u8; PAGE],
) -> Result<Vec<Region>, ArenaError> {
    const STEP: usize = 16;
    let mut regions = Vec::new();
    for first in (0..pages).step_by(STEP) {
        let mut region = arena.allocate(STEP * PAGE)?;
        // A touch of an arena that is full would raise a signal; a pin says so.
        let mut pinned = region.pin_mut()?;
        for number in 0..STEP {
            page_mut(&mut pinned, number).copy_from_slice(&content(first + number));
        }
        drop(pinned);
        regions.push(region);
    }
    Ok(regions)
}

#[track_caller]
fn check(regions: &[Region], content: fn(usize) -> [u8; PAGE]) {
    for (number, page) in regions.iter().flat_map(|it| it.chunks(PAGE)).enumerate() {
        assert!(page == content(number), "page {number}");
    }
}

/// Returns how many were packed again.
#[track_caller]
fn only_auto_holds(pages: usize, content: fn(usize) -> [u8; PAGE]) -> u64 {
    let lz4 = ram().codec(Codec::Lz4).build().expect("an arena");
    assert!(matches!(
        fill(&lz4, pages, content),
        Err(ArenaError::Full | ArenaError::TooMuchPinned { .. })
    ));
    drop(lz4);
    let arena = ram().build().expect("an arena");
    let regions = match fill(&arena, pages, content) {
        Ok(regions) => regions,
        Err(why) => panic!("{why}: {:?}", arena.stats()),
    };
    for _ in 0..2 {
        check(&regions, content);
        for region in &regions {
            region.advise(.., Advice::Cold).expect("its own");
        }
    }
    let stats = arena.stats();
    println!("{stats:?}");
    assert_eq!(stats.damaged_pages, 0);
    stats.packed_again_pages
}

#[test]
fn what_lz4_cannot_pack_is_packed_with_zstd_before_it_is_full() {
    // 20 MiB, of which lz4 gets in as many as fit unpacked.
    only_auto_holds(5 << 10, digits);
}

#[test]
fn what_lies_in_the_pool_is_packed_again_before_it_is_full() {
    // 28 MiB, of which lz4 gets 20 in, and zstd would get 33.
    assert!(only_auto_holds(7 << 10, words) > 0);
}

/// Two threads read and write while what they use is packed again.
#[test]
fn packing_again_does_not_disturb_who_reads_and_writes() {
    const PAGES: usize = 7 << 10;
    let arena = ram().build().expect("an arena");
    let mut regions = fill(&arena, PAGES, words).expect("room");
    let per_region = regions[0].len() / PAGE;
    std::thread::scope(|scope| {
        for (thread, mine) in regions.chunks_mut(PAGES / per_region / 2).enumerate() {
            scope.spawn(move || use_pages(mine, thread, per_region));
        }
    });
    let stats = arena.stats();
    println!("{stats:?}");
    assert!(
        stats.packed_again_pages > 0 && stats.damaged_pages == 0,
        "{stats:?}"
    );
}

fn use_pages(regions: &mut [Region], thread: usize, per_region: usize) {
    let mut random = Random(thread as u64);
    let first = thread * regions.len() * per_region;
    let mut written: Vec<usize> = (first..first + regions.len() * per_region).collect();
    let until = Instant::now() + Duration::from_secs(2);
    let mut next = 1_000_000;
    let check = |regions: &[Region], at: usize, number: usize| {
        let page = &regions[at / per_region][at % per_region * PAGE..][..PAGE];
        assert!(page == words(number), "page {at} of thread {thread}");
    };
    while Instant::now() < until {
        let at = random.below(written.len());
        check(regions, at, written[at]);
        if random.next().is_multiple_of(4) {
            next += 1;
            written[at] = next;
            page_mut(&mut regions[at / per_region], at % per_region).copy_from_slice(&words(next));
        }
    }
    for (at, number) in written.into_iter().enumerate() {
        check(regions, at, number);
    }
}

/// What nothing packs is tried once, not again and again.
#[test]
fn what_nothing_packs_leaves_it_full() {
    let noise = |number: usize| {
        let mut random = Random(number as u64 ^ 0xbad);
        std::array::from_fn(|_| random.next().to_le_bytes()[0])
    };
    let arena = ram().build().expect("an arena");
    let begun = Instant::now();
    let filled = fill(&arena, 5 << 10, noise);
    assert!(
        matches!(
            filled,
            Err(ArenaError::Full | ArenaError::TooMuchPinned { .. })
        ),
        "20 MiB of noise in 16"
    );
    assert!(begun.elapsed() < Duration::from_secs(60));
}
