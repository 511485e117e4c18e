//! `fill-read-write`: the phases that swap is measured by.
//!
//! The threads share out the pages in contiguous parts. Reads go everywhere while nobody writes. A write stays in its
//! thread's part, so versions need no lock.
//!
//! Unsafe is needed here because threads share a `Region`, and the compiler cannot check which thread writes which
//! page.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::measure::{Latencies, Phase};
use crate::random::{Random, Zipf};

use super::{FillReadWrite, Mismatch, Setup, check_page};

/// For misses alone, so many times fewer pages are tried than are read at random.
const MISSES_PART: usize = 8;

/// Versions of all pages. Accesses are relaxed throughout: a thread reads only versions of its own part while it
/// writes, and the end of a phase orders everything else.
struct Versions(Vec<AtomicU32>);

impl Versions {
    fn of(&self, page: usize) -> u32 {
        self.0[page].load(Ordering::Relaxed)
    }

    fn next(&self, page: usize) -> u32 {
        let version = self.of(page) + 1;
        self.0[page].store(version, Ordering::Relaxed);
        version
    }
}

pub(super) struct Run<'a> {
    setup: &'a Setup,
    versions: Versions,
    seed: u64,
}

pub(super) fn run(options: &FillReadWrite) -> io::Result<Result<(), Mismatch>> {
    let setup = options.common.setup_in(&options.placement)?;
    let result = Run::new(&setup, options.common.seed).all(options);
    setup.print_memory()?;
    Ok(result)
}

/// The share of `total` that `thread` gets.
pub(super) fn share(total: usize, thread: usize, threads: usize) -> Range<usize> {
    total * thread / threads..total * (thread + 1) / threads
}

/// Accesses that use few pages often.
#[derive(Clone, Copy, Debug)]
pub(super) struct Skewed {
    pub count: usize,
    pub exponent: f64,
    pub write_percent: usize,
    /// Size of a hot set, in percent of all pages.
    pub percent: u8,
    /// Which hot set is in use.
    pub hot: usize,
    /// Number of hot sets, which are evenly spaced.
    pub hot_sets: usize,
}

impl<'a> Run<'a> {
    pub(super) fn new(setup: &'a Setup, seed: u64) -> Run<'a> {
        let pages = setup.region.pages();
        let versions = Versions((0..pages).map(|_| AtomicU32::new(0)).collect());
        Run {
            setup,
            versions,
            seed,
        }
    }

    pub(super) fn all(&self, options: &FillReadWrite) -> Result<(), Mismatch> {
        let count = options.count.unwrap_or(self.setup.region.pages());
        self.phase("fill", |thread, latencies| {
            self.fill(thread, latencies);
            Ok(())
        })?;
        self.phase("seq_read", |thread, latencies| {
            self.read_in_order(thread, latencies)
        })?;
        if options.backward {
            self.phase("backward_read", |thread, latencies| {
                self.read_backward(thread, latencies)
            })?;
        }
        self.setup.region.expect_random(true);
        self.phase("random_read", |thread, latencies| {
            self.read_at_random(thread, count, latencies)
        })?;
        self.misses(count / MISSES_PART)?;
        self.phase("random_write", |thread, latencies| {
            self.write_at_random(thread, count, latencies);
            Ok(())
        })?;
        if let Some(exponent) = options.zipf {
            let skewed = Skewed {
                count,
                exponent,
                write_percent: options.zipf_write_percent,
                percent: 100,
                hot: 0,
                hot_sets: 1,
            };
            self.phase("zipf", |thread, latencies| {
                self.zipf(thread, skewed, latencies)
            })?;
        }
        self.setup.region.expect_random(false);
        // SAFETY: the threads of the phases before have ended.
        unsafe { options.common.sabotage(&self.setup.region) };
        self.phase("verify", |thread, latencies| self.verify(thread, latencies))
    }

    pub(super) fn phase(
        &self,
        name: &str,
        work: impl Fn(usize, &mut Latencies) -> Result<(), Mismatch> + Sync,
    ) -> Result<(), Mismatch> {
        self.setup.printer.phase(&self.setup.stage.run(name, work)?);
        Ok(())
    }

    pub(super) fn pages(&self) -> usize {
        self.setup.region.pages()
    }

    /// Compares all bytes of a page with the expected ones.
    pub(super) fn verify_page(&self, page: usize) -> Result<(), Mismatch> {
        let Setup {
            region, content, ..
        } = self.setup;
        // SAFETY: pages are verified by a process of one thread, or while nobody writes.
        unsafe { check_page(region, content, page, self.versions.of(page)) }
    }

    fn part(&self, thread: usize) -> Range<usize> {
        share(
            self.setup.region.pages(),
            thread,
            self.setup.stage.threads(),
        )
    }

    fn random(&self, thread: usize, phase: u64) -> Random {
        Random::new(self.seed ^ phase << 32 ^ (thread as u64) << 48)
    }

    pub(super) fn fill(&self, thread: usize, latencies: &mut Latencies) {
        let Setup {
            region, content, ..
        } = self.setup;
        for page in self.part(thread) {
            // SAFETY: the page belongs to this thread's part, and no other thread touches it.
            latencies.time(|| content.generate(page, 0, unsafe { region.words_mut(page) }));
        }
    }

    fn read_in_order(&self, thread: usize, latencies: &mut Latencies) -> Result<(), Mismatch> {
        self.part(thread)
            .try_for_each(|page| self.read_stamp(page, latencies))
    }

    fn read_backward(&self, thread: usize, latencies: &mut Latencies) -> Result<(), Mismatch> {
        let mut pages = self.part(thread).rev();
        pages.try_for_each(|page| self.read_stamp(page, latencies))
    }

    fn read_at_random(
        &self,
        thread: usize,
        count: usize,
        latencies: &mut Latencies,
    ) -> Result<(), Mismatch> {
        let mut random = self.random(thread, 1);
        let pages = self.setup.region.pages();
        share(count, thread, self.setup.stage.threads())
            .try_for_each(|_| self.read_stamp(random.below(pages), latencies))
    }

    /// Reads at random, and times only what is not in memory. The time of the phase is that of the misses: whether a
    /// page is there has to be asked for in between. No phase if nothing is missing.
    fn misses(&self, count: usize) -> Result<(), Mismatch> {
        let misses = self.setup.stage.run("miss", |thread, latencies| {
            let mut random = self.random(thread, 9);
            let pages = self.setup.region.pages();
            let mut untimed = Latencies::new();
            share(count, thread, self.setup.stage.threads()).try_for_each(|_| {
                let page = random.below(pages);
                // What cannot be told is not timed.
                match self.setup.region.is_resident(page) {
                    Ok(false) => self.read_stamp(page, latencies),
                    Ok(true) | Err(_) => self.read_stamp(page, &mut untimed),
                }
            })
        })?;
        if misses.pages > 0 {
            self.setup.printer.phase(&Phase {
                us_per_op: misses.mean_us,
                ..misses
            });
        }
        Ok(())
    }

    /// Reads one word of a page that nobody writes, and checks the rest of the page if the word is wrong.
    pub(super) fn read_stamp(
        &self,
        page: usize,
        latencies: &mut Latencies,
    ) -> Result<(), Mismatch> {
        let Setup {
            region, content, ..
        } = self.setup;
        let version = self.versions.of(page);
        let expected = content.stamp(page, version);
        let word = content.stamp_word(page);
        // SAFETY: the word is inside the page. No thread writes the page in this phase, or it is in this thread's part.
        let found = latencies.time(|| unsafe { region.page(page).add(word).read_volatile() });
        if found == expected {
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { check_page(region, content, page, version) }
    }

    /// Writes one word of a page of this thread's part.
    pub(super) fn write_stamp(&self, page: usize, latencies: &mut Latencies) {
        let Setup {
            region, content, ..
        } = self.setup;
        let stamp = content.stamp(page, self.versions.next(page));
        let word = content.stamp_word(page);
        // SAFETY: the word is inside the page, which is in this thread's part.
        latencies.time(|| unsafe { region.page(page).add(word).write_volatile(stamp) });
    }

    fn write_at_random(&self, thread: usize, count: usize, latencies: &mut Latencies) {
        let mut random = self.random(thread, 2);
        let part = self.part(thread);
        for _ in share(count, thread, self.setup.stage.threads()) {
            self.write_stamp(part.start + random.below(part.len()), latencies);
        }
    }

    pub(super) fn zipf(
        &self,
        thread: usize,
        skewed: Skewed,
        latencies: &mut Latencies,
    ) -> Result<(), Mismatch> {
        let mut random = self.random(thread, 3 + skewed.hot as u64);
        let part = self.part(thread);
        let hot_pages = (part.len() * usize::from(skewed.percent) / 100).max(1);
        let zipf = Zipf::new(hot_pages, skewed.exponent);
        let first = part.len() * skewed.hot / skewed.hot_sets;
        for _ in share(skewed.count, thread, self.setup.stage.threads()) {
            // A multiplier scatters ranks over the part, so that hot pages are not neighbours. It has no common factors
            // with the usual page counts.
            let rank = first + zipf.sample(&mut random);
            let page = part.start + rank * 1_000_003 % part.len();
            if random.below(100) < skewed.write_percent {
                self.write_stamp(page, latencies);
            } else {
                self.read_stamp(page, latencies)?;
            }
        }
        Ok(())
    }

    pub(super) fn verify(&self, thread: usize, latencies: &mut Latencies) -> Result<(), Mismatch> {
        let Setup {
            region, content, ..
        } = self.setup;
        self.part(thread).try_for_each(|page| {
            let version = self.versions.of(page);
            // SAFETY: nobody writes in this phase.
            latencies.time(|| unsafe { check_page(region, content, page, version) })
        })
    }
}
