//! Steps on memory in an arena of vswap's library, which swaps it itself. Under vswap the arena lives beside the agent:
//! both serve faults in the same process, and the arena takes a share of the run's limit.
//!
//! All threads of the first process share an arena. Children have none, as the library says.

use std::mem::ManuallyDrop;
use std::ops::Range;

use vswap_arena::{Advice, Arena, ArenaError, Limits, Region};

use crate::program::actor::{Actor, LEFT_OUT};
use crate::program::calls::{Answer, PAGE_BYTES};
use crate::program::content::{self, PAGE_WORDS, Words};
use crate::program::log::Wrong;
use crate::program::model::ARENA_PAGES;
use crate::step::{Access, Use};

/// What all actors have together for each page that a step names: 16 MiB, which fit into the arena compressed.
const BLOCK_PAGES: usize = 8;
const RAM: &str = "12M";
/// Most pages of a step that are kept in memory at a time. The others have to fit beside all that are pinned.
const PINNED_MAX: usize = 64;

/// An actor's memory in the arena, and what each page holds.
#[derive(Debug)]
pub(crate) struct Library {
    arena: Arena,
    /// Pages for each page that a step names.
    block_pages: usize,
    region: Region,
    stamps: Vec<u64>,
}

/// The arena of a process. One in three has swap areas, in the working directory: a small one, and one that keeps pages
/// packed. Half of these belong to a group that the small one is not for.
///
/// # Errors
/// The library cannot make it.
pub(crate) fn arena(seed: u64) -> Result<Arena, ArenaError> {
    let builder = Arena::builder().ram(RAM);
    match seed % 3 {
        0 => {
            let builder = builder.pool("2M").area(".:8M,prio=5,tier=fast");
            let arena = builder.area(".:64M,packed,tier=slow").build()?;
            match seed % 2 {
                0 => arena.group("a", &Limits::new().tier_max("fast", 0_u64)),
                _ => Ok(arena),
            }
        }
        _ => builder.build(),
    }
}

impl Library {
    /// Memory for one of so many actors.
    ///
    /// # Errors
    /// The arena has no addresses.
    pub(crate) fn new(arena: &Arena, actors: u32) -> Result<Library, ArenaError> {
        Library::with_blocks(arena.clone(), BLOCK_PAGES / actors as usize)
    }

    fn with_blocks(arena: Arena, block_pages: usize) -> Result<Library, ArenaError> {
        let pages = ARENA_PAGES * block_pages;
        Ok(Library {
            block_pages,
            region: arena.allocate(pages * PAGE_BYTES)?,
            stamps: vec![0; pages],
            arena,
        })
    }

    fn address(&self, page: usize) -> usize {
        self.region.as_ptr().as_ptr().expose_provenance() + page * PAGE_BYTES
    }
}

impl Actor<'_> {
    /// A step on pages of the library. What depends on how much room there is, a pin, does not count.
    pub(crate) fn library(&mut self, what: Use, blocks: &Range<usize>) -> Answer {
        let Some(mut library) = self.library.take() else {
            return (LEFT_OUT, 0);
        };
        let first = blocks.start * library.block_pages;
        let mut pages = first..first + blocks.len() * library.block_pages;
        if matches!(what, Use::Pin | Use::Keep) {
            pages.end = pages.end.min(first + PINNED_MAX);
        }
        if let Err(error) = self.use_library(&mut library, what, &pages) {
            eprintln!("vswap-chaos: actor {}: {what:?}: {error}", self.number);
            self.fail(Wrong::Call, library.address(pages.start), (0, 0));
        }
        self.library = Some(library);
        (pages.len() as i64, 0)
    }

    fn use_library(
        &self,
        library: &mut Library,
        what: Use,
        pages: &Range<usize>,
    ) -> Result<(), ArenaError> {
        let bytes = pages.start * PAGE_BYTES..pages.end * PAGE_BYTES;
        match what {
            Use::Write => self.write_library(library, pages),
            Use::Read => self.check_library(library, pages, Access::Touch),
            Use::Cold => library.region.advise(bytes, Advice::Cold)?,
            Use::WillNeed => library.region.advise(bytes, Advice::WillNeed)?,
            Use::Pin => match library.region.pin(bytes) {
                // Only what is pinned may be given to the kernel.
                Ok(_pin) => self.check_library(library, pages, Access::Pipe),
                Err(error) => has_no_room(error)?,
            },
            Use::Keep => match library.region.advise(bytes.clone(), Advice::NeverSwap) {
                Ok(()) => {
                    self.check_library(library, pages, Access::ProcessVm);
                    library.region.advise(bytes, Advice::MaySwap)?;
                }
                Err(error) => has_no_room(error)?,
            },
            Use::Drop => {
                library.region.drop_content(bytes)?;
                library.stamps[pages.clone()].fill(0);
            }
            Use::Renew => {
                *library = Library::with_blocks(library.arena.clone(), library.block_pages)?;
            }
        }
        Ok(())
    }

    fn write_library(&self, library: &mut Library, pages: &Range<usize>) {
        for page in pages.clone() {
            self.shared.log.beat(self.line);
            let stamp = content::stamp(self.line, page);
            let words = content::page(stamp);
            self.channels
                .write(library.address(page), &words, Access::Touch);
            library.stamps[page] = stamp;
        }
    }

    fn check_library(&self, library: &Library, pages: &Range<usize>, by: Access) {
        for page in pages.clone() {
            self.shared.log.beat(self.line);
            let address = library.address(page);
            let mut words = Words([!0; PAGE_WORDS]);
            let answer = self.channels.read(address, &mut words, by);
            if answer != (PAGE_BYTES as i64, 0) {
                self.fail(Wrong::Access, address, (PAGE_BYTES as u64, answer.1 as u64));
            }
            let stamp = library.stamps[page];
            if let Some((index, expected, found)) = content::difference(&words, stamp) {
                self.fail(Wrong::Content, address + index * 8, (expected, found));
            }
        }
    }

    /// Checks all pages of the library.
    pub(crate) fn check_all_of_library(&self) {
        if let Some(library) = &self.library {
            self.check_library(library, &(0..library.stamps.len()), Access::Touch);
        }
    }

    /// A child has no arena. What it has of its parent's must neither be used nor freed.
    pub(crate) fn leave_library(&mut self) {
        let _never_dropped = ManuallyDrop::new(self.library.take());
    }
}

/// Was it refused because there is too little memory? How much there is differs from run to run.
fn has_no_room(error: ArenaError) -> Result<(), ArenaError> {
    match error {
        ArenaError::TooMuchPinned { .. } | ArenaError::Full => Ok(()),
        other => Err(other),
    }
}
