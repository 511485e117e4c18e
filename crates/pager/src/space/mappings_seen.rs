//! When the mappings of a process are worth another look. A look takes a microsecond for each mapping, and there may be
//! a million.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use vswap_sys::process::procfs::Sizes;

use crate::base::kernel::clock;
use crate::base::lock::{Mutex, Row};

/// If the process is as large as at the last look, and has unmapped nothing that is watched, its memory has grown in
/// mappings that are known. It may also have mapped as much as it has unmapped of what nobody watches, such as files:
/// then the next look is due after this time.
const UNCHANGED_PAUSE: Duration = Duration::from_secs(1);
/// Looks take one part in so many of the evictor's time at the most.
const COST_PARTS: u32 = 8;

/// The last look at the mappings of a process.
#[derive(Debug)]
pub struct MappingsSeen {
    /// The least of resident anonymous bytes since then.
    mark: AtomicU64,
    /// Something that is watched was unmapped since then, so something may lie in its place.
    unmapped: AtomicBool,
    last: Mutex<Option<Look>>,
}

#[derive(Debug, Clone, Copy)]
struct Look {
    ended: Instant,
    took: Duration,
    /// The size of the process when it began.
    virtual_bytes: u64,
}

/// A look that is under way.
#[derive(Debug)]
pub struct Looking {
    begun: Instant,
    sizes: Sizes,
}

impl Default for MappingsSeen {
    fn default() -> MappingsSeen {
        MappingsSeen {
            mark: AtomicU64::new(0),
            unmapped: AtomicBool::new(false),
            last: Mutex::new(Row::Innermost, "the last look at mappings", None),
        }
    }
}

impl MappingsSeen {
    /// A look begins. The process has these sizes.
    pub fn begin(&self, sizes: Sizes) -> Looking {
        // Relaxed: a hint, which is set again if it comes too late.
        self.unmapped.store(false, Ordering::Relaxed);
        let begun = clock::now();
        Looking { begun, sizes }
    }

    /// The look has ended.
    pub fn end(&self, look: &Looking) {
        let ended = clock::now();
        self.mark
            .store(look.sizes.anonymous_bytes(), Ordering::Relaxed);
        *self.last.lock() = Some(Look {
            ended,
            took: ended.saturating_duration_since(look.begun),
            virtual_bytes: look.sizes.virtual_bytes,
        });
    }

    /// Something that is watched was unmapped.
    pub fn note_unmapped(&self) {
        self.unmapped.store(true, Ordering::Relaxed);
    }

    /// Has resident memory grown by more than `bytes` since the last look, and is another one due? Pages that move out
    /// lower the mark, so that memory that takes their place is noticed.
    pub fn grew_beyond(
        &self,
        resident_bytes: u64,
        bytes: u64,
        sizes: impl FnOnce() -> Sizes,
    ) -> bool {
        let mark = self.mark.fetch_min(resident_bytes, Ordering::Relaxed);
        resident_bytes > mark + bytes && self.is_due(clock::now(), sizes)
    }

    fn is_due(&self, now: Instant, sizes: impl FnOnce() -> Sizes) -> bool {
        let Some(last) = *self.last.lock() else {
            return true;
        };
        let since = now.saturating_duration_since(last.ended);
        since >= last.took * COST_PARTS
            && (since >= UNCHANGED_PAUSE
                || self.unmapped.load(Ordering::Relaxed)
                || sizes().virtual_bytes != last.virtual_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(virtual_bytes: u64) -> Sizes {
        Sizes {
            virtual_bytes,
            resident_bytes: 50,
            shared_bytes: 0,
        }
    }

    #[test]
    fn a_look_is_due_when_the_process_has_grown_and_can_have_mapped_something() {
        let seen = MappingsSeen::default();
        let begun = clock::now();
        assert!(seen.is_due(begun, || sizes(100)), "there was none");
        seen.note_unmapped();
        seen.end(&seen.begin(sizes(100)));
        let took = Duration::from_millis(10);
        if let Some(last) = &mut *seen.last.lock() {
            (last.ended, last.took) = (begun, took);
        }
        let is_due =
            |after_ms, bytes| seen.is_due(begun + Duration::from_millis(after_ms), || sizes(bytes));
        assert!(!is_due(79, 200), "looks would be all it does");
        assert!(is_due(80, 200) && is_due(80, 50));
        assert!(!is_due(999, 100), "nothing was mapped");
        assert!(is_due(1000, 100), "something may have been");
        seen.note_unmapped();
        assert!(
            !is_due(79, 100) && is_due(80, 100),
            "its place may be taken"
        );
    }

    #[test]
    fn pages_that_leave_lower_the_mark() {
        let seen = MappingsSeen::default();
        seen.mark.store(50, Ordering::Relaxed);
        let grew = |resident| seen.grew_beyond(resident, 10, || sizes(1));
        assert!(!grew(60) && grew(61));
        assert!(!grew(20) && grew(31));
    }
}
