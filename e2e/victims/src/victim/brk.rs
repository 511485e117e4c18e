//! The end of the heap is moved up and down by `sbrk`. What comes back after a shrink reads as zeros. Now and then all
//! memory is locked meanwhile, so that the kernel fills what the heap gains.
//!
//! The allocator uses the same break. So nothing is allocated between the moves, everything runs on one thread, and
//! each move checks that the break is where the victim left it.

use crate::content::PAGE_BYTES;
use crate::heap::Heap;
use crate::pages::Pages;
use crate::run::Options;
use crate::wrong::{Checked, Wrong, call, same};

pub(crate) fn run(options: &Options) -> Checked {
    let clock = options.clock();
    let mut beside = Pages::filled(options.pages() / 2, options.tag(0))?;
    let mut random = options.random(0, 9);
    let mut heap = above_the_allocator((options.pages() / 2).max(8), options.tag(1))?;
    loop {
        for _ in 0..16 {
            let target = random.index(heap.versions.len());
            let is_locked = random.index(4) == 0;
            if is_locked {
                // SAFETY: locking changes no content.
                let locked = unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) };
                call("mlockall", locked)?;
            }
            resize(&mut heap, target)?;
            if is_locked {
                // SAFETY: unlocking changes no content.
                call("munlockall", unsafe { libc::munlockall() })?;
            }
            heap.stir("heap", &mut random, 32)?;
            beside.stir("page beside the heap", &mut random, 16)?;
        }
        heap.check_all("heap")?;
        if !clock.running() {
            break;
        }
    }
    resize(&mut heap, 0)?;
    beside.check_all("page beside the heap")
}

fn sbrk(bytes: isize) -> Checked<*mut u8> {
    // SAFETY: moving the break up makes memory that belongs to nobody else. Only `resize` moves it down, over its
    // own pages.
    let old = unsafe { libc::sbrk(bytes) };
    if old.addr() == usize::MAX {
        Err(Wrong::last("sbrk"))
    } else {
        Ok(old.cast())
    }
}

/// The part of the heap above the allocator's.
fn above_the_allocator(pages_max: usize, tag: u64) -> Checked<Heap> {
    let end = sbrk(0)?;
    let pad = end.align_offset(PAGE_BYTES);
    sbrk(pad.cast_signed())?;
    Ok(Heap::new(end.wrapping_add(pad).cast(), pages_max, tag))
}

fn resize(heap: &mut Heap, pages: usize) -> Checked {
    let bytes = (pages.cast_signed() - heap.pages.cast_signed()) * PAGE_BYTES.cast_signed();
    let (expected, found) = (heap.end(heap.pages).addr(), sbrk(0)?.addr());
    same("break moved by somebody else", expected, found)?;
    sbrk(bytes)?;
    heap.resized(pages)
}
