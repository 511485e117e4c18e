//! Aside: how pages leave memory that the program may not write.
//!
//! UFFDIO_MOVE takes pages only from writable memory; mremap with MREMAP_DONTUNMAP takes them from any. In one step,
//! under the kernel's lock of the address space, mremap moves the page table entries to another place. The old mapping
//! stays, empty and still watched. So no content is copied while the program could change it, nothing is discarded, and
//! the program's protection is never touched. The new place is the agent's. There the pages get an ordinary protection,
//! and UFFDIO_MOVE takes them on to staging B. In that last step the kernel refuses pages that are pinned for I/O or
//! shared since a fork.
//!
//! mremap does not check whether its source is still the mapping that the pager knows. The pager's `evict/aside.rs`
//! says what that means and what is done about it.
//!
//! Runs on the agent's thread, one command at a time. Must not allocate, panic, or touch the program's memory. Unsafe
//! is needed here because the agent has no wrapper for these system calls, which change mappings.

use core::sync::atomic::Ordering;

use crate::abi::remap;
use crate::base::kernel::{
    EAGAIN, EBUSY, EEXIST, EINVAL, Errno, MADV_DONTNEED_LOCKED, MADV_POPULATE_WRITE, MARK,
    PAGE_BYTES, PROT_READ_WRITE, advise, call,
};
use crate::base::uffd::{self, MOVE_DONTWAKE};
use crate::ring::{ASIDE_PAGES, Ring};
use crate::session::Session;
use crate::state::reservation::{ASIDE_BYTES, Reservation};

const MREMAP_MAYMOVE: usize = remap::MAYMOVE as usize;
const MREMAP_FIXED: usize = remap::FIXED as usize;
const MREMAP_DONTUNMAP: usize = remap::DONTUNMAP as usize;
/// Tries for one page: made exclusive, unlocked, and once more.
const PAGE_TRIES: u32 = 4;

/// Takes pages out of the program to aside.
pub fn take(session: &Session, address: usize, pages: usize) -> Result<usize, Errno> {
    let bytes = bytes_of(pages)?;
    let target = session.reservation.aside();
    // A mremap that failed may have left a hole. The program may have mapped something there since.
    if !uffd::is_watched(session.staging, target, ASIDE_BYTES) {
        session.reservation.reserve_aside(session.staging, false)?;
    }
    empty_staging(session.reservation)?;
    // The check comes last, so that nearly nothing lies between it and the mremap.
    if uffd::events_pending(session.main) {
        return Err(EAGAIN);
    }
    let flags = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
    // SAFETY: the target is the agent's own and holds nothing. The pager wants the source moved, and answers the faults
    // there.
    unsafe { call(call::MREMAP, [address, bytes, bytes, flags, target, MARK]) }.map(|_| 0)
}

/// Moves the pages from aside to staging B.
pub fn to_staging(session: &Session, ring: &Ring, pages: usize) -> Result<usize, Errno> {
    let bytes = bytes_of(pages)?;
    let aside = session.reservation.aside();
    uffd::unregister(session.main, aside, bytes);
    make_ordinary(aside, bytes)?;
    for errno in ring.page_errno.iter().take(pages) {
        errno.store(0, Ordering::Relaxed);
    }
    let mut window = Pages {
        session,
        ring,
        pages,
        index: 0,
    };
    while window.index < pages {
        window.move_some();
    }
    Ok(0)
}

/// Discards the pages that are still aside.
pub fn end(session: &Session) -> Result<usize, Errno> {
    // Replacing a mapping that the main userfaultfd still watches would raise an event.
    uffd::unregister(session.main, session.reservation.aside(), ASIDE_BYTES);
    let reserved = session.reservation.reserve_aside(session.staging, true);
    empty_staging(session.reservation)?;
    reserved.map(|()| 0)
}

fn bytes_of(pages: usize) -> Result<usize, Errno> {
    if pages == 0 || pages > ASIDE_PAGES {
        return Err(EINVAL);
    }
    Ok(pages.wrapping_mul(PAGE_BYTES))
}

/// Gives memory of the agent's the protection and the protection key of staging.
fn make_ordinary(address: usize, bytes: usize) -> Result<(), Errno> {
    // SAFETY: the memory is the agent's own, and nobody reads or writes it where it is.
    unsafe {
        call(
            call::PKEY_MPROTECT,
            [address, bytes, PROT_READ_WRITE, 0, 0, 0],
        )
        // For processors without keys.
        .or_else(|_| call(call::MPROTECT, [address, bytes, PROT_READ_WRITE, 0, 0, 0]))
        .map(|_| ())
    }
}

/// Empties the beginning of staging B. That raises no event, because its userfaultfd has none.
fn empty_staging(reservation: Reservation) -> Result<(), Errno> {
    // SAFETY: the pager has no more use for what lies there.
    unsafe { advise(reservation.freeing(), ASIDE_BYTES, MADV_DONTNEED_LOCKED) }
}

/// The pages on their way from aside to staging B, each to the same offset.
struct Pages<'a> {
    session: &'a Session,
    ring: &'a Ring,
    pages: usize,
    index: usize,
}

impl Pages<'_> {
    /// Moves or skips one page or more.
    fn move_some(&mut self) {
        let left = self.pages.wrapping_sub(self.index);
        let (moved, mut refused) = self.move_pages(left);
        self.index = self.index.wrapping_add(moved);
        if moved > 0 {
            // The next turn learns why it was not all.
            return;
        }
        for _ in 0..PAGE_TRIES {
            match refused {
                Some(errno) if self.help(errno) => refused = self.move_pages(1).1,
                _ => break,
            }
        }
        // The page has moved, is a hole, or is pinned. The pager looks where it is.
        self.index = self.index.wrapping_add(1);
    }

    /// Returns how many pages moved, from `index` on, and why not more.
    fn move_pages(&self, pages: usize) -> (usize, Option<Errno>) {
        let offset = self.index.wrapping_mul(PAGE_BYTES);
        let bytes = pages.wrapping_mul(PAGE_BYTES);
        let reservation = self.session.reservation;
        let target = reservation.freeing().wrapping_add(offset);
        let source = reservation.aside().wrapping_add(offset);
        // SAFETY: the target is staging, and the pager wants the pages there.
        let (done, refused) =
            unsafe { uffd::move_pages(self.session.staging, target, source, bytes, MOVE_DONTWAKE) };
        (done / PAGE_BYTES, refused)
    }

    /// Removes what was in the way of the page. False if nothing can be done.
    fn help(&self, errno: Errno) -> bool {
        let offset = self.index.wrapping_mul(PAGE_BYTES);
        let reservation = self.session.reservation;
        match errno {
            // Shared since a fork: a write makes a copy for this process. A pinned page stays busy.
            EBUSY => {
                if let Some(shared) = self.ring.page_errno.get(self.index) {
                    shared.store(EBUSY, Ordering::Relaxed);
                }
                let source = reservation.aside().wrapping_add(offset);
                // SAFETY: the advice changes no content, and the page is there.
                unsafe { advise(source, PAGE_BYTES, MADV_POPULATE_WRITE) }.is_ok()
            }
            // The program has locked all its memory meanwhile, or unlocked it.
            EINVAL => {
                reservation.unlock_aside();
                true
            }
            // Either locking has put a page of zeros there. Or it is the page itself: the kernel has moved it and does
            // not admit it (rule P8).
            EEXIST if self.is_aside() => {
                let target = reservation.freeing().wrapping_add(offset);
                // SAFETY: what lies there is not the program's page, for that one is still aside.
                unsafe { advise(target, PAGE_BYTES, MADV_DONTNEED_LOCKED) }.is_ok()
            }
            _ => false,
        }
    }

    /// Is the page still aside?
    fn is_aside(&self) -> bool {
        let offset = self.index.wrapping_mul(PAGE_BYTES);
        let page = self.session.reservation.aside().wrapping_add(offset);
        let mut resident = 0_u8;
        let arguments = [page, PAGE_BYTES, (&raw mut resident).addr(), 0, 0, 0];
        // SAFETY: the kernel writes one byte to `resident`.
        let asked = unsafe { call(call::MINCORE, arguments) };
        asked.is_ok() && resident & 1 != 0
    }
}
