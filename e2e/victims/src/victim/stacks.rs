//! Deep recursion: frames far up the stack wait untouched until the recursion comes back.

use std::hint::black_box;
use std::time::Duration;

use crate::content::{self, PAGE_BYTES, PAGE_WORDS};
use crate::pages::Pages;
use crate::run::Options;
use crate::wrong::{Checked, Wrong};

/// Recursion on the main thread, whose stack usually has 8 MiB.
const MAIN_DEPTH: usize = 800;
/// Stack bytes per frame, generously: the page, spills and, in unoptimised builds, copies.
const FRAME_BYTES: usize = 3 * PAGE_BYTES;
/// How long the deepest frame waits.
const PAUSE: Duration = Duration::from_millis(5);

pub(crate) fn run(options: &Options) -> Checked {
    let clock = options.clock();
    let mut beside = Pages::filled(options.pages() / 4, options.tag(0))?;
    let mut random = options.random(0, 17);
    loop {
        dive(MAIN_DEPTH, options.tag(1), &mut || {
            std::thread::sleep(PAUSE);
            beside.stir("page beside a deep stack", &mut random, 64)
        })?;
        if options.threads > 1 {
            in_threads(options)?;
        }
        beside.check_all("page beside deep stacks")?;
        if !clock.running() {
            return Ok(());
        }
    }
}

fn in_threads(options: &Options) -> Checked {
    let stack_bytes = (options.megabytes << 20) / 2 / options.threads;
    let stack_bytes = stack_bytes.max(1 << 20);
    let depth = stack_bytes / 2 / FRAME_BYTES * 2 - 16;
    std::thread::scope(|scope| {
        let mut handles = Vec::new();
        for thread in 0..options.threads {
            // Frames are counted generously, and the stack has twice that room.
            let builder = std::thread::Builder::new().stack_size(stack_bytes * 2);
            let dive = move || {
                dive(depth, options.tag(thread), &mut || {
                    std::thread::sleep(PAUSE);
                    Ok(())
                })
            };
            handles.push(
                builder
                    .spawn_scoped(scope, dive)
                    .map_err(|error| Wrong::Call {
                        what: "pthread_create",
                        error,
                    })?,
            );
        }
        let mut result = Ok(());
        for handle in handles {
            result = result.and(handle.join().unwrap_or(Ok(())));
        }
        result
    })
}

/// Fills a page on the stack, goes deeper, and checks the page on the way back.
#[inline(never)]
fn dive(depth: usize, tag: u64, bottom: &mut dyn FnMut() -> Checked) -> Checked {
    let mut frame = [0u64; PAGE_WORDS];
    let page = black_box(&mut frame).as_mut_ptr();
    // SAFETY: the page belongs to this frame.
    unsafe { content::fill(page, tag ^ depth as u64, 1) };
    if depth == 0 {
        content::strike(page);
        bottom()?;
    } else {
        dive(depth - 1, tag, bottom)?;
    }
    // SAFETY: as above.
    unsafe { content::check("frame of a deep stack", page, tag ^ depth as u64, 1) }
}
