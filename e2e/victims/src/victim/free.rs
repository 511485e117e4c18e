//! `madvise(MADV_FREE)`: memory holds the old content or zeros until something is written, and then that. Memory of a
//! file and shared memory refuse the advice and keep their content.

use std::os::fd::AsRawFd;

use crate::content::{self, PAGE_BYTES, PAGE_WORDS, Random, word};
use crate::pages::{Pages, unmap_raw};
use crate::run::Options;
use crate::scratch;
use crate::wrong::{Checked, Wrong, call};

/// Most pages that are given back in one call.
const FREE_PAGES_MAX: usize = 48;
/// The word of a page that is written first after the page was given back.
const FIRST_WORD: usize = 77;

pub(crate) fn run(options: &Options) -> Checked {
    let clock = options.clock();
    options.parallel(|thread| {
        let mut pages = Pages::filled(options.pages_per_thread(), options.tag(thread))?;
        let mut random = options.random(thread, 6);
        loop {
            for _ in 0..64 {
                let first = random.index(pages.len());
                let count = 1 + random.index(FREE_PAGES_MAX.min(pages.len() - first));
                free_and_use(&mut pages, first, count, &mut random)?;
                pages.stir("page beside freed ones", &mut random, 16)?;
            }
            refused(&mut random)?;
            pages.check_all("all pages")?;
            if !clock.running() {
                return Ok(());
            }
        }
    })
}

/// Gives pages back, reads some, then writes them all again.
fn free_and_use(pages: &mut Pages, first: usize, count: usize, random: &mut Random) -> Checked {
    // SAFETY: the range is inside the mapping, which this thread owns.
    let result = unsafe {
        libc::madvise(
            pages.mapping.page(first).cast(),
            count * PAGE_BYTES,
            libc::MADV_FREE,
        )
    };
    call("madvise(FREE)", result)?;
    for index in first..first + count {
        let old = (pages.tag_of(index), pages.versions[index]);
        let page = pages.mapping.page(index);
        if random.index(2) == 0 {
            check_lazily_freed(page, old)?;
        }
        if random.index(2) == 0 {
            check_after_one_write(page, old)?;
        }
        pages.rewrite(index);
    }
    (first..first + count).try_for_each(|index| pages.check("page written after FREE", index))
}

/// MADV_FREE on memory that is not private anonymous is EINVAL.
fn refused(random: &mut Random) -> Checked {
    let file = scratch::file()?;
    file.set_len((FREE_PAGES_MAX * PAGE_BYTES) as u64)
        .map_err(|error| Wrong::Call {
            what: "set the length of a file",
            error,
        })?;
    let anonymous = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    for (flags, descriptor) in [(libc::MAP_PRIVATE, file.as_raw_fd()), (anonymous, -1)] {
        let bytes = FREE_PAGES_MAX * PAGE_BYTES;
        let (protection, tag) = (libc::PROT_READ | libc::PROT_WRITE, random.next());
        // SAFETY: the kernel chooses an unused address. The mapping is written to and unmapped here.
        unsafe {
            let start = libc::mmap(
                std::ptr::null_mut(),
                bytes,
                protection,
                flags,
                descriptor,
                0,
            );
            if start == libc::MAP_FAILED {
                return Err(Wrong::last("mmap"));
            }
            let page = |index: usize| start.cast::<u64>().add(index * PAGE_WORDS);
            (0..FREE_PAGES_MAX).for_each(|index| content::fill(page(index), tag, 1));
            let result = libc::madvise(start, bytes, libc::MADV_FREE);
            let errno = std::io::Error::last_os_error().raw_os_error();
            if result == 0 || errno != Some(libc::EINVAL) {
                return Err(Wrong::Result {
                    what: "errno of MADV_FREE on memory of a file or shared memory",
                    expected: i64::from(libc::EINVAL),
                    found: i64::from(errno.unwrap_or(0)),
                });
            }
            (0..FREE_PAGES_MAX).try_for_each(|index| {
                content::check("page that refused FREE", page(index), tag, 1)
            })?;
            unmap_raw(start.cast(), FREE_PAGES_MAX)?;
        }
    }
    Ok(())
}

fn wrong(page: *const u64, index: usize, expected: u64, found: u64, what: &'static str) -> Wrong {
    let address = page.addr() + index * 8;
    Wrong::Content {
        what,
        address,
        page: page.addr() / PAGE_BYTES,
        word: index,
        expected,
        found,
    }
}

/// The page may turn to zeros at any time, but must never turn back.
fn check_lazily_freed(page: *const u64, (tag, version): (u64, u32)) -> Checked {
    let mut gone = false;
    for index in 0..PAGE_WORDS {
        // SAFETY: the word is inside a mapped page of this thread.
        let found = unsafe { page.add(index).read_volatile() };
        let old = word(tag, version, index);
        gone |= found == 0;
        if found != if gone { 0 } else { old } {
            return Err(wrong(
                page,
                index,
                old,
                found,
                "freed page: neither old nor zero",
            ));
        }
    }
    Ok(())
}

/// After one write the page stays: from then on the rest is all old or all zeros.
fn check_after_one_write(page: *mut u64, (tag, version): (u64, u32)) -> Checked {
    const MARK: u64 = 0x5eed_f00d_5eed_f00d;
    // SAFETY: the word is inside a mapped page of this thread.
    unsafe { page.add(FIRST_WORD).write_volatile(MARK) };
    // SAFETY: as above.
    let gone = unsafe { page.read_volatile() } == 0;
    for index in 0..PAGE_WORDS {
        // SAFETY: as above.
        let found = unsafe { page.add(index).read_volatile() };
        let expected = match index {
            FIRST_WORD => MARK,
            _ if gone => 0,
            _ => word(tag, version, index),
        };
        if found != expected {
            return Err(wrong(
                page,
                index,
                expected,
                found,
                "freed page after one write",
            ));
        }
    }
    Ok(())
}
