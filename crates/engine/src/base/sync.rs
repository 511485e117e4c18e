//! The engine's synchronisation primitives: those of std, loom or shuttle behind one interface.
//!
//! Everything in the engine takes its atomics, locks and yields from here. So the same code runs for real, under loom
//! (every interleaving of small cases) and under shuttle (random interleavings of larger cases). Locks ignore
//! poisoning: the engine panics nowhere on its data path, and release builds abort on a panic.
//!
//! Unsafe is needed here because [`OncePtr`] publishes a pointer to readers that take no lock. std's `OnceLock` would
//! do that too, but loom has none.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;

use super::lock_order::{Held, must_come_next};

#[cfg(loom)]
use loom::sync as primitive;
#[cfg(shuttle)]
use shuttle::sync as primitive;
#[cfg(not(any(loom, shuttle)))]
use std::sync as primitive;

pub(crate) use primitive::atomic::{AtomicPtr, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// A mutex that ignores poisoning and has a row in the lock order.
#[derive(Debug)]
pub(crate) struct Lock<T, const ROW: u8>(primitive::Mutex<T>);

/// The guard of a held [`Lock`].
#[derive(Debug)]
pub(crate) struct LockGuard<'a, T> {
    guard: primitive::MutexGuard<'a, T>,
    _held: Held,
}

impl<T, const ROW: u8> Lock<T, ROW> {
    pub(crate) fn new(value: T) -> Self {
        Lock(primitive::Mutex::new(value))
    }

    #[inline]
    pub(crate) fn lock(&self) -> LockGuard<'_, T> {
        must_come_next(ROW);
        Self::held(self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    #[inline]
    fn held(guard: primitive::MutexGuard<'_, T>) -> LockGuard<'_, T> {
        LockGuard {
            guard,
            _held: Held::take(ROW),
        }
    }

    /// Takes the lock if nobody holds it. This is the only way to take a lock against the lock order.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<LockGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(Self::held(guard)),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => {
                Some(Self::held(poisoned.into_inner()))
            }
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }
}

impl<T> Deref for LockGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for LockGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// Lets another thread run. For loops that wait for another thread's step.
#[inline]
pub(crate) fn yield_now() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(shuttle)]
    shuttle::thread::yield_now();
    #[cfg(not(any(loom, shuttle)))]
    std::thread::yield_now();
}

/// A point before work that the model checkers cannot see into. They may switch threads there. Does nothing in a real
/// build.
#[derive(Debug)]
pub(crate) struct ModelPoint {
    #[cfg(any(loom, shuttle))]
    passes: AtomicU32,
}

impl ModelPoint {
    pub(crate) fn new() -> ModelPoint {
        ModelPoint {
            #[cfg(any(loom, shuttle))]
            passes: AtomicU32::new(0),
        }
    }

    /// A step that conflicts with every other pass of the same point.
    #[inline]
    #[cfg_attr(not(any(loom, shuttle)), expect(clippy::unused_self))]
    pub(crate) fn pass(&self) {
        #[cfg(any(loom, shuttle))]
        self.passes.fetch_add(1, Ordering::Relaxed);
    }
}

/// A pointer to a `T` that is set at most once and freed only with the cell. A reader without a lock may keep the
/// reference as long as it can name the cell.
#[derive(Debug)]
pub(crate) struct OncePtr<T> {
    pointer: AtomicPtr<T>,
    owns: PhantomData<Box<T>>,
}

impl<T> OncePtr<T> {
    pub(crate) fn new() -> Self {
        OncePtr {
            pointer: AtomicPtr::new(std::ptr::null_mut()),
            owns: PhantomData,
        }
    }

    /// The value, or `None` while it is not set.
    #[inline]
    pub(crate) fn get(&self) -> Option<&T> {
        // Acquire pairs with the Release in `get_or_try_init`: whoever sees the pointer sees the value behind it.
        let pointer = self.pointer.load(Ordering::Acquire);
        // SAFETY: The pointer is null or came from `Box::into_raw` in `get_or_try_init`. Only `drop` frees it, with
        // exclusive access to the cell, and nobody makes a `&mut T` from it before that.
        unsafe { pointer.as_ref() }
    }

    /// The value. If it is not set, `make` makes it first. `None` if `make` could not.
    pub(crate) fn get_or_try_init(&self, make: impl FnOnce() -> Option<Box<T>>) -> Option<&T> {
        if let Some(value) = self.get() {
            return Some(value);
        }
        let fresh = Box::into_raw(make()?);
        let raced = self.pointer.compare_exchange(
            std::ptr::null_mut(),
            fresh,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        if raced.is_err() {
            // SAFETY: `fresh` came from `Box::into_raw` above, and no other thread has seen it.
            drop(unsafe { Box::from_raw(fresh) });
        }
        self.get()
    }
}

impl<T> Drop for OncePtr<T> {
    fn drop(&mut self) {
        // Relaxed: `&mut self` proves that all other users are gone and that their accesses happened before.
        let pointer = self.pointer.load(Ordering::Relaxed);
        if !pointer.is_null() {
            // SAFETY: A non-null pointer came from `Box::into_raw`, and no reference to the value outlives the cell.
            drop(unsafe { Box::from_raw(pointer) });
        }
    }
}

/// Makes a boxed array element by element. `None` if there is no memory for it.
pub(crate) fn try_boxed_array<T, const N: usize>(
    make: impl FnMut(usize) -> T,
) -> Option<Box<[T; N]>> {
    let mut elements = Vec::new();
    elements.try_reserve_exact(N).ok()?;
    elements.extend((0..N).map(make));
    elements.into_boxed_slice().try_into().ok()
}
