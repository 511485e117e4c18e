//! Thousands of threads that come and go. Their stacks are used again. Joining must not hang, though the word that the
//! kernel clears at a thread's end may be swapped out.

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::content::{self, PAGE_BYTES, PAGE_WORDS};
use crate::pages::Pages;
use crate::run::Options;
use crate::wrong::{Checked, Wrong};

/// Pages of content on the stack of each thread.
const FRAME_PAGES: usize = 16;
/// Threads that exist at the same time, in addition to the option's number.
const WAVE: usize = 4;
const STACK_BYTES: usize = 64 * PAGE_BYTES;

pub(crate) fn run(options: &Options) -> Checked {
    let clock = options.clock();
    let mut pages = Pages::filled(options.pages() * 3 / 4, options.tag(0))?;
    let mut random = options.random(0, 18);
    let mut created = 0;
    loop {
        for _ in 0..8 {
            created += wave(options.threads + WAVE, options.tag(created))?;
            pages.stir("page beside threads", &mut random, 64)?;
        }
        if !clock.running() {
            break;
        }
    }
    println!("{created} threads");
    pages.check_all("page beside threads")
}

/// Creates threads. Half of them are joined and half are detached.
fn wave(threads: usize, tag: u64) -> Checked<usize> {
    let ended = std::sync::Arc::new(AtomicUsize::new(0));
    let mut joinable = Vec::new();
    let mut detached = 0;
    for thread in 0..threads {
        let ended = ended.clone();
        let builder = std::thread::Builder::new().stack_size(STACK_BYTES);
        let handle = builder
            .spawn(move || {
                let result = work(tag ^ thread as u64);
                if let Err(wrong) = &result {
                    crate::run::complain(wrong);
                }
                // Release pairs with the Acquire of the code that waits for detached threads.
                ended.fetch_add(usize::from(result.is_ok()), Ordering::Release);
                result.map(|()| Box::new(tag))
            })
            .map_err(|error| Wrong::Call {
                what: "pthread_create",
                error,
            })?;
        if thread % 2 == 0 {
            joinable.push(handle);
        } else {
            detached += 1;
        }
    }
    let joined = joinable.len();
    for handle in joinable {
        match handle.join() {
            Ok(Ok(result)) if *result == tag => {}
            Ok(Ok(_)) => {
                return Err(Wrong::Result {
                    what: "result of a thread",
                    expected: 1,
                    found: 0,
                });
            }
            Ok(Err(wrong)) => return Err(wrong),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
    while ended.load(Ordering::Acquire) < joined + detached {
        std::thread::yield_now();
    }
    Ok(threads)
}

#[inline(never)]
fn work(tag: u64) -> Checked {
    let mut frame = [[0u64; PAGE_WORDS]; FRAME_PAGES];
    let frame = black_box(&mut frame);
    for (index, page) in frame.iter_mut().enumerate() {
        // SAFETY: the page belongs to this frame.
        unsafe { content::fill(page.as_mut_ptr(), tag ^ index as u64, 1) };
    }
    std::thread::yield_now();
    for (index, page) in frame.iter().enumerate() {
        let what = "stack of a short-lived thread";
        // SAFETY: as above.
        unsafe { content::check(what, page.as_ptr(), tag ^ index as u64, 1)? };
    }
    Ok(())
}
