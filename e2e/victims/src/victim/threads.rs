//! Threads on their own pages and on pages that they share.
//!
//! A shared page begins with a sequence word: odd while a thread writes the page, else twice the version of its
//! content. A thread that takes the page checks all of it before writing the next version. So the next thread notices a
//! lost or stale page. The second word of the page counts visits by atomic additions, which must add up in the end.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::content::{self, PAGE_WORDS};
use crate::pages::{Mapping, Pages};
use crate::run::Options;
use crate::wrong::{Checked, Wrong};

/// Words at the start of a shared page that are not content: sequence and visits.
const HEAD_WORDS: usize = 2;
/// One page in this many is shared.
const SHARED_SHARE: usize = 4;

pub(crate) fn run(options: &Options) -> Checked {
    let clock = options.clock();
    let shared = Mapping::new(options.pages() / SHARED_SHARE)?;
    let visits = AtomicU64::new(0);
    options.parallel(|thread| {
        let own = options.pages_per_thread() * (SHARED_SHARE - 1) / SHARED_SHARE;
        let mut pages = Pages::filled(own, options.tag(thread))?;
        let mut random = options.random(thread, 1);
        let mut visited = 0;
        loop {
            pages.stir("own page", &mut random, 256)?;
            for _ in 0..256 {
                let index = random.index(shared.pages());
                visited += u64::from(visit(&shared, index, options.seed)?);
            }
            if !clock.running() {
                break;
            }
        }
        visits.fetch_add(visited, Ordering::Relaxed);
        pages.check_all("own page at the end")
    })?;
    check_visits(&shared, visits.into_inner())
}

/// The atomic word `index` of a shared page.
fn atomic(mapping: &Mapping, page: usize, index: usize) -> &AtomicU64 {
    assert!(index < PAGE_WORDS);
    // SAFETY: the word is inside the mapping, aligned, and only used atomically.
    unsafe { AtomicU64::from_ptr(mapping.page(page).add(index)) }
}

/// Takes the page, checks it and writes its next version. False if another thread has it.
fn visit(shared: &Mapping, page: usize, seed: u64) -> Checked<bool> {
    let sequence = atomic(shared, page, 0);
    let even = sequence.load(Ordering::Relaxed) & !1;
    // Acquire pairs with the Release store of the previous writer, so its words are visible.
    if sequence
        .compare_exchange(even, even | 1, Ordering::Acquire, Ordering::Relaxed)
        .is_err()
    {
        return Ok(false);
    }
    let tag = content::mix(seed ^ (page as u64) << 20);
    let version = u32::try_from(even / 2).unwrap_or(u32::MAX);
    for index in HEAD_WORDS..PAGE_WORDS {
        let cell = atomic(shared, page, index);
        let expected = content::word(tag, version, index);
        let found = cell.load(Ordering::Relaxed);
        if found != expected {
            let address = cell.as_ptr().addr();
            let what = "shared page";
            return Err(Wrong::Content {
                what,
                address,
                page,
                word: index,
                expected,
                found,
            });
        }
        cell.store(content::word(tag, version + 1, index), Ordering::Relaxed);
    }
    atomic(shared, page, 1).fetch_add(1, Ordering::Relaxed);
    sequence.store(even + 2, Ordering::Release);
    Ok(true)
}

fn check_visits(shared: &Mapping, visits: u64) -> Checked {
    let mut found = 0;
    for page in 0..shared.pages() {
        found += atomic(shared, page, 1).load(Ordering::Relaxed);
    }
    if found == visits {
        return Ok(());
    }
    let signed = |n| i64::try_from(n).unwrap_or(i64::MAX);
    Err(Wrong::Result {
        what: "visits",
        expected: signed(visits),
        found: signed(found),
    })
}
