//! Addresses that stay nobody's in the child of a fork.
//!
//! Memory that children do not inherit leaves a hole in them. The kernel would put the child's next mapping there, and
//! an old reference to the memory would read what somebody else has written. So the child of a fork reserves the hole
//! before anything else runs in it: a touch raises SIGSEGV. A child of `_Fork` or of a bare `clone` runs no handler of
//! forks, so there the hole stays.
//!
//! Unsafe is needed here because rustix leaves handlers of forks to libc, and because mappings are made by address.

use core::ffi::c_int;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::OnceLock;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

/// Ranges in one part of the list.
const PART: usize = 16;

/// A range of addresses, or none if it has no bytes.
struct Place {
    start: AtomicUsize,
    bytes: AtomicUsize,
}

impl Place {
    const fn free() -> Place {
        Place {
            start: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
        }
    }
}

/// A part of the list of ranges. It grows and never shrinks, so a handler can walk it without a lock.
struct Part {
    places: [Place; PART],
    next: OnceLock<Box<Part>>,
}

static RANGES: Part = Part::new();

impl Part {
    const fn new() -> Part {
        Part {
            places: [const { Place::free() }; PART],
            next: OnceLock::new(),
        }
    }

    /// Claims a place for a range that starts here.
    fn claim(&'static self, start: usize) -> &'static Place {
        let is_claimed = |place: &&Place| {
            let claimed =
                place
                    .start
                    .compare_exchange(0, start, Ordering::AcqRel, Ordering::Relaxed);
            claimed.is_ok()
        };
        match self.places.iter().find(is_claimed) {
            Some(place) => place,
            None => self.next.get_or_init(|| Box::new(Part::new())).claim(start),
        }
    }
}

/// A range that children of forks reserve, until this is dropped.
#[derive(Debug)]
pub struct LeftOut {
    place: &'static Place,
}

impl core::fmt::Debug for Place {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let start = self.start.load(Ordering::Relaxed);
        let bytes = self.bytes.load(Ordering::Relaxed);
        write!(formatter, "{start:#x}+{bytes:#x}")
    }
}

impl LeftOut {
    /// Has children reserve this range, which they are about not to inherit. Page aligned.
    ///
    /// # Errors
    /// ENOMEM: no handler of forks can be installed.
    pub fn new(start: usize, bytes: usize) -> Result<LeftOut, Errno> {
        install()?;
        let place = RANGES.claim(start);
        // Release pairs with the load in the handler. A child that sees no bytes has inherited the memory.
        place.bytes.store(bytes, Ordering::Release);
        Ok(LeftOut { place })
    }
}

impl Drop for LeftOut {
    fn drop(&mut self) {
        self.place.bytes.store(0, Ordering::Release);
        self.place.start.store(0, Ordering::Release);
    }
}

/// Installs the handler once, for the life of the process.
fn install() -> Result<(), Errno> {
    static INSTALLED: OnceLock<c_int> = OnceLock::new();
    let result = INSTALLED.get_or_init(|| {
        // SAFETY: the handler does only what the child of a program with threads may do: one system call a range.
        unsafe { libc::pthread_atfork(None, None, Some(reserve)) }
    });
    match *result {
        0 => Ok(()),
        errno => Err(Errno::from_raw_os_error(errno)),
    }
}

/// Reserves all ranges, in the child.
unsafe extern "C" fn reserve() {
    let mut part = Some(&RANGES);
    while let Some(Part { places, next }) = part {
        for place in places {
            let bytes = place.bytes.load(Ordering::Acquire);
            if bytes > 0 {
                reserve_range(place.start.load(Ordering::Relaxed), bytes);
            }
        }
        part = next.get().map(Box::as_ref);
    }
}

/// Maps a range without access, if nothing is mapped there. What is there was inherited, so it is no hole.
fn reserve_range(start: usize, bytes: usize) {
    let at = core::ptr::with_exposed_provenance_mut(start);
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
    // SAFETY: FIXED_NOREPLACE replaces no mapping. There is nobody to tell of a failure.
    let _ = unsafe { rustix::mm::mmap_anonymous(at, bytes, ProtFlags::empty(), flags) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_found_again_after_many() {
        let held: Vec<LeftOut> = (1..=3 * PART)
            .map(|number| LeftOut::new(number << 40, 4096).expect("a handler"))
            .collect();
        let mut starts: Vec<usize> = held
            .iter()
            .map(|range| range.place.start.load(Ordering::Relaxed))
            .collect();
        starts.sort_unstable();
        assert_eq!(
            starts,
            (1..=3 * PART)
                .map(|number| number << 40)
                .collect::<Vec<_>>()
        );
        let first: *const Place = held[0].place;
        drop(held);
        let again = LeftOut::new(7 << 40, 4096).expect("a handler");
        assert!(core::ptr::eq(first, again.place));
    }
}
