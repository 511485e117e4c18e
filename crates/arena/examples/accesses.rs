//! Measures fill, sequential read, random read and random write of an arena that is larger than its RAM, and verifies
//! what it reads. `accesses RAM SIZE [THREADS]`, like `accesses 512M 2G`. Prints microseconds for each page or access.
//!
//! An eighth of each page is noise and the rest repeats itself, so that four times the RAM fits without a swap area.

use std::process::ExitCode;
use std::time::Instant;

use vswap_arena::{Arena, Size};

const PAGE: usize = 4096;
/// Bytes of noise at the beginning of a page. The first word of them is written to later.
const NOISE: usize = PAGE / 8;

/// splitmix64.
fn mixed(seed: u64) -> u64 {
    let mut mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A number below `end`, which is above 0.
fn below(random: u64, end: usize) -> usize {
    usize::try_from(random % end as u64).unwrap_or(0)
}

fn fill(page: &mut [u8], number: usize) {
    let (noise, text) = page.split_at_mut(NOISE);
    for (at, word) in noise.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        *word = mixed((number * PAGE + at) as u64).to_ne_bytes();
    }
    for (at, word) in text.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        *word = ((number + at / 32) as u64 & 0xff).to_ne_bytes();
    }
}

/// A word of the page that nobody changes.
fn is_right(page: &[u8], number: usize, at: usize) -> bool {
    let at = at % (NOISE / 8 - 1) + 1;
    page[at * 8..at * 8 + 8] == mixed((number * PAGE + at) as u64).to_ne_bytes()
}

/// Runs one kind of access on all threads, and prints how long one takes.
fn timed(
    name: &str,
    parts: &mut [&mut [u8]],
    accesses: usize,
    work: impl Fn(&mut [u8], usize) + Sync,
) {
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for (thread, part) in parts.iter_mut().enumerate() {
            let work = &work;
            scope.spawn(move || work(part, thread));
        }
    });
    let micros = begun.elapsed().as_secs_f64() * 1e6;
    println!("{name:16} {:8.2} us", micros / accesses as f64);
}

fn run(ram: u64, size: u64, threads: usize) -> Result<(), Box<dyn std::error::Error>> {
    let arena = Arena::builder().ram(ram).build()?;
    let pages = usize::try_from(size)? / PAGE / threads;
    let mut region = arena.allocate(pages * threads * PAGE)?;
    let mut parts: Vec<&mut [u8]> = region.chunks_mut(pages * PAGE).collect();
    let all = pages * threads;
    let check = |part: &[u8], number: usize, seed: u64| {
        let page = &part[number * PAGE..(number + 1) * PAGE];
        assert!(
            is_right(page, number, below(seed, PAGE)),
            "page {number} is wrong"
        );
    };
    timed("fill", &mut parts, all, |part, _| {
        part.chunks_mut(PAGE)
            .enumerate()
            .for_each(|(number, page)| fill(page, number));
    });
    timed("sequential read", &mut parts, all, |part, _| {
        (0..pages).for_each(|number| check(part, number, number as u64));
    });
    timed("random read", &mut parts, all, |part, thread| {
        for step in 0..pages as u64 {
            let random = mixed(step << 8 | thread as u64);
            check(part, below(random, pages), random >> 32);
        }
    });
    timed("random write", &mut parts, all, |part, thread| {
        for step in 0..pages as u64 {
            let random = mixed(step << 8 | thread as u64 | 1 << 60);
            let number = below(random, pages);
            check(part, number, random >> 32);
            part[number * PAGE..][..8].copy_from_slice(&random.to_ne_bytes());
        }
    });
    timed("verify", &mut parts, all, |part, _| {
        for number in 0..pages {
            (0..NOISE as u64 / 8).for_each(|at| check(part, number, at));
        }
    });
    println!("{:#?}", arena.stats());
    Ok(())
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let size = |at: usize| {
        words
            .get(at)
            .and_then(|text| text.as_str().size_bytes().ok())
    };
    let threads = words.get(2).map_or(Ok(1), |text| text.parse::<usize>());
    let (Some(ram), Some(bytes), Ok(threads @ 1..)) = (size(0), size(1), threads) else {
        eprintln!("usage: accesses RAM SIZE [THREADS], like accesses 512M 2G");
        return ExitCode::from(2);
    };
    match run(ram, bytes, threads) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
