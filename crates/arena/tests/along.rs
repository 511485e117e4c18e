//! Who touches pages in order gets the next ones along, from nowhere, from the pool and from an area, with the content
//! that they are to have. Who jumps does not, and a region's neighbours are left alone.

mod support;

use support::{PAGE, Random, page_mut};
use vswap_arena::{Arena, Region, Stats};

const MIB: usize = 1 << 20;
const RAM_BYTES: usize = 16 * MIB;
/// Pages of the content.
const PAGES: usize = 3 * RAM_BYTES / PAGE;

/// The page's content: half of it is noise that its number determines.
fn content(number: usize) -> [u8; PAGE] {
    let mut random = Random(number as u64);
    let mut page = [7; PAGE];
    for word in page[..PAGE / 4].as_chunks_mut::<8>().0 {
        *word = random.next().to_ne_bytes();
    }
    page
}

fn fill(region: &mut Region) {
    for number in 0..PAGES {
        page_mut(region, number).copy_from_slice(&content(number));
    }
}

fn check(region: &Region, number: usize) {
    let bytes = &region[number * PAGE..(number + 1) * PAGE];
    assert!(bytes == content(number), "page {number} is wrong");
}

/// What has happened since.
fn along_since(arena: &Arena, before: &Stats) -> (u64, u64) {
    let now = arena.stats();
    let faults = |stats: &Stats| stats.zero_faults + stats.pool_faults + stats.area_faults;
    (
        now.pages_brought_along - before.pages_brought_along,
        faults(&now) - faults(before),
    )
}

fn streams(arena: &Arena) {
    let start = arena.stats();
    let mut region = arena.allocate(PAGES * PAGE).expect("addresses");
    fill(&mut region);
    let (along, faults) = along_since(arena, &start);
    assert!(along > 4 * faults, "{along} along with {faults}");
    let before = arena.stats();
    (0..PAGES).for_each(|number| check(&region, number));
    let (along, _) = along_since(arena, &before);
    assert!(along > PAGES as u64 / 4, "{along}");
    // Writing in order, to pages that are out.
    (0..PAGES).for_each(|number| page_mut(&mut region, number)[PAGE - 1] = 8);
    for number in (0..PAGES).rev() {
        let page = page_mut(&mut region, number);
        assert_eq!(page[PAGE - 1], 8, "page {number}");
        page[PAGE - 1] = 7;
    }
    let before = arena.stats();
    let mut random = Random(1);
    for _ in 0..PAGES {
        let number = usize::try_from(random.next() % PAGES as u64).expect("a page");
        check(&region, number);
    }
    let (along, faults) = along_since(arena, &before);
    assert!(faults > PAGES as u64 / 4, "{faults} faults");
    assert!(along < faults / 8, "{along} along with {faults}");
}

#[test]
fn pages_in_order_come_along_from_the_pool() {
    let arena = Arena::builder().ram(RAM_BYTES as u64).build();
    streams(&arena.expect("an arena"));
}

#[test]
fn pages_in_order_come_along_from_an_area() {
    let arena = Arena::builder()
        .ram(RAM_BYTES as u64 / 2)
        .swap(std::env::temp_dir(), 128 * MIB as u64)
        .build();
    streams(&arena.expect("an arena"));
}

#[test]
fn nothing_comes_along_beyond_what_is_in_use() {
    let arena = Arena::builder()
        .ram(RAM_BYTES as u64)
        .build()
        .expect("an arena");
    let regions = [0, 1, 2].map(|_| arena.allocate(40 * PAGE).expect("addresses"));
    let [mut first, middle, last] = regions;
    drop(middle);
    (0..40).for_each(|number| page_mut(&mut first, number)[0] = 1);
    let stats = arena.stats();
    assert_eq!(stats.resident_bytes, 40 * PAGE as u64, "{stats:?}");
    assert!(stats.pages_brought_along > 20, "{stats:?}");
    assert!(last.iter().all(|byte| *byte == 0));
}
