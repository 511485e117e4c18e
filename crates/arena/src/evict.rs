//! Moving pages out, in windows. For the evictor, the one thread that does it.
//!
//! 1. *Pick.* A hand sweeps the arena in address order and claims up to 64 pages that are in memory. What is in use
//!    faults back just behind the hand and is then safe for a whole lap. Clean pages are only noted.
//! 2. *Protect and copy.* The pages are write-protected, run by run, and copied into frames. They stay readable. The
//!    claim ends here: from now on they are *leaving*.
//! 3. *Write out.* The engine compresses the copies. Who writes to a page that is leaving takes it from the evictor.
//!    What does not compress takes as much in the pool as in memory. So without an area it stays, still protected, and
//!    is passed over until somebody writes to it (`Raw`), or it is tried with another codec (`density.rs`). What its
//!    group's limits have no room for stays too, and the next lap tries it again.
//! 4. *Claim again* those that are still leaving: their copies are what they hold. And the clean ones.
//! 5. *Drop.* The pages are discarded, run by run, and only then named as being out.
//!
//! Whatever fails, the page is where it was. Signals are blocked, and the only memory of the arena that is touched is
//! that of pages claimed in step 1. No lock is held then. While pages are claimed nothing is allocated, freed or put:
//! who waits for the claim may be inside malloc.

use std::ops::Range;
use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use vswap_engine::{Entry, FrameMut, GroupId, Scratch, Shadow, WriteOutError, Written};

use crate::density::{Density, is_nearly_full};
use crate::fault::patiently;
use crate::state::{Core, count};
use crate::word::{State, Word};

/// Pages of a window: one request of a disk, and enough that the calls to the kernel cost little for each page.
const WINDOW_PAGES: usize = 64;
/// Words that are looked at for one window. A hand that finds little comes back for the rest.
const LOOKS_MAX: usize = 1 << 16;
/// Pages that are compacted at a time, and that go from the pool to an area at a time: a window.
const POOL_STEP_PAGES: usize = WINDOW_PAGES;
/// An area is crowded when less than one part in so many of it is free: what is cold in it goes down to areas of lower
/// priority, until a tenth is free. As for runs (`evict/shrink.rs` of the pager).
const CROWDED_PART: u64 = 20;
const ROOMY_PART: u64 = 10;
/// The cluster that slots come from. There is one thread that takes them.
const CPU: usize = 0;

/// What came of a window.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    /// Pages that left.
    pub pages: u64,
    /// The engine had no place for a page.
    pub is_full: bool,
    /// Where the next window begins.
    pub next: usize,
}

/// A claimed page, and the frame that its copy goes to.
#[derive(Debug)]
struct Dirty<'e> {
    page: usize,
    word: Word,
    frame: FrameMut<'e>,
    is_copied: bool,
}

/// A page whose content is behind an entry too.
#[derive(Debug, Clone, Copy)]
struct Going {
    page: usize,
    /// As it was when it was picked.
    word: Word,
    entry: Entry,
    is_zero: bool,
}

/// What was picked.
#[derive(Debug)]
struct Picked<'e> {
    dirty: Vec<Dirty<'e>>,
    clean: Vec<Going>,
    /// Entries that words have owed.
    owed: Vec<Entry>,
    /// Where the next window begins.
    next: usize,
}

/// Moves pages out.
#[derive(Debug)]
pub struct Evictor {
    core: Arc<Core>,
    scratch: Scratch,
    density: Density,
    hand: usize,
    /// The engine's ids of the arena's groups, by number.
    groups: Vec<GroupId>,
}

impl Evictor {
    /// One for an arena.
    pub fn new(core: Arc<Core>) -> Evictor {
        Evictor {
            scratch: core.engine.scratch(),
            density: Density::new(core.chooses_codec && !core.areas.any()),
            core,
            hand: 0,
            groups: vec![GroupId::ROOT],
        }
    }

    /// Makes room until the free pages are there, or nothing more can leave. Returns whether nothing can.
    pub fn make_room(&mut self) -> bool {
        let mut looked = 0;
        while self.core.room.to_evict(true) > 0 && !self.core.is_over.load(Ordering::Acquire) {
            let top = self.top();
            if self.hand >= top {
                self.hand = 0;
                self.density.note_lap();
            }
            self.core.look_at_allowance();
            let done = self.window(self.hand..top, !self.core.areas.any());
            let passed = done.next - self.hand;
            looked = if done.pages > 0 { 0 } else { looked + passed };
            self.hand = done.next;
            // Two laps without a page: what came in behind the hand was seen as well. Or there is no frame.
            let is_stuck = done.pages == 0 && passed == 0;
            if done.is_full || looked >= 2 * top || is_stuck {
                let is_new = self.density.begin_when_full(&self.core.engine);
                if self.pack_again() == 0 && !is_new {
                    self.core.room.note_vain();
                    return true;
                }
                looked = 0;
            }
        }
        false
    }

    /// Moves out what the program has said to be cold.
    pub fn evict_cold(&mut self) {
        let cold = {
            let mut cold = self
                .core
                .cold
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *cold)
        };
        for mut range in cold {
            while !range.is_empty() && !self.core.is_over.load(Ordering::Acquire) {
                // The program knows that it will not miss it, compressed or not.
                let done = self.window(range.clone(), false);
                if done.is_full || (done.pages == 0 && done.next == range.start) {
                    return;
                }
                range.start = done.next;
            }
        }
    }

    fn top(&self) -> usize {
        self.core
            .space
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .top()
    }

    /// Moves one window out of a range, and puts what pages owe. What does not compress may be told to stay.
    fn window(&mut self, range: Range<usize>, raw_stays: bool) -> Done {
        self.core.put_owed();
        self.keep_pool_from_filling();
        self.keep_tiers_from_filling();
        let core = Arc::clone(&self.core);
        let mut going = Vec::with_capacity(WINDOW_PAGES);
        let mut picked = pick(&core, &range, self.density.takes_raw());
        copy_out(&core, &mut picked.dirty);
        picked.owed.iter().for_each(|entry| core.engine.put(*entry));
        let is_full = self.launder(&core, picked.dirty, raw_stays, &mut going);
        let pages = drop_pages(&core, going, &picked.clean);
        core.room.evict(pages);
        self.density.note_left(pages, &core.engine);
        core.set_cap();
        Done {
            pages,
            is_full,
            next: picked.next,
        }
    }

    /// Writes the copies of pages that are leaving out. Returns whether the engine had no place for one, which stays.
    fn launder(
        &mut self,
        core: &Core,
        dirty: Vec<Dirty<'_>>,
        raw_stays: bool,
        going: &mut Vec<Going>,
    ) -> bool {
        // No page is claimed now, so here it can allocate. Whoever is in `dirty` has a group that was made before.
        if core.groups.count() >= self.groups.len() {
            self.groups = core.groups.ids();
        }
        let mut leaving = Vec::with_capacity(dirty.len());
        let mut is_full = false;
        for one in dirty {
            let (page, word) = (one.page, one.word);
            let group = self.group_of(page);
            let placed = core.engine.swap_out(CPU, one.frame, Shadow::ABSENT, group);
            match placed {
                Ok(entry) if one.is_copied => leaving.push((page, word, entry)),
                Ok(entry) => {
                    core.engine.put(entry);
                    keep(core, page, word);
                }
                Err(_) => {
                    is_full = true;
                    keep(core, page, word);
                }
            }
        }
        let entries: Vec<Entry> = leaving.iter().map(|(.., entry)| *entry).collect();
        let mut outcomes: Vec<(Entry, Result<Written, WriteOutError>)> =
            Vec::with_capacity(entries.len());
        let mut note = |entry, outcome| outcomes.push((entry, outcome));
        let codec = self.density.codec(&core.engine);
        core.engine
            .write_out_packed(CPU, &entries, |_| codec, &mut self.scratch, &mut note);
        for (page, word, entry) in leaving {
            let outcome = outcomes.iter().find(|(of, _)| *of == entry);
            match outcome {
                Some((_, Ok(Written::Raw))) if raw_stays => {
                    core.engine.put(entry);
                    keep_raw(core, page, word);
                }
                Some((_, Ok(written))) => going.push(Going {
                    page,
                    word,
                    entry,
                    is_zero: *written == Written::Zero,
                }),
                other => {
                    core.engine.put(entry);
                    keep(core, page, word);
                    // Others may still have room where this page's group has none.
                    is_full |= !matches!(other, Some((_, Err(WriteOutError::Limited))));
                }
            }
        }
        is_full
    }

    /// The engine's id of a page's group. Who freed the page meanwhile has made the copy worthless.
    fn group_of(&self, page: usize) -> GroupId {
        let group = self.core.groups.of(page);
        self.groups
            .get(group.index())
            .copied()
            .unwrap_or(GroupId::ROOT)
    }

    /// Packs cold pages of the pool more densely, if that is to be. Returns how many.
    fn pack_again(&mut self) -> u64 {
        let core = &self.core;
        let pages = self.density.pack_again(&core.engine, &mut self.scratch);
        core.counts.packed_again.fetch_add(pages, Ordering::Relaxed);
        pages
    }

    /// The pool keeps what left last. What is cold in it goes on to the area while there is one, and is packed more
    /// densely otherwise.
    fn keep_pool_from_filling(&mut self) {
        let fill = self.core.engine.pool_fill();
        self.density.look(&fill);
        if !is_nearly_full(&fill) {
            return;
        }
        self.core.engine.compact(POOL_STEP_PAGES);
        self.pack_again();
        if self.core.areas.any() {
            let _gate = self
                .core
                .gate
                .write()
                .unwrap_or_else(PoisonError::into_inner);
            self.core
                .engine
                .write_back(CPU, POOL_STEP_PAGES, &mut self.scratch);
        }
    }

    /// Moves what is cold in an area that is nearly full to areas of lower priority.
    fn keep_tiers_from_filling(&mut self) {
        let engine = &self.core.engine;
        if self.core.areas.any() && engine.is_tier_crowded(CROWDED_PART) {
            engine.demote(CPU, ROOMY_PART, POOL_STEP_PAGES, &mut self.scratch);
        }
    }
}

/// Claims dirty pages of a range, each with a frame to copy it into, and finds clean ones. Those that did not compress
/// are left out unless it `takes_raw`.
fn pick<'e>(core: &'e Core, range: &Range<usize>, takes_raw: bool) -> Picked<'e> {
    let end = range.end.min(range.start.saturating_add(LOOKS_MAX));
    let mut picked = Picked {
        dirty: Vec::with_capacity(WINDOW_PAGES),
        clean: Vec::with_capacity(WINDOW_PAGES),
        owed: Vec::with_capacity(WINDOW_PAGES),
        next: end,
    };
    for page in range.start..end {
        if picked.dirty.len() + picked.clean.len() >= WINDOW_PAGES {
            picked.next = page;
            break;
        }
        let word = core.words.load(page);
        match word.state() {
            _ if word.stays() => {}
            State::Kept(entry) => picked.clean.push(Going {
                page,
                word,
                entry,
                is_zero: false,
            }),
            State::Raw if !takes_raw => {}
            State::Plain | State::Owed(_) | State::Raw => {
                let Some(frame) = core.engine.frame() else {
                    picked.next = page;
                    break;
                };
                if core.words.change(page, word, word.with(State::Copying)) {
                    if word.state() == State::Raw {
                        core.counts.raw.fetch_sub(1, Ordering::Relaxed);
                    }
                    picked.owed.extend(word.entry());
                    picked.dirty.push(Dirty {
                        page,
                        word,
                        frame,
                        is_copied: false,
                    });
                }
            }
            _ => {}
        }
    }
    picked
}

/// Protects and copies claimed pages, and ends the claims.
fn copy_out(core: &Core, dirty: &mut [Dirty<'_>]) {
    let pages: Vec<usize> = dirty.iter().map(|one| one.page).collect();
    let protected = core.protect_claimed(&pages);
    for (at, one) in dirty.iter_mut().enumerate() {
        // SAFETY: the page was in memory when it was claimed, nobody else drops it while it is, and the protection
        // keeps all threads from writing to it.
        one.is_copied =
            at < protected && unsafe { core.memory.read(one.page, &mut one.frame.0) }.is_ok();
        core.words.settle(one.page, one.word.with(State::Leaving));
    }
}

/// Lets a page stay that was leaving, unless somebody has it already.
fn keep(core: &Core, page: usize, word: Word) {
    let leaving = word.with(State::Leaving);
    if !core.words.change(page, leaving, word.with(State::Busy)) {
        return;
    }
    // A page that stays protected stays leaving: whoever writes to it tries again.
    let lifted = patiently(|| core.memory.unprotect(page..page + 1));
    let to = if lifted.is_ok() {
        word.with(State::Plain)
    } else {
        leaving
    };
    core.words.settle(page, to);
}

/// Lets a page stay that does not compress, unless somebody has written to it meanwhile.
fn keep_raw(core: &Core, page: usize, word: Word) {
    // Counted first: who takes it from us counts it off.
    count(&core.counts.raw);
    if !core
        .words
        .change(page, word.with(State::Leaving), word.with(State::Raw))
    {
        core.counts.raw.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Takes those pages out of memory that are still leaving, or still clean. Returns how many.
fn drop_pages(core: &Core, mut going: Vec<Going>, clean: &[Going]) -> u64 {
    let mut to_put = Vec::with_capacity(2 * WINDOW_PAGES);
    going.retain(|one| {
        let leaving = one.word.with(State::Leaving);
        let dropping = one.word.with(State::Dropping);
        let is_ours = core.words.change(one.page, leaving, dropping);
        if !is_ours {
            count(&core.counts.cancelled);
            to_put.push(one.entry);
        }
        is_ours
    });
    for one in clean {
        if core
            .words
            .change(one.page, one.word, one.word.with(State::Dropping))
        {
            count(&core.counts.clean_drops);
            // There is room: no more were picked than go into a window.
            going.push(*one);
        }
    }
    going.sort_unstable_by_key(|one| one.page);
    let rows: Vec<Range<usize>> = going
        .chunk_by(|one, next| one.page + 1 == next.page)
        .map(|row| row[0].page..row[0].page + row.len())
        .collect();
    let (mut dropped, mut rest) = (0, going.iter());
    let settle = |row: &Range<usize>, is_gone: bool| {
        for one in rest.by_ref().take(row.len()) {
            let to = match (is_gone, one.is_zero) {
                (true, false) => State::Out(one.entry),
                (true, true) => {
                    to_put.push(one.entry);
                    State::Absent
                }
                // Locked memory stays. It is protected, as what is kept is.
                (false, _) => State::Kept(one.entry),
            };
            core.words.settle(one.page, one.word.with(to));
            dropped += u64::from(is_gone);
        }
    };
    // SAFETY: the pages are claimed, and their content is behind their entries, or is all zeros. Whoever touches them
    // next waits for the claim and gets that.
    unsafe { core.memory.discard_rows(&rows, settle) };
    to_put.into_iter().for_each(|entry| core.engine.put(entry));
    dropped
}

/// Rows of neighbours among sorted pages.
pub fn runs(pages: &[usize]) -> impl Iterator<Item = Range<usize>> {
    pages
        .chunk_by(|one, next| one + 1 == *next)
        .map(|run| run[0]..run[0] + run.len())
}
