//! Tables of atomic words that cost memory only where they were written to. For any number of threads.
//!
//! Unsafe is needed here because the table lies in a mapping, which is memory outside of Rust's allocator: that would
//! touch all of it.

use core::ops::Deref;
use core::sync::atomic::AtomicU64;

use super::{HugePages, Mapping, MemoryError, PAGE};

/// A table of words, zero at first.
#[derive(Debug)]
pub struct Words {
    mapping: Mapping,
    count: usize,
}

impl Words {
    /// A table of `count` words.
    ///
    /// # Errors
    /// `Length` for a table without words; `Refused`.
    pub fn new(count: usize) -> Result<Words, MemoryError> {
        let bytes = count
            .checked_mul(size_of::<AtomicU64>())
            .and_then(|bytes| bytes.checked_next_multiple_of(PAGE))
            .ok_or(MemoryError::Length { bytes: usize::MAX })?;
        let mapping = Mapping::anonymous(bytes, HugePages::Never)?;
        Ok(Words { mapping, count })
    }
}

impl Deref for Words {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is page aligned, zeroed, long enough for the words, and lives as long as `self`. It is
        // reached only through this reference to atomics, for which any bytes are valid.
        unsafe {
            core::slice::from_raw_parts(
                self.mapping.pointer().cast::<AtomicU64>().as_ptr(),
                self.count,
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::Ordering;

    #[test]
    fn words_are_zero_and_keep_what_is_stored() {
        let words = Words::new(1000).unwrap();
        assert!(words.len() == 1000 && words[999].load(Ordering::Relaxed) == 0);
        words[999].store(7, Ordering::Relaxed);
        assert_eq!(words[999].load(Ordering::Relaxed), 7);
        assert!(Words::new(0).is_err() && Words::new(usize::MAX).is_err());
    }
}
