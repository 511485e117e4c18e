//! A value in pages of its own that nothing writes down: no core dump, and no swap of the kernel's if so much memory
//! may be locked. For keys, which wipe themselves when they are dropped. For any number of threads, as the value is.
//!
//! Unsafe is needed here because the value lies in a mapping, which is memory outside of Rust's allocator.

use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;

use super::{HugePages, Mapping, MemoryError, PAGE};

/// Owns a value in pages of its own.
#[derive(Debug)]
pub struct Secret<T> {
    mapping: Mapping,
    value: PhantomData<T>,
}

impl<T> Secret<T> {
    /// Moves a value there. What the compiler leaves of it on the stack is the caller's.
    ///
    /// # Errors
    /// `Length` for a value without bytes; `Refused`.
    pub fn new(value: T) -> Result<Secret<T>, MemoryError> {
        const { assert!(align_of::<T>() <= PAGE) };
        let mapping = Mapping::anonymous(size_of::<T>().next_multiple_of(PAGE), HugePages::Never)?;
        mapping.keep_out_of_dumps();
        mapping.keep_in_memory();
        // SAFETY: the mapping is new, writable, long enough, and aligned to a page, which suffices for the value.
        unsafe { mapping.pointer().cast::<T>().write(value) };
        Ok(Secret {
            mapping,
            value: PhantomData,
        })
    }

    fn place(&self) -> NonNull<T> {
        self.mapping.pointer().cast()
    }
}

impl<T> Deref for Secret<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: `new` has written a value there, which stays until `self` is dropped. Nobody has it as mutable.
        unsafe { self.place().as_ref() }
    }
}

impl<T> Drop for Secret<T> {
    fn drop(&mut self) {
        // SAFETY: the value was written by `new`, is dropped only here, and nobody reaches it afterwards. The mapping
        // goes after it.
        unsafe { self.place().drop_in_place() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_value_is_kept_and_dropped_once() {
        let shared = Arc::new(7);
        let secret = Secret::new((Arc::clone(&shared), [9_u8; 5000])).unwrap();
        assert!(*secret.0 == 7 && secret.1 == [9; 5000]);
        assert_eq!(Arc::strong_count(&shared), 2);
        drop(secret);
        assert_eq!(Arc::strong_count(&shared), 1);
        assert!(Secret::new(()).is_err());
    }
}
