//! Single-threaded tests of the pool as a whole. `stress` has the tests with threads.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::class::payload_start;
use super::sizes::{CLASSES, HEADER_BYTES, class_of};
use super::testing::{Content, page_bytes, seeded};
use super::*;
use crate::base::pages::{HeapPages, PAGE_BYTES, Page, PageSource};
use crate::codec::Codec;

pub(super) fn pool(limit_bytes: u64) -> (Pool, Arc<HeapPages>) {
    let pages = Arc::new(HeapPages::new());
    (Pool::new(pages.clone(), limit_bytes), pages)
}

/// A payload of `bytes` bytes, all derived from `seed`.
pub(super) fn payload(seed: u64, bytes: usize) -> Vec<u8> {
    let mut random = seeded(seed);
    let mut payload = Vec::with_capacity(bytes + 8);
    while payload.len() < bytes {
        payload.extend_from_slice(&random().to_le_bytes());
    }
    payload.truncate(bytes);
    payload
}

fn assert_stored(pool: &Pool, handle: Handle, seed: u64, bytes: usize) {
    let same = pool.with(handle, |stored| stored == payload(seed, bytes));
    assert_eq!(same, Ok(true), "{bytes} bytes of seed {seed}");
}

#[test]
fn what_is_stored_comes_back_until_it_is_freed() {
    let (pool, pages) = pool(1 << 30);
    let lengths = [
        0,
        1,
        24,
        25,
        100,
        1000,
        2048,
        PACKED_BYTES_MAX,
        PACKED_BYTES_MAX + 1,
        4096,
    ];
    let stored: Vec<_> = lengths
        .iter()
        .map(|&bytes| (pool.store(&payload(7, bytes)).expect("room"), bytes))
        .collect();
    for &(handle, bytes) in &stored {
        assert_stored(&pool, handle, 7, bytes);
    }
    let stats = pool.stats();
    assert_eq!(stats.objects, lengths.len());
    assert_eq!(stats.payload_bytes, lengths.iter().sum::<usize>());
    assert_eq!(stats.whole_pages, 2);
    assert_eq!(stats.span_bytes, (pages.pages_out() * PAGE_BYTES) as u64);
    for &(handle, _) in &stored {
        pool.free(handle);
        assert_eq!(
            pool.with(handle, <[u8]>::len),
            Err(ReadError::NotStored { handle })
        );
    }
    assert_eq!(pages.pages_out(), 0);
    assert_eq!(pool.stats().stale_frees, 0);
    pool.free(stored[0].0);
    pool.free(Handle::from_raw((1 << Handle::BITS) - 1).expect("not zero"));
    assert_eq!(pool.stats().stale_frees, 2);
}

#[test]
fn a_raw_page_takes_one_page_and_a_row_in_each_of_two_tables() {
    let (pool, pages) = pool(1 << 30);
    let page = page_bytes(Content::Random, 1);
    let count = if cfg!(miri) { 20 } else { 8192 };
    for _ in 0..count {
        pool.store(&page[..]).expect("room");
    }
    let stats = pool.stats();
    assert_eq!(
        (stats.objects as u64, stats.whole_pages as u64),
        (count, count)
    );
    assert_eq!(pages.pages_out() as u64, count);
    if cfg!(not(miri)) {
        assert!(
            stats.table_bytes as u64 <= 32 * count,
            "{} bytes",
            stats.table_bytes
        );
    }
}

#[test]
fn a_payload_longer_than_a_page_is_refused() {
    let (pool, _) = pool(1 << 30);
    let error = pool.store(&[1; PAGE_BYTES + 1]).expect_err("too long");
    assert_eq!(error.payload_bytes, PAGE_BYTES + 1);
    assert_eq!(pool.stats().rejected, 1);
}

#[test]
fn the_limit_refuses_new_spans_and_nothing_is_lost() {
    const LIMIT_BYTES: u64 = if cfg!(miri) { 64 << 10 } else { 1 << 20 };
    let (pool, pages) = pool(LIMIT_BYTES);
    let mut stored = Vec::new();
    let error = loop {
        let seed = stored.len() as u64;
        match pool.store(&payload(seed, 1000)) {
            Ok(handle) => stored.push((handle, seed)),
            Err(error) => break error,
        }
    };
    assert_eq!(error.limit_bytes, LIMIT_BYTES);
    assert!(
        stored.len() as u64 * 1000 > LIMIT_BYTES * 9 / 10,
        "{} stored",
        stored.len()
    );
    assert!((pages.pages_out() * PAGE_BYTES) as u64 <= LIMIT_BYTES);
    assert!(pool.store(&[1; PAGE_BYTES]).is_err() || error.span_bytes < LIMIT_BYTES);
    // A payload for a span with room still goes in: a freed one makes room for the next.
    pool.free(stored.swap_remove(0).0);
    let again = pool.store(&payload(0, 1000));
    stored.push((again.expect("room of the freed one"), 0));
    for &(handle, seed) in &stored {
        assert_stored(&pool, handle, seed, 1000);
    }
    pool.set_limit(LIMIT_BYTES / 2);
    assert!(pool.store(&[1; 500]).is_err());
    pool.set_limit(LIMIT_BYTES * 2);
    assert!(pool.store(&[1; 500]).is_ok());
}

#[test]
fn a_source_without_memory_refuses_and_leaves_no_trace() {
    struct NoPages;
    // SAFETY: It hands out nothing, so the contract holds.
    unsafe impl PageSource for NoPages {
        fn alloc(&self, _pages: usize) -> Option<std::ptr::NonNull<u8>> {
            None
        }
        unsafe fn free(&self, _run: std::ptr::NonNull<u8>, _pages: usize) {
            unreachable!("nothing was handed out");
        }
    }
    let pool = Pool::new(Arc::new(NoPages), u64::MAX);
    for bytes in [100, 4096] {
        assert!(pool.store(&payload(1, bytes)).is_err());
    }
    let stats = pool.stats();
    assert_eq!(
        (stats.objects, stats.payload_bytes, stats.span_bytes),
        (0, 0, 0)
    );
}

#[test]
fn dropping_the_pool_returns_every_page() {
    let (pool, pages) = pool(1 << 30);
    for bytes in (0..4000).step_by(200) {
        pool.store(&payload(1, bytes)).expect("room");
    }
    assert!(pages.pages_out() > 0);
    drop(pool);
    assert_eq!(pages.pages_out(), 0);
}

#[test]
fn compaction_moves_objects_and_returns_pages() {
    let (pool, pages) = pool(1 << 30);
    let count = if cfg!(miri) { 100 } else { 2000 };
    let mut stored: Vec<_> = (0..count)
        .map(|seed| (pool.store(&payload(seed, 1400)).expect("room"), seed))
        .collect();
    assert_eq!(
        pool.compact(usize::MAX),
        0,
        "a full pool has nothing to gain"
    );
    // Three of four go, scattered, so that no span becomes empty by itself.
    stored.retain(|&(handle, seed)| {
        if seed % 4 != 0 {
            pool.free(handle);
        }
        seed % 4 == 0
    });
    assert_eq!(pool.is_valid(), Ok(()));
    let (before, gain) = (pages.pages_out(), pool.stats().compactable_pages);
    assert!(gain > before / 2, "{gain} of {before}");
    let class = CLASSES[class_of(1400).expect("packed")];
    let first = pool.compact(1);
    assert_eq!(
        first,
        usize::from(class.pages),
        "a budget of one page frees one span"
    );
    let rest = pool.compact(usize::MAX);
    assert_eq!(before - pages.pages_out(), first + rest);
    assert_eq!(first + rest, gain, "all that can be given back is");
    assert_eq!(pool.stats().compactable_pages, 0);
    assert_eq!(pool.stats().compacted_pages, gain as u64);
    assert_eq!(pool.is_valid(), Ok(()));
    for &(handle, seed) in &stored {
        assert_stored(&pool, handle, seed, 1400);
    }
}

#[test]
fn an_object_that_is_read_neither_moves_nor_goes() {
    let (pool, pages) = pool(1 << 30);
    let mut stored: Vec<_> = (0..100)
        .map(|seed| (pool.store(&payload(seed, 1400)).expect("room"), seed))
        .collect();
    stored.retain(|&(handle, seed)| {
        if seed % 10 != 0 {
            pool.free(handle);
        }
        seed % 10 == 0
    });
    let &(handle, seed) = stored.last().expect("ten left");
    let read = pool.with(handle, |held| {
        pool.compact(usize::MAX);
        pool.free(handle);
        let error = pool
            .with(handle, <[u8]>::len)
            .expect_err("freed for everyone else");
        assert_eq!(error, ReadError::NotStored { handle });
        let other = pool.store(&payload(1000, 1400)).expect("room");
        assert_eq!(held, payload(seed, 1400), "but not under its reader");
        pool.free(other);
    });
    assert_eq!(read, Ok(()));
    for &(handle, _) in &stored[..stored.len() - 1] {
        pool.free(handle);
    }
    assert_eq!((pool.stats().objects, pages.pages_out()), (0, 0));
}

#[test]
fn a_panic_of_the_reader_ends_the_reading() {
    let (pool, pages) = pool(1 << 30);
    let handle = pool.store(&payload(1, 300)).expect("room");
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        pool.with(handle, |_| panic!("expected by this test"))
    }));
    assert!(caught.is_err());
    pool.free(handle);
    assert_eq!(pages.pages_out(), 0);
}

/// Flips a bit of a stored payload, as a wild write would.
pub(crate) fn damage(pool: &Pool, handle: Handle, at: usize) {
    let (_, row) = pool.row(handle).expect("stored");
    let location = row.pin().expect("live");
    let start = match class_of(usize::from(location.payload_bytes)) {
        Some(class) => {
            let span = pool.spans.get(location.span).expect("live");
            payload_start(span, location.object, CLASSES[class])
        }
        None => pool.whole.get(location.span).expect("live").base(),
    };
    // SAFETY: `at` is inside the payload of a live object that no other thread uses. Safe code cannot damage stored
    // bytes.
    unsafe { *start.add(at) ^= 4 };
    assert_eq!(row.unpin(), None);
}

#[test]
fn damage_is_found_when_checksums_are_on() {
    for bytes in [1, 900, PACKED_BYTES_MAX, PAGE_BYTES] {
        let (pool, _) = pool(1 << 30);
        let handle = pool.store(&payload(1, bytes)).expect("room");
        damage(&pool, handle, bytes - 1);
        let error = pool.with(handle, <[u8]>::len).expect_err("damaged");
        assert!(matches!(error, ReadError::Damaged { .. }), "{error}");
        damage(&pool, handle, bytes - 1);
        assert_stored(&pool, handle, 1, bytes);
        assert_eq!(pool.stats().damaged, 1);
        let unchecked = Pool::new(Arc::new(HeapPages::new()), 1 << 30).with_checksums(false);
        let handle = unchecked.store(&payload(1, bytes)).expect("room");
        damage(&unchecked, handle, 0);
        assert_eq!(unchecked.with(handle, <[u8]>::len), Ok(bytes));
    }
}

/// Pages of several kinds as lz4 compresses them, 128 MiB in all. Each class has a span that is not full yet, and
/// smaller pools lose more to these.
#[test]
#[cfg_attr(miri, ignore = "megabytes of content")]
fn a_full_pool_uses_at_most_three_percent_more_than_its_payloads() {
    const PAYLOAD_BYTES: usize = 128 << 20;
    let pool = Pool::new(Arc::new(HeapPages::new()), 1 << 30).with_checksums(false);
    let mut scratch = Codec::Lz4.scratch();
    let mut random = seeded(3);
    let mut samples = Vec::new();
    for seed in 0..600 {
        let kind = [Content::Heap, Content::Text, Content::Sparse][(seed % 3) as usize];
        let page = Page(*page_bytes(kind, seed));
        samples.push(
            Codec::Lz4
                .compress(&page, &mut scratch)
                .expect("compresses")
                .to_vec(),
        );
    }
    samples.push(page_bytes(Content::Random, 1).to_vec());
    while pool.stats().payload_bytes < PAYLOAD_BYTES {
        for _ in 0..100 {
            // Lengths vary around those of the samples, so that every class is used.
            let sample = &samples[usize::try_from(random()).expect("64 bits") % samples.len()];
            let cut = usize::try_from(random() % 400)
                .expect("small")
                .min(sample.len() / 2);
            let cut = if sample.len() == PAGE_BYTES { 0 } else { cut };
            pool.store(&sample[cut..]).expect("room");
        }
    }
    let stats = pool.stats();
    let spare = stats.span_bytes as f64 / stats.payload_bytes as f64 - 1.0;
    assert!(spare < 0.03, "{:.2} % over {stats:?}", spare * 100.0);
    let tables = stats.table_bytes as f64 / stats.objects as f64;
    assert!(tables < 16.0, "{tables:.1} bytes of tables per object");
}

#[derive(Debug, Clone)]
enum Op {
    Store { seed: u64, bytes: usize },
    Free { nth: usize },
    Load { nth: usize },
    Compact { budget_pages: usize },
    SetLimit { pages: u64 },
}

fn ops() -> impl Strategy<Value = Op> {
    let bytes = prop_oneof![
        6 => 1_usize..=PACKED_BYTES_MAX,
        // Few classes, so that spans fill up, become ragged and are compacted.
        8 => prop_oneof![Just(40_usize), Just(1400), Just(2700), 1390..1410_usize],
        1 => Just(PAGE_BYTES),
        1 => PACKED_BYTES_MAX - 1..=PAGE_BYTES,
    ];
    prop_oneof![
        12 => (any::<u64>(), bytes).prop_map(|(seed, bytes)| Op::Store { seed, bytes }),
        8 => any::<usize>().prop_map(|nth| Op::Free { nth }),
        4 => any::<usize>().prop_map(|nth| Op::Load { nth }),
        1 => (1_usize..20).prop_map(|budget_pages| Op::Compact { budget_pages }),
        1 => (0_u64..400).prop_map(|pages| Op::SetLimit { pages }),
    ]
}

/// The pool, beside a map that does the same in a naive way.
struct Model {
    pool: Pool,
    pages: Arc<HeapPages>,
    limit_bytes: u64,
    /// By raw handle: the handle, the seed of its content, its length.
    stored: BTreeMap<u64, (Handle, u64, usize)>,
}

impl Model {
    fn used_bytes(&self) -> u64 {
        (self.pages.pages_out() * PAGE_BYTES) as u64
    }

    fn nth(&self, nth: usize) -> Option<u64> {
        self.stored
            .keys()
            .nth(nth.checked_rem(self.stored.len())?)
            .copied()
    }

    fn store(&mut self, seed: u64, bytes: usize) {
        let used = self.used_bytes();
        match self.pool.store(&payload(seed, bytes)) {
            Ok(handle) => {
                assert!(
                    self.stored
                        .insert(handle.raw(), (handle, seed, bytes))
                        .is_none()
                );
            }
            Err(full) => {
                let span_pages = class_of(bytes).map_or(1, |class| CLASSES[class].pages);
                let needed = (usize::from(span_pages) * PAGE_BYTES) as u64;
                assert!(
                    used + needed > self.limit_bytes,
                    "{full} with {needed} bytes needed"
                );
            }
        }
    }

    fn apply(&mut self, op: &Op) {
        let used = self.used_bytes();
        match *op {
            Op::Store { seed, bytes } => self.store(seed, bytes),
            Op::Free { nth } => {
                if let Some((handle, ..)) = self.nth(nth).and_then(|raw| self.stored.remove(&raw)) {
                    self.pool.free(handle);
                    assert!(self.pool.with(handle, <[u8]>::len).is_err());
                }
            }
            Op::Load { nth } => {
                if let Some(&(handle, seed, bytes)) =
                    self.nth(nth).and_then(|raw| self.stored.get(&raw))
                {
                    assert_stored(&self.pool, handle, seed, bytes);
                }
            }
            Op::Compact { budget_pages } => {
                let freed = self.pool.compact(budget_pages);
                assert_eq!(used - (freed * PAGE_BYTES) as u64, self.used_bytes());
            }
            Op::SetLimit { pages } => {
                self.limit_bytes = pages * PAGE_BYTES as u64;
                self.pool.set_limit(self.limit_bytes);
            }
        }
        assert_eq!(self.pool.is_valid(), Ok(()));
        let now = self.used_bytes();
        assert!(
            now <= self.limit_bytes.max(used),
            "{now} bytes, limit {}",
            self.limit_bytes
        );
    }

    /// Compares everything and frees it.
    fn finish(self) {
        self.pool.compact(usize::MAX);
        let stats = self.pool.stats();
        assert_eq!(
            (stats.compactable_pages, stats.span_bytes),
            (0, self.used_bytes())
        );
        assert_eq!(
            (stats.objects, stats.stale_frees, stats.damaged),
            (self.stored.len(), 0, 0)
        );
        let payload_bytes: usize = self.stored.values().map(|(.., bytes)| bytes).sum();
        assert_eq!(stats.payload_bytes, payload_bytes);
        for &(handle, seed, bytes) in self.stored.values() {
            assert_stored(&self.pool, handle, seed, bytes);
            self.pool.free(handle);
        }
        assert_eq!(self.pages.pages_out(), 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 1 } else { 48 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn behaves_like_a_map_with_a_limit(
        ops in prop::collection::vec(ops(), 1..if cfg!(miri) { 120 } else { 600 })
    ) {
        let (pool, pages) = pool(u64::MAX);
        let mut model =
            Model { pool, pages, limit_bytes: u64::MAX, stored: BTreeMap::new() };
        ops.iter().for_each(|op| model.apply(op));
        model.finish();
    }
}

/// Pages of the allocator that hold what somebody else had.
#[derive(Default)]
struct Used(HeapPages);

const SOMEBODY_ELSES: u8 = 0xc3;

// SAFETY: All memory comes from the allocator's source, which keeps the promises.
unsafe impl PageSource for Used {
    fn alloc(&self, pages: usize) -> Option<std::ptr::NonNull<u8>> {
        let run = self.0.alloc(pages)?;
        // SAFETY: The run has so many pages and is ours until it is returned.
        unsafe { run.write_bytes(SOMEBODY_ELSES, pages * PAGE_BYTES) };
        Some(run)
    }

    unsafe fn free(&self, run: std::ptr::NonNull<u8>, pages: usize) {
        // SAFETY: The caller's promise is passed on.
        unsafe { self.0.free(run, pages) };
    }
}

/// What lies in the place of a payload, from its first byte to the end of its object or page.
fn place_of(pool: &Pool, handle: Handle) -> Vec<u8> {
    let (_, row) = pool.row(handle).expect("stored");
    let location = row.pin().expect("live");
    let (start, bytes) = match class_of(usize::from(location.payload_bytes)) {
        Some(class) => {
            let span = pool.spans.get(location.span).expect("live");
            let class = CLASSES[class];
            let room = usize::from(class.stride_bytes) - HEADER_BYTES;
            (payload_start(span, location.object, class), room)
        }
        None => (
            pool.whole.get(location.span).expect("live").base(),
            PAGE_BYTES,
        ),
    };
    // SAFETY: The object is live and no other thread has the pool.
    let place = unsafe { std::slice::from_raw_parts(start, bytes) }.to_vec();
    assert_eq!(row.unpin(), None);
    place
}

#[test]
fn nothing_of_somebody_else_is_left_where_a_payload_lies() {
    let pool = Pool::new(Arc::new(Used::default()), 1 << 30);
    let own = |handle, bytes: usize, fill: u8| {
        let place = place_of(&pool, handle);
        let (payload, rest) = place.split_at(bytes);
        assert!(payload.iter().all(|byte| *byte == fill), "{bytes} bytes");
        assert!(rest.iter().all(|byte| *byte == 0), "behind {bytes} bytes");
    };
    let lengths = [
        0,
        1,
        25,
        100,
        1001,
        2048,
        PACKED_BYTES_MAX,
        PACKED_BYTES_MAX + 1,
        4095,
        4096,
    ];
    for bytes in lengths {
        let handle = pool.store(&vec![7; bytes]).expect("room");
        own(handle, bytes, 7);
    }
    // The longest of a class, and then a shorter one in the same place. What stays keeps the spans.
    let longest = 1000;
    let stored: Vec<Handle> = (0..200)
        .map(|_| pool.store(&vec![SOMEBODY_ELSES; longest]).expect("room"))
        .collect();
    for handle in stored.iter().skip(1).step_by(2) {
        pool.free(*handle);
    }
    let shorter = longest - 8;
    assert_eq!(class_of(shorter), class_of(longest));
    let fresh: Vec<Handle> = (0..100)
        .map(|_| pool.store(&vec![7; shorter]).expect("room"))
        .collect();
    fresh.iter().for_each(|&handle| own(handle, shorter, 7));
    // What stays is freed too, so that the others are moved together.
    for handle in stored.iter().step_by(2) {
        pool.free(*handle);
    }
    assert!(pool.compact(usize::MAX) > 0);
    fresh.iter().for_each(|&handle| own(handle, shorter, 7));
}
