//! An engine as a whole: a page goes out, comes back, is shared and freed.

use std::sync::Arc;

use crate::base::pages::{HeapPages, PAGE_BYTES, Page};
use crate::cluster::DupError;
use crate::codec::Codec;
use crate::engine::{Config, ConfigError, Engine};
use crate::groups::GroupId;
use crate::verbs::leaving::{Destination, Written};
use crate::verbs::lookup::Lookup;
use crate::verbs::swap_in::{SwapIn, SwapInError};
use crate::verbs::write_out::WriteOutError;
use crate::words::backing_word::Pin;
use crate::words::entry::{AreaId, Entry};
use crate::words::geometry::{CLUSTERS_MAX, SLOTS_PER_CLUSTER};
use crate::words::shadow::Shadow;

const AGE: Shadow = Shadow::truncated(0x0123_4567_89ab_cdef);

fn engine(frames: usize, pool_limit_bytes: u64) -> (Engine, Arc<HeapPages>) {
    let pages = Arc::new(HeapPages::new());
    let config = Config {
        frames,
        cpus: 2,
        codec: Codec::Lz4,
        pool_limit_bytes,
        checksums: true,
    };
    let engine = Engine::new(&config, Arc::clone(&pages) as _).expect("memory");
    (engine, pages)
}

fn low(at: usize) -> u8 {
    at.to_le_bytes()[0]
}

fn out(engine: &Engine, fill: impl Fn(usize) -> u8) -> Entry {
    let mut frame = engine.frame().expect("a free frame");
    for (at, byte) in frame.0.iter_mut().enumerate() {
        *byte = fill(at);
    }
    engine
        .swap_out(0, frame, AGE, GroupId::ROOT)
        .expect("a slot")
}

fn back(engine: &Engine, entry: Entry) -> Result<(SwapIn, Box<Page>), SwapInError> {
    let mut page = Box::new(Page([0xee; PAGE_BYTES]));
    let from = engine.swap_in(entry, &mut page, &mut engine.scratch())?;
    Ok((from, page))
}

#[test]
fn configurations_out_of_range_are_refused() {
    let config = Config {
        frames: 0,
        cpus: 1,
        codec: Codec::Lz4,
        pool_limit_bytes: 0,
        checksums: false,
    };
    let make = |config: &Config| Engine::new(config, Arc::new(HeapPages::new())).unwrap_err();
    assert_eq!(make(&config), ConfigError::Frames { frames: 0 });
    let config = Config {
        frames: 1,
        cpus: 0,
        ..config
    };
    assert_eq!(make(&config), ConfigError::Cpus);
}

#[test]
fn a_page_is_cached_then_stored_then_gone() {
    let (engine, pages) = engine(1, 1 << 20);
    let entry = out(&engine, |at| low(at / 100));
    assert_eq!(engine.count(entry), 1);
    assert_eq!(engine.shadow(entry), Some(AGE));
    assert!(engine.frame().is_none());
    assert_eq!(back(&engine, entry).expect("cached").0, SwapIn::Cached);
    let written = engine
        .write_out(entry, &mut engine.scratch())
        .expect("room");
    assert!(
        matches!(written, Written::Compressed { bytes } if bytes < 1000),
        "{written:?}"
    );
    assert_eq!(
        engine.write_out(entry, &mut engine.scratch()),
        Err(WriteOutError::NotCached)
    );
    assert!(engine.frame().is_some(), "the frame is free again");
    let (from, page) = back(&engine, entry).expect("stored");
    assert_eq!(from, SwapIn::Compressed);
    assert!(
        page.0
            .iter()
            .enumerate()
            .all(|(at, &byte)| byte == low(at / 100))
    );
    assert_eq!(engine.shadow(entry), Some(AGE));
    let stats = engine.stats();
    assert_eq!(
        (stats.slots_used, stats.compressed, stats.frames_used),
        (1, 1, 0)
    );
    engine.put(entry);
    assert_eq!(back(&engine, entry).unwrap_err(), SwapInError::Gone);
    assert_eq!((engine.count(entry), engine.shadow(entry)), (0, None));
    assert_eq!(engine.dup(entry), Err(DupError::Gone));
    engine.put(entry);
    let stats = engine.stats();
    assert_eq!(
        (stats.slots_used, stats.compressed, stats.payload_bytes),
        (0, 0, 0)
    );
    drop(engine);
    assert_eq!(pages.pages_out(), 0);
}

#[test]
fn zero_pages_take_no_memory_and_keep_flag_count_and_shadow() {
    let (engine, _) = engine(1, 0);
    let entry = out(&engine, |_| 0);
    engine.dup(entry).expect("in use");
    assert_eq!(
        engine.write_out(entry, &mut engine.scratch()),
        Ok(Written::Zero)
    );
    assert_eq!(engine.count(entry), 2);
    assert_eq!(engine.shadow(entry), Some(AGE));
    engine.put(entry);
    let (from, page) = back(&engine, entry).expect("one reference is left");
    assert_eq!(from, SwapIn::Zero);
    assert!(page.is_zero());
    assert_eq!(engine.stats().zero, 1);
    assert_eq!(engine.stats().pool_bytes, 0);
    engine.put(entry);
    assert!(matches!(engine.lookup(entry), Lookup::Gone));
    assert_eq!(engine.stats().zero, 0);
}

#[test]
fn a_full_pool_leaves_the_page_in_its_frame() {
    let (engine, _) = engine(1, 0);
    let entry = out(&engine, |at| low(at) | 1);
    let mut scratch = engine.scratch();
    for _ in 0..2 {
        assert_eq!(
            engine.write_out(entry, &mut scratch),
            Err(WriteOutError::Full)
        );
        let (from, page) = back(&engine, entry).expect("not lost");
        assert_eq!(from, SwapIn::Cached);
        assert!(
            page.0
                .iter()
                .enumerate()
                .all(|(at, &byte)| byte == low(at) | 1)
        );
    }
    engine.set_pool_limit(1 << 20);
    assert!(engine.write_out(entry, &mut scratch).is_ok());
    assert_eq!(back(&engine, entry).expect("stored").0, SwapIn::Compressed);
}

#[test]
fn an_incompressible_page_is_kept_as_it_is() {
    let (engine, _) = engine(1, 1 << 20);
    let content = crate::zpool::testing::page_bytes(crate::zpool::testing::Content::Random, 1);
    assert!(!engine.packs(&Page(*content), &mut engine.scratch()));
    assert!(engine.packs(&Page([7; PAGE_BYTES]), &mut engine.scratch()));
    let entry = out(&engine, |at| content[at]);
    assert_eq!(
        engine.write_out(entry, &mut engine.scratch()),
        Ok(Written::Raw)
    );
    assert_eq!(engine.stats().raw, 1);
    assert!(back(&engine, entry).expect("stored").1.0 == *content);
}

#[test]
fn a_writer_excludes_writers_and_frees_what_was_put_meanwhile() {
    let (engine, _) = engine(1, 1 << 20);
    let entry = out(&engine, |_| 3);
    let mut leaving = engine.claim(entry).expect("cached");
    assert_eq!(
        engine.write_out(entry, &mut engine.scratch()),
        Err(WriteOutError::Busy)
    );
    engine.put(entry);
    assert_eq!(back(&engine, entry).unwrap_err(), SwapInError::Gone);
    assert_eq!(engine.stats().slots_used, 1, "left to the writer");
    leaving.to = Destination::Zero;
    assert_eq!(engine.finish(&leaving), Ok(Written::Freed));
    drop(leaving);
    let stats = engine.stats();
    assert_eq!((stats.slots_used, stats.zero, stats.frames_used), (0, 0, 0));
}

#[test]
fn a_put_during_a_read_is_finished_by_the_last_reader() {
    let (engine, _) = engine(1, 1 << 20);
    let entry = out(&engine, |_| 3);
    engine
        .write_out(entry, &mut engine.scratch())
        .expect("room");
    let (cluster, slot) = engine.virtual_area.locate(entry).expect("in use");
    assert_eq!(engine.pin(cluster, slot), engine.pin(cluster, slot));
    engine.put(entry);
    assert_eq!(engine.pin(cluster, slot), Pin::Nothing);
    assert_eq!(engine.stats().slots_used, 1);
    engine.unpin(entry, cluster, slot);
    assert_eq!(engine.stats().compressed, 1);
    engine.unpin(entry, cluster, slot);
    assert_eq!(
        (engine.stats().slots_used, engine.stats().compressed),
        (0, 0)
    );
}

#[test]
fn counts_beyond_a_word_are_kept_and_their_table_goes_with_them() {
    let (engine, _) = engine(2, 1 << 20);
    let (entry, other) = (out(&engine, |_| 0), out(&engine, |_| 1));
    let table_bytes = engine.stats().table_bytes;
    const SHARERS: u32 = 40;
    for count in 2..=SHARERS {
        assert_eq!(engine.is_shared(entry), count > 2);
        engine.dup(entry).expect("in use");
        assert_eq!(engine.count(entry), count);
        assert_eq!(engine.stats().table_bytes > table_bytes, count >= 15);
    }
    // Zero flag, shadow and overflow live together in one word.
    assert_eq!(
        engine.write_out(entry, &mut engine.scratch()),
        Ok(Written::Zero)
    );
    assert_eq!((engine.count(entry), engine.count(other)), (SHARERS, 1));
    for count in (0..SHARERS).rev() {
        engine.put(entry);
        assert_eq!(engine.count(entry), count);
        assert_eq!(engine.stats().table_bytes > table_bytes, count >= 15);
    }
    assert_eq!(engine.count(other), 1);
}

#[test]
fn entries_of_clusters_that_never_were_are_harmless() {
    let (engine, _) = engine(1, 1 << 20);
    let far = |cluster| Entry::of(AreaId::VIRTUAL, cluster, 1);
    for entry in [0, 1, CLUSTERS_MAX / 2, CLUSTERS_MAX - 1].map(far) {
        assert_eq!(Entry::from_raw(entry.raw()), Some(entry));
        engine.put(entry);
        assert_eq!((engine.count(entry), engine.shadow(entry)), (0, None));
        assert_eq!(engine.dup(entry), Err(DupError::Gone));
        assert_eq!(back(&engine, entry).unwrap_err(), SwapInError::Gone);
        let written = engine.write_out(entry, &mut engine.scratch());
        assert_eq!(written, Err(WriteOutError::NotCached));
    }
}

#[test]
fn what_does_not_agree_is_found() {
    let (engine, _) = engine(2, 1 << 20);
    let (entry, other) = (out(&engine, |_| 3), out(&engine, |_| 5));
    let written = engine.write_out(entry, &mut engine.scratch());
    assert!(matches!(written, Ok(Written::Compressed { .. })));
    assert_eq!(engine.is_valid(), Ok(()));
    let change_used = |by: i16| {
        let (mut cluster, _) = engine.lock(entry).expect("in use");
        cluster.state.used = cluster.state.used.checked_add_signed(by).expect("small");
    };
    change_used(1);
    assert!(engine.is_valid().unwrap_err().contains("used is 2"));
    change_used(-1);
    let lost = engine.pool.store(b"nobody's").expect("room");
    assert!(engine.is_valid().unwrap_err().contains("2 payloads"));
    engine.pool.free(lost);
    engine.put(other);
    assert_eq!(engine.is_valid(), Ok(()));
}

#[test]
fn many_are_counted_as_one_by_one_in_any_order() {
    let (engine, _) = engine(8, 1 << 20);
    let mut scratch = engine.scratch();
    let mut taken: Vec<Entry> = (0..3 * SLOTS_PER_CLUSTER)
        .map(|_| {
            let entry = out(&engine, |_| 0);
            engine.write_out(entry, &mut scratch).expect("a zero page");
            entry
        })
        .collect();
    let gone = taken.remove(SLOTS_PER_CLUSTER / 2);
    engine.put(gone);
    let mut dups = engine.dups();
    taken
        .iter()
        .try_for_each(|&one| dups.dup(one))
        .expect("in use");
    assert_eq!(dups.dup(gone), Err(DupError::Gone));
    // From one cluster to another and back, beyond what a slot's word can count.
    let (first, last) = (taken[0], taken[taken.len() - 1]);
    for _ in 0..20 {
        dups.dup(first).expect("in use");
        dups.dup(last).expect("in use");
    }
    drop(dups);
    for &one in &taken[1..taken.len() - 1] {
        assert_eq!(engine.count(one), 2);
    }
    assert_eq!((engine.count(first), engine.count(last)), (22, 22));
    assert_eq!(engine.count(gone), 0);
    for _ in 0..20 {
        engine.put(first);
        engine.put(last);
    }
    for one in taken {
        engine.put(one);
        assert_eq!(engine.count(one), 1);
        engine.put(one);
    }
    assert_eq!(engine.stats().slots_used, 0);
}
