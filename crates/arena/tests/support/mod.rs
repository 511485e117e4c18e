//! Content that a seed and a place determine, so that every byte can be verified, and waiting for the background.
#![allow(dead_code, reason = "each test uses a part")]

use std::time::{Duration, Instant};

use vswap_arena::{AreaStats, Arena, Region, Stats};

pub const PAGE: usize = 4096;

/// Numbers that follow from a seed (splitmix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).expect("below a usize")
    }
}

/// A page's content by its number and version: zeros, noise, or text that packs about six to one.
pub fn content(number: usize, version: u64) -> [u8; PAGE] {
    let mut random = Random(((number as u64) << 20) ^ version);
    let mut page = [0; PAGE];
    match random.next() % 16 {
        0 | 1 => {}
        2 => {
            for word in page.as_chunks_mut::<8>().0 {
                *word = random.next().to_ne_bytes();
            }
        }
        _ => {
            for words in page.as_chunks_mut::<64>().0 {
                words[..4].copy_from_slice(&random.next().to_ne_bytes()[..4]);
                words[8..16].copy_from_slice(&version.to_ne_bytes());
                words[16..24].copy_from_slice(&number.to_ne_bytes());
            }
        }
    }
    page
}

pub fn page_mut(bytes: &mut [u8], number: usize) -> &mut [u8] {
    &mut bytes[number * PAGE..(number + 1) * PAGE]
}

pub fn write_page(bytes: &mut [u8], number: usize, version: u64) {
    page_mut(bytes, number).copy_from_slice(&content(number, version));
}

#[track_caller]
pub fn check_page(bytes: &[u8], number: usize, version: u64) {
    let found = &bytes[number * PAGE..(number + 1) * PAGE];
    assert!(
        found == content(number, version),
        "page {number} does not have version {version}"
    );
}

/// Waits until the figures are as they are to become.
#[track_caller]
pub fn wait_for(arena: &Arena, what: &str, is_so: impl Fn(&Stats) -> bool) {
    let begun = Instant::now();
    while !is_so(&arena.stats()) {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "never: {what}; {:?}",
            arena.stats()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Writes a version to all pages of a region.
pub fn write_all(region: &mut Region, version: u64) {
    (0..region.len() / PAGE).for_each(|number| write_page(region, number, version));
}

/// Verifies all pages, in order and then at random.
#[track_caller]
pub fn check_all(region: &Region, version: u64) {
    let pages = region.len() / PAGE;
    (0..pages).for_each(|number| check_page(region, number, version));
    let mut random = Random(version);
    (0..pages / 4).for_each(|_| check_page(region, random.below(pages), version));
}

/// The area of a tier.
#[track_caller]
pub fn named<'a>(areas: &'a [AreaStats], tier: &str) -> &'a AreaStats {
    let found = areas.iter().find(|area| area.tier == tier);
    found.unwrap_or_else(|| panic!("no tier {tier}: {areas:?}"))
}
