//! Guard pages. `MADV_GUARD_INSTALL` discards what was there, whichever call gives it. The first touch of another page
//! must not remove a guard.

use std::time::Duration;

use crate::content::{PAGE_BYTES, Random};
use crate::pages::Pages;
use crate::run::{Child, Options};
use crate::victim::doors::{self, Door};
use crate::victim::mprotect;
use crate::wrong::{Checked, Wrong};

const MADV_GUARD_INSTALL: i32 = 102;
const MADV_GUARD_REMOVE: i32 = 103;
/// Pages that are checked and rewritten at a time.
const STIR_PAGES: usize = 32;
/// Most pages that get a guard in one call.
const GUARDS_MAX: usize = 24;

pub(crate) fn run(options: &Options) -> Checked {
    let clock = options.clock();
    options.parallel(|thread| {
        let mut random = options.random(thread, 35);
        let mut pages = Pages::filled(options.pages_per_thread() / 2, options.tag(thread))?;
        require(&pages)?;
        loop {
            for _ in 0..32 {
                let first = random.index(pages.len());
                let count = 1 + random.index(GUARDS_MAX.min(pages.len() - first));
                let door = Door::ALL[random.index(Door::ALL.len())];
                put_and_take(&mut pages, first, count, door)?;
                pages.stir("page beside guards", &mut random, STIR_PAGES)?;
            }
            a_touch_beside_leaves_guards(&mut random)?;
            pages.check_all("all pages")?;
            if !clock.running() {
                return Ok(());
            }
        }
    })
}

/// Does the kernel know guard pages (Linux 6.13)?
fn require(pages: &Pages) -> Checked {
    // SAFETY: removes guards that do not exist, so it changes nothing.
    let known =
        unsafe { libc::madvise(pages.mapping.page(0).cast(), PAGE_BYTES, MADV_GUARD_REMOVE) };
    if known == 0 {
        return Ok(());
    }
    Err(Wrong::Unavailable {
        what: "MADV_GUARD_INSTALL",
        error: std::io::Error::last_os_error(),
    })
}

/// Content is gone for good once a guard was there.
fn put_and_take(pages: &mut Pages, first: usize, count: usize, door: Door) -> Checked {
    let start = pages.mapping.page(first);
    let bytes = count * PAGE_BYTES;
    doors::advise(door, start.cast(), bytes, MADV_GUARD_INSTALL)?;
    doors::advise(Door::Madvise, start.cast(), bytes, MADV_GUARD_REMOVE)?;
    for index in first..first + count {
        pages.versions[index] = 0;
        pages.check("page that was a guard", index)?;
        if index % 3 != 0 {
            pages.rewrite(index);
        }
    }
    Ok(())
}

/// First, pages around guards are written in order, because then several pages come at a time. Then a child touches a
/// guard and must die of it.
fn a_touch_beside_leaves_guards(random: &mut Random) -> Checked {
    const PAGES: usize = 64;
    let fresh = Pages::new(PAGES, random.next())?;
    let guard = 8 + random.index(PAGES - 8);
    let at = fresh.mapping.page(guard).cast();
    doors::advise(Door::Madvise, at, PAGE_BYTES, MADV_GUARD_INSTALL)?;
    for index in (0..PAGES).filter(|index| *index != guard) {
        // SAFETY: the page is mapped and belongs to this thread.
        unsafe { fresh.mapping.page(index).write_volatile(1) };
    }
    if random.index(2) == 0 {
        // Memory that may not be written leaves in another way, and that way must not take a guard.
        mprotect::protect(fresh.mapping.page(0), PAGES, libc::PROT_READ)?;
        std::thread::sleep(Duration::from_millis(12));
    }
    let child = Child::fork(|| {
        // SAFETY: the signal's default action ends the child, which is the purpose.
        unsafe {
            libc::signal(libc::SIGSEGV, libc::SIG_DFL);
            fresh.mapping.page(guard).read_volatile();
        }
        Ok(())
    })?;
    let status = child.wait_status()?;
    if libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV {
        return Ok(());
    }
    Err(Wrong::Result {
        what: "how a child ends that touches a guard page",
        expected: i64::from(libc::SIGSEGV),
        found: i64::from(status),
    })
}
