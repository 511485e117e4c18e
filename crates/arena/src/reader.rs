//! Reading pages from areas, for the arena's threads that may block. Handlers ask for pages (`state::Reads`) and wait.
//!
//! A reader takes all that is asked for, up to 16 pages, and reads them with one call of the engine: neighbours in an
//! area are one request then, and others are under way at the same time. What is read only is kept: it can leave again
//! without being written.

use vswap_engine::{Entry, Page, PageBuffer, Scratch, SwapIn, SwapInError};

use crate::fault::{Refused, patiently};
use crate::state::{Core, count};
use crate::streams::MOST;
use crate::word::{State, Word};

/// Pages that a reader reads at a time: as many as are brought along with one.
const AT_ONCE: usize = 16;
const _: () = assert!(AT_ONCE as u64 == MOST);

/// A page that somebody asked for, and has made reading.
#[derive(Debug, Clone, Copy)]
struct Asked {
    page: usize,
    is_write: bool,
    word: Word,
    entry: Entry,
}

/// What a thread reads with.
#[derive(Debug)]
pub struct Reader {
    asked: Vec<Asked>,
    read: Vec<Option<Result<SwapIn, SwapInError>>>,
    buffer: PageBuffer,
    scratch: Scratch,
}

impl Reader {
    /// A reader in the memory of an arena's engine.
    pub fn new(core: &Core) -> Reader {
        Reader {
            asked: Vec::with_capacity(AT_ONCE),
            read: vec![None; AT_ONCE],
            buffer: core.engine.buffer(AT_ONCE),
            scratch: core.engine.scratch(),
        }
    }

    /// Reads some of what is asked for. False if that is nothing. Blocks.
    pub fn read_some(&mut self, core: &Core) -> bool {
        self.take(core);
        if self.asked.is_empty() {
            return false;
        }
        let entries: Vec<Entry> = self.asked.iter().map(|one| one.entry).collect();
        let mut pages: Vec<&mut Page> = self.buffer.iter_mut().take(entries.len()).collect();
        self.read.fill(None);
        core.engine
            .swap_in_all(&entries, &mut pages, &mut self.scratch, |at, read| {
                self.read[at] = Some(read);
            });
        for (at, one) in self.asked.iter().enumerate() {
            let from = match self.read[at] {
                Some(Ok(from)) => Ok(from),
                _ => Err(Refused::Lost),
            };
            bring(core, one, from, &self.buffer[at]);
        }
        true
    }

    fn take(&mut self, core: &Core) {
        self.asked.clear();
        while self.asked.len() < AT_ONCE {
            let Some((page, is_write)) = core.reads.take() else {
                return;
            };
            let word = core.words.load(page);
            if let State::Reading(entry) = word.state() {
                self.asked.push(Asked {
                    page,
                    is_write,
                    word,
                    entry,
                });
            }
        }
    }
}

/// Puts a page that was read where it belongs.
fn bring(core: &Core, one: &Asked, from: Result<SwapIn, Refused>, content: &Page) {
    // To keep a copy in the pool would cost RAM.
    let protected = !one.is_write && from == Ok(SwapIn::Physical);
    let brought = from.and_then(|_| {
        patiently(|| core.memory.fill(one.page, &content.0, protected)).map_err(|_| Refused::Kernel)
    });
    count(&core.counts.area_faults);
    let to = if protected {
        State::Kept(one.entry)
    } else {
        State::Owed(one.entry)
    };
    // Who asked touches the page again, and hears then of what went wrong.
    let _ = core.arrive(one.page, one.word, one.entry, brought, to);
}
