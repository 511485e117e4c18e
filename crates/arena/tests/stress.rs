//! Threads that write, read, advise, pin and free at random, with all content verified, for some seconds:
//! `VSWAP_ARENA_STRESS_SECONDS` says how many.

mod support;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use support::{PAGE, Random, check_page, content, write_page};
use vswap_arena::{Advice, Arena, Limits, Region};

const THREADS: u64 = 4;
/// Pages that were written to while they were leaving, before the test for that ends, and how long it tries.
const MEETINGS: u64 = 500;
const PATIENCE: Duration = Duration::from_secs(60);

fn duration() -> Duration {
    let seconds = std::env::var("VSWAP_ARENA_STRESS_SECONDS").ok();
    Duration::from_secs(seconds.and_then(|text| text.parse().ok()).unwrap_or(3))
}

/// A region with the version of each page; 0 is none, so zeros.
struct Held {
    region: Region,
    versions: Vec<u64>,
}

impl Held {
    fn new(arena: &Arena, pages: usize) -> Held {
        Held {
            region: arena.allocate(pages * PAGE).expect("addresses"),
            versions: vec![0; pages],
        }
    }

    #[track_caller]
    fn check(&self, number: usize) {
        match self.versions[number] {
            0 => assert!(
                self.region[number * PAGE..][..PAGE]
                    .iter()
                    .all(|byte| *byte == 0)
            ),
            version => check_page(&self.region, number, version),
        }
    }

    fn check_all(&self) {
        (0..self.versions.len()).for_each(|number| self.check(number));
    }

    fn write(&mut self, number: usize, version: u64) {
        self.versions[number] = version;
        write_page(&mut self.region, number, version);
    }

    /// Reads a word and writes it again with more in it: what is lost of it is seen at once.
    fn write_little(&mut self, number: usize) {
        if self.versions[number] != 0 {
            let version = self.versions[number];
            let whole = content(number, version + 1);
            for (at, byte) in whole.iter().enumerate() {
                self.region[number * PAGE + at] = *byte;
            }
            self.versions[number] = version + 1;
        }
    }

    fn step(&mut self, arena: &Arena, random: &mut Random) {
        let pages = self.versions.len();
        let number = random.below(pages);
        let end = pages.min(number + 1 + random.below(32));
        let bytes = number * PAGE..end * PAGE;
        match random.next() % 64 {
            0 => self.region.advise(bytes, Advice::Cold).expect("advice"),
            1 => self.region.advise(bytes, Advice::WillNeed).expect("advice"),
            2 => {
                self.region.drop_content(bytes).expect("no pin");
                self.versions[number..end].fill(0);
            }
            3 => {
                if let Ok(_pin) = self.region.pin(bytes) {
                    (number..end).for_each(|number| self.check(number));
                }
            }
            4 => {
                if self.region.advise(bytes.clone(), Advice::NeverSwap).is_ok() {
                    (number..end).for_each(|number| self.check(number));
                    self.region.advise(bytes, Advice::MaySwap).expect("advice");
                }
            }
            5 => *self = Held::new(arena, 1 + random.below(768)),
            6..24 => {
                let version = random.next() | 1;
                (number..end).for_each(|number| self.write(number, version));
            }
            24..32 => self.write_little(number),
            _ => (number..end).for_each(|number| self.check(number)),
        }
    }
}

/// Each thread allocates with the next of these handles, and with the first again after the last.
fn run(handles: &[Arena], seed: u64) {
    let begun = Instant::now();
    let steps = AtomicU64::new(0);
    // All threads have at times a region that another one wrote.
    let passed_on = Mutex::new(None);
    std::thread::scope(|scope| {
        for (thread, arena) in (0..THREADS).zip(handles.iter().cycle()) {
            let (steps, passed_on) = (&steps, &passed_on);
            scope.spawn(move || {
                let mut random = Random(seed ^ thread);
                let mut held: Vec<Held> = (0..6).map(|_| Held::new(arena, 512)).collect();
                while begun.elapsed() < duration() {
                    let which = random.below(held.len());
                    for _ in 0..16 {
                        held[which].step(arena, &mut random);
                    }
                    let mut place = passed_on.lock().expect("nobody panics");
                    let mine = held.swap_remove(which);
                    held.push(place.replace(mine).unwrap_or_else(|| Held::new(arena, 512)));
                    steps.fetch_add(16, Ordering::Relaxed);
                }
                held.iter().for_each(Held::check_all);
            });
        }
    });
    let stats = handles[0].stats();
    println!("seed {seed}: {} steps, {stats:?}", steps.into_inner());
    assert!(stats.evicted_pages > 0 && stats.damaged_pages == 0);
    assert_eq!(stats.pinned_bytes, 0);
}

#[test]
fn threads_with_a_pool() {
    // About 10000 pages are held, and 4096 fit.
    run(
        &[Arena::builder().ram("16M").build().expect("an arena")],
        11,
    );
}

#[test]
fn threads_with_an_area() {
    let directory = tempfile::tempdir().expect("a directory");
    let arena = Arena::builder()
        .ram("16M")
        .pool("3M")
        .swap(directory.path(), "256M")
        .build()
        .expect("an arena");
    run(std::slice::from_ref(&arena), 12);
    let stats = arena.stats();
    assert!(stats.area_faults > 0, "{stats:?}");
}

/// Threads of groups that may have only so much, on a fast area that is soon full and a slow one.
#[test]
fn threads_of_groups_on_tiers() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path().display();
    let arena = Arena::builder()
        .ram("16M")
        .pool("3M")
        .area(&format!("{place}:10M,prio=5,tier=fast"))
        .area(&format!("{place}:256M,prio=1,tier=slow"))
        .build()
        .expect("an arena");
    let group = |name: &str, limits: &str| {
        let limits: Limits = limits.parse().expect(limits);
        arena.group(name, &limits).expect(name)
    };
    let little = group("a/little", "swap-max=4M,pool-max=1M");
    let slow = group("a/slow", "tier-max=fast=0");
    run(&[arena.clone(), little.clone(), slow, group("b", "")], 13);
    let (areas, stats) = (arena.areas(), arena.stats());
    assert!(stats.area_faults > 0, "{stats:?}");
    assert!(
        areas
            .iter()
            .all(|area| area.pages_written > 0 && area.errors == 0),
        "{areas:?}"
    );
    let little = little.group_stats().expect("a group");
    assert!(
        little.swap_bytes <= 4 << 20 && little.pool_bytes <= 1 << 20,
        "{little:?}"
    );
}

/// One thread writes all the time to pages that another one has moved out all the time.
#[test]
fn writes_to_pages_that_are_leaving_are_not_lost() {
    let arena = Arena::builder().ram("16M").build().expect("an arena");
    const PAGES: usize = 64;
    let mut region = arena.allocate(PAGES * PAGE).expect("addresses");
    // Content that takes the codec some time.
    for number in 0..PAGES {
        region[number * PAGE..(number + 1) * PAGE].copy_from_slice(&content(number, 77));
    }
    let begun = Instant::now();
    let mut counters = [0_u64; PAGES];
    let mut random = Random(5);
    // On a busy machine the two threads seldom run at the same time, and then nothing can be lost.
    let is_enough = || {
        let met = arena.stats().cancelled_pages;
        (begun.elapsed() >= duration() / 2 && met >= MEETINGS) || begun.elapsed() >= PATIENCE
    };
    while !is_enough() {
        region.advise(.., Advice::Cold).expect("advice");
        for _ in 0..2000 {
            let number = random.below(PAGES);
            let word = &mut region[number * PAGE..][..8];
            let found = u64::from_ne_bytes(word.try_into().expect("8 bytes"));
            let expected = if counters[number] == 0 {
                u64::from_ne_bytes(content(number, 77)[..8].try_into().expect("8 bytes"))
            } else {
                counters[number]
            };
            assert_eq!(found, expected, "page {number}");
            counters[number] = random.next() | 1;
            word.copy_from_slice(&counters[number].to_ne_bytes());
        }
    }
    let stats = arena.stats();
    println!("{stats:?}");
    assert!(stats.cancelled_pages > 0, "{stats:?}");
}
