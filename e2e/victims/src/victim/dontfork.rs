//! `madvise(MADV_DONTFORK)`: a child does not have that memory, and what it maps there belongs to it alone.

use crate::content::{PAGE_BYTES, Random};
use crate::pages::Pages;
use crate::run::{Child, Options};
use crate::wrong::{Checked, Wrong, call};

/// Pages that are checked and rewritten at a time.
const STIR_PAGES: usize = 64;
/// Rounds of a child. Between them its pages leave and come back.
const ROUNDS: usize = 12;

pub(crate) fn run(options: &Options) -> Checked {
    let clock = options.clock();
    options.parallel(|thread| {
        let mut random = options.random(thread, 33);
        let part = options.pages_per_thread() / 4;
        let mut own = Pages::filled(part, options.tag(thread))?;
        let mut shared = Pages::filled(part, options.tag(thread) ^ 1)?;
        // Some of it lies in the middle, so that only a part of a mapping is not inherited.
        advise(&own, 0, part, libc::MADV_DONTFORK)?;
        advise(&shared, part / 4, part / 4, libc::MADV_DONTFORK)?;
        while clock.running() {
            let seed = random.next();
            let child = Child::fork(|| in_the_place_of(&own, &shared, seed))?;
            own.stir("page of the parent", &mut random, STIR_PAGES)?;
            shared.stir("page of the parent", &mut random, STIR_PAGES)?;
            child.wait()?;
            own.check_all("page that no child has")?;
            shared.check_all("page of the parent")?;
        }
        Ok(())
    })
}

fn advise(pages: &Pages, first: usize, count: usize, advice: i32) -> Checked {
    let start = pages.mapping.page(first).cast();
    // SAFETY: the advice changes nothing in this process.
    let result = unsafe { libc::madvise(start, count * PAGE_BYTES, advice) };
    call("madvise(DONTFORK)", result).map(drop)
}

/// The child has neither of the ranges. It maps small pieces there in several ways and uses them.
fn in_the_place_of(own: &Pages, shared: &Pages, seed: u64) -> Checked {
    let mut random = Random::new(seed);
    let part = shared.len();
    let inherited = (0..part / 4).chain(part / 2..part);
    for index in inherited.clone() {
        shared.check("inherited page", index)?;
    }
    let start = own.mapping.page(0);
    let pieces = place_pieces(start, own.len())?;
    let mut versions: Vec<u64> = vec![0; pieces.len()];
    for _ in 0..ROUNDS {
        for (piece, version) in pieces.iter().zip(&mut versions) {
            let word = piece.cast::<u64>();
            // SAFETY: the piece is mapped and belongs to this child.
            let found = unsafe { word.read_volatile() };
            if found != *version {
                return Err(Wrong::Content {
                    what: "page in the place of one that was not inherited",
                    address: piece.addr(),
                    page: piece.addr() / PAGE_BYTES,
                    word: 0,
                    expected: *version,
                    found,
                });
            }
            *version = random.next();
            // SAFETY: as above.
            unsafe { word.write_volatile(*version) };
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    for index in inherited {
        shared.check("inherited page", index)?;
    }
    Ok(())
}

/// Maps every second page of the range as a single page, with and without the flag that lets it replace something.
fn place_pieces(start: *mut u64, pages: usize) -> Checked<Vec<*mut u8>> {
    let mut pieces = Vec::new();
    for index in (0..pages).step_by(2) {
        let at = start.cast::<u8>().wrapping_add(index * PAGE_BYTES);
        let how = if index % 4 == 0 {
            libc::MAP_FIXED
        } else {
            libc::MAP_FIXED_NOREPLACE
        };
        let (protection, private) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        // SAFETY: nothing is mapped there in the child, because its parent has said that the range is not inherited.
        let piece = unsafe { libc::mmap(at.cast(), PAGE_BYTES, protection, private | how, -1, 0) };
        if piece == libc::MAP_FAILED {
            return Err(Wrong::last("mmap in the place of what is not inherited"));
        }
        pieces.push(piece.cast());
    }
    Ok(pieces)
}
