//! Memory of an honest program at a place that liars know, with content that they must never get.
//!
//! Unsafe is needed here because it is mapped and written by address.

use rustix::mm::{MapFlags, ProtFlags};

/// Where it lies, above all arenas of liars.
pub(crate) const START: u64 = 0x1800_0000_0000;
/// As much as staging, for which it is to be taken.
pub(crate) const BYTES: u64 = 4 << 20;
/// Each word of it.
pub(crate) const WORD: u64 = 0x5ec2_e7ab_1de5_0bad;
/// Name of the file that tells of it, beside the list of lies.
pub(crate) const STOLEN: &str = "stolen";

/// Maps and fills it. False if there is no memory.
pub(crate) fn keep() -> bool {
    let place = core::ptr::without_provenance_mut(START as usize);
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
    // SAFETY: the kernel replaces nothing.
    let mapped = unsafe { rustix::mm::mmap_anonymous(place, BYTES as usize, protection, flags) };
    let Ok(base) = mapped else { return false };
    let words = base.cast::<u64>();
    for index in 0..BYTES as usize / size_of::<u64>() {
        // SAFETY: the word lies in the mapping, which nobody else knows.
        unsafe { words.add(index).write(WORD) };
    }
    true
}
