//! Writing batches out: how many requests it takes, and what becomes of pages that an area refuses.

use super::*;
use crate::areas::NewArea;
use crate::testing::{BROKEN, Probe, area_on, assert_holds, engine_with_areas, out, read};
use crate::verbs::swap_in::{SwapIn, SwapInError};
use crate::words::geometry::SLOTS_PER_CLUSTER;
use crate::words::order::Order;
use crate::zpool::testing::Content;

const SLOTS: u64 = 24;

fn engine(pool_limit_bytes: u64) -> (Engine, Probe) {
    engine_with_area(pool_limit_bytes, SLOTS, vec![0])
}

fn engine_with_area(pool_limit_bytes: u64, slots: u64, bad: Vec<u64>) -> (Engine, Probe) {
    let (engine, _) = engine_with_areas(16, pool_limit_bytes, &[]);
    let probe = Probe::new(slots);
    let area = NewArea {
        bad,
        ..area_on(&probe, slots)
    };
    engine.swap_on(area).expect("a good area");
    (engine, probe)
}

fn write_all(engine: &Engine, entries: &[Entry]) -> Vec<Result<Written, WriteOutError>> {
    let mut results = Vec::new();
    engine.write_out_all(0, entries, &mut engine.scratch(), |_, result| {
        results.push(result);
    });
    results
}

#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn what_the_full_pool_refuses_goes_to_the_area_with_one_request() {
    let (engine, probe) = engine(0);
    let entries: Vec<Entry> = (1..=8)
        .map(|seed| out(&engine, Content::Text, seed))
        .collect();
    assert_eq!(write_all(&engine, &entries), [Ok(Written::Physical); 8]);
    assert_eq!(probe.writes(), 1);
    for (&entry, seed) in entries.iter().zip(1..) {
        assert_holds(&engine, entry, Content::Text, seed, SwapIn::Physical);
    }
    let stats = engine.stats();
    assert_eq!(
        (stats.physical, stats.compressed, stats.frames_used),
        (8, 0, 0)
    );
    entries.into_iter().for_each(|entry| engine.put(entry));
    assert_eq!((engine.stats().physical, engine.stats().slots_used), (0, 0));
}

/// Pages in an area, written in batches, and the seeds of their content.
struct Batches {
    engine: Engine,
    probe: Probe,
    written: Vec<Vec<(Entry, u64)>>,
    seed: u64,
}

impl Batches {
    fn new(clusters: usize) -> Batches {
        let slots = (clusters * SLOTS_PER_CLUSTER) as u64;
        let (engine, probe) = engine_with_area(0, slots, Vec::new());
        Batches {
            engine,
            probe,
            written: Vec::new(),
            seed: 0,
        }
    }

    /// Writes a batch and returns how many requests that took.
    fn write(&mut self, pages: usize) -> u64 {
        let before = self.probe.writes();
        let mut batch = Vec::new();
        for _ in 0..pages {
            self.seed += 1;
            batch.push((out(&self.engine, Content::Text, self.seed), self.seed));
        }
        let entries: Vec<Entry> = batch.iter().map(|(entry, _)| *entry).collect();
        let results = write_all(&self.engine, &entries);
        assert!(
            results
                .iter()
                .all(|&result| result == Ok(Written::Physical))
        );
        self.written.push(batch);
        self.probe.writes() - before
    }

    fn put(&mut self, at: usize) {
        for (entry, _) in self.written[at].drain(..) {
            self.engine.put(entry);
        }
    }

    fn verify(&self) {
        for &(entry, seed) in self.written.iter().flatten() {
            assert_holds(&self.engine, entry, Content::Text, seed, SwapIn::Physical);
        }
        let pages = self.written.iter().flatten().count() as u64;
        assert_eq!(self.engine.stats().physical, pages);
    }
}

#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn a_batch_is_one_request_beside_pages_that_come_and_go() {
    let mut area = Batches::new(4 + Order::COUNT);
    for _ in 0..2 * SLOTS_PER_CLUSTER {
        assert_eq!(area.write(1), 1);
    }
    (0..2 * SLOTS_PER_CLUSTER)
        .step_by(2)
        .for_each(|at| area.put(at));
    let fits = |pages: &usize| Order::for_pages(*pages).is_some_and(|run| run.slots() >= *pages);
    for pages in (1..=12).filter(fits).chain([16].into_iter().filter(fits)) {
        assert_eq!(area.write(pages), 1, "{pages} pages");
    }
    area.verify();
}

#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn where_only_short_runs_are_left_a_batch_is_written_with_those() {
    const RUN: usize = 4;
    let mut area = Batches::new(2);
    let runs = 2 * SLOTS_PER_CLUSTER / RUN;
    for _ in 0..runs {
        assert_eq!(area.write(RUN), 1);
    }
    (0..runs).step_by(2).for_each(|at| area.put(at));
    assert_eq!(area.write(RUN), 1);
    // Small clusters have only one run.
    if SLOTS_PER_CLUSTER > RUN {
        assert_eq!(area.write(2 * RUN), 2, "no two runs are neighbours");
    }
    area.verify();
}

#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn in_the_last_holes_a_batch_still_finds_room() {
    let mut area = Batches::new(2);
    let slots = 2 * SLOTS_PER_CLUSTER;
    while area.written.iter().flatten().count() + 4 <= slots {
        area.write(4);
    }
    let holes = slots / 4;
    for batch in &mut area.written {
        let (entry, _) = batch.swap_remove(1);
        area.engine.put(entry);
    }
    let mut requests = 0;
    let mut left = holes;
    while left > 0 {
        requests += area.write(left.min(8));
        left -= left.min(8);
    }
    assert_eq!(requests, holes as u64, "no two holes are neighbours");
    area.verify();
}

#[test]
fn a_page_that_packs_goes_to_the_pool_and_one_that_does_not_to_the_area() {
    let (engine, _) = engine(1 << 20);
    let (text, noise) = (
        out(&engine, Content::Text, 1),
        out(&engine, Content::Random, 2),
    );
    let results = write_all(&engine, &[text, noise]);
    assert!(matches!(results[0], Ok(Written::Compressed { .. })));
    assert_eq!(results[1], Ok(Written::Physical));
    assert_holds(&engine, text, Content::Text, 1, SwapIn::Compressed);
    assert_holds(&engine, noise, Content::Random, 2, SwapIn::Physical);
}

#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn with_the_area_full_the_rest_goes_to_the_pool_or_stays() {
    let (engine, _) = engine(1 << 20);
    let usable = usize::try_from(SLOTS - 1).expect("few");
    let mut entries = Vec::new();
    for seed in 1..=SLOTS + 1 {
        entries.push(out(&engine, Content::Random, seed));
        let written = engine.write_out(entries[entries.len() - 1], &mut engine.scratch());
        let expected = if entries.len() <= usable {
            Written::Physical
        } else {
            Written::Raw
        };
        assert_eq!(written, Ok(expected), "page {seed}");
    }
    engine.set_pool_limit(0);
    let last = out(&engine, Content::Random, 99);
    let result = engine.write_out(last, &mut engine.scratch());
    assert_eq!(result, Err(WriteOutError::Full));
    assert_holds(&engine, last, Content::Random, 99, SwapIn::Cached);
    for (at, &entry) in entries.iter().enumerate() {
        let from = if at < usable {
            SwapIn::Physical
        } else {
            SwapIn::Compressed
        };
        assert_holds(&engine, entry, Content::Random, at as u64 + 1, from);
    }
    engine.put(entries[0]);
    let result = engine.write_out(last, &mut engine.scratch());
    assert_eq!(result, Ok(Written::Physical), "a slot is free again");
}

#[test]
fn a_page_that_cannot_be_written_stays_and_one_that_cannot_be_read_is_an_error() {
    let (engine, probe) = engine(0);
    let written = out(&engine, Content::Text, 1);
    assert_eq!(write_all(&engine, &[written]), [Ok(Written::Physical)]);
    probe.broken(true);
    let kept = [
        out(&engine, Content::Text, 2),
        out(&engine, Content::Text, 3),
    ];
    let refused = Err(WriteOutError::Unwritable(BROKEN));
    assert_eq!(write_all(&engine, &kept), [refused; 2]);
    assert_holds(&engine, kept[0], Content::Text, 2, SwapIn::Cached);
    // The area is passed over now.
    assert_eq!(write_all(&engine, &kept), [Err(WriteOutError::Full); 2]);
    let raw = written.raw();
    let unreadable = SwapInError::Unreadable { raw, error: BROKEN };
    assert_eq!(read(&engine, written).unwrap_err(), unreadable);
    assert_eq!(engine.count(written), 1, "it may be readable again");
    probe.broken(false);
    assert_holds(&engine, written, Content::Text, 1, SwapIn::Physical);
    engine.put(written);
    assert_eq!(write_all(&engine, &kept), [Ok(Written::Physical); 2]);
    assert_holds(&engine, kept[1], Content::Text, 3, SwapIn::Physical);
    assert_eq!(engine.stats().physical, 2);
    assert_eq!(engine.areas()[0].errors, 2);
}
