//! What all parts of an arena share: its memory, the words of its pages, the engine, the room, and who waits for what.
//!
//! Everything here may be used by any thread. What takes locks of the engine says so and blocks signals (`Masked`).

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use vswap_engine::{Engine, Entry};
use vswap_sys::sigbus::Masked;
use vswap_sys::watched::Watched;

use crate::allowance::Allowance;
use crate::areas::Areas;
use crate::bridges::Bridges;
use crate::desk::Desks;
use crate::event::Event;
use crate::groups::Groups;
use crate::memory::MappedPages;
use crate::owed::Owed;
use crate::room::Room;
use crate::space::Space;
use crate::streams::Streams;
use crate::word::{PageWords, State};

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;
/// Threads that can wait for an area at the same time. Others try again.
const READS_AT_ONCE: usize = 256;
/// Owed entries that are worth waking the evictor: a quarter of a megabyte of pages.
const OWED_WAKES: u64 = 64;

/// What has happened so far.
#[derive(Debug, Default)]
pub struct Counts {
    pub zero_faults: AtomicU64,
    pub pool_faults: AtomicU64,
    pub area_faults: AtomicU64,
    /// Pages that were brought along with another.
    pub brought_along: AtomicU64,
    /// Writes to pages that were protected.
    pub write_faults: AtomicU64,
    /// Pages that were dropped without being compressed.
    pub clean_drops: AtomicU64,
    /// Pages that were written to while they were leaving.
    pub cancelled: AtomicU64,
    /// Pages that are in memory because they do not compress: those in the state `Raw`.
    pub raw: AtomicU64,
    /// Pages in the pool that were packed again, more densely.
    pub packed_again: AtomicU64,
}

/// Adds one to a counter.
pub fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Pages that threads wait for and that lie in an area, for the threads that read them. Filled by handlers.
#[derive(Debug)]
pub struct Reads {
    /// 0, or a page's number plus one, shifted by one, and whether it is to be written to.
    places: [AtomicU64; READS_AT_ONCE],
    pub asked: Event,
}

impl Reads {
    fn new() -> Reads {
        Reads {
            places: std::array::from_fn(|_| AtomicU64::new(0)),
            asked: Event::default(),
        }
    }

    /// Asks for a page that the caller has made reading. False if too many are asked for.
    pub fn ask(&self, page: usize, is_write: bool) -> bool {
        let value = ((page as u64 + 1) << 1) | u64::from(is_write);
        let is_put = |place: &AtomicU64| {
            // Release pairs with `take`.
            let put = place.compare_exchange(0, value, Ordering::SeqCst, Ordering::Relaxed);
            put.is_ok()
        };
        let start = page % READS_AT_ONCE;
        let is_asked = (start..READS_AT_ONCE)
            .chain(0..start)
            .any(|at| is_put(&self.places[at]));
        if is_asked {
            self.asked.happened();
        }
        is_asked
    }

    /// Takes a page that somebody asked for.
    pub fn take(&self) -> Option<(usize, bool)> {
        self.places.iter().find_map(|place| {
            if place.load(Ordering::SeqCst) == 0 {
                return None;
            }
            let value = place.swap(0, Ordering::SeqCst);
            let page = (value >> 1).checked_sub(1)?;
            Some((usize::try_from(page).ok()?, value & 1 != 0))
        })
    }

    /// Is none asked for?
    pub fn is_empty(&self) -> bool {
        let is_free = |place: &AtomicU64| place.load(Ordering::SeqCst) == 0;
        self.places.iter().all(is_free)
    }
}

/// An arena, but for its threads and handles.
#[derive(Debug)]
pub struct Core {
    pub memory: Watched,
    pub words: PageWords,
    pub engine: Engine,
    pub pages: Arc<MappedPages>,
    pub desks: Desks,
    pub room: Room,
    pub streams: Streams,
    pub bridges: Bridges,
    pub owed: Owed,
    pub reads: Reads,
    pub counts: Counts,
    /// Held for writing while pages go from the pool to an area. A handler that has a share of it finds in the pool
    /// what it saw there, so it never reads an area itself.
    pub gate: RwLock<()>,
    pub space: Mutex<Space>,
    /// Pages that are to leave first.
    pub cold: Mutex<Vec<Range<usize>>>,
    pub areas: Areas,
    pub groups: Groups,
    /// Nobody has named a codec.
    pub chooses_codec: bool,
    pub allowance: Allowance,
    /// A thread serves faults, those of system calls too (`observer.rs`).
    pub is_observed: bool,
    /// The process that made it.
    pub pid: u32,
    pub is_over: AtomicBool,
}

/// The parts that a builder makes.
#[derive(Debug)]
pub struct Parts {
    pub memory: Watched,
    pub words: PageWords,
    pub owed: Owed,
    pub engine: Engine,
    pub pages: Arc<MappedPages>,
    pub areas: Areas,
    pub groups: Groups,
    pub chooses_codec: bool,
    pub is_observed: bool,
    pub allowance: Allowance,
    pub cpus: usize,
}

impl Core {
    /// An arena without allocations.
    pub fn new(parts: Parts) -> Core {
        let core = Core {
            desks: Desks::new(&parts.engine, parts.cpus),
            space: Mutex::new(Space::new(parts.memory.pages())),
            memory: parts.memory,
            words: parts.words,
            owed: parts.owed,
            engine: parts.engine,
            pages: parts.pages,
            areas: parts.areas,
            groups: parts.groups,
            chooses_codec: parts.chooses_codec,
            is_observed: parts.is_observed,
            allowance: parts.allowance,
            room: Room::default(),
            streams: Streams::default(),
            bridges: Bridges::default(),
            reads: Reads::new(),
            counts: Counts::default(),
            gate: RwLock::new(()),
            cold: Mutex::new(Vec::new()),
            pid: std::process::id(),
            is_over: AtomicBool::new(false),
        };
        core.set_cap();
        core
    }

    /// Is this the process that made it? A child of a fork has neither its memory nor its threads.
    pub fn is_at_home(&self) -> bool {
        std::process::id() == self.pid
    }

    /// Bytes that are not pages of the program: the engine's memory, and the words and bits of all pages that were ever
    /// handed out.
    pub fn overhead_bytes(&self) -> u64 {
        /// Of a page: its word, its bit, and a share of the summary.
        const WORD_BITS: u64 = 64 + 1 + 1;
        let top = self
            .space
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .top() as u64;
        self.pages.resident_bytes() + (top * WORD_BITS).div_ceil(8)
    }

    /// Sets how many pages may be in memory, from what everything else takes. Takes locks, with signals blocked.
    pub fn set_cap(&self) {
        let _masked = Masked::new();
        let left = self
            .allowance
            .ram_bytes()
            .saturating_sub(self.overhead_bytes());
        self.room.set_cap(left / PAGE_BYTES as u64);
    }

    /// Follows what the run grants, for the evictor. The cap follows with the next window.
    pub fn look_at_allowance(&self) {
        if let Some(changed) = self.allowance.look() {
            self.engine.set_pool_limit(changed.pool_bytes);
        }
    }

    /// Nothing can leave: takes more than the run grants. False if there is no more to take.
    pub fn exceed_allowance(&self) -> bool {
        let Some(changed) = self.allowance.exceed() else {
            return false;
        };
        self.engine.set_pool_limit(changed.pool_bytes);
        self.set_cap();
        self.room.note_progress();
        true
    }

    /// The arena is about to end: nothing is left of it on other machines. Blocks for some seconds at most, where there
    /// are such areas.
    pub fn retire_areas(&self) {
        let _masked = Masked::new();
        self.engine.retire_areas();
    }

    /// These pages are to leave first.
    pub fn say_cold(&self, pages: Range<usize>) {
        // The evictor takes this lock too, so no handler may come in between.
        let _masked = Masked::new();
        let mut cold = self.cold.lock().unwrap_or_else(PoisonError::into_inner);
        cold.push(pages);
        drop(cold);
        self.room.wanted.happened();
    }

    /// Is there work for the evictor?
    pub fn has_work(&self) -> bool {
        let cold = self.cold.lock().unwrap_or_else(PoisonError::into_inner);
        !cold.is_empty() || self.room.is_short() || self.owed.marked() >= OWED_WAKES
    }

    /// The page word owes an entry from now on.
    pub fn mark_owed(&self, page: usize) {
        if self.owed.mark(page) == OWED_WAKES {
            self.room.wanted.happened();
        }
    }

    /// Puts what pages owe. Takes locks, with signals blocked.
    pub fn put_owed(&self) {
        let _masked = Masked::new();
        let mut puts = self.engine.puts();
        self.owed.drain(|page| {
            let word = self.words.load(page);
            // A page that somebody has claimed is his to settle, and to mark again.
            if let State::Owed(entry) = word.state()
                && self.words.change(page, word, word.with(State::Plain))
            {
                puts.put(entry);
            }
        });
    }

    /// Puts an entry. Takes locks, with signals blocked.
    pub fn put(&self, entry: Option<Entry>) {
        if let Some(entry) = entry {
            let _masked = Masked::new();
            self.engine.put(entry);
        }
    }
}
