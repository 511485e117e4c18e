//! The last call that each listener has handed out, where the guardian finds it when the pager was killed.
//!
//! A call that was taken in and not answered waits for its answer, whatever signal comes, and no poll tells of it. To
//! answer it takes its number. The kernel numbers the calls of a filter one after the other. So the guardian needs only
//! the last number to try those before it. This module keeps it, for each descriptor, in memory that the guardian
//! shares.
//!
//! Unsafe is needed here because memory is mapped and seen as a slice.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags};

/// Descriptors above this have no place. Only the pages of the table that were written take memory.
const DESCRIPTORS: usize = 1 << 16;

static LAST: OnceLock<&'static [AtomicU64]> = OnceLock::new();

/// Makes the table. Call it before the guardian starts: only who is forked afterwards shares it.
///
/// # Errors
/// There is no memory.
pub fn share() -> io::Result<()> {
    let bytes = DESCRIPTORS * size_of::<AtomicU64>();
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at a place of the kernel's choice, which is never unmapped. Zeros are values of AtomicU64.
    let table = unsafe {
        let start =
            rustix::mm::mmap_anonymous(core::ptr::null_mut(), bytes, protection, MapFlags::SHARED)?;
        core::slice::from_raw_parts(start.cast::<AtomicU64>(), DESCRIPTORS)
    };
    // A second guardian of the same process shares the first table as well.
    let _ = LAST.set(table);
    Ok(())
}

/// The listener has handed out this call.
pub(crate) fn note(listener: BorrowedFd<'_>, id: u64) {
    if let Some(last) = place(listener) {
        // Relaxed: read when this process is gone, or by the same thread.
        last.store(id, Ordering::Relaxed);
    }
}

/// The last call that the listener has handed out.
pub(crate) fn last(listener: BorrowedFd<'_>) -> Option<u64> {
    let id = place(listener)?.load(Ordering::Relaxed);
    (id != 0).then_some(id)
}

fn place(listener: BorrowedFd<'_>) -> Option<&'static AtomicU64> {
    LAST.get()?.get(usize::try_from(listener.as_raw_fd()).ok()?)
}
