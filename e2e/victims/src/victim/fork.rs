//! Parents and children that each keep and change their own copy of the same pages.
//!
//! Every thread has its own pages and forks by itself. So with several threads, forks happen at the same time. A child
//! runs only on the forking thread's copy.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::content::{self, PAGE_WORDS, Random};
use crate::pages::{Mapping, Pages};
use crate::run::{Child, Clock, Options};
use crate::wrong::{Checked, Wrong};

/// Sharers of the same pages: more than a count of four bits can hold.
const SHARERS: usize = 20;
/// Generations of nested forks.
const GENERATIONS: usize = 3;
/// Children that live on while their parent goes through rounds.
const LINGERING: usize = 3;
/// Pages that are checked and rewritten at a time.
const STIR_PAGES: usize = 64;

pub(crate) fn run(options: &Options) -> Checked {
    let clock = options.clock_of_part(2);
    options.parallel(|thread| {
        let pages = options.pages_per_thread() * 3 / 4;
        let mut pages = Pages::filled(pages, options.tag(thread))?;
        let mut random = options.random(thread, 2);
        loop {
            nested(&mut pages, &mut random, GENERATIONS)?;
            sharers(&mut pages, &mut random)?;
            lingering(&mut pages, &mut random, clock)?;
            pages.check_all("parent after its children")?;
            if !clock.running() {
                return Ok(());
            }
        }
    })?;
    while_writing(options)
}

/// Child and parent both change pages. The child forks again meanwhile.
fn nested(pages: &mut Pages, random: &mut Random, generations: usize) -> Checked {
    if generations == 0 {
        return Ok(());
    }
    let child = Child::fork(|| {
        pages.stir("child", random, STIR_PAGES)?;
        nested(pages, random, generations - 1)?;
        pages.stir("child after its child", random, STIR_PAGES)?;
        pages.check_all("child")
    })?;
    // The parent's random numbers go on like the child's. So both change the same pages first, and then others.
    pages.stir("parent", random, STIR_PAGES / 2)?;
    random.next();
    pages.stir("parent", random, STIR_PAGES)?;
    child.wait()?;
    pages.stir("parent after a child", random, STIR_PAGES)
}

/// Many children that hold the same pages at the same time.
fn sharers(pages: &mut Pages, random: &mut Random) -> Checked {
    let barrier = Mapping::with(1, libc::MAP_SHARED)?;
    // SAFETY: the word is inside the mapping, aligned, and only used atomically.
    let arrived = unsafe { AtomicU32::from_ptr(barrier.page(0).cast()) };
    let mut children = Vec::new();
    for sharer in 0..SHARERS {
        children.push(Child::fork(|| {
            // All children wait for each other, so that every page has all sharers at the same time.
            arrived.fetch_add(1, Ordering::Relaxed);
            while usize::try_from(arrived.load(Ordering::Relaxed)).is_ok_and(|n| n < SHARERS) {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            let mut random = Random::new(random.next() ^ (sharer as u64) << 50);
            pages.stir("sharer", &mut random, STIR_PAGES)?;
            for index in (sharer..pages.len()).step_by(SHARERS) {
                pages.check("sharer", index)?;
            }
            Ok(())
        })?);
    }
    pages.stir("parent of sharers", random, STIR_PAGES)?;
    children.into_iter().try_for_each(Child::wait)
}

/// Children that go on while their parent changes pages and forks again.
fn lingering(pages: &mut Pages, random: &mut Random, clock: Clock) -> Checked {
    let stop = Mapping::with(1, libc::MAP_SHARED)?;
    // SAFETY: the word is inside the mapping, aligned, and only used atomically.
    let stop = unsafe { AtomicU32::from_ptr(stop.page(0).cast()) };
    let mut children = Vec::new();
    let mut result = Ok(());
    for _ in 0..LINGERING {
        children.push(Child::fork(|| {
            while stop.load(Ordering::Relaxed) == 0 && clock.running() {
                pages.stir("child that lives on", random, STIR_PAGES / 4)?;
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            pages.check_all("child that lived on")
        })?);
        for _ in 0..8 {
            result = result.and_then(|()| pages.stir("parent beside", random, STIR_PAGES));
        }
    }
    stop.store(1, Ordering::Relaxed);
    children.into_iter().try_for_each(Child::wait).and(result)
}

/// Forks while other threads write. Each page of the child must be of one version, unless its sequence word says that
/// it was being written, and must not be older than at the fork.
fn while_writing(options: &Options) -> Checked {
    let clock = options.clock_of_part(2);
    let writers = options.threads.clamp(1, 4);
    let board = Mapping::new((options.pages() / 4).max(writers))?;
    let board = &board;
    let done = &AtomicU32::new(0);
    std::thread::scope(|scope| {
        let handles: Vec<_> = (0..writers)
            .map(|writer| {
                scope.spawn(move || {
                    let mut random = options.random(writer, 5);
                    while done.load(Ordering::Relaxed) == 0 {
                        let slot = random.index(board.pages() / writers);
                        write_page(board, slot * writers + writer);
                    }
                })
            })
            .collect();
        let mut result = Ok(());
        while result.is_ok() && clock.running() {
            result = fork_beside_writers(board, writers);
        }
        done.store(1, Ordering::Relaxed);
        for handle in handles {
            let _ = handle.join();
        }
        result
    })
}

fn cell(board: &Mapping, page: usize, index: usize) -> &AtomicU64 {
    assert!(index < PAGE_WORDS);
    // SAFETY: the word is inside the mapping, aligned, and only used atomically.
    unsafe { AtomicU64::from_ptr(board.page(page).add(index)) }
}

/// Writes the next version of a page that belongs to the calling thread.
fn write_page(board: &Mapping, page: usize) {
    let sequence = cell(board, page, 0).load(Ordering::Relaxed);
    let version = u32::try_from(sequence / 2 + 1).unwrap_or(u32::MAX);
    // The odd value must be seen before any new word. That needs Release on the words that follow. The last store must
    // be seen after all of them.
    cell(board, page, 0).store(sequence | 1, Ordering::SeqCst);
    for index in 1..PAGE_WORDS {
        let word = content::word(page as u64, version, index);
        cell(board, page, index).store(word, Ordering::Release);
    }
    cell(board, page, 0).store(sequence + 2, Ordering::Release);
}

fn fork_beside_writers(board: &Mapping, writers: usize) -> Checked {
    let before: Vec<u64> = (0..board.pages())
        .map(|page| cell(board, page, 0).load(Ordering::Acquire) & !1)
        .collect();
    let child = Child::fork(|| {
        let mut torn = 0;
        for (page, &before) in before.iter().enumerate() {
            let sequence = cell(board, page, 0).load(Ordering::Acquire);
            if sequence < before {
                let what = "sequence of a page in the child is older than the fork";
                let signed = |n| i64::try_from(n).unwrap_or(i64::MAX);
                return Err(Wrong::Result {
                    what,
                    expected: signed(before),
                    found: signed(sequence),
                });
            }
            if sequence & 1 == 1 {
                torn += 1;
                continue;
            }
            let version = u32::try_from(sequence / 2).unwrap_or(u32::MAX);
            for word in 1..PAGE_WORDS {
                let expected = content::word(page as u64, version, word);
                let found = cell(board, page, word).load(Ordering::Relaxed);
                if found != expected {
                    let address = cell(board, page, word).as_ptr().addr();
                    let what = "page of a child forked beside writers";
                    return Err(Wrong::Content {
                        what,
                        address,
                        page,
                        word,
                        expected,
                        found,
                    });
                }
            }
        }
        if torn <= writers {
            return Ok(());
        }
        let signed = |n| i64::try_from(n).unwrap_or(i64::MAX);
        let what = "half-written pages in a child, at most one per writer";
        Err(Wrong::Result {
            what,
            expected: signed(writers),
            found: signed(torn),
        })
    })?;
    child.wait()
}
