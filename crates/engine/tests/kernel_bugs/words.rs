//! Words, names and numbers: fields that overlap, and claims of a header.

use vswap_engine::header::{HEAD_BYTES, HeaderError, Kind, Medium, decode};
use vswap_engine::table::{COUNT_INLINE_MAX, COUNT_OVERFLOW, Kind as WordKind, POINTER_MAX, Word};
use vswap_engine::{
    Discard, Entry, NewArea, PAGE_BYTES, RamStorage, SLOTS_MAX, SLOTS_PER_CLUSTER, Shadow,
    SwapOnError, TierId, WriteOutError, Written,
};

use crate::support::{assert_empty, engine, engine_with_area, out, read};

/// The mistake: a flag is in a bit that a number grows into. Here the largest numbers leave every flag as it was.
#[test]
fn bug_17_flags_stand_beside_the_largest_numbers() {
    let shadow = Shadow::truncated(u64::MAX);
    for zero in [false, true] {
        for count in [0, COUNT_INLINE_MAX, COUNT_OVERFLOW] {
            let word = Word::cached(u32::MAX)
                .with_zero(zero)
                .with_count_field(count);
            assert_eq!((word.is_zero(), word.count_field()), (zero, count));
            let word = word.into_shadow(shadow);
            assert_eq!((word.is_zero(), word.count_field()), (zero, count));
            assert_eq!(word.kind(), WordKind::Shadow(shadow));
        }
    }
}

/// The mistake: a count has so few bits that it cannot say none, some, and "look elsewhere".
#[test]
fn bug_30_a_count_has_room_beside_the_widest_frame() {
    const { assert!(COUNT_INLINE_MAX >= 1 && COUNT_OVERFLOW > COUNT_INLINE_MAX) };
    for count in 0..=COUNT_OVERFLOW {
        let word = Word::cached(u32::MAX).with_count_field(count);
        assert_eq!((word.count_field(), word.frame()), (count, Some(u32::MAX)));
    }
}

/// The mistake: what a word names is shifted and loses its highest bits, or its highest bit is taken for a flag.
#[test]
fn bug_31_nothing_is_shifted_out_of_a_word() {
    for offset in [0, 1, POINTER_MAX >> 1, POINTER_MAX] {
        let word = Word::pointer(offset).expect("it fits");
        assert_eq!(word.kind(), WordKind::Pointer { offset });
    }
    assert_eq!(Word::pointer(POINTER_MAX + 1), None);
    for area in [1, 2, 255_u64] {
        let raw = area << 48 | (SLOTS_MAX - 1);
        assert_eq!(Entry::from_raw(raw).map(Entry::raw), Some(raw));
        assert_eq!(Entry::from_raw(raw + 1), None, "behind the last slot");
    }
}

/// The mistake: a slot's offset is computed in 32 bits, so that a far slot becomes a near one.
#[test]
fn bug_38_offsets_are_not_cut_to_32_bits() {
    let engine = engine(1, 1 << 20);
    let near = out(&engine, 1);
    let mut seen = 0;
    let far = (1..).map_while(|high: u64| Entry::from_raw(near.raw() + (high << 32)));
    for far in far.take_while(|far| far.raw() >> 48 == near.raw() >> 48) {
        assert_eq!(engine.count(far), 0, "{far:?}");
        engine.put(far);
        seen += 1;
    }
    // All that there are. Builds with small clusters have none.
    assert_eq!(seen, SLOTS_MAX.saturating_sub(1) >> 32);
    assert_eq!(read(&engine, near).expect("still there").1, 1);
    engine.put(near);
    assert_empty(&engine);
}

/// A header of version 1 for `last` and the bad pages.
fn header(last: u32, bad: &[u32]) -> Vec<u8> {
    let mut head = vec![0; HEAD_BYTES];
    let count = u32::try_from(bad.len()).expect("few");
    let numbers = [1, last, count];
    for (at, number) in (1024..).step_by(4).zip(numbers) {
        head[at..at + 4].copy_from_slice(&number.to_ne_bytes());
    }
    for (at, number) in (1536..).step_by(4).zip(bad) {
        head[at..at + 4].copy_from_slice(&number.to_ne_bytes());
    }
    head[PAGE_BYTES - 10..PAGE_BYTES].copy_from_slice(b"SWAPSPACE2");
    head
}

/// The mistake: bad pages are checked against the length that the header claims, but used with the length that is left.
/// Or a search for a free slot never ends where only bad ones are left.
#[test]
fn bug_20_bad_pages_are_checked_against_the_final_size() {
    let device = |pages: u64| Medium {
        kind: Kind::BlockDevice,
        bytes: pages * PAGE_BYTES as u64,
    };
    let whole = decode(&header(u32::MAX, &[5, u32::MAX]), device(1 << 33)).expect("cut to fit");
    assert!(
        whole
            .bad_pages
            .iter()
            .all(|&bad| u64::from(bad) < whole.pages)
    );
    let beyond = decode(&header(9, &[10]), device(100));
    assert!(matches!(
        beyond,
        Err(HeaderError::BadPageOutside { page: 10, .. })
    ));
    let area = |slots, bad: &[u64]| NewArea {
        slots,
        bad: bad.to_vec(),
        priority: 0,
        tier: TierId::default(),
        discard: Discard::None,
        rotating: false,
        storage: Box::new(RamStorage::new(0)),
    };
    let refused = engine(1, 0).swap_on(area(8, &[8])).expect_err("beyond");
    assert_eq!(refused, SwapOnError::BadBeyondEnd { slot: 8 });
    // Only one slot of the first cluster can be used, and none of the last, which is cut off in the middle.
    let slots = 2 * SLOTS_PER_CLUSTER as u64 - 1;
    let bad: Vec<u64> = (0..slots).filter(|&slot| slot != 2).collect();
    let (engine, _) = engine_with_area(2, slots, &bad);
    let (first, second) = (out(&engine, 1), out(&engine, 2));
    let mut scratch = engine.scratch();
    assert_eq!(engine.write_out(first, &mut scratch), Ok(Written::Physical));
    assert_eq!(
        engine.write_out(second, &mut scratch),
        Err(WriteOutError::Full)
    );
    assert_eq!(engine.stats().physical, 1);
}

/// The mistake: a line of log for each bad entry or bad page, of which there can be millions. The engine returns errors
/// and prints nothing itself.
#[test]
#[cfg_attr(miri, ignore = "reads files")]
fn bug_39_the_engine_prints_nothing() {
    let mut pending = vec![std::path::PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/src"
    ))];
    let mut files = 0;
    while let Some(path) = pending.pop() {
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).expect("readable");
            pending.extend(entries.map(|entry| entry.expect("readable").path()));
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("readable");
        for call in ["println!", "print!", "dbg!"] {
            assert!(!text.contains(call), "{call} in {}", path.display());
        }
        files += 1;
    }
    assert!(files > 20, "the sources were not found");
}
