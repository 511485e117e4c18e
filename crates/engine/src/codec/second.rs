//! A second codec for what the first cannot pack: before a page goes to an area as it is, zstd is tried.
//!
//! Fast codecs find repeats alone. Zstd also has short codes for frequent bytes, so it shrinks pages of few different
//! bytes of which lz4 makes nothing. Such a page then lies in the pool, where a read takes microseconds, and a disk is
//! spared. The writer does that, not whoever faults.
//!
//! Content that nothing packs (media, encrypted data) would be tried in vain again and again. So each failure makes the
//! next pages pass untried: one, then two, up to [`PASSED_MAX`]. The first page that zstd packs ends that. It is
//! counted for all pages together, because a page that comes back and goes out again has other content.
//!
//! Where there is no area, the page lies in the pool as it is, and packing again (`verbs/repack.rs`) tries zstd once it
//! is old.

use super::Codec;
use crate::base::sync::{AtomicU32, Ordering};

/// How a page is packed on its way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pack {
    /// What is tried first.
    pub codec: Codec,
    /// Is zstd tried next, if the page would go to an area as it is otherwise?
    pub tries_zstd: bool,
}

impl From<Codec> for Pack {
    /// With one codec or not at all.
    fn from(codec: Codec) -> Pack {
        Pack {
            codec,
            tries_zstd: false,
        }
    }
}

/// Pages that pass untried at the most. Where nothing helps, a page costs on average a hundredth of a try.
const PASSED_MAX: u32 = 128;

/// Whether the second codec is worth trying. All in hints: a lost update costs one try.
#[derive(Debug)]
pub(crate) struct SecondCodec {
    /// Pages that pass after the next failure.
    pause: AtomicU32,
    /// Pages that pass from now on.
    left: AtomicU32,
}

impl SecondCodec {
    pub(crate) fn new() -> SecondCodec {
        SecondCodec {
            pause: AtomicU32::new(1),
            left: AtomicU32::new(0),
        }
    }

    /// Is it this page's turn?
    pub(crate) fn is_due(&self) -> bool {
        // Relaxed: nothing is read through it.
        let left = self.left.load(Ordering::Relaxed);
        if left > 0 {
            self.left.store(left - 1, Ordering::Relaxed);
        }
        left == 0
    }

    /// It was tried.
    pub(crate) fn note(&self, has_packed: bool) {
        let (pause, left) = if has_packed {
            (1, 0)
        } else {
            let pause = self.pause.load(Ordering::Relaxed);
            ((pause * 2).min(PASSED_MAX), pause)
        };
        // Relaxed: as above.
        self.pause.store(pause, Ordering::Relaxed);
        self.left.store(left, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// How many of so many pages are tried, if trying ends like this.
    fn tried(second: &SecondCodec, pages: u32, has_packed: bool) -> u32 {
        let try_one = |_| {
            let is_due = second.is_due();
            if is_due {
                second.note(has_packed);
            }
            u32::from(is_due)
        };
        (0..pages).map(try_one).sum()
    }

    #[test]
    fn failures_are_remembered_until_something_is_packed() {
        let second = SecondCodec::new();
        assert_eq!(tried(&second, 100, true), 100);
        // 8 pauses from 1 to 128 take 263 pages with their tries.
        assert_eq!(tried(&second, 263, false), 8);
        assert_eq!(tried(&second, 1290, false), 10);
        assert_eq!(tried(&second, 1, true), 1);
        assert_eq!(tried(&second, 100, true), 100);
    }
}
