//! How the agent's commands are carried out and answered, truly or not.
//!
//! Unsafe is needed here because commands move and discard memory by address. All of it lies in the arena and staging.

use std::sync::atomic::{AtomicU64, Ordering};

use vswap_drive::random::Random;
use vswap_sys::futex;
use vswap_sys::ring::{MOVE_PAGES_MAX, MOVE_RUNS_MAX, MOVED_UNMARKED, Ring, STAGING_PAGES, op};
use vswap_sys::uffd::{UffdError, move_mode};

use crate::liar::filters;
use crate::liar::hellos;
use crate::liar::truth::{STAGING_BYTES, Truth};
use crate::numbers;

const PAGE: u64 = 4096;
const EAGAIN: i32 = 11;
const EBUSY: i32 = 16;
/// Results that nobody expects.
const RESULTS: [i64; 12] = [
    0,
    1,
    -1,
    -4095,
    -4096,
    i64::MIN,
    i64::MIN + 1,
    i64::MAX,
    1 << 47,
    (1 << 47) - 4096,
    -(1 << 31),
    1 << 32,
];
const ERRNOS: [i32; 9] = [
    0,
    1,
    EAGAIN,
    EBUSY,
    22,
    MOVED_UNMARKED,
    -1,
    i32::MIN,
    i32::MAX,
];

/// In how many of a hundred commands each lie is told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Manner {
    /// Another result.
    pub(crate) results: u32,
    /// Other errnos of pages.
    pub(crate) errnos: u32,
    /// Nothing is done, and all is said to be.
    pub(crate) claims: u32,
    /// Pages move, and are said not to have.
    pub(crate) denies: u32,
    /// Another number of the command that is complete.
    pub(crate) numbers: u32,
    /// No answer at all, for good.
    pub(crate) never: u32,
    /// Words of the ring that belong to the pager change while it reads.
    pub(crate) scribbles: u32,
    /// No filter is installed, and another answer than the true one is given, or another descriptor.
    pub(crate) listeners: u32,
}

impl Manner {
    /// One to three ways to lie, seldom or often.
    pub(crate) fn new(random: &mut Random) -> Manner {
        let mut manner = Manner::default();
        for _ in 0..random.between(1, 3) {
            let often = random.pick(&[2, 10, 40, 90]);
            match random.below(8) {
                0 => manner.results = often,
                1 => manner.errnos = often,
                2 => manner.claims = often,
                3 => manner.denies = often,
                4 => manner.numbers = often,
                5 => manner.never = often / 4,
                6 => manner.listeners = often,
                _ => manner.scribbles = often,
            }
        }
        manner
    }
}

/// Carries out the command in the ring and answers it. False if the agent is silent from now on.
pub(crate) fn answer(
    truth: &Truth,
    manner: &Manner,
    random: &mut Random,
    result: Option<i64>,
) -> bool {
    let ring: &Ring = truth.ring();
    let seq = ring.command_seq.load(Ordering::SeqCst);
    if random.chance(manner.never) {
        return false;
    }
    let mut value = match result {
        Some(value) => value,
        None if random.chance(manner.claims) => claim(ring),
        None => carry_out(truth, ring),
    };
    if random.chance(manner.denies) {
        ring.page_errno
            .iter()
            .for_each(|errno| errno.store(EBUSY, Ordering::Relaxed));
    }
    if random.chance(manner.errnos) {
        for _ in 0..random.between(1, 64) {
            let at = random.below(MOVE_PAGES_MAX as u32) as usize;
            ring.page_errno[at].store(random.pick(&ERRNOS), Ordering::Relaxed);
        }
    }
    if random.chance(manner.results) {
        value = random.pick(&RESULTS);
        ring.before.store(numbers::word(random), Ordering::Relaxed);
        ring.action
            .iter()
            .for_each(|word| word.store(numbers::word(random), Ordering::Relaxed));
    }
    if random.chance(manner.scribbles) {
        scribble(ring, random);
    }
    ring.result.store(value, Ordering::Relaxed);
    if random.chance(manner.numbers) {
        let other = random.pick(&[1, 2, u32::MAX, 1 << 31, 0]);
        ring.complete_seq
            .store(seq.wrapping_add(other), Ordering::SeqCst);
        wake(ring);
    }
    ring.complete_seq.store(seq, Ordering::SeqCst);
    wake(ring);
    true
}

fn wake(ring: &Ring) {
    ring.pager_sleeps.store(0, Ordering::SeqCst);
    // If nobody sleeps nobody wakes.
    let _ = futex::wake(&ring.complete_seq, 1);
}

/// Says that all is done.
fn claim(ring: &Ring) -> i64 {
    ring.page_errno
        .iter()
        .for_each(|errno| errno.store(0, Ordering::Relaxed));
    i64::from(ring.run_count.load(Ordering::Relaxed))
}

/// Changes a word that the pager may be about to read.
pub(crate) fn scribble(ring: &Ring, random: &mut Random) {
    match random.below(8) {
        0 | 1 => ring
            .agent_tid
            .store(hellos::id(random) as u32, Ordering::SeqCst),
        2 => ring.active.store(random.below(4), Ordering::SeqCst),
        3 => ring
            .forks
            .store(numbers::word(random) as u32, Ordering::SeqCst),
        4 => ring
            .run_count
            .store(numbers::word(random) as u32, Ordering::SeqCst),
        5 => ring.op.store(random.below(30), Ordering::SeqCst),
        6 => ring
            .command_seq
            .store(numbers::word(random) as u32, Ordering::SeqCst),
        _ => {
            let words = size_of::<Ring>() / size_of::<u64>();
            let at = random.below(words as u32) as usize;
            let first = core::ptr::from_ref(ring).cast::<AtomicU64>();
            // SAFETY: the word lies in the ring, all of which is atomic, and each bit pattern is a value of it. The
            // ring is mapped for longer than this call.
            unsafe { (*first.add(at)).store(numbers::word(random), Ordering::SeqCst) };
        }
    }
}

/// Does what is asked for, as a true agent does, or nearly so.
fn carry_out(truth: &Truth, ring: &Ring) -> i64 {
    let argument = |at: usize| ring.args[at].load(Ordering::Relaxed);
    let arguments = [0, 1, 2, 3, 4].map(argument);
    match ring.op.load(Ordering::Relaxed) {
        op::PING | op::FOLLOW => 0,
        op::MOVE_OUT => move_out(truth, ring, argument(0)),
        op::STAGING_FREE => free_staging(truth, argument(0), argument(1)),
        op::POPULATE_WRITE => {
            let runs = runs(ring);
            for (address, pages) in &runs {
                filters::call(libc::SYS_madvise, [*address, pages * PAGE, 23, 0, 0]);
            }
            runs.len() as i64
        }
        op::MREMAP => result_of(filters::call(libc::SYS_mremap, arguments)),
        op::ADVISE => result_of(filters::call(libc::SYS_madvise, arguments)),
        op::MMAP => {
            let [address, bytes, protection, flags, _] = arguments;
            let flags = flags & !(libc::MAP_FIXED as u64);
            result_of(filters::call(
                libc::SYS_mmap,
                [address, bytes, protection, flags, u64::MAX],
            ))
        }
        op::BRK => {
            let now = filters::call(libc::SYS_brk, [0; 5]);
            ring.before.store(now as u64, Ordering::Relaxed);
            now
        }
        op::ACT => 0,
        op::STAGING_PROTECT => {
            let all = [truth.staging, 2 * STAGING_BYTES, argument(0), 0, 0];
            result_of(filters::call(libc::SYS_mprotect, all))
        }
        _ => -38,
    }
}

fn result_of(answer: i64) -> i64 {
    let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
    if answer == -1 {
        i64::from(-errno)
    } else {
        answer
    }
}

fn runs(ring: &Ring) -> Vec<(u64, u64)> {
    let count = ring.run_count.load(Ordering::Relaxed) as usize;
    ring.runs
        .iter()
        .take(count.min(MOVE_RUNS_MAX))
        .map(|run| {
            let pages = run.pages.load(Ordering::Relaxed).min(MOVE_PAGES_MAX as u64);
            (run.address.load(Ordering::Relaxed), pages)
        })
        .collect()
}

fn move_out(truth: &Truth, ring: &Ring, first: u64) -> i64 {
    let pages = runs(ring)
        .into_iter()
        .flat_map(|(address, pages)| (0..pages).map(move |page| address.wrapping_add(page * PAGE)));
    let mut moved = 0;
    for (at, address) in pages.take(MOVE_PAGES_MAX).enumerate() {
        let place = truth.staging + (first + at as u64) % STAGING_PAGES as u64 * PAGE;
        // SAFETY: the pager names pages that it has registered, all of the arena; nobody has references to it.
        let done = unsafe {
            truth
                .main
                .move_pages(place, address, PAGE, move_mode::DONTWAKE)
        };
        let errno = match done {
            Ok(()) => MOVED_UNMARKED,
            Err(UffdError::Again { .. }) => EAGAIN,
            Err(UffdError::Busy { .. }) => EBUSY,
            Err(_) => 2,
        };
        moved += i64::from(done.is_ok());
        ring.page_errno[at].store(errno, Ordering::Relaxed);
    }
    moved
}

/// Moves pages to the second range, and discards them there.
fn free_staging(truth: &Truth, first: u64, pages: u64) -> i64 {
    let (first, pages) = (
        first % STAGING_PAGES as u64,
        pages.min(STAGING_PAGES as u64),
    );
    let (from, bytes) = (truth.staging + first * PAGE, pages * PAGE);
    let to = from + STAGING_BYTES;
    let modes = move_mode::DONTWAKE | move_mode::ALLOW_SRC_HOLES;
    // SAFETY: both are staging, to which nobody refers.
    let done = unsafe { truth.second.move_pages(to, from, bytes, modes) };
    filters::call(
        libc::SYS_madvise,
        [to, bytes, libc::MADV_DONTNEED as u64, 0, 0],
    );
    if done.is_ok() { 0 } else { -1 }
}
