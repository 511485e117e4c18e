//! Pages that say where they belong: content under a seed, written and verified by many threads at once.

use vswap_sys::disk::{Disk, DiskError, PageBytes};

pub const PAGE: u64 = 4096;
/// Threads of the test with random places and lengths, and pages that each has for itself.
const THREADS: u64 = 16;
const THREAD_PAGES: u64 = 96;
/// Longest run: longer than a lane.
const RUN_PAGES_MAX: u64 = 80;
const ROUNDS: u32 = 60;
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

/// What page `index` holds in its `version`.
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

/// Whether pages hold what was written to them, as read with one call.
pub fn verify(disk: &Disk, first: u64, count: u64, version: u64) {
    let pages = read(disk, first, count).unwrap();
    for (index, read) in (first..).zip(&pages) {
        assert!(*read == page(index, version), "page {index} of {disk:?}");
    }
}

/// Random runs from many threads, each in pages of its own: what was read is what was written last.
pub fn storm(disk: &Disk, seed: u64) {
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || thread_of_storm(disk, thread, seed));
        }
    });
}

fn thread_of_storm(disk: &Disk, thread: u64, seed: u64) {
    let mut random = Random::new(seed ^ thread << 32);
    let start = thread * THREAD_PAGES;
    let mut versions = vec![0; usize::try_from(THREAD_PAGES).unwrap()];
    write(disk, start, THREAD_PAGES, 0).unwrap();
    for round in 1..=ROUNDS {
        let first = random.below(THREAD_PAGES);
        let count = 1 + random.below(RUN_PAGES_MAX.min(THREAD_PAGES - first));
        let run = usize::try_from(first).unwrap()..usize::try_from(first + count).unwrap();
        if random.below(2) == 0 {
            write(disk, start + first, count, round.into()).unwrap();
            versions[run].fill(round.into());
        } else {
            let pages = read(disk, start + first, count).unwrap();
            for ((index, version), read) in (start + first..).zip(&versions[run]).zip(&pages) {
                assert!(*read == page(index, *version), "page {index} of {disk:?}");
            }
        }
    }
    for (index, version) in (start..).zip(versions) {
        verify(disk, index, 1, version);
    }
}
