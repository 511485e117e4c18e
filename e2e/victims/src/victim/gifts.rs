//! Pages given to a pipe with `vmsplice`, with and without SPLICE_F_GIFT, and written again before the pipe is read.
//!
//! The reader sees a page as it is when it reads, or as it was at an earlier moment since it was given. Pages are
//! written from the first word to the last, so such a page is new up to some word and old from there on. Which one it
//! is depends on whether the page was moved meanwhile: the last line of output counts both.

use std::io::Read;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::content::{self, PAGE_BYTES, PAGE_WORDS, Random};
use crate::run::Options;
use crate::segment::Segment;
use crate::wrong::{Checked, Wrong, call_len};

const SPLICE_F_GIFT: u32 = 8;
/// Pages in the pipe at once, fewer than it holds.
const GIFTS: usize = 8;
/// Longest time in the pipe.
const IN_PIPE_US: usize = 20_000;

/// What readers saw of pages that were written after they had been given.
#[derive(Default)]
struct Seen {
    old: AtomicU64,
    new: AtomicU64,
}

pub(crate) fn run(options: &Options) -> Checked {
    let clock = options.clock();
    let seen = Seen::default();
    options.parallel(|thread| {
        let mut random = options.random(thread, 89);
        let pages = options.pages_per_thread().max(4 * GIFTS);
        let mut memory = Segment::new(pages, &mut random)?;
        loop {
            for _ in 0..8 {
                give(&mut memory, &mut random, &seen)?;
                memory.rewrite_some(&mut random)?;
            }
            memory.check_all("page beside gifts")?;
            if !clock.running() {
                return memory.unmap();
            }
        }
    })?;
    let Seen { old, new } = seen;
    println!(
        "seen as given: {}, as written later: {}",
        old.into_inner(),
        new.into_inner()
    );
    Ok(())
}

fn give(memory: &mut Segment, random: &mut Random, seen: &Seen) -> Checked {
    let failed = |what| move |error| Wrong::Call { what, error };
    let (mut reader, writer) = std::io::pipe().map_err(failed("pipe"))?;
    let first = random.index(memory.pages.len() - GIFTS + 1);
    let flags = [0, SPLICE_F_GIFT][random.index(2)];
    let given = libc::iovec {
        iov_base: memory.page(first).cast(),
        iov_len: GIFTS * PAGE_BYTES,
    };
    // SAFETY: the pages are inside the segment and stay mapped until the pipe has been read.
    let done = unsafe { libc::vmsplice(writer.as_raw_fd(), &raw const given, 1, flags) };
    call_len("vmsplice", done, GIFTS * PAGE_BYTES)?;
    let before = memory.pages[first..first + GIFTS].to_vec();
    std::thread::sleep(Duration::from_micros(random.index(IN_PIPE_US) as u64));
    for index in first..first + GIFTS {
        memory.check("page that was given away", index)?;
        // Not each: what the reader sees of the others is certain.
        if random.index(4) != 0 {
            memory.rewrite(index, random);
        }
    }
    let mut bytes = vec![0_u8; PAGE_BYTES];
    for (index, old) in (first..).zip(before) {
        reader
            .read_exact(&mut bytes)
            .map_err(failed("read of a pipe"))?;
        let (new, found) = (memory.pages[index], words(&bytes));
        let written = (0..PAGE_WORDS)
            .take_while(|&at| found[at] == word(new, at))
            .count();
        if let Some(at) = (written..PAGE_WORDS).find(|&at| found[at] != word(old, at)) {
            return Err(Wrong::Content {
                what: "page of a pipe, which is neither as it was given nor as it was written",
                address: memory.page(index).addr(),
                page: index,
                word: at,
                expected: word(old, at),
                found: found[at],
            });
        }
        let counter = match written {
            // The zero page stays with the reader natively too.
            _ if new == old || old.1 == 0 => continue,
            PAGE_WORDS => &seen.new,
            _ => &seen.old,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

const fn word((tag, version): (u64, u32), index: usize) -> u64 {
    content::word(tag, version, index)
}

fn words(bytes: &[u8]) -> Vec<u64> {
    let (words, _) = bytes.as_chunks();
    words.iter().map(|word| u64::from_ne_bytes(*word)).collect()
}
