//! The code and constants of this process: taking them out of memory until they are used again.
//!
//! They lie in the page cache, and the kernel maps 16 pages of it around each one that is touched. So after its start a
//! process has most of its code mapped, what is never used again as well, and all of it is counted as the process's.
//! Unmapped, what is in use comes back with a minor fault for each 64 KiB, and nothing is read from a disk unless the
//! kernel has dropped it from the page cache meanwhile.
//!
//! Unsafe is needed here because the loader's list of segments is told through a C callback, and because mappings are
//! changed by address.

use core::ffi::{c_int, c_void};
use core::ptr::without_provenance_mut;

use rustix::mm::Advice;

use super::pagemap::PAGE_BYTES;

/// Takes the code and constants of this process and of its libraries out of memory. Nobody notices but by the time that
/// the next use takes, some microseconds for each 64 KiB.
pub fn unmap() {
    // SAFETY: the callback is one, and takes no data.
    unsafe { libc::dl_iterate_phdr(Some(unmap_object), core::ptr::null_mut()) };
}

/// Unmaps what nobody can have written of one program or library.
unsafe extern "C" fn unmap_object(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    _data: *mut c_void,
) -> c_int {
    // SAFETY: the loader passes a valid description, whose headers live as long as the object is loaded.
    let (base, headers) = unsafe {
        let info = &*info;
        let count = usize::from(info.dlpi_phnum);
        let headers = match info.dlpi_phdr.is_null() {
            true => &[],
            false => core::slice::from_raw_parts(info.dlpi_phdr, count),
        };
        (info.dlpi_addr, headers)
    };
    // What is relocated lies in writable segments, also where it is protected afterwards.
    let is_constant = |header: &&libc::Elf64_Phdr| {
        header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W == 0
    };
    for header in headers.iter().filter(is_constant) {
        let start = base.wrapping_add(header.p_vaddr) / PAGE_BYTES * PAGE_BYTES;
        let end = base
            .wrapping_add(header.p_vaddr)
            .wrapping_add(header.p_filesz);
        let bytes = (end / PAGE_BYTES * PAGE_BYTES).saturating_sub(start);
        let (Ok(start), Ok(bytes)) = (usize::try_from(start), usize::try_from(bytes)) else {
            continue;
        };
        let place = without_provenance_mut(start);
        // SAFETY: the mapping is of a file or the kernel's vDSO, and never was writable. So the next access finds the
        // same bytes. If the kernel refuses, or there is nothing to do, all stays as it is.
        let _ = unsafe { rustix::mm::madvise(place, bytes, Advice::LinuxDontNeed) };
    }
    0
}

#[cfg(test)]
mod tests {
    use super::super::PAGE;
    use super::super::pagemap::{Pagemap, Word};
    use super::*;

    /// The pages that are looked at.
    const PAGES: usize = 64;
    /// The pages on either side that are not: the kernel maps up to 16 pages around each fault, and other tests use the
    /// constants next to these meanwhile.
    const MARGIN: usize = 32;
    const ALL: usize = MARGIN + PAGES + MARGIN;
    /// Nobody but the test uses these.
    static CONSTANTS: [u8; ALL * PAGE] = {
        let mut bytes = [0; ALL * PAGE];
        let (mut at, mut page) = (0, 1);
        while at < bytes.len() {
            bytes[at] = page;
            (at, page) = (at + PAGE, page + 1);
        }
        bytes
    };

    fn all() -> Vec<u8> {
        let at = |page: usize| std::hint::black_box(&CONSTANTS)[page * PAGE];
        (0..ALL).map(at).collect()
    }

    fn in_memory() -> usize {
        let pagemap = Pagemap::open(std::process::id()).expect("a pagemap");
        let first = &raw const CONSTANTS[MARGIN * PAGE];
        let mut words = [Word(0); PAGES];
        pagemap
            .words(first.addr() as u64 / PAGE_BYTES * PAGE_BYTES, &mut words)
            .expect("words");
        words.iter().filter(|word| word.present()).count()
    }

    #[test]
    fn what_is_unmapped_is_not_in_memory_until_it_is_used() {
        let before = all();
        assert_eq!(in_memory(), PAGES);
        unmap();
        assert_eq!(in_memory(), 0);
        assert_eq!(all(), before);
        assert_eq!(in_memory(), PAGES);
    }
}
