//! Where the addresses of programs end on this machine.
//!
//! Unsafe is needed here because a mapping is made by address.

use std::sync::OnceLock;

use crate::machine::ADDRESSES_ENDS;
use crate::memory::pagemap::PAGE_BYTES;

/// End of the addresses that every program can have. One may have asked for more, where the processor has more.
pub fn end() -> u64 {
    static KNOWN: OnceLock<u64> = OnceLock::new();
    *KNOWN.get_or_init(|| end_among(ADDRESSES_ENDS, is_address))
}

/// The first of these ends below which there is an address. The last one is not tried.
fn end_among(ends: &[u64], is_address: impl Fn(u64) -> bool) -> u64 {
    let (last, others) = ends.split_last().unwrap_or((&0, &[]));
    let found = others.iter().find(|end| is_address(*end - PAGE_BYTES));
    *found.unwrap_or(last)
}

/// Can there be memory at this address? Tried with a page that nobody can use.
fn is_address(address: u64) -> bool {
    let page = usize::try_from(PAGE_BYTES).unwrap_or(0);
    let Ok(address) = usize::try_from(address) else {
        return false;
    };
    let place = core::ptr::without_provenance_mut(address);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: with MAP_FIXED_NOREPLACE nothing is mapped where something is, and what is mapped nobody knows of.
    unsafe {
        let flags = flags | libc::MAP_FIXED_NOREPLACE;
        let mapped = libc::mmap(place, page, libc::PROT_NONE, flags, -1, 0);
        if mapped == libc::MAP_FAILED {
            return std::io::Error::last_os_error().raw_os_error() == Some(libc::EEXIST);
        }
        libc::munmap(mapped, page);
        mapped == place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_lies_below_the_end() {
        let local = 0_u8;
        let own = (&raw const local).addr() as u64;
        assert!((own..u64::MAX).contains(&end()));
        assert!(ADDRESSES_ENDS.contains(&end()));
        assert!(is_address(own / PAGE_BYTES * PAGE_BYTES), "it is taken");
        assert!(!is_address(1 << 62));
    }

    #[test]
    fn the_highest_end_that_the_kernel_knows_is_taken() {
        let end =
            |bits: u32| end_among(&[1 << 48, 1 << 42, 1 << 39], |address| address >> bits == 0);
        assert_eq!(
            [48, 42, 39, 36].map(end),
            [1 << 48, 1 << 42, 1 << 39, 1 << 39]
        );
        assert_eq!(end_among(&[7], |_| panic!("there is no other")), 7);
    }
}
