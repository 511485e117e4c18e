//! Pages that say where they belong: seeded content, written and verified by many threads at once.

use vswap_sys::disk::{Disk, DiskError, PageBytes, ReadRun};

pub const PAGE: u64 = 4096;
/// Threads of the test, with random places and lengths, and the number of pages that each has for itself.
const THREADS: u64 = 16;
const THREAD_PAGES: u64 = 96;
/// Longest run: longer than a lane.
const RUN_PAGES_MAX: u64 = 80;
const ROUNDS: u32 = 60;
/// Most runs of one read call: more than are under way at once, most of them short.
const RUNS_MAX: u64 = 50;
/// Bytes that a disk must have for [`storm`].
pub const STORM_BYTES: u64 = THREADS * THREAD_PAGES * PAGE;

/// xorshift64*.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// The content of page `index` in its `version`.
pub fn page(index: u64, version: u64) -> PageBytes {
    let mut random = Random::new(index << 20 | version);
    let mut page = [0; 4096];
    for word in page.chunks_exact_mut(8) {
        word.copy_from_slice(&random.next().to_le_bytes());
    }
    page
}

/// Writes `count` pages from page `first` on.
pub fn write(disk: &Disk, first: u64, count: u64, version: u64) -> Result<(), DiskError> {
    let pages: Vec<PageBytes> = (first..first + count).map(|i| page(i, version)).collect();
    disk.write(first * PAGE, &pages.iter().collect::<Vec<_>>())
}

/// Reads `count` pages from page `first` on.
pub fn read(disk: &Disk, first: u64, count: u64) -> Result<Vec<PageBytes>, DiskError> {
    let mut pages = vec![[0xEE; 4096]; usize::try_from(count).unwrap()];
    disk.read(first * PAGE, &mut pages.iter_mut().collect::<Vec<_>>())?;
    Ok(pages)
}

/// Reads runs of pages with one call. Each run is given by its first page and its number of pages.
pub fn read_runs(disk: &Disk, runs: &[(u64, u64)]) -> Vec<Result<Vec<PageBytes>, DiskError>> {
    let count = |run: &(u64, u64)| usize::try_from(run.1).unwrap();
    let mut read: Vec<_> = runs
        .iter()
        .map(|run| vec![[0xEE; 4096]; count(run)])
        .collect();
    let mut asked: Vec<ReadRun<'_>> = runs
        .iter()
        .zip(&mut read)
        .map(|(run, pages)| ReadRun {
            at: run.0 * PAGE,
            pages: pages.iter_mut().collect(),
            outcome: Ok(()),
        })
        .collect();
    disk.read_runs(&mut asked);
    let outcomes: Vec<_> = asked.into_iter().map(|run| run.outcome).collect();
    let read = outcomes.into_iter().zip(read);
    read.map(|(outcome, pages)| outcome.map(|()| pages))
        .collect()
}

/// Do pages hold what was written to them, as read with one call?
pub fn verify(disk: &Disk, first: u64, count: u64, version: u64) {
    let pages = read(disk, first, count).unwrap();
    for (index, read) in (first..).zip(&pages) {
        assert!(*read == page(index, version), "page {index} of {disk:?}");
    }
}

/// Random runs from many threads, each in pages of its own. Every read must give what was written last.
pub fn storm(disk: &Disk, seed: u64) {
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || thread_of_storm(disk, thread, seed));
        }
    });
}

/// A run of a thread's pages: the first page, and how many, `most` at most.
fn run(random: &mut Random, most: u64) -> (u64, u64) {
    let first = random.below(THREAD_PAGES);
    (first, 1 + random.below(most.min(THREAD_PAGES - first)))
}

fn thread_of_storm(disk: &Disk, thread: u64, seed: u64) {
    let mut random = Random::new(seed ^ thread << 32);
    let start = thread * THREAD_PAGES;
    let mut versions = vec![0; usize::try_from(THREAD_PAGES).unwrap()];
    write(disk, start, THREAD_PAGES, 0).unwrap();
    for round in 1..=ROUNDS {
        let (first, count) = run(&mut random, RUN_PAGES_MAX);
        if random.below(2) == 0 {
            write(disk, start + first, count, round.into()).unwrap();
            let run = usize::try_from(first).unwrap()..usize::try_from(first + count).unwrap();
            versions[run].fill(round.into());
            continue;
        }
        let short = RUN_PAGES_MAX >> random.below(7);
        let mut runs = vec![(first, count)];
        runs.extend((0..random.below(RUNS_MAX)).map(|_| run(&mut random, short)));
        let absolute: Vec<_> = runs.iter().map(|run| (start + run.0, run.1)).collect();
        for ((first, _), read) in runs.into_iter().zip(read_runs(disk, &absolute)) {
            let versions = versions[usize::try_from(first).unwrap()..].iter();
            for ((index, version), read) in (start + first..).zip(versions).zip(&read.unwrap()) {
                assert!(*read == page(index, *version), "page {index} of {disk:?}");
            }
        }
    }
    for (index, version) in (start..).zip(versions) {
        verify(disk, index, 1, version);
    }
}
