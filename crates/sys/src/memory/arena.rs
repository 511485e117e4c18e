//! Runs of pages out of one large reservation: here the pool and the frames live.
//!
//! There is one list for each length of 1..=8 pages; longer runs are on one list that is searched by length. A freed
//! run stays resident on its list, warm, until `DIRTY_PAGES_MAX` such pages have gathered. Then all of them go back to
//! the kernel at once, neighbours with one call. Reused runs are not zeroed. One mutex orders everything. Calls to the
//! kernel are made outside of it, on runs that no list holds meanwhile. Runs are never split or joined: a reservation
//! of `RUN_PAGES_MAX` times the limit is enough for the worst order of lengths, and address space costs nothing.
//!
//! None of it is ever in a core dump: what lies here is the memory of programs.
//!
//! Unsafe is needed here because runs are memory outside of Rust's allocator, handed out and discarded by address.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{HugePages, Mapping, MemoryError, PAGE};

/// Pages of the longest run that has a list of its own.
pub const RUN_PAGES_MAX: usize = 8;
/// Freed pages kept resident for reuse (1 MiB): enough to batch the calls to the kernel, and small beside any limit.
const DIRTY_PAGES_MAX: usize = 256;

/// A run of pages by number, so that lists need 8 bytes a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Run {
    page: u32,
    pages: u32,
}

#[derive(Debug, Default)]
struct Lists {
    /// Pages of the reservation that were ever handed out. Those behind are untouched.
    top: usize,
    /// Free and resident, by length.
    dirty: [Vec<u32>; RUN_PAGES_MAX],
    dirty_pages: usize,
    /// Free and not resident, by length.
    clean: [Vec<u32>; RUN_PAGES_MAX],
    /// Free and not resident, longer than `RUN_PAGES_MAX`.
    large: Vec<Run>,
}

/// What an arena holds, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ArenaBytes {
    /// Handed out.
    pub used: u64,
    /// Freed but still resident, waiting for reuse or for the next batch.
    pub dirty: u64,
    /// Of the whole reservation.
    pub reserved: u64,
}

impl ArenaBytes {
    /// The most that can be resident. This counts against a limit.
    pub fn resident_max(&self) -> u64 {
        self.used + self.dirty
    }
}

/// A reservation that hands out runs of pages. Dropping it unmaps every run.
#[derive(Debug)]
pub struct PageArena {
    mapping: Mapping,
    pages: usize,
    lists: Mutex<Lists>,
    used_pages: AtomicUsize,
}

impl PageArena {
    /// Reserves `bytes` (rounded up to pages, at most 16 TiB). Nothing is resident until it is written.
    ///
    /// # Errors
    /// `Length`, `Refused`.
    pub fn new(bytes: usize, huge: HugePages) -> Result<PageArena, MemoryError> {
        let pages = bytes.div_ceil(PAGE);
        // Page numbers are u32.
        if u32::try_from(pages).is_err() {
            return Err(MemoryError::Length { bytes });
        }
        let mapping = Mapping::anonymous(pages * PAGE, huge)?;
        mapping.keep_out_of_dumps();
        let lists = Mutex::new(Lists::default());
        Ok(PageArena {
            mapping,
            pages,
            lists,
            used_pages: AtomicUsize::new(0),
        })
    }

    /// A run of `pages` contiguous pages, of unspecified but initialised content. None if `pages` is 0 or the
    /// reservation has no such run left.
    pub fn alloc(&self, pages: usize) -> Option<NonNull<u8>> {
        let page = self.lists().take(pages, self.pages)?;
        self.used_pages.fetch_add(pages, Ordering::Relaxed);
        // SAFETY: `take` gives only runs within the reservation, so the pointer stays inside the mapping.
        Some(unsafe { self.mapping.pointer().add(page * PAGE) })
    }

    /// Gives the memory of a run back but keeps the run. Its bytes then read as zeros, or stay if the kernel refuses.
    ///
    /// # Safety
    /// `run` came from `alloc(pages)` of this arena and was not freed since; nobody writes to it during the call, and
    /// whoever reads it expects either content.
    pub unsafe fn clear(&self, run: NonNull<u8>, pages: usize) {
        let offset = run.addr().get() - self.mapping.pointer().addr().get();
        // SAFETY: the run is inside the mapping. The caller answers for its users.
        let _ = unsafe { self.mapping.discard(offset, pages * PAGE) };
    }

    /// Takes a run back.
    ///
    /// # Safety
    /// `run` came from `alloc(pages)` of this arena, was not freed since, and nothing refers to it.
    pub unsafe fn free(&self, run: NonNull<u8>, pages: usize) {
        let page = (run.addr().get() - self.mapping.pointer().addr().get()) / PAGE;
        debug_assert!(page + pages <= self.pages, "run of another arena");
        self.used_pages.fetch_sub(pages, Ordering::Relaxed);
        let run = Run {
            page: place(page),
            pages: place(pages),
        };
        if pages > RUN_PAGES_MAX {
            // SAFETY: the caller gave the run up, and it is on no list yet.
            unsafe { self.discard(run) };
            self.lists().large.push(run);
            return;
        }
        let batch = {
            let mut lists = self.lists();
            lists.dirty[pages - 1].push(run.page);
            lists.dirty_pages += pages;
            if lists.dirty_pages < DIRTY_PAGES_MAX {
                return;
            }
            lists.take_dirty()
        };
        self.clean(batch);
    }

    /// Gives all freed pages back to the kernel now. Returns their bytes.
    pub fn trim(&self) -> u64 {
        let batch = self.lists().take_dirty();
        self.clean(batch)
    }

    /// What the arena holds. Parts may be of slightly different moments.
    pub fn bytes(&self) -> ArenaBytes {
        let bytes = |pages: usize| (pages * PAGE) as u64;
        ArenaBytes {
            used: bytes(self.used_pages.load(Ordering::Relaxed)),
            dirty: bytes(self.lists().dirty_pages),
            reserved: bytes(self.pages),
        }
    }

    /// Bytes handed out.
    pub fn used_bytes(&self) -> u64 {
        (self.used_pages.load(Ordering::Relaxed) * PAGE) as u64
    }

    /// Discards `batch`, which is on no list now, with one call for neighbours, and puts it on the clean lists.
    fn clean(&self, mut batch: Vec<Run>) -> u64 {
        batch.sort_unstable();
        let mut pages = 0;
        for group in batch.chunk_by(|one, next| one.page + one.pages == next.page) {
            let run = Run {
                page: group[0].page,
                pages: group.iter().map(|run| run.pages).sum(),
            };
            pages += run.pages as usize;
            // SAFETY: these runs are free and on no list, so nobody can get them.
            unsafe { self.discard(run) };
        }
        let mut lists = self.lists();
        for run in batch {
            lists.clean[run.pages as usize - 1].push(run.page);
        }
        (pages * PAGE) as u64
    }

    /// # Safety
    /// Nobody uses the run.
    unsafe fn discard(&self, run: Run) {
        let (offset, bytes) = (run.page as usize * PAGE, run.pages as usize * PAGE);
        // SAFETY: nobody uses the run. A failure, which cannot happen on such a mapping, leaves pages resident, not
        // wrong.
        let done = unsafe { self.mapping.discard(offset, bytes) };
        debug_assert!(done.is_ok(), "{done:?}");
    }

    fn lists(&self) -> MutexGuard<'_, Lists> {
        // Nothing can panic here between two changes that belong together.
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A page number or count of an arena. `PageArena::new` has kept it below 2^32.
fn place(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl Lists {
    /// A free run of `pages`, as its first page. Resident runs come first, then runs given back, then fresh ones.
    fn take(&mut self, pages: usize, reserved_pages: usize) -> Option<usize> {
        match pages {
            0 => return None,
            1..=RUN_PAGES_MAX => {
                if let Some(page) = self.dirty[pages - 1].pop() {
                    self.dirty_pages -= pages;
                    return Some(page as usize);
                }
                if let Some(page) = self.clean[pages - 1].pop() {
                    return Some(page as usize);
                }
            }
            _ => {
                let same = self
                    .large
                    .iter()
                    .position(|run| run.pages as usize == pages);
                if let Some(index) = same {
                    return Some(self.large.swap_remove(index).page as usize);
                }
            }
        }
        let page = self.top;
        self.top = page
            .checked_add(pages)
            .filter(|&top| top <= reserved_pages)?;
        Some(page)
    }

    /// Takes all dirty runs off their lists.
    fn take_dirty(&mut self) -> Vec<Run> {
        let mut batch = Vec::new();
        for (list, pages) in self.dirty.iter_mut().zip(1u32..) {
            batch.extend(list.drain(..).map(|page| Run { page, pages }));
        }
        self.dirty_pages = 0;
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn arena(pages: usize) -> PageArena {
        PageArena::new(pages * PAGE, HugePages::Never).unwrap()
    }

    #[test]
    fn runs_do_not_overlap_and_keep_their_content() {
        let arena = arena(4096);
        let mut held: BTreeMap<usize, (NonNull<u8>, usize, u8)> = BTreeMap::new();
        let mut seed = 1u32;
        for round in 0..4000u32 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let choice = (seed >> 16) as usize;
            if held.len() > 200 || (choice & 1 == 1 && !held.is_empty()) {
                let key = *held.keys().nth(choice % held.len()).unwrap();
                let (run, pages, mark) = held.remove(&key).unwrap();
                for offset in [0, pages * PAGE / 2, pages * PAGE - 1] {
                    // SAFETY: the run is held by this test.
                    assert_eq!(unsafe { run.add(offset).read() }, mark, "round {round}");
                }
                // SAFETY: the run came from `alloc` with this length and is forgotten now.
                unsafe { arena.free(run, pages) };
            } else {
                let pages = choice % RUN_PAGES_MAX + 1;
                let run = arena.alloc(pages).unwrap();
                let mark = (round % 251) as u8;
                // SAFETY: the run is this test's and `pages` long.
                unsafe { run.write_bytes(mark, pages * PAGE) };
                assert!(held.insert(run.addr().get(), (run, pages, mark)).is_none());
            }
            let used: usize = held.values().map(|(_, pages, _)| pages * PAGE).sum();
            assert_eq!(arena.used_bytes(), used as u64);
            assert!(arena.bytes().dirty < (DIRTY_PAGES_MAX * PAGE) as u64);
        }
    }

    #[test]
    fn freed_pages_leave_memory() {
        let arena = arena(64);
        let run = arena.alloc(8).unwrap();
        // SAFETY: the run is this test's, and is freed once.
        unsafe {
            run.write_bytes(1, 8 * PAGE);
            arena.free(run, 8);
        }
        assert_eq!(
            (arena.bytes().used, arena.bytes().dirty),
            (0, 8 * PAGE as u64)
        );
        assert_eq!((arena.trim(), arena.trim()), (8 * PAGE as u64, 0));
        assert_eq!(arena.bytes().resident_max(), 0);
        let again = arena.alloc(8).unwrap();
        assert_eq!(again, run);
        // SAFETY: the run is this test's again.
        assert_eq!(unsafe { again.read() }, 0);
    }

    #[test]
    fn large_runs_come_back_clean_and_bounds_hold() {
        let arena = arena(32);
        let large = arena.alloc(20).unwrap();
        assert!(arena.alloc(0).is_none() && arena.alloc(13).is_none());
        assert!(arena.alloc(usize::MAX).is_none());
        // SAFETY: the run is this test's, and is freed once.
        unsafe {
            large.write_bytes(9, 20 * PAGE);
            arena.free(large, 20);
        }
        assert_eq!(arena.bytes().resident_max(), 0);
        let again = arena.alloc(20).unwrap();
        // SAFETY: the run is this test's again.
        assert_eq!((again, unsafe { again.read() }), (large, 0));
        assert!(PageArena::new(0, HugePages::Never).is_err());
    }

    #[test]
    fn threads_share_an_arena() {
        let arena = arena(4096);
        std::thread::scope(|scope| {
            for mark in 1..=4u8 {
                let arena = &arena;
                scope.spawn(move || {
                    for round in 0..500usize {
                        let pages = round % RUN_PAGES_MAX + 1;
                        let run = arena.alloc(pages).unwrap();
                        // SAFETY: the run is this thread's until it is freed, once.
                        unsafe {
                            run.write_bytes(mark, pages * PAGE);
                            assert_eq!(run.add(pages * PAGE - 1).read(), mark);
                            arena.free(run, pages);
                        }
                    }
                });
            }
        });
        assert_eq!(arena.used_bytes(), 0);
    }
}
