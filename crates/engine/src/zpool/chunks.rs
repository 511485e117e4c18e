//! An array that grows by chunks. It never moves or frees an element before the array itself is dropped.
//!
//! Lookup takes no lock. A directory of fixed length holds one pointer per chunk, published once. Elements are made of
//! atomics, start as all zeros, and are reused. So a reader with an outdated index reads an old or a new value, but
//! never freed memory.
//!
//! Unsafe is needed here because chunks and directory come zeroed from the allocator, so that unused parts are never
//! touched and take no memory, and because readers without a lock follow the published pointers.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Types for which all bytes zero is a valid value.
///
/// # Safety
/// All bytes zero must be a valid value, the type must not need dropping nor have size zero.
pub(super) unsafe trait Zeroable: Sync + Send {}

/// The array. `CHUNK` elements per chunk.
pub(super) struct Chunks<T: Zeroable, const CHUNK: usize> {
    directory: Box<[AtomicPtr<T>]>,
    made: AtomicUsize,
    growth: Mutex<()>,
    owns: PhantomData<T>,
}

impl<T: Zeroable, const CHUNK: usize> Chunks<T, CHUNK> {
    const LAYOUT: Layout = {
        assert!(CHUNK.is_power_of_two() && size_of::<T>() > 0 && !std::mem::needs_drop::<T>());
        match Layout::array::<T>(CHUNK) {
            Ok(layout) => layout,
            Err(_) => panic!("a chunk exceeds the address space"),
        }
    };

    /// An empty array that can grow to `chunks_max` chunks.
    pub(super) fn new(chunks_max: usize) -> Self {
        Chunks {
            directory: zeroed_directory(chunks_max),
            made: AtomicUsize::new(0),
            growth: Mutex::new(()),
            owns: PhantomData,
        }
    }

    /// The element at `index`. `None` if its chunk does not exist.
    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<&T> {
        let index = index as usize;
        let chunk = self.directory.get(index / CHUNK)?.load(Ordering::Acquire);
        if chunk.is_null() {
            return None;
        }
        // SAFETY: A published chunk has CHUNK initialised elements and lives as long as `self`. The remainder is below
        // CHUNK.
        Some(unsafe { &*chunk.add(index % CHUNK) })
    }

    /// Makes sure that the element at `index` exists. False if it is beyond the directory or there is no memory.
    pub(super) fn ensure(&self, index: u32) -> bool {
        let Some(slot) = self.directory.get(index as usize / CHUNK) else {
            return false;
        };
        if !slot.load(Ordering::Acquire).is_null() {
            return true;
        }
        let _growing = self.growth.lock().unwrap_or_else(PoisonError::into_inner);
        if !slot.load(Ordering::Acquire).is_null() {
            return true;
        }
        // SAFETY: The layout's size is not zero (asserted in LAYOUT).
        let chunk = unsafe { alloc_zeroed(Self::LAYOUT) }.cast::<T>();
        if chunk.is_null() {
            return false;
        }
        self.made.fetch_add(1, Ordering::Relaxed);
        // Release: whoever finds the pointer finds the zeros behind it.
        slot.store(chunk, Ordering::Release);
        true
    }

    /// Bytes of the chunks made so far. Does not count the directory, whose untouched parts take no memory.
    pub(super) fn bytes(&self) -> usize {
        self.made.load(Ordering::Relaxed) * Self::LAYOUT.size()
    }
}

/// Makes `len` null pointers. They are zeros from the allocator, so unused parts are never touched.
fn zeroed_directory<T>(len: usize) -> Box<[AtomicPtr<T>]> {
    let Ok(layout) = Layout::array::<AtomicPtr<T>>(len) else {
        return Box::new([]);
    };
    if layout.size() == 0 {
        return Box::new([]);
    }
    // SAFETY: The layout's size is not zero.
    let first = unsafe { alloc_zeroed(layout) }.cast::<AtomicPtr<T>>();
    if first.is_null() {
        handle_alloc_error(layout);
    }
    // SAFETY: The global allocator gave `len` elements with the layout that Box uses, and zeros are null pointers.
    unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(first, len)) }
}

impl<T: Zeroable, const CHUNK: usize> Drop for Chunks<T, CHUNK> {
    fn drop(&mut self) {
        for slot in &mut self.directory {
            let chunk = *slot.get_mut();
            if !chunk.is_null() {
                // SAFETY: The chunk came from `alloc_zeroed` with this layout, and nobody can reach it any more.
                unsafe { dealloc(chunk.cast(), Self::LAYOUT) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    // SAFETY: Zero is a valid AtomicU64, which is not dropped.
    unsafe impl Zeroable for AtomicU64 {}

    #[test]
    fn elements_appear_by_chunks_and_begin_as_zero() {
        let chunks: Chunks<AtomicU64, 4> = Chunks::new(2);
        assert!(chunks.get(0).is_none());
        assert_eq!(chunks.bytes(), 0);
        assert!(chunks.ensure(5));
        assert!(chunks.get(3).is_none());
        for index in 4..8 {
            let element = chunks.get(index).expect("made");
            assert_eq!(element.swap(u64::from(index), Ordering::Relaxed), 0);
        }
        assert!(chunks.ensure(7) && chunks.ensure(0));
        assert_eq!(chunks.get(7).map(|e| e.load(Ordering::Relaxed)), Some(7));
        assert_eq!(chunks.bytes(), 64);
        assert!(!chunks.ensure(8));
        assert!(chunks.get(8).is_none() && chunks.get(u32::MAX).is_none());
    }
}
