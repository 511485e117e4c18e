//! Pages whose every byte is known, and threads that write, read and compare them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use vswap_engine::{Codec, Page, ReadRun, Storage, StorageError};
use vswap_far::{AreaId, FarOptions, FarStorage, Patience, RunId};

use crate::simulated::{Net, Seeded, Simulated, Speeds};

/// Slots of a cluster of slots: those of one key.
pub const SPAN: u64 = 512;
/// Pages of a window.
const WINDOW: u64 = 64;
/// Slots of each cluster that are used, from the first one on.
const USED: u64 = 192;
/// Errors that are held back to be told.
const TOLD_MAX: usize = 10;

/// Servers that are near, and a system that may wake threads late.
pub fn near() -> Speeds {
    Speeds {
        round_trip: Duration::from_micros(200),
        command: Duration::from_micros(2),
        kib: Duration::from_micros(1),
        client: 1_250_000_000,
        spin: Duration::ZERO,
    }
}

pub fn options(slots: u64, copies: usize) -> FarOptions {
    let run = RunId::random().expect("random bytes");
    let mut options = FarOptions::new(AreaId { run, area: 0 }, slots, Codec::Lz4);
    options.copies = copies;
    options.patience = Patience {
        answer: Duration::from_millis(400),
        bound: Duration::from_secs(20),
    };
    options
}

pub fn open(net: &Arc<Simulated>, options: FarOptions) -> FarStorage {
    let spec = net.name().parse().expect("a name");
    FarStorage::open_over(Arc::new(Net(Arc::clone(net))), &spec, options).expect("a fit store")
}

/// A page that nothing but this seed has. Most are small when they are packed, some are not packed at all.
pub fn page(seed: u64) -> Page {
    let mut random = Seeded(seed);
    let mut page = Page::zeroed();
    let words = if random.once_in(16) {
        512
    } else {
        8 + random.below(64)
    };
    for word in page.0.as_chunks_mut::<8>().0.iter_mut().take(words) {
        *word = random.next().to_le_bytes();
    }
    page
}

pub fn write(storage: &FarStorage, slot: u64, seeds: &[u64]) -> Result<(), StorageError> {
    let pages: Vec<Page> = seeds.iter().map(|seed| page(*seed)).collect();
    storage.write(slot, &pages.iter().collect::<Vec<_>>())
}

/// What the pages are, or why they are not there.
pub fn read(storage: &FarStorage, slot: u64, pages: u64) -> Result<Vec<Page>, StorageError> {
    let mut into: Vec<Page> = (0..pages).map(|_| Page([0x5a; 4096])).collect();
    let mut run = ReadRun {
        slot,
        pages: into.iter_mut().collect(),
        outcome: Ok(()),
    };
    storage.read_runs(std::slice::from_mut(&mut run));
    run.outcome?;
    Ok(into)
}

/// Reads pages and compares every byte.
pub fn check(storage: &FarStorage, slot: u64, seeds: &[u64]) -> Result<(), StorageError> {
    let pages = read(storage, slot, seeds.len() as u64)?;
    for (at, (got, seed)) in pages.iter().zip(seeds).enumerate() {
        assert!(
            *got == page(*seed),
            "slot {} is other bytes",
            slot + at as u64
        );
    }
    Ok(())
}

/// What went wrong, and what was seen.
#[derive(Default)]
pub struct Seen {
    pub wrong: Vec<String>,
    pub written: u64,
    pub compared: u64,
    /// Pages that are nowhere any more, and of which the client says so.
    pub refused: u64,
    /// Pages that were there again when they were asked for once more.
    pub again: u64,
    pub full: u64,
}

/// The slots of one thread, and what is in them.
pub struct Worker<'s> {
    pub storage: &'s FarStorage,
    pub net: &'s Simulated,
    pub seen: &'s Mutex<Seen>,
    first: u64,
    seeds: Vec<Option<u64>>,
    random: Seeded,
}

impl<'s> Worker<'s> {
    /// A thread that has these clusters of slots for itself.
    pub fn new(
        storage: &'s FarStorage,
        net: &'s Simulated,
        seen: &'s Mutex<Seen>,
        clusters: std::ops::Range<u64>,
        seed: u64,
    ) -> Worker<'s> {
        let slots = (clusters.end - clusters.start) * SPAN;
        Worker {
            storage,
            net,
            seen,
            first: clusters.start * SPAN,
            seeds: vec![None; usize::try_from(slots).expect("small")],
            random: Seeded(seed),
        }
    }

    fn seen(&self, note: impl FnOnce(&mut Seen)) {
        note(&mut self.seen.lock().expect("no panic"));
    }

    fn wrong(&self, what: String) {
        self.seen(|seen| {
            if seen.wrong.len() < TOLD_MAX {
                seen.wrong.push(what);
            }
        });
    }

    /// A run of slots, most of them within a cluster.
    fn run(&mut self) -> std::ops::Range<usize> {
        let all = self.seeds.len();
        let span = usize::try_from(SPAN).expect("small");
        let cluster = self.random.below(all / span) * span;
        let most = usize::try_from(WINDOW).expect("small");
        let length = if self.random.once_in(4) {
            1 + self.random.below(most)
        } else {
            most
        };
        let begin = if self.random.once_in(12) {
            // Over the border of two clusters.
            cluster + span - most / 2
        } else {
            let used = usize::try_from(USED).expect("small");
            cluster + self.random.below(used - most)
        };
        begin..(begin + length).min(all)
    }

    /// Writes, reads and forgets pages.
    pub fn work(&mut self, rounds: usize) {
        for _ in 0..rounds {
            let run = self.run();
            match self.random.below(20) {
                0..9 => self.write(run),
                9 => self.discard(run),
                _ => self.read(run),
            }
        }
    }

    fn slot(&self, at: usize) -> u64 {
        self.first + at as u64
    }

    pub fn write(&mut self, run: std::ops::Range<usize>) {
        let seeds: Vec<u64> = run.clone().map(|_| self.random.next()).collect();
        let written = write(self.storage, self.slot(run.start), &seeds);
        let is_written = written.is_ok();
        for (slot, seed) in self.seeds[run.clone()].iter_mut().zip(&seeds) {
            *slot = is_written.then_some(*seed);
        }
        match written {
            Ok(()) => self.seen(|seen| seen.written += seeds.len() as u64),
            Err(StorageError::Full) => self.seen(|seen| seen.full += 1),
            Err(error) => self.wrong(format!("writing to {run:?} says {error:?}")),
        }
    }

    fn discard(&mut self, run: std::ops::Range<usize>) {
        let (first, end) = (self.slot(run.start), self.slot(run.end));
        self.seeds[run.clone()].fill(None);
        if let Err(error) = self.storage.discard(first..end) {
            self.wrong(format!("forgetting {run:?} says {error:?}"));
        }
    }

    fn read(&mut self, run: std::ops::Range<usize>) {
        let pages = read(self.storage, self.slot(run.start), run.len() as u64);
        match pages {
            Ok(pages) => {
                for (at, page) in run.zip(&pages) {
                    self.compare(at, page);
                }
            }
            // One of them is not there: each by itself.
            Err(_) => run.for_each(|at| self.read_one(at)),
        }
    }

    /// Reads everything that was ever written.
    pub fn read_all(&mut self) {
        let held: Vec<usize> = (0..self.seeds.len())
            .filter(|at| self.seeds[*at].is_some())
            .collect();
        let runs = held.chunk_by(|one, next| one + 1 == *next);
        for run in runs.flat_map(|run| run.chunks(64)) {
            self.read(run[0]..run[0] + run.len());
        }
    }

    fn compare(&self, at: usize, found: &Page) {
        match self.seeds[at] {
            Some(seed) if *found == page(seed) => self.seen(|seen| seen.compared += 1),
            Some(_) => self.wrong(format!("slot {} gives other bytes", self.slot(at))),
            None => self.wrong(format!("slot {} gives bytes and has none", self.slot(at))),
        }
    }

    fn survives(&self, at: usize) -> bool {
        let slot = self.slot(at);
        let within = u16::try_from(slot % SPAN).expect("small");
        self.net.world().survives(slot / SPAN, within)
    }

    fn read_one(&self, at: usize) {
        let slot = self.slot(at);
        match read(self.storage, slot, 1) {
            Ok(pages) => self.compare(at, &pages[0]),
            Err(StorageError::Lost) if self.seeds[at].is_none() => {}
            Err(StorageError::Lost | StorageError::Altered) if !self.survives(at) => {
                self.seen(|seen| seen.refused += 1);
            }
            // A command that came late, or a copy that was written again, may have brought it back meanwhile.
            Err(first @ (StorageError::Lost | StorageError::Altered)) => {
                match read(self.storage, slot, 1) {
                    Ok(pages) => {
                        self.compare(at, &pages[0]);
                        self.seen(|seen| seen.again += 1);
                    }
                    Err(_) if !self.survives(at) => self.seen(|seen| seen.refused += 1),
                    Err(error) => self.wrong(format!(
                        "slot {slot} is there, and reading it says {first:?} and {error:?}"
                    )),
                }
            }
            Err(error) => self.wrong(format!("reading slot {slot} says {error:?}")),
        }
    }
}
