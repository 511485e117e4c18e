//! Memory read and written from outside, by a child with `/proc/PID/mem` and with ptrace.
//!
//! Who reads in these ways cannot wait for a page that somebody else holds, and gets EIO. The bytes must never be
//! others, and a write that failed must have changed nothing. The last line of output counts both outcomes.

use std::fs::OpenOptions;
use std::io::{Error, ErrorKind};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::content::{self, PAGE_BYTES, PAGE_WORDS, Random};
use crate::pages::Mapping;
use crate::run::{Child, Options};
use crate::segment::Segment;
use crate::wrong::{Checked, Wrong, call, call_len};

/// Pages of one turn.
const BATCH: usize = 32;
/// The word of a page that ptrace reads and writes.
const WORD: usize = 5;
/// What ptrace writes.
const POKED: u64 = 0x706f_6b65_6421_2121;
/// How long to wait for the other process before looking again.
const MOMENT: Duration = Duration::from_micros(200);

/// Whose turn it is. A child that ends without giving it back has failed.
const PARENT: u64 = 0;
const CHILD: u64 = 1;
const END: u64 = 2;

/// A page and what is to be done with it. `done` is the answer.
#[repr(C)]
struct Entry {
    address: AtomicU64,
    tag: AtomicU64,
    version: AtomicU64,
    writes: AtomicU64,
    done: AtomicU64,
}

/// What both processes see. It lies in a shared mapping, which is zero at first.
#[repr(C)]
struct Board {
    turn: AtomicU64,
    traces: AtomicU64,
    right: AtomicU64,
    refused: AtomicU64,
    entries: [Entry; BATCH],
}

pub(crate) fn run(options: &Options) -> Checked {
    const { assert!(size_of::<Board>() <= PAGE_BYTES) };
    let clock = options.clock();
    let shared = Mapping::with(1, libc::MAP_SHARED)?;
    // SAFETY: the mapping outlives the reference, is as large as the board, and zeros are a board.
    let board: &Board = unsafe { &*shared.page(0).cast() };
    let child = Child::fork(|| watch(board))?;
    let mut random = options.random(0, 97);
    let mut memory = Segment::new(options.pages(), &mut random)?;
    loop {
        for turn in 0..16 {
            if !take_turn(board, &mut memory, turn % 2, &mut random, &child)? {
                return child.wait();
            }
            memory.rewrite_some(&mut random)?;
        }
        memory.check_all("page that was seen from outside")?;
        if !clock.running() {
            break;
        }
    }
    board.turn.store(END, Ordering::Release);
    child.wait()?;
    let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    println!(
        "right: {}, EIO: {}",
        value(&board.right),
        value(&board.refused)
    );
    memory.unmap()
}

/// Lets the child look at some pages. Returns false if it has ended.
fn take_turn(
    board: &Board,
    memory: &mut Segment,
    traces: u64,
    random: &mut Random,
    child: &Child,
) -> Checked<bool> {
    let first = random.index(memory.pages.len());
    let place = |turn: usize| (first + turn * 7) % memory.pages.len();
    let places: [usize; BATCH] = std::array::from_fn(place);
    for (entry, index) in board.entries.iter().zip(places) {
        let (tag, version) = memory.pages[index];
        let address = memory.page(index).expose_provenance() as u64;
        entry.address.store(address, Ordering::Relaxed);
        entry.tag.store(tag, Ordering::Relaxed);
        entry.version.store(version.into(), Ordering::Relaxed);
        entry
            .writes
            .store(random.index(2) as u64, Ordering::Relaxed);
    }
    board.traces.store(traces, Ordering::Relaxed);
    board.turn.store(CHILD, Ordering::Release);
    while board.turn.load(Ordering::Acquire) == CHILD {
        let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
        let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        // SAFETY: the kernel writes the structure, of which zeros are a value.
        let (asked, info) = unsafe {
            let asked = libc::waitid(libc::P_PID, child.0.cast_unsigned(), info.as_mut_ptr(), how);
            (asked, info.assume_init())
        };
        // SAFETY: zero unless the child has ended.
        if asked == 0 && unsafe { info.si_pid() } != 0 {
            return Ok(false);
        }
        std::thread::sleep(MOMENT);
    }
    for (entry, index) in board.entries.iter().zip(places) {
        if entry.done.load(Ordering::Relaxed) == 0 {
            memory.check("page whose write was refused", index)?;
        } else if traces == 0 {
            memory.pages[index].1 += 1;
            memory.check("page that was written from outside", index)?;
        } else {
            // SAFETY: the page is mapped, and the child waits for its turn.
            let found = unsafe { memory.page(index).add(WORD).read_volatile() };
            if found != POKED {
                return Err(Wrong::Result {
                    what: "word that ptrace wrote",
                    expected: POKED.cast_signed(),
                    found: found.cast_signed(),
                });
            }
            memory.rewrite(index, random);
        }
    }
    Ok(true)
}

/// The child: looks at pages of its parent, turn by turn.
fn watch(board: &Board) -> Checked {
    // SAFETY: asks for a number.
    let parent = unsafe { libc::getppid() };
    loop {
        match board.turn.load(Ordering::Acquire) {
            PARENT => {
                // SAFETY: asks for a number.
                if unsafe { libc::getppid() } != parent {
                    return Ok(());
                }
                std::thread::sleep(MOMENT);
                continue;
            }
            CHILD => {}
            _ => return Ok(()),
        }
        if board.traces.load(Ordering::Relaxed) == 0 {
            by_file(board, parent)?;
        } else {
            by_ptrace(board, parent)?;
        }
        board.turn.store(PARENT, Ordering::Release);
    }
}

/// Counts an outcome. Any error but EIO is a failure.
fn count(board: &Board, what: &'static str, outcome: Result<(), Error>) -> Checked<bool> {
    let (counter, is_done) = match outcome {
        Ok(()) => (&board.right, true),
        Err(error) if error.raw_os_error() == Some(libc::EIO) => (&board.refused, false),
        Err(error) => return Err(Wrong::Call { what, error }),
    };
    counter.fetch_add(1, Ordering::Relaxed);
    Ok(is_done)
}

/// Reads whole pages, and writes their next version.
fn by_file(board: &Board, parent: i32) -> Checked {
    let failed = |error| Wrong::Call {
        what: "open of /proc/PID/mem",
        error,
    };
    let path = format!("/proc/{parent}/mem");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .map_err(failed)?;
    for entry in &board.entries {
        let address = entry.address.load(Ordering::Relaxed);
        let tag = entry.tag.load(Ordering::Relaxed);
        let version = u32::try_from(entry.version.load(Ordering::Relaxed)).unwrap_or(0);
        let mut page = [0_u64; PAGE_WORDS];
        let bytes = page.as_mut_ptr().cast::<u8>();
        // SAFETY: the bytes of an array of words, which has no other user while this reference lives.
        let bytes = unsafe { std::slice::from_raw_parts_mut(bytes, PAGE_BYTES) };
        let read = whole(file.read_at(bytes, address));
        if count(board, "read of /proc/PID/mem", read)? {
            // SAFETY: the array is a page long.
            unsafe { content::check("page read from outside", page.as_ptr(), tag, version)? };
        }
        entry.done.store(0, Ordering::Relaxed);
        if entry.writes.load(Ordering::Relaxed) != 0 {
            page = std::array::from_fn(|index| content::word(tag, version + 1, index));
            // SAFETY: as above.
            let bytes = unsafe { std::slice::from_raw_parts(page.as_ptr().cast(), PAGE_BYTES) };
            let written = whole(file.write_at(bytes, address));
            let is_done = count(board, "write to /proc/PID/mem", written)?;
            entry.done.store(is_done.into(), Ordering::Relaxed);
        }
    }
    Ok(())
}

/// A page lies in one mapping, so there is no half of it.
fn whole(done: Result<usize, Error>) -> Result<(), Error> {
    match done? {
        PAGE_BYTES => Ok(()),
        _ => Err(Error::from(ErrorKind::UnexpectedEof)),
    }
}

/// Stops the parent, reads words, writes others, and lets it go on.
fn by_ptrace(board: &Board, parent: i32) -> Checked {
    // SAFETY: stops the parent, which waits for this process anyway.
    let attached = unsafe { libc::ptrace(libc::PTRACE_ATTACH, parent, 0_usize, 0_usize) };
    call_len("PTRACE_ATTACH", isize::try_from(attached).unwrap_or(-1), 0)?;
    let mut status = 0;
    // SAFETY: `status` is a valid place for the result.
    let stopped = unsafe { libc::waitpid(parent, &raw mut status, libc::__WALL) };
    call("waitpid for the parent", stopped)?;
    let outcome = board
        .entries
        .iter()
        .try_for_each(|entry| peek(board, entry, parent));
    // SAFETY: lets the parent go on.
    let detached = unsafe { libc::ptrace(libc::PTRACE_DETACH, parent, 0_usize, 0_usize) };
    outcome?;
    call_len("PTRACE_DETACH", isize::try_from(detached).unwrap_or(-1), 0)
}

fn peek(board: &Board, entry: &Entry, parent: i32) -> Checked {
    let address = entry.address.load(Ordering::Relaxed) + 8 * WORD as u64;
    let version = u32::try_from(entry.version.load(Ordering::Relaxed)).unwrap_or(0);
    let expected = content::word(entry.tag.load(Ordering::Relaxed), version, WORD);
    let mut found = 0_u64;
    let place = &raw mut found;
    // SAFETY: the system call puts the word into `found`. The C library's function would return it.
    let read = unsafe {
        libc::syscall(
            libc::SYS_ptrace,
            libc::PTRACE_PEEKDATA,
            parent,
            address,
            place,
        )
    };
    if count(board, "PTRACE_PEEKDATA", done(read))? && found != expected {
        return Err(Wrong::Result {
            what: "word that ptrace read",
            expected: expected.cast_signed(),
            found: found.cast_signed(),
        });
    }
    entry.done.store(0, Ordering::Relaxed);
    if entry.writes.load(Ordering::Relaxed) != 0 {
        // SAFETY: the parent stands still, and its model follows.
        let written = unsafe {
            libc::syscall(
                libc::SYS_ptrace,
                libc::PTRACE_POKEDATA,
                parent,
                address,
                POKED,
            )
        };
        let is_done = count(board, "PTRACE_POKEDATA", done(written))?;
        entry.done.store(is_done.into(), Ordering::Relaxed);
    }
    Ok(())
}

fn done(result: i64) -> Result<(), Error> {
    match result {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    }
}
