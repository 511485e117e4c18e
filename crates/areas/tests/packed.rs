//! An engine whose areas keep pages packed: written out and back, read, demoted, swapped off, every byte verified.

use std::sync::Arc;

use vswap_areas::{PackedDisk, SLOTS_PER_BLOCK};
use vswap_engine::{
    AreaId, Codec, Config, Discard, Engine, Entry, GroupId, HeapPages, NewArea, PAGE_BYTES, Page,
    Shadow, TierId,
};
use vswap_sys::disk::{Disk, Options};

const PAGE: u64 = PAGE_BYTES as u64;
const POOL_BYTES: u64 = 1 << 20;

/// What a page of this seed holds: noise in front, as much as the seed says, and zeros. One in 16 does not pack.
fn fill(page: &mut Page, seed: u64) {
    page.0.fill(0);
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let eighths = if seed.is_multiple_of(16) {
        512
    } else {
        60 + seed % 200
    };
    for chunk in page
        .0
        .chunks_mut(8)
        .take(usize::try_from(eighths).expect("few"))
    {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        chunk.copy_from_slice(&state.to_le_bytes());
    }
    page.0[PAGE_BYTES - 8..].copy_from_slice(&seed.to_le_bytes());
}

fn engine() -> Engine {
    let config = Config {
        frames: 64,
        cpus: 2,
        codec: Codec::Lz4,
        pool_limit_bytes: POOL_BYTES,
        checksums: true,
    };
    Engine::new(&config, Arc::new(HeapPages::new())).expect("memory")
}

/// Adds an area on a private file of so many blocks.
fn swap_on(engine: &Engine, blocks: u64, priority: i16) -> AreaId {
    let directory = tempfile::tempdir().expect("a directory");
    let disk = Disk::private(directory.path(), blocks * PAGE, Options::default());
    let storage = PackedDisk::new(disk.expect("a file"), engine.codec()).expect("tables");
    assert_eq!(storage.slots(), blocks * SLOTS_PER_BLOCK);
    let area = NewArea {
        slots: storage.slots(),
        bad: Vec::new(),
        priority,
        tier: TierId::default(),
        discard: Discard::Pages,
        rotating: false,
        storage: Box::new(storage),
    };
    engine.swap_on(area).expect("a good area")
}

/// Moves a page out of memory. The pool is made room in as the pager does it.
fn out(engine: &Engine, seed: u64) -> Entry {
    let mut frame = engine.frame().expect("a free frame");
    fill(&mut frame, seed);
    let shadow = Shadow::truncated(seed);
    let entry = engine
        .swap_out(0, frame, shadow, GroupId::ROOT)
        .expect("a slot");
    let mut scratch = engine.scratch();
    engine.write_out(entry, &mut scratch).expect("room for it");
    if seed.is_multiple_of(64) {
        engine.begin_generation();
        engine.write_back(0, 48, &mut scratch);
    }
    entry
}

fn check(engine: &Engine, pages: &[(u64, Entry)]) {
    let mut scratch = engine.scratch();
    let (mut found, mut expected) = (Box::new(Page::zeroed()), Box::new(Page::zeroed()));
    for (seed, entry) in pages {
        let read = engine.swap_in(*entry, &mut found, &mut scratch);
        assert!(read.is_ok(), "seed {seed}: {read:?}");
        fill(&mut expected, *seed);
        assert!(found.0 == expected.0, "seed {seed}");
    }
}

/// Pages in the area, and bytes of its file that are in use.
fn held(engine: &Engine, id: AreaId) -> (u64, u64) {
    let area = engine.areas().into_iter().find(|area| area.id == id);
    let area = area.expect("in use");
    (area.held_bytes / PAGE, area.used_bytes)
}

#[test]
fn pages_go_everywhere_and_come_back() {
    let engine = engine();
    let first = swap_on(&engine, 1024, 5);
    let second = swap_on(&engine, 2048, 1);
    // More than the first area has blocks for, were they not packed.
    let mut pages: Vec<(u64, Entry)> = (1..1800).map(|seed| (seed, out(&engine, seed))).collect();
    check(&engine, &pages);
    let (in_first, used_bytes) = held(&engine, first);
    assert!(
        in_first * PAGE > used_bytes * 3 / 2,
        "{in_first} pages in {used_bytes} bytes"
    );

    // Freed and written again, so that payloads must be moved together.
    for round in 1..6_u64 {
        let gone: Vec<(u64, Entry)> = pages
            .extract_if(.., |(seed, _)| *seed % 3 == round % 3)
            .collect();
        gone.iter().for_each(|(_, entry)| engine.put(*entry));
        let next = (1..600).map(|at| at + 10_000 * round);
        pages.extend(next.map(|seed| (seed, out(&engine, seed))));
        check(&engine, &pages);
    }

    // Down to the area of lower priority.
    let before = held(&engine, second).0;
    let done = engine.demote(0, 1, 300, &mut engine.scratch());
    assert!(done.pages >= 256, "{done:?}");
    assert_eq!(held(&engine, second).0, before + done.pages as u64);
    check(&engine, &pages);

    // All that the first one has goes elsewhere.
    let left = engine.swap_off(first, &mut engine.scratch(), &|| false);
    assert_eq!(left, Ok(()));
    check(&engine, &pages);

    pages.iter().for_each(|(_, entry)| engine.put(*entry));
    assert_eq!(held(&engine, second), (0, 0));
    engine.discard(usize::MAX);
    assert_eq!(engine.stats().slots_used, 0);
}
