//! Unit tests of the second codec: which pages find a place in the pool by it, and how often it is tried in vain.

use std::sync::Arc;

use crate::base::pages::HeapPages;
use crate::codec::{Codec, Pack};
use crate::engine::{Config, Engine};
use crate::groups::GroupId;
use crate::testing::{Probe, area_on, read};
use crate::verbs::leaving::Written;
use crate::verbs::swap_in::SwapIn;
use crate::words::entry::Entry;
use crate::words::shadow::Shadow;
use crate::zpool::testing::seeded;

const BOTH: Pack = Pack {
    codec: Codec::Lz4,
    tries_zstd: true,
};

/// A page of random bytes of which only some bits are used: with six, zstd packs it and lz4 does not.
fn page_of(bits: u32, seed: u64) -> [u8; 4096] {
    let mut random = seeded(seed);
    let mask = u8::MAX >> (8 - bits);
    std::array::from_fn(|_| random().to_le_bytes()[0] & mask)
}

fn written(engine: &Engine, bits: u32, seed: u64, how: Pack) -> (Entry, Written) {
    let mut frame = engine.frame().expect("a free frame");
    frame.0 = page_of(bits, seed);
    let entry = engine.swap_out(0, frame, Shadow::ABSENT, GroupId::ROOT);
    let entry = entry.expect("a slot");
    let mut outcome = None;
    let scratch = &mut engine.scratch();
    engine.write_out_packed(0, &[entry], |_| how, scratch, |_, of| outcome = of.ok());
    (entry, outcome.expect("room"))
}

fn engine() -> Engine {
    let config = Config {
        frames: 16,
        cpus: 1,
        codec: Codec::Lz4,
        pool_limit_bytes: 1 << 22,
        checksums: true,
    };
    Engine::new(&config, Arc::new(HeapPages::new())).expect("memory")
}

fn with_area(engine: &Engine) {
    let probe = Probe::new(512);
    engine.swap_on(area_on(&probe, 512)).expect("a good area");
}

#[test]
fn what_only_zstd_packs_goes_to_the_pool_and_not_to_the_area() {
    let engine = engine();
    with_area(&engine);
    for seed in 0..16 {
        let (entry, to) = written(&engine, 6, seed, BOTH);
        assert!(matches!(to, Written::Compressed { .. }), "{to:?}");
        let packed = engine.packed_as(entry).expect("in the pool");
        assert_eq!(packed.0, Codec::Zstd);
        let (from, page) = read(&engine, entry).expect("not lost");
        assert_eq!(from, SwapIn::Compressed);
        assert!(page.0 == page_of(6, seed), "content differs");
        engine.put(entry);
    }
    assert_eq!(engine.is_valid(), Ok(()));
}

#[test]
fn with_one_codec_it_goes_to_the_area_as_it_is() {
    let engine = engine();
    with_area(&engine);
    let (entry, to) = written(&engine, 6, 1, Codec::Lz4.into());
    assert_eq!(to, Written::Physical);
    let (from, page) = read(&engine, entry).expect("not lost");
    assert_eq!(from, SwapIn::Physical);
    assert!(page.0 == page_of(6, 1), "content differs");
    engine.put(entry);
}

/// Where there is no area the page lies in the pool raw, as before, until it is old and packed again.
#[test]
fn without_an_area_it_waits_in_the_pool() {
    let engine = engine();
    let (entry, to) = written(&engine, 6, 1, BOTH);
    assert_eq!(to, Written::Raw);
    (0..2).for_each(|_| engine.begin_generation());
    assert_eq!(engine.repack(1, &mut engine.scratch()).pages, 1);
    engine.put(entry);
}

/// After noise a page that zstd would pack may pass untried, but only for a while.
#[test]
fn noise_makes_pages_pass_untried_until_one_is_packed() {
    let engine = engine();
    with_area(&engine);
    let to_pool = |bits, seed| {
        let (entry, to) = written(&engine, bits, seed, BOTH);
        engine.put(entry);
        matches!(to, Written::Compressed { .. })
    };
    assert!((0..300).all(|seed| !to_pool(8, seed)), "noise is raw");
    let first = (0..200).position(|seed| to_pool(6, seed));
    assert!(first.is_some_and(|at| (1..=128).contains(&at)), "{first:?}");
    assert!((0..20).all(|seed| to_pool(6, seed)), "all are tried again");
}
