//! An honest program: it writes seeded content, verifies every byte again and again, and forks now and then.
//!
//! Each page has a stamp, from which all of its words follow. A child verifies what it has inherited, changes a part of
//! it and verifies again. Unsafe is needed here because one call gives pages back.

use std::time::{Duration, Instant};

use vswap_drive::random::{Random, mix};

use crate::process::{self, Fork};

const PAGE_WORDS: usize = 512;
const PAGE_BYTES: usize = 4096;
/// Pages that are looked at between two looks at the time.
const PAGES_AT_ONCE: u32 = 512;
/// Pages that a child rewrites.
const CHILD_PAGES: u32 = 64;

/// What is asked for.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Wishes {
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    #[arg(long, default_value_t = 3.0)]
    pub(crate) seconds: f64,
    #[arg(long, default_value_t = 12)]
    pub(crate) mib: usize,
}

/// Memory and what it must hold.
struct Arena {
    words: Vec<u64>,
    /// One for each page; 0 stands for a page of zeros.
    stamps: Vec<u64>,
}

/// Writes and verifies until the time is over. `Ok(false)`: a byte was wrong, or a child found one.
///
/// # Errors
/// There is no memory.
pub(crate) fn run(wishes: &Wishes) -> Result<bool, String> {
    process::leave_no_core();
    let until = Instant::now() + Duration::from_secs_f64(wishes.seconds);
    let mut random = Random::new(wishes.seed);
    let mut arena = Arena::new(wishes.mib << 20);
    for page in 0..arena.stamps.len() {
        arena.write(page, random.next());
    }
    let mut is_good = true;
    while is_good && Instant::now() < until {
        is_good = arena.work(&mut random, PAGES_AT_ONCE);
        if is_good && random.chance(20) {
            is_good = fork_and_check(&mut arena, &mut random);
        }
    }
    Ok(is_good && (0..arena.stamps.len()).all(|page| arena.verify(page)))
}

/// A child verifies all, rewrites a part and verifies all again. True if it found all right.
fn fork_and_check(arena: &mut Arena, random: &mut Random) -> bool {
    match process::fork() {
        Fork::Child => {
            let all = |arena: &Arena| (0..arena.stamps.len()).all(|page| arena.verify(page));
            let is_good = all(arena) && arena.work(random, CHILD_PAGES) && all(arena);
            process::leave(i32::from(!is_good));
        }
        Fork::Parent(pid) => {
            // The parent goes on meanwhile.
            let is_good = arena.work(random, PAGES_AT_ONCE);
            let status = process::wait_for(pid);
            if status != 0 {
                eprintln!("honest: a child ended with wait status {status:#x}");
            }
            is_good && status == 0
        }
        // No memory for a child is nobody's mistake.
        Fork::Failed => true,
    }
}

impl Arena {
    fn new(bytes: usize) -> Arena {
        let pages = bytes / PAGE_BYTES;
        // One page more than there is, so that all of them lie on whole pages.
        Arena {
            words: vec![0; (pages + 1) * PAGE_WORDS],
            stamps: vec![0; pages],
        }
    }

    /// Where the words of a page begin.
    fn start(&self, page: usize) -> usize {
        let skew = self.words.as_ptr().align_offset(PAGE_BYTES);
        skew + page * PAGE_WORDS
    }

    fn write(&mut self, page: usize, stamp: u64) {
        let start = self.start(page);
        for (index, place) in self.words[start..start + PAGE_WORDS].iter_mut().enumerate() {
            *place = word(stamp, index);
        }
        self.stamps[page] = stamp;
    }

    fn verify(&self, page: usize) -> bool {
        let (start, stamp) = (self.start(page), self.stamps[page]);
        let words = &self.words[start..start + PAGE_WORDS];
        let wrong = (0..PAGE_WORDS).find(|index| words[*index] != word(stamp, *index));
        if let Some(index) = wrong {
            eprintln!(
                "honest: WRONG CONTENT in process {}: page {page} word {index} is {:#x} and should be {:#x}",
                std::process::id(),
                words[index],
                word(stamp, index)
            );
        }
        wrong.is_none()
    }

    /// Gives a page back to the kernel.
    fn discard(&mut self, page: usize) {
        let start = self.start(page);
        let address = self.words[start..start + PAGE_WORDS].as_mut_ptr();
        // SAFETY: the range is one whole page of this vector, and zeros are words.
        unsafe { libc::madvise(address.cast(), PAGE_BYTES, libc::MADV_DONTNEED) };
        self.stamps[page] = 0;
    }

    /// Verifies, rewrites and discards some pages.
    fn work(&mut self, random: &mut Random, pages: u32) -> bool {
        for _ in 0..pages {
            let page = random.below(self.stamps.len() as u32) as usize;
            if !self.verify(page) {
                return false;
            }
            match random.below(16) {
                0 => self.discard(page),
                1..=5 => self.write(page, random.next()),
                _ => {}
            }
        }
        true
    }
}

/// Word `index` of a page: half noise, half regular, so that pages compress like those of programs.
fn word(stamp: u64, index: usize) -> u64 {
    match (stamp, index & 1) {
        (0, _) => 0,
        (_, 0) => mix(stamp ^ index as u64),
        _ => stamp,
    }
}
