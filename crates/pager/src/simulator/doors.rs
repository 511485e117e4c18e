//! The other ways to ask about a simulated process: its page table, mappings, memory and end.
//!
//! The process id is `FIRST_PID` plus the number of the address space. No real process can have it.

/// The process of the first address space.
pub const FIRST_PID: u32 = 4_000_000_000;
/// The agent's thread of the first address space.
pub const FIRST_AGENT: i32 = 1_900_000_000;

/// The address space of a process.
fn memory_of(pid: u32) -> usize {
    (pid - FIRST_PID) as usize
}

/// Like `vswap_sys::memory::pagemap`.
pub mod pagemap {
    pub use vswap_sys::memory::pagemap::{PagemapError, Query, Region, Scan, category};

    use crate::base::page_run::PAGE_BYTES;
    use crate::simulator::actors::{self, world};
    use crate::simulator::memory::Pte;

    /// The page table of a process.
    #[derive(Debug)]
    pub struct Pagemap(usize);

    impl Pagemap {
        pub fn of(memory: usize) -> Pagemap {
            Pagemap(memory)
        }

        pub fn open(_: u32) -> Result<Pagemap, PagemapError> {
            Err(PagemapError::Gone)
        }

        pub fn scan(
            &self,
            start: u64,
            end: u64,
            query: &Query,
            regions: &mut [Region],
        ) -> Result<Scan, PagemapError> {
            let (first, last) = (start / PAGE_BYTES, end / PAGE_BYTES);
            actors::step("scan", first, last);
            let found: Vec<u64> = world(|world| {
                let pages = world.memories[self.0].pages.range(first..last);
                let found = pages.filter(|(_, pte)| matches(query, categories(**pte)));
                found.map(|(page, _)| *page).collect()
            });
            let mut used = 0;
            for (pages, page) in (0..).zip(found) {
                if pages == query.pages_max && pages > 0 {
                    let walk_end = page * PAGE_BYTES;
                    return Ok(Scan {
                        regions: used,
                        walk_end,
                    });
                }
                let address = page * PAGE_BYTES;
                if used > 0 && regions[used - 1].end == address {
                    regions[used - 1].end += PAGE_BYTES;
                } else if used < regions.len() {
                    regions[used] = Region {
                        start: address,
                        end: address + PAGE_BYTES,
                        categories: 0,
                    };
                    used += 1;
                } else {
                    return Ok(Scan {
                        regions: used,
                        walk_end: address,
                    });
                }
            }
            Ok(Scan {
                regions: used,
                walk_end: end,
            })
        }
    }

    fn categories(pte: Pte) -> u64 {
        match pte {
            Pte::Page { zero: true, .. } => category::PRESENT | category::PFNZERO,
            Pte::Page { .. } => category::PRESENT,
            Pte::Marker => category::SWAPPED,
            Pte::Guard => category::SWAPPED | category::GUARD,
        }
    }

    fn matches(query: &Query, categories: u64) -> bool {
        categories & query.all_of == query.all_of
            && categories & query.none_of == 0
            && (query.any_of == 0 || categories & query.any_of != 0)
    }
}

/// Like `vswap_sys::memory::procmap`.
pub mod procmap {
    use std::ops::Range;

    pub use vswap_sys::memory::procmap::{FileId, Vma};

    use crate::base::kernel::maps::MapsError;
    use crate::base::page_run::PAGE_BYTES;
    use crate::simulator::actors::{self, world};
    use crate::simulator::memory::OWN;

    /// The mappings of a process.
    #[derive(Debug)]
    pub struct ProcMap(usize);

    impl ProcMap {
        pub fn of(memory: usize) -> ProcMap {
            ProcMap(memory)
        }

        pub fn open(_: u32) -> Result<ProcMap, MapsError> {
            Err(MapsError::Gone)
        }

        pub fn mapped(&self, start: u64, end: u64) -> Result<Vec<Range<u64>>, MapsError> {
            let (mut found, mut at) = (Vec::new(), start / PAGE_BYTES);
            // Each query is true only for its own moment.
            while at < end / PAGE_BYTES {
                actors::step("mapped", at, end / PAGE_BYTES);
                let part = world(|world| {
                    let parts = world.memories[self.0].parts(at..end / PAGE_BYTES);
                    parts.first().map(|(part, _)| part.clone())
                });
                let Some(part) = part else { break };
                at = part.end;
                found.push(part.start * PAGE_BYTES..part.end * PAGE_BYTES);
            }
            Ok(found)
        }

        pub fn private_anonymous(
            &self,
            from: u64,
            most: usize,
        ) -> Result<Vec<Range<u64>>, MapsError> {
            actors::step("maps", from / PAGE_BYTES, 0);
            world(|world| {
                let memory = &world.memories[self.0];
                if memory.gone {
                    return Err(MapsError::Gone);
                }
                let of_program = memory.vmas.iter().filter(|(start, _)| !OWN.contains(start));
                Ok(of_program
                    .map(|(start, vma)| start * PAGE_BYTES..vma.end * PAGE_BYTES)
                    .filter(|range| range.end > from)
                    .take(most)
                    .collect())
            })
        }

        /// No mapping has a file.
        pub fn file_at(&self, _: u64) -> Option<FileId> {
            None
        }

        /// No mapping has a file.
        pub fn not_anonymous(&self, _: u64, _: u64) -> Result<Vec<Range<u64>>, MapsError> {
            Ok(Vec::new())
        }

        pub fn is_mapped(&self, address: u64) -> Result<Option<bool>, MapsError> {
            actors::step("is mapped", address / PAGE_BYTES, 0);
            world(|world| {
                let memory = &world.memories[self.0];
                if memory.gone {
                    return Err(MapsError::Gone);
                }
                Ok(Some(memory.vma(address / PAGE_BYTES).is_some()))
            })
        }

        pub fn at(&self, address: u64) -> Option<Vma> {
            actors::step("mapping at", address / PAGE_BYTES, 0);
            let found = world(|world| world.memories[self.0].vma(address / PAGE_BYTES));
            found.map(|(range, vma)| Vma {
                start: range.start * PAGE_BYTES,
                end: range.end * PAGE_BYTES,
                writable: vma.writable,
                executable: false,
                anonymous: true,
            })
        }
    }

    /// No memory is locked.
    pub fn holds_memory(_: u32) -> bool {
        false
    }
}

/// Like `vswap_sys::memory::maps`.
pub mod maps {
    use std::io::Write;
    use std::ops::Range;

    pub use vswap_sys::memory::maps::{MapsError, parse};

    use crate::base::page_run::PAGE_BYTES;
    use crate::simulator::actors::{self, world};
    use crate::simulator::memory::OWN;

    pub fn read(pid: u32, text: &mut Vec<u8>) -> Result<(), MapsError> {
        actors::step("maps", 0, 0);
        text.clear();
        world(|world| {
            let memory = &world.memories[super::memory_of(pid)];
            if memory.gone {
                return Err(MapsError::Gone);
            }
            for (start, vma) in &memory.vmas {
                // The agent's memory is shown as shared, so that nobody takes it for the program's.
                let kind = if OWN.contains(start) { "s" } else { "p" };
                let write = if vma.writable { "w" } else { "-" };
                let (start, end) = (start * PAGE_BYTES, vma.end * PAGE_BYTES);
                let line = writeln!(text, "{start:x}-{end:x} r{write}-{kind} 00000000 00:00 0 ");
                line.expect("a vector takes everything");
            }
            Ok(())
        })
    }

    /// No mapping has flags.
    pub fn flagged(_: u32, _: &'static [&'static str]) -> Result<Vec<Range<u64>>, MapsError> {
        Ok(Vec::new())
    }
}

/// Like `vswap_sys::process`.
pub mod process {
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use vswap_engine::Page;
    pub use vswap_sys::process::{LocalSpan, ReadError, RemoteSpan};

    use crate::base::page_run::PAGE_BYTES;
    use crate::simulator::actors::{self, world};
    use crate::simulator::memory::Pte;
    use crate::simulator::uffd::write_tag;

    /// A process, which never ends before its space.
    #[derive(Debug)]
    pub struct PidFd;

    /// For the server, which the simulator does not have.
    impl AsFd for PidFd {
        fn as_fd(&self) -> BorrowedFd<'_> {
            actors::fail("the server watches a process")
        }
    }

    impl PidFd {
        pub fn from_fd(_: OwnedFd) -> PidFd {
            PidFd
        }

        /// The pager gives up. A simulation that gets here has failed.
        pub fn kill(&self) -> Result<(), ReadError> {
            actors::fail("the pager has stopped the process")
        }

        pub fn exited(&self, _: Option<Duration>) -> Result<bool, ReadError> {
            Ok(false)
        }
    }

    pub fn kill_family(members: &[(u32, &PidFd)]) {
        for (_, process) in members {
            let _ = process.kill();
        }
    }

    /// # Safety
    /// As for `vswap_sys::process::read_memory`. In addition the first span on both sides is a word of this process,
    /// and each other local span is a page.
    pub unsafe fn read_memory(
        pid: u32,
        remote: &[RemoteSpan],
        local: &[LocalSpan],
    ) -> Result<usize, ReadError> {
        actors::step("read memory", 0, 0);
        let (proof, remote) = remote.split_first().expect("a proof");
        let (into, local) = local.split_first().expect("room for the proof");
        let address = usize::try_from(proof.address).expect("an address");
        // SAFETY: both are words of this process: one is in a ring, the other one is the caller's alone.
        unsafe {
            let word = std::ptr::with_exposed_provenance::<AtomicU64>(address);
            into.pointer
                .cast::<u64>()
                .write((*word).load(Ordering::SeqCst));
        }
        let pages = remote.iter().flat_map(|span| {
            let first = span.address / PAGE_BYTES;
            first..first + span.bytes as u64 / PAGE_BYTES
        });
        world(|world| {
            let memory = &world.memories[super::memory_of(pid)];
            if memory.gone {
                return Err(ReadError::Gone);
            }
            let mut done = into.bytes;
            for (page, span) in pages.zip(local) {
                let tag = match memory.pages.get(&page) {
                    Some(Pte::Page { tag, .. }) => *tag,
                    _ => 0,
                };
                // SAFETY: the span is a page that the caller holds alone. The caller passes it as a raw pointer, as to
                // the kernel.
                write_tag(unsafe { &mut *span.pointer.cast::<Page>() }, tag);
                done += span.bytes;
            }
            Ok(done)
        })
    }
}

/// Like `vswap_sys::futex`, but whoever waits checks again after a while.
pub mod futex {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use crate::simulator::actors;

    /// Longest wait for the agent, in microseconds.
    const LOOK_EVERY_US: u64 = 4;

    pub fn wait(word: &AtomicU32, seen: u32, _: Option<Duration>) -> Result<(), ()> {
        if word.load(Ordering::Acquire) == seen {
            actors::wait_until_or(|| false, LOOK_EVERY_US);
        }
        Ok(())
    }
}
