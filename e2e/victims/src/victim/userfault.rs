//! A program with its own userfaultfd, which a swapper must leave alone.
//!
//! First comes a range that was never touched and whose pages the program itself serves. The page that it copies from
//! may be swapped. Then comes a range with content, perhaps swapped, which the program registers later. Its pages must
//! still be there, and only holes may reach the program's handler.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::content::{self, PAGE_BYTES};
use crate::pages::{Mapping, Pages};
use crate::run::{Clock, Options};
use crate::uffd::Uffd;
use crate::wrong::{Checked, Wrong, call};

/// Most pages that are dropped in one call.
const DROP_PAGES_MAX: usize = 8;

/// A registered range, and the version that the handler has to serve for each page.
struct Served {
    uffd: Uffd,
    mapping: Mapping,
    versions: Vec<AtomicU32>,
    tag: u64,
}

pub(crate) fn run(options: &Options) -> Checked {
    let clock = options.clock_of_part(2);
    let mapping = Mapping::new(options.pages() / 4)?;
    let versions = (0..mapping.pages()).map(|_| AtomicU32::new(1)).collect();
    let served = Served {
        uffd: Uffd::open()?,
        mapping,
        versions,
        tag: options.tag(99),
    };
    served
        .uffd
        .register(served.mapping.page(0), served.mapping.pages())?;
    let done = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let handler = scope.spawn(|| serve(&served, &done));
        let result = options.parallel(|thread| touch(&served, options, thread, clock));
        done.store(1, Ordering::Relaxed);
        handler.join().unwrap_or(Ok(())).and(result)
    })?;
    served
        .uffd
        .unregister(served.mapping.page(0), served.mapping.pages())?;
    register_later(&served.uffd, options)
}

fn serve(served: &Served, done: &AtomicU32) -> Checked {
    let source = Mapping::new(1)?;
    while done.load(Ordering::Relaxed) == 0 {
        let Some(address) = served.uffd.next_fault()? else {
            continue;
        };
        let page = address.wrapping_sub(served.mapping.page(0).addr()) / PAGE_BYTES;
        let Some(version) = served.versions.get(page) else {
            let found = i64::try_from(page).unwrap_or(i64::MAX);
            return Err(Wrong::Result {
                what: "page of a fault",
                expected: 0,
                found,
            });
        };
        let tag = served.tag ^ page as u64;
        // SAFETY: the source page belongs to this thread.
        unsafe { content::fill(source.page(0), tag, version.load(Ordering::Acquire)) };
        served.uffd.copy(address, source.page(0))?;
    }
    Ok(())
}

/// Reads pages that the handler serves, drops some, and reads their next version.
fn touch(served: &Served, options: &Options, thread: usize, clock: Clock) -> Checked {
    let threads = options.threads.max(1);
    let part = served.mapping.pages() / threads;
    let mut beside = Pages::filled(options.pages_per_thread() / 2, options.tag(thread))?;
    let mut random = options.random(thread, 13);
    let check = |page: usize| {
        let version = served.versions[page].load(Ordering::Relaxed);
        let tag = served.tag ^ page as u64;
        // SAFETY: the page is mapped and in this thread's part, and only its handler fills it.
        unsafe { content::check("served page", served.mapping.page(page), tag, version) }
    };
    while clock.running() {
        for _ in 0..64 {
            let offset = random.index(part);
            let page = thread * part + offset;
            check(page)?;
            if random.index(4) == 0 {
                let count = 1 + random.index(DROP_PAGES_MAX.min(part - offset));
                for dropped in &served.versions[page..page + count] {
                    // Release pairs with the handler's Acquire, though the fault orders them anyway.
                    dropped.fetch_add(1, Ordering::Release);
                }
                let start = served.mapping.page(page).cast();
                // SAFETY: the range is in this thread's part.
                let result =
                    unsafe { libc::madvise(start, count * PAGE_BYTES, libc::MADV_DONTNEED) };
                call("madvise(DONTNEED)", result)?;
            }
        }
        beside.stir("page beside a userfaultfd", &mut random, 64)?;
    }
    (thread * part..(thread + 1) * part).try_for_each(check)
}

/// Registers memory that already has content.
fn register_later(uffd: &Uffd, options: &Options) -> Checked {
    let clock = options.clock_of_part(2);
    let mut random = options.random(0, 14);
    let mut pages = Pages::filled(options.pages() / 2, options.tag(0))?;
    loop {
        pages.stir("page before it is registered", &mut random, 64)?;
        uffd.register(pages.mapping.page(0), pages.len())?;
        // All pages have content, so none of these accesses may reach the userfaultfd.
        pages.stir("page that was registered later", &mut random, 256)?;
        pages.check_all("page that was registered later")?;
        uffd.unregister(pages.mapping.page(0), pages.len())?;
        if !clock.running() {
            return pages.check_all("page after it was unregistered");
        }
    }
}
