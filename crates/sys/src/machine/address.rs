//! Addresses as programs pass them to system calls.

use super::this::IGNORED_BITS;

/// An address of memory that is there, as the kernel takes it out of an argument: of madvise, process_madvise and
/// munmap, mremap's old address, and words that it reads or writes.
///
/// Not for addresses where mmap, brk and mremap are to make memory, nor for ranges of a userfaultfd: those may have no
/// tag, and the kernel fails a call where one has.
pub const fn untagged(address: u64) -> u64 {
    const HIGHEST_OF_USER: u64 = 1 << 55;
    // As the kernel does it: what would be an address of its own stays as it is, and is refused.
    if address & HIGHEST_OF_USER == 0 {
        address & !IGNORED_BITS
    } else {
        address
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_taken_off_addresses_of_programs() {
        for address in [0, 0x1000, 0x7fff_ffff_f000, 0x80_0000_0000_0000] {
            assert_eq!(untagged(address), address);
        }
        let tagged = 0xb4 << 56 | 0x1000;
        let expected = if cfg!(target_arch = "aarch64") {
            0x1000
        } else {
            tagged
        };
        assert_eq!(untagged(tagged), expected);
        assert_eq!(untagged(u64::MAX - 0xfff), u64::MAX - 0xfff);
    }
}
