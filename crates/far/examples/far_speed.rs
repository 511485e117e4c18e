//! How many pages a second go to a store and come back: `far_speed STORE [THREADS] [COPIES]`.
//!
//! Windows of 64 pages that compress two to three times, several threads, every byte compared. Then one thread reads
//! windows of several sizes in turn: what reading around a page costs there. The store must be fit; what is written is
//! deleted again.

use std::time::{Duration, Instant};

use vswap_engine::{Codec, Page, Storage};
use vswap_far::{AreaId, FarOptions, FarStorage, RunId};

use crate::sample::{WINDOW, packed, page, read};

#[path = "shared/sample.rs"]
mod sample;

/// Windows that each thread writes and reads.
const WINDOWS: usize = 512;
/// Reads of one page.
const SINGLES: u64 = 2000;
/// Pages of the windows that are read in turn.
const SIZES: [usize; 5] = [1, 8, 16, 32, 64];
/// How often each of these has its turn, and how many are read then.
const TURNS: usize = 9;
const OF_A_TURN: usize = 40;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let store = arguments.next().ok_or("which store?")?;
    let threads: usize = arguments.next().map_or(Ok(2), |text| text.parse())?;
    let run = RunId::random().ok_or("no random bytes")?;
    let slots = (threads * WINDOWS * WINDOW) as u64;
    let mut options = FarOptions::new(AreaId { run, area: 0 }, slots, Codec::Lz4);
    options.copies = arguments.next().map_or(Ok(1), |text| text.parse())?;
    options.lanes = threads;
    let storage = FarStorage::open(&store.parse()?, options)?;
    let pages = slots as f64;
    let wrote = timed(threads, |thread| write(&storage, thread));
    let read = timed(threads, |thread| check(&storage, thread));
    let begun = Instant::now();
    let mut into = Page::zeroed();
    for at in 0..SINGLES {
        storage.read(at * 7919 % slots, &mut [&mut into])?;
    }
    let single = begun.elapsed().as_secs_f64() / SINGLES as f64;
    let figures = storage.figures();
    let bytes: u64 = figures.nodes.iter().map(|node| node.bytes_out).sum();
    println!("{} bytes a page, packed", bytes / slots);
    println!("write {:.0} pages/s", pages / wrote.as_secs_f64());
    println!("read {:.0} pages/s", pages / read.as_secs_f64());
    println!("one page {:.1} us", single * 1e6);
    for (size, times) in SIZES.iter().zip(turns(&storage, threads * WINDOWS)) {
        let [least, half, most] = times.map(|time| time.as_secs_f64() * 1e6);
        let each = half / *size as f64;
        println!("a window of {size:2}: {half:.0} us ({least:.0}..{most:.0}), {each:.1} us a page");
    }
    for node in figures.nodes {
        println!(
            "{}: half {:?}, p99 {:?}",
            node.name, node.latency_half, node.latency_p99
        );
    }
    Ok(())
}

/// How long a window of each size takes, of so many windows that there are: the least, the median and the most of all
/// turns.
fn turns(storage: &FarStorage, windows: usize) -> Vec<[Duration; 3]> {
    let mut took = vec![Vec::new(); SIZES.len()];
    let expected: Vec<Page> = (0..WINDOW as u64).map(page).collect();
    let mut pages = vec![Page::zeroed(); WINDOW];
    let mut window = 0;
    for _ in 0..TURNS {
        for (size, took) in SIZES.into_iter().zip(&mut took) {
            let begun = Instant::now();
            for _ in 0..OF_A_TURN {
                window = (window + 7919) % windows;
                read(storage, slot(0, window), &mut pages[..size]);
                assert!(pages[..size] == expected[..size]);
            }
            took.push(begun.elapsed() / u32::try_from(OF_A_TURN).expect("small"));
        }
    }
    let sorted = took.into_iter().map(|mut took| {
        took.sort();
        [took[0], took[TURNS / 2], took[TURNS - 1]]
    });
    sorted.collect()
}

fn timed(threads: usize, what: impl Fn(usize) + Sync) -> Duration {
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let what = &what;
            scope.spawn(move || what(thread));
        }
    });
    begun.elapsed()
}

fn slot(thread: usize, window: usize) -> u64 {
    ((thread * WINDOWS + window) * WINDOW) as u64
}

/// What is compressed is the engine's time, not the store's: a few pages are, once.
fn write(storage: &FarStorage, thread: usize) {
    let packed = packed();
    let packed: Vec<&[u8]> = packed.iter().map(Vec::as_slice).collect();
    for window in 0..WINDOWS {
        let written = storage.write_packed(slot(thread, window), &packed);
        written.expect("written");
    }
}

fn check(storage: &FarStorage, thread: usize) {
    let expected: Vec<Page> = (0..WINDOW as u64).map(page).collect();
    let mut pages = vec![Page::zeroed(); WINDOW];
    for window in 0..WINDOWS {
        read(storage, slot(thread, window), &mut pages);
        assert!(pages == expected);
    }
}
