//! `madvise(MADV_DONTNEED)` on large ranges: the kernel takes so long for each that pages of it are moved out
//! meanwhile. All that was given back has to read as zeros.
//!
//! Every thread has its own mapping, marks each page, gives all of them back, and checks them.

use crate::content::{self, Random};
use crate::pages::Mapping;
use crate::run::Options;
use crate::wrong::{Checked, call};

pub(crate) fn run(options: &Options) -> Checked {
    let clock = options.clock();
    options.parallel(|thread| {
        let mapping = Mapping::new(options.pages_per_thread())?;
        let mut random = options.random(thread, 20);
        loop {
            mark(&mapping, &mut random);
            discard(&mapping)?;
            content::strike(mapping.page(mapping.pages() / 2));
            must_be_zero(&mapping)?;
            if !clock.running() {
                return Ok(());
            }
        }
    })
}

/// Writes one word of every page, which makes the page present.
fn mark(mapping: &Mapping, random: &mut Random) {
    for page in 0..mapping.pages() {
        // SAFETY: the page is mapped and writable, and belongs to this thread.
        unsafe { mapping.page(page).write_volatile(random.next() | 1) };
    }
}

fn discard(mapping: &Mapping) -> Checked {
    let bytes = mapping.pages() * content::PAGE_BYTES;
    // SAFETY: the mapping belongs to this thread.
    let result = unsafe { libc::madvise(mapping.page(0).cast(), bytes, libc::MADV_DONTNEED) };
    call("madvise(DONTNEED)", result).map(drop)
}

fn must_be_zero(mapping: &Mapping) -> Checked {
    for page in 0..mapping.pages() {
        // SAFETY: the page is mapped, and belongs to this thread.
        unsafe { content::check("page of a range given back", mapping.page(page), 0, 0)? };
    }
    Ok(())
}
