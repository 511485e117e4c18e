//! Kinds of memory that programs rarely have: filled at once, growing downwards, droppable, of /dev/zero, secret, seen
//! twice. Each is written, left alone for a while, and read again.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use crate::content::{self, PAGE_BYTES, PAGE_WORDS, Random};
use crate::pages::unmap_raw;
use crate::run::{Child, Options};
use crate::segment::Segment;
use crate::wrong::{Checked, Wrong};

const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;
/// `MAP_DROPPABLE` (Linux 6.11): a mapping type of its own, like private and shared.
const MAP_DROPPABLE: i32 = 8;
const SYS_MEMFD_SECRET: i64 = 447;
/// Most pages of a mapping.
const PAGES_MAX: usize = 48;
/// Pages below a mapping that grows downwards: room to grow, and the gap that the kernel keeps below the mapping.
const ROOM: usize = 600;

pub(crate) fn run(options: &Options) -> Checked {
    let clock = options.clock();
    options.parallel(|thread| {
        let mut random = options.random(thread, 41);
        let kinds = [
            populated, droppable, dev_zero, secret, twice, remapped, grows_down,
        ];
        loop {
            for kind in kinds {
                kind(&mut random)?;
            }
            if !clock.running() {
                return Ok(());
            }
        }
    })
}

/// Pauses, so that memory is swapped out.
fn rest(random: &mut Random) {
    std::thread::sleep(Duration::from_millis(random.index(12) as u64));
}

/// Maps what a descriptor names, or anonymous memory without one.
fn map(pages: usize, flags: i32, file: Option<&File>) -> Checked<*mut u64> {
    let descriptor = file.map_or(-1, AsRawFd::as_raw_fd);
    // SAFETY: a mapping at an address that the kernel chooses aliases nothing.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            pages * PAGE_BYTES,
            READ_WRITE,
            flags,
            descriptor,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return Err(Wrong::last("mmap"));
    }
    Ok(start.cast())
}

fn page(start: *mut u64, index: usize) -> *mut u64 {
    start.wrapping_add(index * PAGE_WORDS)
}

/// Fresh pages are zero, and what is written to them stays.
fn write_and_read(start: *mut u64, pages: usize, random: &mut Random) -> Checked {
    let tag = random.next();
    for index in 0..pages {
        // SAFETY: the mapping has this many pages, is writable, and belongs to this thread.
        unsafe {
            content::check("fresh page of a rare kind", page(start, index), 0, 0)?;
            content::fill(page(start, index), tag, 1);
        }
    }
    rest(random);
    for index in 0..pages {
        // SAFETY: as above.
        unsafe { content::check("page of a rare kind", page(start, index), tag, 1) }?;
    }
    // SAFETY: nothing refers to the mapping any more.
    unsafe { unmap_raw(start, pages) }
}

fn populated(random: &mut Random) -> Checked {
    let pages = 1 + random.index(PAGES_MAX);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
    write_and_read(map(pages, flags, None)?, pages, random)
}

fn dev_zero(random: &mut Random) -> Checked {
    let pages = 1 + random.index(PAGES_MAX);
    let error = |error| Wrong::Call {
        what: "open /dev/zero",
        error,
    };
    let file = File::options()
        .read(true)
        .write(true)
        .open("/dev/zero")
        .map_err(error)?;
    write_and_read(map(pages, libc::MAP_PRIVATE, Some(&file))?, pages, random)
}

/// Secret memory, if the machine permits it.
fn secret(random: &mut Random) -> Checked {
    let pages = 1 + random.index(PAGES_MAX);
    // SAFETY: makes a descriptor.
    let made = unsafe { libc::syscall(SYS_MEMFD_SECRET, 0) };
    let Ok(made @ 0..) = i32::try_from(made) else {
        return Ok(());
    };
    // SAFETY: the descriptor was just made, and nobody else owns it.
    let file = File::from(unsafe { OwnedFd::from_raw_fd(made) });
    // SAFETY: changes only the size of that file.
    if unsafe { libc::ftruncate(made, (pages * PAGE_BYTES).cast_signed() as i64) } != 0 {
        return Err(Wrong::last("ftruncate of secret memory"));
    }
    match map(pages, libc::MAP_SHARED, Some(&file)) {
        Ok(start) => write_and_read(start, pages, random),
        // Secret memory is locked, and RLIMIT_MEMLOCK may be small.
        Err(_) => Ok(()),
    }
}

/// The kernel may drop pages, which then read as zeros.
fn droppable(random: &mut Random) -> Checked {
    let pages = 1 + random.index(PAGES_MAX);
    let Ok(start) = map(pages, MAP_DROPPABLE | libc::MAP_ANONYMOUS, None) else {
        return Ok(());
    };
    let tag = random.next();
    for index in 0..pages {
        // SAFETY: the mapping has this many pages, is writable, and belongs to this thread.
        unsafe { content::fill(page(start, index), tag, 1) };
    }
    rest(random);
    for index in 0..pages {
        // SAFETY: as above.
        unsafe {
            content::check("droppable page", page(start, index), tag, 1)
                .or_else(|_| content::check("dropped page", page(start, index), 0, 0))?;
        }
    }
    // SAFETY: nothing refers to the mapping any more.
    unsafe { unmap_raw(start, pages) }
}

/// mremap with an old size of 0 makes a second view of shared memory.
fn twice(random: &mut Random) -> Checked {
    let pages = 1 + random.index(PAGES_MAX);
    let start = map(pages, libc::MAP_SHARED | libc::MAP_ANONYMOUS, None)?;
    // SAFETY: makes a new mapping and leaves the old one.
    let second = unsafe { libc::mremap(start.cast(), 0, pages * PAGE_BYTES, libc::MREMAP_MAYMOVE) };
    if second == libc::MAP_FAILED {
        return Err(Wrong::last("mremap of an old size of 0"));
    }
    let second: *mut u64 = second.cast();
    let tag = random.next();
    // SAFETY: both mappings have this many pages and belong to this thread.
    unsafe {
        (0..pages).for_each(|index| content::fill(page(start, index), tag, 1));
        rest(random);
        (0..pages)
            .try_for_each(|index| content::check("second view", page(second, index), tag, 1))?;
        unmap_raw(start, pages)?;
        unmap_raw(second, pages)
    }
}

/// remap_file_pages puts one page of a shared file in the place of another.
fn remapped(random: &mut Random) -> Checked {
    const PAGES: usize = 4;
    let start = map(PAGES, libc::MAP_SHARED | libc::MAP_ANONYMOUS, None)?;
    let tag = random.next();
    // SAFETY: the mapping has this many pages and belongs to this thread.
    unsafe {
        (0..PAGES).for_each(|index| content::fill(page(start, index), tag ^ index as u64, 1));
        let done = libc::remap_file_pages(page(start, 1).cast(), PAGE_BYTES, 0, 3, 0);
        let shown = if done == 0 { 3 } else { 1 };
        rest(random);
        content::check("remapped page", page(start, 1), tag ^ shown, 1)?;
        content::check("page beside it", page(start, 2), tag ^ 2, 1)?;
        unmap_raw(start, PAGES)
    }
}

/// A stack that grows when it is touched. It runs in a child, because other threads could map the room that the stack
/// grows into.
fn grows_down(random: &mut Random) -> Checked {
    let mut beside = Segment::new(8, random)?;
    let child = Child::fork(|| {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let room = map(ROOM, flags, None)?;
        let top = page(room, ROOM - 2);
        // SAFETY: the room belongs to this function, and a part of it is mapped again.
        unsafe {
            unmap_raw(room, ROOM)?;
            let flags = flags | libc::MAP_GROWSDOWN | libc::MAP_FIXED_NOREPLACE;
            let start = libc::mmap(top.cast(), 2 * PAGE_BYTES, READ_WRITE, flags, -1, 0);
            if start == libc::MAP_FAILED {
                return Err(Wrong::last("mmap of a stack"));
            }
        }
        let depth = 1 + random.index(PAGES_MAX);
        let tag = random.next();
        for index in 0..depth {
            let place = top.wrapping_sub(index * PAGE_WORDS);
            // SAFETY: it writes at most the page below the mapping, into which the mapping grows.
            unsafe { content::fill(place, tag ^ index as u64, 1) };
            if index % 8 == 7 {
                rest(random);
            }
        }
        rest(random);
        (0..depth).try_for_each(|index| {
            let place = top.wrapping_sub(index * PAGE_WORDS);
            // SAFETY: the mapping has grown this far.
            unsafe { content::check("page of a stack that grew", place, tag ^ index as u64, 1) }
        })
    })?;
    child.wait()?;
    beside.rewrite_some(random)?;
    beside.unmap()
}
