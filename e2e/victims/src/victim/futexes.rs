//! Futexes in any page: waiting, waking, requeueing, changing a word by FUTEX_WAKE_OP, and locks with priority
//! inheritance.
//!
//! Some of these calls change a word while they cannot wait for a page. They may fail with EFAULT where somebody else
//! holds the page, or has protected it against writes. Then the word must be as before, and once the program has
//! written to the page the call works. The last line of output counts those failures.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::content::{self, Random};
use crate::run::Options;
use crate::segment::Segment;
use crate::wrong::{Checked, Wrong, same};

/// FUTEX_OP(FUTEX_OP_ADD, 1, FUTEX_OP_CMP_EQ, 0).
const FUTEX_OP_ADD_ONE: usize = 1 << 28 | 1 << 12;
/// How long a wait lasts, and a page gets to leave.
const MOMENT: Duration = Duration::from_micros(500);
/// A word that no page contains: all low halves are odd or small.
const NO_WORD: u32 = 0x8000_0000;

/// Calls that failed with EFAULT.
#[derive(Default)]
struct Failures {
    locks: AtomicU64,
    unlocks: AtomicU64,
    changes: AtomicU64,
}

pub(crate) fn run(options: &Options) -> Checked {
    let clock = options.clock();
    let failures = Failures::default();
    options.parallel(|thread| {
        let mut random = options.random(thread, 83);
        let mut memory = Segment::new(options.pages_per_thread(), &mut random)?;
        loop {
            for _ in 0..16 {
                wait(&memory, &mut random)?;
                requeue(&memory, &mut random)?;
                change(&mut memory, &mut random, &failures.changes)?;
                lock(&mut memory, &mut random, &failures)?;
                memory.rewrite_some(&mut random)?;
            }
            memory.check_all("page with futexes")?;
            if !clock.running() {
                return memory.unmap();
            }
        }
    })?;
    let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    println!(
        "EFAULT of locks: {}, of unlocks: {}, of FUTEX_WAKE_OP: {}",
        value(&failures.locks),
        value(&failures.unlocks),
        value(&failures.changes)
    );
    Ok(())
}

/// The first half-word of a page, which the model knows.
fn word(memory: &Segment, index: usize) -> u32 {
    let (tag, version) = memory.pages[index];
    low(content::word(tag, version, 0))
}

fn low(word: u64) -> u32 {
    u32::try_from(word & u64::from(u32::MAX)).unwrap_or(0)
}

/// A futex call on the first half-word of a page. Returns what the kernel did, or its error.
fn futex(
    address: *mut u64,
    operation: i32,
    value: u32,
    time: *const libc::timespec,
    second: *mut u64,
    third: usize,
) -> Result<i64, i32> {
    // SAFETY: the words belong to this thread, and what the call does to them is in the model. `time` is null, valid,
    // or a number for operations that take one.
    let done = unsafe {
        libc::syscall(
            libc::SYS_futex,
            address,
            operation,
            value,
            time,
            second,
            third,
        )
    };
    match done {
        0.. => Ok(done),
        _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)),
    }
}

fn scope(random: &mut Random) -> i32 {
    [0, libc::FUTEX_PRIVATE_FLAG][random.index(2)]
}

fn must(what: &'static str, expected: Result<i64, i32>, found: Result<i64, i32>) -> Checked {
    if expected == found {
        return Ok(());
    }
    // Errors are negative here.
    let number = |outcome: Result<i64, i32>| outcome.unwrap_or_else(|error| (-error).into());
    let (expected, found) = (number(expected), number(found));
    Err(Wrong::Result {
        what,
        expected,
        found,
    })
}

/// The kernel compares the word itself: it waits only for the right one.
fn wait(memory: &Segment, random: &mut Random) -> Checked {
    let index = random.index(memory.pages.len());
    let operation = libc::FUTEX_WAIT | scope(random);
    let page = memory.page(index);
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: MOMENT.subsec_nanos().into(),
    };
    let none = std::ptr::null_mut();
    let wrong = futex(page, operation, NO_WORD, &raw const time, none, 0);
    must("FUTEX_WAIT for another word", Err(libc::EAGAIN), wrong)?;
    let index = random.index(memory.pages.len());
    let (page, right) = (memory.page(index), word(memory, index));
    let waited = futex(page, operation, right, &raw const time, none, 0);
    must("FUTEX_WAIT for its word", Err(libc::ETIMEDOUT), waited)
}

fn requeue(memory: &Segment, random: &mut Random) -> Checked {
    let (from, to) = (
        random.index(memory.pages.len()),
        random.index(memory.pages.len()),
    );
    let operation = libc::FUTEX_CMP_REQUEUE | scope(random);
    let (from_page, to_page) = (memory.page(from), memory.page(to));
    let one = std::ptr::without_provenance(1);
    let wrong = futex(from_page, operation, 1, one, to_page, NO_WORD as usize);
    must(
        "FUTEX_CMP_REQUEUE with another word",
        Err(libc::EAGAIN),
        wrong,
    )?;
    let right = word(memory, from) as usize;
    let done = futex(from_page, operation, 1, one, to_page, right);
    must("FUTEX_CMP_REQUEUE with its word", Ok(0), done)
}

/// FUTEX_WAKE_OP adds one to the word of its second page.
fn change(memory: &mut Segment, random: &mut Random, failures: &AtomicU64) -> Checked {
    let index = random.index(memory.pages.len());
    let before = word(memory, index);
    let page = memory.page(index);
    let other = memory.page(random.index(memory.pages.len()));
    let operation = libc::FUTEX_WAKE_OP | scope(random);
    let one = std::ptr::without_provenance(1);
    let after = match futex(other, operation, 1, one, page, FUTEX_OP_ADD_ONE) {
        Err(libc::EFAULT) => {
            failures.fetch_add(1, Ordering::Relaxed);
            before
        }
        done => {
            must("FUTEX_WAKE_OP", Ok(0), done)?;
            before.wrapping_add(1)
        }
    };
    expect("word after FUTEX_WAKE_OP", page, after)?;
    memory.rewrite(index, random);
    Ok(())
}

/// A lock with priority inheritance is taken and given back. Its word is the thread while it is held.
fn lock(memory: &mut Segment, random: &mut Random, failures: &Failures) -> Checked {
    let index = random.index(memory.pages.len());
    let page = memory.page(index);
    // SAFETY: the page belongs to this thread. It is written again below.
    unsafe { page.cast::<u32>().write_volatile(0) };
    let pause = || std::thread::sleep(MOMENT * 16);
    pause();
    let scope = scope(random);
    let call = |operation| {
        let (time, second) = (std::ptr::null(), std::ptr::null_mut());
        futex(page, operation | scope, 0, time, second, 0)
    };
    // SAFETY: asks for a number.
    let own = unsafe { libc::gettid() }.cast_unsigned();
    match call(libc::FUTEX_LOCK_PI) {
        Err(libc::EFAULT) => {
            failures.locks.fetch_add(1, Ordering::Relaxed);
            expect("lock that could not be taken", page, 0)?;
        }
        done => {
            must("FUTEX_LOCK_PI", Ok(0), done)?;
            expect("lock that was taken", page, own)?;
            let again = call(libc::FUTEX_LOCK_PI);
            if again != Err(libc::EFAULT) {
                must("FUTEX_LOCK_PI of the holder", Err(libc::EDEADLK), again)?;
            }
            pause();
            let mut given = call(libc::FUTEX_UNLOCK_PI);
            while given == Err(libc::EFAULT) {
                failures.unlocks.fetch_add(1, Ordering::Relaxed);
                expect("lock that could not be given back", page, own)?;
                // A page that comes back to be read may be protected against writes. The call cannot wait for that.
                // SAFETY: the word is this thread's own and aligned.
                unsafe { AtomicU32::from_ptr(page.cast()) }.fetch_or(0, Ordering::Relaxed);
                given = call(libc::FUTEX_UNLOCK_PI);
            }
            must("FUTEX_UNLOCK_PI", Ok(0), given)?;
            expect("lock that was given back", page, 0)?;
        }
    }
    memory.rewrite(index, random);
    Ok(())
}

fn expect(what: &'static str, page: *mut u64, expected: u32) -> Checked {
    // SAFETY: the page is mapped and belongs to this thread.
    let found = unsafe { page.cast::<u32>().read_volatile() };
    same(what, expected, found)
}
