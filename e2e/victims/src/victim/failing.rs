//! Calls on mappings that fail: the named memory keeps its content.
//!
//! The calls are munmap and mmap(MAP_FIXED) over a range with a sealed page in it (EPERM), and mmap(MAP_FIXED) of more
//! than RLIMIT_AS allows (ENOMEM).

use crate::content::{self, PAGE_BYTES, PAGE_WORDS, Random};
use crate::pages::{Pages, unmap_raw};
use crate::run::{Child, Options};
use crate::wrong::{Checked, Wrong, call};

/// `mseal` on `x86_64` (Linux 6.10).
const SYS_MSEAL: i64 = 462;
/// Pages that are checked and rewritten at a time.
const STIR_PAGES: usize = 64;
/// Pages of a process that has no room for more.
const ROOM_PAGES: usize = 256;

pub(crate) fn run(options: &Options) -> Checked {
    let clock = options.clock();
    options.parallel(|thread| {
        let mut random = options.random(thread, 31);
        let part = options.pages_per_thread() / 2;
        let mut sealed = Pages::filled(part, options.tag(thread))?;
        let seals = seal(&sealed, part / 2)?;
        while clock.running() {
            if seals {
                refused_by_a_seal(&sealed, part / 2, &mut random)?;
            }
            in_a_child_with_little_room(thread, random.next())?;
            sealed.stir("page beside a sealed one", &mut random, STIR_PAGES)?;
            sealed.check_all("page that a failed call named")?;
        }
        Ok(())
    })
}

/// Seals one page. False if the kernel cannot.
fn seal(pages: &Pages, index: usize) -> Checked<bool> {
    let page = pages.mapping.page(index).addr();
    // SAFETY: a sealed page can still be read and written. It goes away with the process.
    let sealed = unsafe { libc::syscall(SYS_MSEAL, page, PAGE_BYTES, 0) };
    match sealed {
        0 => Ok(true),
        _ if errno() == libc::ENOSYS => Ok(false),
        _ => Err(Wrong::last("mseal")),
    }
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

fn must_fail(what: &'static str, result: i64, expected: i32) -> Checked {
    let found = if result == -1 { errno() } else { 0 };
    if found == expected {
        return Ok(());
    }
    Err(Wrong::Result {
        what,
        expected: i64::from(expected),
        found: i64::from(found),
    })
}

/// Each call names pages on both sides of the sealed one.
fn refused_by_a_seal(pages: &Pages, sealed: usize, random: &mut Random) -> Checked {
    let first = random.index(sealed);
    let bytes = (sealed + 1 + random.index(pages.len() - sealed) - first) * PAGE_BYTES;
    let start = pages.mapping.page(first).cast();
    let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: the kernel refuses to change a range with a sealed page in it.
    unsafe {
        let result = libc::munmap(start, bytes);
        must_fail("munmap over a sealed page", result.into(), libc::EPERM)?;
        let result = libc::mmap(start, bytes, libc::PROT_READ, private, -1, 0);
        let result = if result == libc::MAP_FAILED { -1 } else { 0 };
        must_fail("mmap over a sealed page", result, libc::EPERM)
    }
}

/// The child's address space is limited. A mapping that would replace its pages needs more than it may have.
fn in_a_child_with_little_room(thread: usize, tag: u64) -> Checked {
    // Far from everything else, so that only these pages are in the range.
    let place = (0x10_0000_0000 + (thread << 34)) as *mut u64;
    let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let (protection, bytes) = (libc::PROT_READ | libc::PROT_WRITE, ROOM_PAGES * PAGE_BYTES);
    let place_it = private | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: the flag forbids replacing anything.
    let start = unsafe { libc::mmap(place.cast(), bytes, protection, place_it, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(Wrong::last("mmap"));
    }
    // SAFETY: the pages were just mapped and belong to this thread.
    let page = |index: usize| unsafe { start.cast::<u64>().add(index * PAGE_WORDS) };
    // SAFETY: as above.
    (0..ROOM_PAGES).for_each(|index| unsafe { content::fill(page(index), tag, 1) });
    let check = |what| {
        // SAFETY: as above.
        (0..ROOM_PAGES).try_for_each(|index| unsafe { content::check(what, page(index), tag, 1) })
    };
    let child = Child::fork(|| {
        let limit = libc::rlimit {
            rlim_cur: 1 << 31,
            rlim_max: libc::RLIM_INFINITY,
        };
        for _ in 0..16 {
            // SAFETY: the limit concerns only this child, and the mapping is refused.
            unsafe {
                call(
                    "setrlimit",
                    libc::setrlimit(libc::RLIMIT_AS, &raw const limit),
                )?;
                let replace = private | libc::MAP_FIXED;
                let result = libc::mmap(start, 1 << 33, libc::PROT_READ, replace, -1, 0);
                let result = if result == libc::MAP_FAILED { -1 } else { 0 };
                must_fail("mmap of more than RLIMIT_AS", result, libc::ENOMEM)?;
            }
            check("page of a child that a failed mmap named")?;
        }
        Ok(())
    })?;
    check("page whose child's mmap fails")?;
    child.wait()?;
    let child = Child::fork(|| {
        let mut limit = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        for resource in [libc::RLIMIT_DATA, libc::RLIMIT_AS, libc::RLIMIT_FSIZE] {
            // SAFETY: both calls use only the structure. The limit concerns only this child.
            let result = unsafe {
                libc::getrlimit(resource, &raw mut limit);
                limit.rlim_cur = PAGE_BYTES as u64;
                libc::setrlimit(resource, &raw const limit)
            };
            call("setrlimit", result)?;
        }
        for _ in 0..4 {
            Child::fork(|| check("page of a process that may have no more memory"))?.wait()?;
        }
        Ok(())
    })?;
    child.wait()?;
    // SAFETY: the mapping belongs to this function.
    unsafe { unmap_raw(start.cast(), ROOM_PAGES) }
}
