//! What the compiler calls does what it believes.

use std::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
};

unsafe extern "C" {
    fn memcpy(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8;
    fn memset(to: *mut u8, value: i32, bytes: usize) -> *mut u8;
    fn strlen(text: *const u8) -> usize;
}

#[test]
fn memory_is_copied_filled_and_measured_to_the_byte() {
    for bytes in 0..40 {
        let from: [u8; 64] = core::array::from_fn(|at| u8::try_from(at + 1).unwrap());
        let mut to = [0_u8; 64];
        // SAFETY: both places have more bytes than these.
        unsafe {
            assert_eq!(
                memcpy(to[1..].as_mut_ptr(), from.as_ptr(), bytes),
                to[1..].as_mut_ptr()
            );
        }
        assert_eq!((to[0], to[1 + bytes]), (0, 0));
        assert_eq!(to[1..=bytes], from[..bytes]);
        // SAFETY: as above. There is a zero behind the copy.
        unsafe {
            assert_eq!(strlen(to[1..].as_ptr()), bytes);
            assert_eq!(memset(to.as_mut_ptr(), 0x1ff, bytes), to.as_mut_ptr());
        }
        assert!(to[..bytes].iter().all(|byte| *byte == 0xff));
    }
}

/// Every operation on one kind of word, next to its largest value.
macro_rules! operations {
    ($kind:ty, $most:expr) => {{
        let word = <$kind>::new($most);
        for order in [Relaxed, Acquire, Release, AcqRel, SeqCst] {
            word.store($most, SeqCst);
            assert_eq!(word.fetch_add(2, order), $most);
            assert_eq!(word.fetch_sub(1, order), 1);
            assert_eq!(word.swap($most - 5, order), 0);
            assert_eq!(word.fetch_and(0x0f, order), $most - 5);
            assert_eq!(word.fetch_or(0x41, order), 0x0a);
            assert_eq!(word.fetch_xor(0x03, order), 0x4b);
            assert_eq!(word.load(SeqCst), 0x48);
            assert_eq!(word.compare_exchange(0x47, 1, SeqCst, Relaxed), Err(0x48));
            assert_eq!(word.compare_exchange(0x48, $most, order, Relaxed), Ok(0x48));
            assert_eq!(word.compare_exchange($most, 0, AcqRel, Acquire), Ok($most));
        }
    }};
}

#[test]
fn atomic_operations_of_every_size_and_order_are_right() {
    operations!(AtomicU8, u8::MAX);
    operations!(AtomicU16, u16::MAX);
    operations!(AtomicU32, u32::MAX);
    operations!(AtomicU64, u64::MAX);
    let flag = AtomicBool::new(false);
    assert!(!flag.swap(true, AcqRel) && flag.load(Relaxed));
}

#[test]
fn threads_lose_no_change_of_each_other() {
    const TIMES: u32 = 20_000;
    let (sum, locked, held) = (AtomicU32::new(0), AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..TIMES {
                    sum.fetch_add(1, Relaxed);
                    while held.swap(true, Acquire) {
                        std::thread::yield_now();
                    }
                    // Two steps, which nobody may come between.
                    locked.store(locked.load(Relaxed) + 1, Relaxed);
                    held.store(false, Release);
                }
            });
        }
    });
    assert_eq!(
        (sum.into_inner(), locked.into_inner()),
        (4 * TIMES, u64::from(4 * TIMES))
    );
}
