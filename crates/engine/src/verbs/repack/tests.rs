//! Unit tests of packing again: which pages are taken, what they are afterwards, and what is left when it fails. The
//! tests of races have what other threads do meanwhile.

use super::*;
use crate::area::AllocError;
use crate::base::pages::HeapPages;
use crate::engine::Config;
use crate::groups::GroupLimits;
use crate::testing::{
    PACKING_BYTES, Packing, Probe, area_on, assert_holds, charges, damage, figures_of, group, out,
    out_of, read, try_out,
};
use crate::verbs::swap_in::{SwapIn, SwapInError};
use crate::verbs::swap_out::Mapping;
use crate::verbs::write_back::WriteBack;
use crate::zpool::testing::{Content, page_bytes, seeded};

use std::sync::Arc;

const POOL_BYTES: u64 = 1 << 22;
const FRAMES: usize = 16;
/// Kinds that zstd packs into a smaller size than lz4 does, also where stand-ins for both are used.
const KINDS: [Content; 2] = [Content::Heap, Content::Text];

fn engine() -> Engine {
    engine_of(Codec::Lz4, POOL_BYTES)
}

fn engine_of(codec: Codec, pool_limit_bytes: u64) -> Engine {
    let config = Config {
        frames: FRAMES,
        cpus: 1,
        codec,
        pool_limit_bytes,
        checksums: true,
    };
    Engine::new(&config, Arc::new(HeapPages::new())).expect("memory")
}

fn kind(seed: u64) -> Content {
    KINDS[usize::from(!seed.is_multiple_of(2))]
}

/// Stores the page of a seed in the pool.
fn stored(engine: &Engine, seed: u64) -> Entry {
    stored_as(engine, kind(seed), seed)
}

fn stored_as(engine: &Engine, kind: Content, seed: u64) -> Entry {
    let entry = out(engine, kind, seed);
    engine
        .write_out(entry, &mut engine.scratch())
        .expect("room");
    entry
}

fn stored_all(engine: &Engine, seeds: std::ops::Range<u64>) -> Vec<Entry> {
    seeds.map(|seed| stored(engine, seed)).collect()
}

fn grow_old(engine: &Engine) {
    (0..2).for_each(|_| engine.begin_generation());
}

fn repack(engine: &Engine, budget_pages: usize) -> Repack {
    engine.repack(budget_pages, &mut engine.scratch())
}

fn codec_of(engine: &Engine, entry: Entry) -> Codec {
    engine.packed_as(entry).expect("in the pool").0
}

fn bytes_of(engine: &Engine, entries: &[Entry]) -> Vec<usize> {
    let bytes = |entry: &Entry| engine.packed_as(*entry).expect("in the pool").1;
    entries.iter().map(bytes).collect()
}

/// Which of these pages zstd has packed.
fn repacked(engine: &Engine, entries: &[Entry]) -> Vec<usize> {
    let is_dense = |at: &usize| codec_of(engine, entries[*at]) == Codec::Zstd;
    (0..entries.len()).filter(is_dense).collect()
}

fn assert_all_hold(engine: &Engine, first: u64, entries: &[Entry], from: SwapIn) {
    for (seed, &entry) in (first..).zip(entries) {
        assert_holds(engine, entry, kind(seed), seed, from);
    }
}

/// Puts all entries, and checks that nothing is left.
fn end(engine: &Engine, entries: impl IntoIterator<Item = Entry>) {
    entries.into_iter().for_each(|entry| engine.put(entry));
    let stats = engine.stats();
    assert_eq!((stats.slots_used, stats.frames_used), (0, 0));
    assert_eq!((stats.payload_bytes, stats.pool_bytes), (0, 0));
    assert_eq!(engine.is_valid(), Ok(()));
}

#[test]
fn the_cold_is_packed_again_and_the_rest_stays() {
    let engine = engine();
    let old = stored_all(&engine, 0..8);
    assert_eq!(repack(&engine, 8), Repack::default(), "all are young");
    grow_old(&engine);
    // Whoever reads a page makes it young.
    assert_holds(&engine, old[2], kind(2), 2, SwapIn::Compressed);
    let young = stored_all(&engine, 8..12);
    let before = bytes_of(&engine, &old);
    let bytes_before = engine.stats().payload_bytes;
    let done = repack(&engine, usize::MAX);
    assert_eq!((done.pages, done.dense, done.warm), (7, 0, 0), "{done:?}");
    assert_eq!(repacked(&engine, &old), [0, 1, 3, 4, 5, 6, 7]);
    assert_eq!(repacked(&engine, &young), []);
    let after = bytes_of(&engine, &old);
    for (at, (&before, &after)) in before.iter().zip(&after).enumerate() {
        assert_eq!(takes_less(after, before), at != 2, "{before} to {after}");
    }
    let saved = before.iter().sum::<usize>() - after.iter().sum::<usize>();
    assert_eq!(done.saved_bytes, saved as u64);
    assert_eq!(engine.stats().payload_bytes, bytes_before - saved as u64);
    assert_eq!(engine.is_valid(), Ok(()));
    assert_eq!(repack(&engine, usize::MAX), Repack::default(), "once");
    assert_all_hold(&engine, 0, &old, SwapIn::Compressed);
    assert_all_hold(&engine, 8, &young, SwapIn::Compressed);
    end(&engine, old.into_iter().chain(young));
}

/// Who writes out says how each page is packed, and all of them come back.
#[test]
fn pages_that_are_written_out_together_may_be_packed_differently() {
    let engine = engine();
    let entries: Vec<Entry> = (0..8).map(|seed| out(&engine, kind(seed), seed)).collect();
    let is_cold = |entry: Entry| entries.iter().position(|of| *of == entry).unwrap() % 2 == 1;
    let codec_of = |entry| {
        if is_cold(entry) {
            Codec::Zstd
        } else {
            Codec::Lz4
        }
    };
    let scratch = &mut engine.scratch();
    engine.write_out_packed(0, &entries, codec_of, scratch, |_, written| {
        written.expect("room");
    });
    assert_eq!(repacked(&engine, &entries), [1, 3, 5, 7]);
    assert_all_hold(&engine, 0, &entries, SwapIn::Compressed);
    end(&engine, entries);
}

#[test]
fn pages_younger_than_the_least_age_stay() {
    let engine = engine();
    let old = stored_all(&engine, 0..4);
    grow_old(&engine);
    let younger = stored_all(&engine, 4..8);
    (0..5).for_each(|_| engine.begin_generation());
    let of = |least_age| {
        let scratch = &mut engine.scratch();
        engine.repack_of(GroupId::ROOT, least_age, usize::MAX, scratch)
    };
    assert_eq!(of(8), Repack::default(), "the oldest are 7 generations old");
    assert_eq!(of(6).pages, 4);
    assert_eq!(repacked(&engine, &younger), []);
    assert_eq!(of(0).pages, 4, "0 is no age: the youngest two stay");
    assert_all_hold(&engine, 0, &old, SwapIn::Compressed);
    assert_all_hold(&engine, 4, &younger, SwapIn::Compressed);
    end(&engine, old.into_iter().chain(younger));
}

#[test]
fn the_oldest_come_first_and_the_budget_is_kept() {
    let engine = engine();
    // Each generation has every third page, so that ages do not follow the order of slots.
    let entries: Vec<Entry> = (0..12).map(|seed| out(&engine, kind(seed), seed)).collect();
    for generation in [2, 0, 1] {
        for &entry in entries.iter().skip(generation).step_by(3) {
            let written = engine.write_out(entry, &mut engine.scratch());
            written.expect("room");
        }
        engine.begin_generation();
    }
    engine.begin_generation();
    for oldest in [2, 0, 1] {
        let before = repacked(&engine, &entries);
        assert_eq!(repack(&engine, 4).pages, 4);
        let mut gone = repacked(&engine, &entries);
        gone.retain(|at| !before.contains(at));
        assert_eq!(gone, [0, 3, 6, 9].map(|at| at + oldest));
    }
    assert_all_hold(&engine, 0, &entries, SwapIn::Compressed);
    end(&engine, entries);
}

/// A page that is packed again stays as old as it was: it goes to an area before a younger one.
#[test]
fn to_be_packed_again_makes_no_page_younger() {
    let engine = engine();
    // The hand meets slots in their order, so the old ones come last there.
    let entries: Vec<Entry> = (0..6).map(|seed| out(&engine, kind(seed), seed)).collect();
    let (young, old) = entries.split_at(3);
    let store = |entry: &Entry| engine.write_out(*entry, &mut engine.scratch());
    for (at, entry) in old.iter().chain(young).enumerate() {
        if at == old.len() {
            grow_old(&engine);
        }
        store(entry).expect("room");
    }
    assert_eq!(repack(&engine, usize::MAX).pages, 3);
    let probe = Probe::new(64);
    engine.swap_on(area_on(&probe, 64)).expect("a good area");
    let done = engine.write_back(0, 3, &mut engine.scratch());
    assert_eq!(done.pages, 3, "{done:?}");
    assert_all_hold(&engine, 3, old, SwapIn::Physical);
    assert_all_hold(&engine, 0, young, SwapIn::Compressed);
    end(&engine, entries);
}

#[test]
fn what_gains_nothing_stays_and_is_tried_once() {
    let engine = engine();
    let noise: Vec<Entry> = (0..4)
        .map(|seed| stored_as(&engine, Content::Random, seed))
        .collect();
    let text = stored(&engine, 5);
    grow_old(&engine);
    let done = repack(&engine, usize::MAX);
    assert_eq!((done.pages, done.dense), (1, 4), "{done:?}");
    assert_eq!(engine.stats().raw, 4);
    grow_old(&engine);
    assert_eq!(repack(&engine, usize::MAX), Repack::default());
    for (seed, &entry) in (0..).zip(&noise) {
        assert_eq!(codec_of(&engine, entry), Codec::None);
        assert_holds(&engine, entry, Content::Random, seed, SwapIn::Compressed);
    }
    end(&engine, noise.into_iter().chain([text]));
}

#[test]
fn what_zstd_has_packed_is_not_packed_again() {
    let engine = engine_of(Codec::Zstd, POOL_BYTES);
    let entries = stored_all(&engine, 0..4);
    let before = bytes_of(&engine, &entries);
    grow_old(&engine);
    let done = repack(&engine, usize::MAX);
    assert_eq!((done.pages, done.dense, done.saved_bytes), (0, 4, 0));
    assert_eq!(bytes_of(&engine, &entries), before);
    assert_all_hold(&engine, 0, &entries, SwapIn::Compressed);
    end(&engine, entries);
}

/// A page of numbers below 64, each in a byte: six bits of it are used.
fn narrow(seed: u64) -> Page {
    let mut random = seeded(seed);
    Page(std::array::from_fn(|_| random().to_le_bytes()[0] & 63))
}

/// What lz4 cannot pack is raw. The stand-in for zstd cannot pack it either.
#[test]
#[cfg(not(any(miri, tsan)))]
fn what_only_zstd_packs_is_no_longer_raw() {
    let engine = engine();
    let out = |seed: u64| {
        let mut frame = engine.frame().expect("a free frame");
        frame.0.copy_from_slice(&narrow(seed).0);
        let shadow = crate::words::shadow::Shadow::ABSENT;
        let entry = engine.swap_out(0, frame, shadow, GroupId::ROOT);
        entry.expect("a slot")
    };
    let entries: Vec<Entry> = (0..6).map(out).collect();
    for &entry in &entries {
        let written = engine.write_out(entry, &mut engine.scratch());
        assert_eq!(written, Ok(crate::verbs::leaving::Written::Raw));
    }
    grow_old(&engine);
    assert_eq!(repack(&engine, usize::MAX).pages, 6);
    assert_eq!((engine.stats().raw, engine.stats().compressed), (0, 6));
    for (seed, &entry) in (0..).zip(&entries) {
        let (from, page) = read(&engine, entry).expect("not lost");
        assert_eq!(from, SwapIn::Compressed);
        assert!(*page == narrow(seed), "content differs");
    }
    end(&engine, entries);
}

/// Directly mapped pages lie in the pool as others do.
#[test]
fn directly_mapped_pages_are_packed_again_as_well() {
    let engine = engine();
    let probe = Probe::new(24);
    engine.swap_on(area_on(&probe, 24)).expect("a good area");
    let out = |seed| try_out(&engine, Mapping::Direct, GroupId::ROOT, kind(seed), seed);
    let entries: Result<Vec<Entry>, AllocError> = (0..4).map(out).collect();
    let entries = entries.expect("slots");
    for &entry in &entries {
        let written = engine.write_out(entry, &mut engine.scratch());
        written.expect("room");
    }
    grow_old(&engine);
    assert_eq!(repack(&engine, usize::MAX).pages, 4);
    assert_all_hold(&engine, 0, &entries, SwapIn::Compressed);
    grow_old(&engine);
    let done = engine.write_back(0, 4, &mut engine.scratch());
    assert_eq!(done.pages, 4);
    assert_all_hold(&engine, 0, &entries, SwapIn::Physical);
    end(&engine, entries);
}

/// A mix of raw pages and both codecs goes to an area of pages, to one that keeps them packed, and back to the pool.
#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn a_mix_of_codecs_goes_everywhere_and_comes_back() {
    for keeps_packed in [false, true] {
        let engine = engine();
        let kind = |seed: u64| match seed % 4 {
            3 => Content::Random,
            _ => kind(seed),
        };
        let stored = |seed| stored_as(&engine, kind(seed), seed);
        let mut entries: Vec<Entry> = (0..12).map(stored).collect();
        grow_old(&engine);
        assert_eq!(repack(&engine, usize::MAX).pages, 9);
        entries.extend((12..24).map(stored));
        let probe = Probe::new(64);
        let mut area = area_on(&probe, 64);
        let packing = Packing::default();
        if keeps_packed {
            area.storage = Box::new(packing.clone());
        }
        let area = engine.swap_on(area).expect("a good area");
        grow_old(&engine);
        let expected = WriteBack {
            pages: 24,
            ..WriteBack::default()
        };
        let done = engine.write_back(0, 24, &mut engine.scratch());
        assert_eq!(done, expected);
        assert_eq!(packing.payloads().len(), if keeps_packed { 24 } else { 0 });
        let figures = engine.areas()[0];
        assert_eq!(figures.held_bytes, 24 * PAGE_BYTES as u64);
        let used = packing.payloads().iter().sum::<usize>() as u64;
        let expected = if keeps_packed {
            (used, PACKING_BYTES)
        } else {
            (24, 63)
        };
        let pages = if keeps_packed { 1 } else { PAGE_BYTES as u64 };
        let in_pages = (figures.used_bytes / pages, figures.size_bytes / pages);
        assert_eq!(in_pages, expected);
        let all_hold = |from| {
            for (seed, &entry) in (0..).zip(&entries) {
                assert_holds(&engine, entry, kind(seed), seed, from);
            }
        };
        all_hold(SwapIn::Physical);
        let left = engine.swap_off(area, &mut engine.scratch(), &|| false);
        assert_eq!(left, Ok(()));
        // The storage heard of each slot that was freed.
        assert_eq!(packing.payloads(), []);
        all_hold(SwapIn::Compressed);
        // What comes back from an area is packed as new pages are.
        assert_eq!(repacked(&engine, &entries), []);
        end(&engine, entries.clone());
    }
}

#[test]
fn what_is_damaged_stays_and_is_refused() {
    let engine = engine();
    let entries = stored_all(&engine, 0..4);
    // Damaged before it is packed again, so it never is.
    damage(&engine, entries[1]);
    grow_old(&engine);
    let done = repack(&engine, usize::MAX);
    assert_eq!((done.pages, done.damaged), (3, 1));
    assert_eq!(engine.stats().damaged, 1);
    grow_old(&engine);
    assert_eq!(repack(&engine, usize::MAX), Repack::default());
    assert_eq!(engine.stats().damaged, 1, "not looked at again");
    // Damaged afterwards.
    damage(&engine, entries[2]);
    for at in [1, 2] {
        for _ in 0..2 {
            let error = read(&engine, entries[at]).unwrap_err();
            assert!(matches!(error, SwapInError::Corrupt { .. }), "{error}");
        }
    }
    for at in [0, 3] {
        assert_holds(
            &engine,
            entries[at],
            kind(at as u64),
            at as u64,
            SwapIn::Compressed,
        );
    }
    end(&engine, entries);
}

#[test]
fn a_pool_without_room_beside_the_old_payload_keeps_it() {
    let engine = engine();
    // More of what stays raw than packing again may exceed the limit by.
    let noise = |seed| stored_as(&engine, Content::Random, seed);
    let noise: Vec<Entry> = (0..40).map(noise).collect();
    grow_old(&engine);
    assert_eq!(repack(&engine, usize::MAX).dense, 40);
    let entries = stored_all(&engine, 0..6);
    let before = bytes_of(&engine, &entries);
    grow_old(&engine);
    engine.set_pool_limit(PAGE_BYTES as u64);
    let done = repack(&engine, usize::MAX);
    // Places may be free among the payloads that are there.
    assert!(done.pages < 6 && done.pages + done.full == 6, "{done:?}");
    assert_eq!(engine.stats().pool_reject, 0);
    engine.set_pool_limit(0);
    assert_eq!(repack(&engine, usize::MAX), Repack::default());
    let after = bytes_of(&engine, &entries);
    let stayed = before.iter().zip(&after).filter(|(a, b)| a == b).count();
    assert_eq!(stayed, 6 - done.pages);
    assert_eq!(engine.is_valid(), Ok(()));
    assert_all_hold(&engine, 0, &entries, SwapIn::Compressed);
    engine.set_pool_limit(POOL_BYTES);
    grow_old(&engine);
    assert_eq!(repack(&engine, usize::MAX).pages, 6 - done.pages);
    assert_all_hold(&engine, 0, &entries, SwapIn::Compressed);
    end(&engine, entries.into_iter().chain(noise));
}

/// Stores pages, packed like this, until the full pool has no place for any more of them, whatever their size.
fn fill_up(engine: &Engine, codec: Codec, entries: &mut Vec<(u64, Entry)>) {
    let mut seed = entries.last().map_or(0, |(seed, _)| seed + 1);
    let mut refused = 0;
    while refused < 64 {
        let entry = out(engine, kind(seed), seed);
        let mut is_full = false;
        let scratch = &mut engine.scratch();
        engine.write_out_packed(
            0,
            &[entry],
            |_| codec,
            scratch,
            |_, written| {
                is_full = written.is_err();
            },
        );
        if is_full {
            engine.put(entry);
            refused += 1;
        } else {
            entries.push((seed, entry));
        }
        seed += 1;
    }
}

/// A pool that is full to its last span becomes one with room, though each page needs a second place first.
#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn a_full_pool_makes_its_own_room() {
    let engine = engine_of(Codec::Lz4, 2 << 20);
    let mut entries = Vec::new();
    fill_up(&engine, Codec::Lz4, &mut entries);
    let full = engine.pool_fill();
    grow_old(&engine);
    let (mut pages, mut calls) = (0, 0);
    while pages < entries.len() {
        let done = repack(&engine, usize::MAX);
        (pages, calls) = (pages + done.pages, calls + 1);
        let fill = engine.pool_fill();
        assert!(fill.span_bytes <= fill.limit_bytes + beyond_bytes(fill.limit_bytes));
        assert!(calls < 64, "{pages} of {} pages: {done:?}", entries.len());
    }
    let room = engine.pool_fill();
    assert!(
        room.needed_bytes < full.needed_bytes * 9 / 10,
        "{full:?} {room:?}"
    );
    assert!(room.span_bytes <= full.limit_bytes);
    for &(seed, entry) in &entries {
        assert_holds(&engine, entry, kind(seed), seed, SwapIn::Compressed);
    }
    end(&engine, entries.into_iter().map(|(_, entry)| entry));
}

/// Whatever room is made, somebody fills at once. It goes on all the same, until nothing is left to be packed again.
#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn a_pool_that_is_kept_full_is_packed_again_to_its_end() {
    let engine = engine_of(Codec::Lz4, 4 << 20);
    let mut entries = Vec::new();
    fill_up(&engine, Codec::Lz4, &mut entries);
    let (first, mut pages, mut calls) = (entries.len(), 0, 0);
    while pages < first {
        grow_old(&engine);
        let done = repack(&engine, 32);
        (pages, calls) = (pages + done.pages, calls + 1);
        fill_up(&engine, Codec::Zstd, &mut entries);
        assert!(calls < first, "{pages} of {first} pages: {done:?}");
    }
    assert!(entries.len() > first * 11 / 10, "{} pages", entries.len());
    for &(seed, entry) in &entries {
        assert_holds(&engine, entry, kind(seed), seed, SwapIn::Compressed);
    }
    end(&engine, entries.into_iter().map(|(_, entry)| entry));
}

/// A group at its limit pays for one payload of a page, the old or the new one.
#[test]
fn a_group_is_charged_for_what_its_pages_take() {
    let engine = engine();
    let ids = ["a", "a/b", "c"].map(|name| group(&engine, name, 0));
    let of = |seed: u64| ids[usize::from(!seed.is_multiple_of(3)) + usize::from(seed % 3 == 2)];
    let entries: Vec<Entry> = (0..9)
        .map(|seed| {
            let entry = out_of(&engine, of(seed), kind(seed), seed);
            let written = engine.write_out(entry, &mut engine.scratch());
            written.expect("room");
            entry
        })
        .collect();
    let charged = |id| charges(&engine, id).1;
    for id in ids {
        let limits = GroupLimits {
            pool_max_bytes: charged(id),
            ..GroupLimits::default()
        };
        engine.set_group_limits(id, limits).expect("it is there");
    }
    let sum = |of_groups: &[GroupId]| {
        let of_these = |at: &usize| of_groups.contains(&of(*at as u64));
        let bytes = bytes_of(&engine, &entries);
        (0..9)
            .filter(of_these)
            .map(|at| bytes[at] as u64)
            .sum::<u64>()
    };
    grow_old(&engine);
    // One group's pages, and no other's.
    let done = engine.repack_of(ids[1], SAFE_GENERATIONS, usize::MAX, &mut engine.scratch());
    assert_eq!(done.pages, 3);
    assert_eq!(repacked(&engine, &entries), [1, 4, 7]);
    assert_eq!(charged(ids[1]), sum(&ids[1..2]));
    assert_eq!(charged(ids[0]), sum(&ids[..2]));
    assert_eq!(repack(&engine, usize::MAX).pages, 6);
    for (at, groups) in [(0, &ids[..2]), (1, &ids[1..2]), (2, &ids[2..])] {
        assert_eq!(charged(ids[at]), sum(groups));
    }
    assert_eq!(figures_of(&engine, ids[2]).events.pool_max, 0);
    assert_all_hold(&engine, 0, &entries, SwapIn::Compressed);
    end(&engine, entries);
    for id in [ids[1], ids[0], ids[2]] {
        assert_eq!(charges(&engine, id), (0, 0));
        engine.remove_group(id).expect("nothing is charged to it");
    }
}

/// A page is picked, which pins it. Then it is read, put, or shared and put once, and only then packed again.
#[test]
fn a_page_that_is_used_while_it_is_packed_again_keeps_what_it_has() {
    for (is_read, is_put, is_shared) in [
        (true, false, false),
        (false, true, false),
        (true, true, false),
        (false, true, true),
    ] {
        let engine = engine();
        let entry = stored(&engine, 1);
        grow_old(&engine);
        let areas = || engine.areas_to_age();
        let purpose = Purpose::Repack {
            least: SAFE_GENERATIONS,
        };
        let cold = engine.aging.pick(purpose, areas, GroupId::ROOT.index(), 1);
        assert_eq!(cold.len(), 1);
        if is_read {
            assert_holds(&engine, entry, kind(1), 1, SwapIn::Compressed);
        }
        if is_shared {
            engine.dup(entry).expect("in use");
        }
        if is_put {
            engine.put(entry);
        }
        let mut done = Repack::default();
        let mut page = Box::new(Page::zeroed());
        engine.repack_one(&cold[0], &mut page, &mut engine.scratch(), &mut done);
        let moves = !is_read && is_shared;
        assert_eq!((done.pages, done.warm), (moves.into(), (!moves).into()));
        let payloads = engine.stats().compressed;
        if is_put && !is_shared {
            assert_eq!(payloads, 0, "both are freed");
            assert_eq!(read(&engine, entry).unwrap_err(), SwapInError::Gone);
        } else {
            assert_eq!(payloads, 1, "one of both is freed");
            let codec = [Codec::Lz4, Codec::Zstd][usize::from(moves)];
            assert_eq!(codec_of(&engine, entry), codec);
            assert_holds(&engine, entry, kind(1), 1, SwapIn::Compressed);
        }
        end(&engine, (!is_put || is_shared).then_some(entry));
    }
}

/// Generations are numbered modulo 256, and the hand may not have moved for as many.
#[test]
#[cfg_attr(miri, ignore = "more steps than the interpreter has time for")]
fn a_hand_that_has_slept_for_long_finds_what_is_cold() {
    let engine = engine();
    for round in 0..6 {
        let entries = stored_all(&engine, 0..3);
        (0..173).for_each(|_| engine.begin_generation());
        let young = stored_all(&engine, 3..5);
        assert_eq!(repack(&engine, usize::MAX).pages, 3, "round {round}");
        assert_eq!(repacked(&engine, &entries), [0, 1, 2]);
        assert_eq!(repacked(&engine, &young), []);
        end(&engine, entries.into_iter().chain(young));
    }
}

/// The stand-ins for the codecs have the same kinds of pages to gain from.
#[test]
fn the_kinds_of_these_tests_have_something_to_gain() {
    let mut scratch = Scratch::new();
    for seed in 0..24 {
        let page = Page(*page_bytes(kind(seed), seed));
        let mut bytes = |codec: Codec| codec.compress(&page, &mut scratch).map(<[u8]>::len);
        let (lz4, zstd) = (bytes(Codec::Lz4), bytes(Codec::Zstd));
        let (lz4, zstd) = (lz4.expect("packs"), zstd.expect("packs"));
        assert!(takes_less(zstd, lz4), "{seed}: {lz4} to {zstd}");
    }
}
