//! The size of this kernel's pages.

/// Bytes of the pages that all of vswap is written for.
const PAGE_BYTES: usize = 4096;

/// This kernel has other pages than vswap is written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "this kernel's pages have {} KiB, and vswap works with pages of 4 KiB alone: boot a kernel that is built for those",
    .bytes / 1024
)]
pub struct OtherPages {
    /// Bytes of a page here.
    pub bytes: usize,
}

/// Refuses a kernel whose pages vswap cannot swap. Whoever starts anything asks this first. x86-64 has no others, and
/// kernels for aarch64 are built for pages of 4, 16 or 64 KiB.
///
/// # Errors
/// [`OtherPages`].
pub fn check_page_size() -> Result<(), OtherPages> {
    check(rustix::param::page_size())
}

fn check(bytes: usize) -> Result<(), OtherPages> {
    match bytes {
        PAGE_BYTES => Ok(()),
        bytes => Err(OtherPages { bytes }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_4_kib_alone_are_taken() {
        assert_eq!(check(4096), Ok(()));
        let words = [16 << 10, 64 << 10].map(|bytes| check(bytes).unwrap_err().to_string());
        assert_eq!(
            words,
            [
                "this kernel's pages have 16 KiB, and vswap works with pages of 4 KiB alone: boot a kernel that is \
                 built for those",
                "this kernel's pages have 64 KiB, and vswap works with pages of 4 KiB alone: boot a kernel that is \
                 built for those"
            ]
        );
        assert_eq!(check_page_size(), check(rustix::param::page_size()));
    }
}
