//! What all threads of a run share: limits, counters, spaces, and the store.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use vswap_engine::{Engine, Entry, GroupId, GroupLimits, GroupName, PoolFill};
use vswap_sys::cpu;

use crate::base::kernel::{self, maps, process};

use crate::base::lock::{Mutex, MutexGuard, Row};
use crate::base::page_run::PAGE_BYTES;
use crate::events::fork::Forks;
use crate::evict::shrink::Shrinker;
use crate::evict::write_out::Writeback;
use crate::fault::area_reads::AreaReads;
use crate::layout::words::{PageState, PageWord};
use crate::life::governor::Governor;
use crate::life::lifecycle;
use crate::life::shares::Shares;
use crate::life::store::Store;
use crate::policy::working_set::WorkingSet;
use crate::run::buffers::SpareBuffers;
use crate::run::stats::Stats;
use crate::run::usage::Part;
use crate::run::watch::Watch;
use crate::space::Space;
use crate::store::areas::Areas;
use crate::store::config::{Config, SHARED_FRAMES};

/// Text, stacks and small data of the vswap process, measured at rest and rounded up.
const OWN_FIXED_BYTES: u64 = 6 << 20;
/// A run may have one part in this many of a shared store's frames.
const FRAMES_PART: u64 = 8;
/// What a run in a shared store costs that process: threads, their buffers, and frames read ahead, measured at work.
/// The bytes above are the run's own process then.
const SHARED_FIXED_BYTES: u64 = 6 << 20;
/// While keeping does not pay, one swap-in in this many is kept to learn whether it does again.
const KEEP_PROBE: u64 = 64;
/// How far the balance of keeping may swing: so many pages change its mind.
const KEEP_SCORE_MAX: i64 = 256;

/// The shared heart of a run.
#[derive(Debug)]
pub struct Core {
    /// What the run was told.
    pub config: Config,
    /// Swap tables, cache, pool: the store's.
    pub engine: Arc<Engine>,
    /// Files and devices behind the pool: the store's.
    pub areas: Arc<Areas>,
    /// Whose the pages of the run are.
    pub group: GroupId,
    /// In a shared store the group is the run's own, and this is its name.
    pub own_group: Option<GroupName>,
    /// What is known of the run's part of a shared store.
    pub part: Part,
    /// CPUs that the run may use; asked for once, because readers narrow their own.
    pub cpus: Vec<usize>,
    /// Limits.
    pub governor: Governor,
    /// Counters.
    pub stats: Stats,
    /// What is to be compressed.
    pub writeback: Writeback,
    /// Which pages went out too early.
    pub working_set: WorkingSet,
    /// Swap-ins that wait for them.
    pub area_reads: AreaReads,
    /// What moves cold pages from the pool to them.
    pub shrinker: Shrinker,
    /// What counts of processes that share pages, and of those without an agent.
    pub shares: Shares,
    /// Buffers for threads that bring pages back now and then.
    pub spare_buffers: SpareBuffers,
    /// What the readers listen to.
    pub watch: Watch,
    /// Forked children that have not said hello.
    pub forks: Forks,
    spaces: Mutex<Vec<Arc<Space>>>,
    next_space: AtomicU64,
    kept_pages: AtomicI64,
    listeners: AtomicU64,
    short: AtomicBool,
    keep_score: AtomicI64,
    keep_asked: AtomicU64,
}

impl Core {
    /// The heart of a run that has no process yet.
    pub fn new(
        config: Config,
        store: &Store,
        group: GroupId,
        own_group: Option<GroupName>,
    ) -> Core {
        let governor = Governor::new(config.limit_bytes);
        Core {
            cpus: cpu::permitted(),
            config,
            engine: Arc::clone(&store.engine),
            areas: Arc::clone(&store.areas),
            group,
            own_group,
            part: Part::default(),
            governor,
            stats: Stats::default(),
            shares: Shares::default(),
            spare_buffers: SpareBuffers::default(),
            watch: Watch::default(),
            forks: Forks::default(),
            writeback: Writeback::default(),
            working_set: WorkingSet::default(),
            area_reads: AreaReads::default(),
            shrinker: Shrinker::default(),
            spaces: Mutex::new(Row::Innermost, "the list of spaces", Vec::new()),
            next_space: AtomicU64::new(1),
            kept_pages: AtomicI64::new(0),
            listeners: AtomicU64::new(0),
            short: AtomicBool::new(false),
            keep_score: AtomicI64::new(0),
            keep_asked: AtomicU64::new(0),
        }
    }

    /// A number for a new space.
    pub fn next_space_id(&self) -> u64 {
        self.next_space.fetch_add(1, Ordering::Relaxed)
    }

    /// All spaces that have not ended.
    pub fn spaces(&self) -> Vec<Arc<Space>> {
        self.lock_spaces().clone()
    }

    /// Add a space.
    pub fn add_space(&self, space: Arc<Space>) {
        self.lock_spaces().push(space);
        self.governor.look_now();
    }

    /// Take a space out of the list.
    pub fn remove_space(&self, id: u64) {
        self.forks.forget(id);
        self.lock_spaces().retain(|space| space.id != id);
    }

    /// The space of a process.
    pub fn space_of(&self, pid: u32) -> Option<Arc<Space>> {
        self.lock_spaces()
            .iter()
            .rev()
            .find(|space| space.pid() == Some(pid))
            .cloned()
    }

    /// May a page that comes back for reading keep its entry? Where it pays: a program that writes to what it has just
    /// read takes a second fault for each page that was kept in vain.
    pub fn may_keep_copies(&self) -> bool {
        let probe = self
            .keep_asked
            .fetch_add(1, Ordering::Relaxed)
            .is_multiple_of(KEEP_PROBE);
        self.keep_score.load(Ordering::Relaxed) >= 0 || probe
    }

    /// One more entry is kept behind a resident page.
    pub fn kept_one(&self) {
        self.kept_pages.fetch_add(1, Ordering::Relaxed);
    }

    /// A kept entry is a swapped one again: its page went out, and keeping it paid.
    pub fn kept_went_out(&self) {
        self.kept_pages.fetch_sub(1, Ordering::Relaxed);
        self.score_keeping(1);
    }

    /// A page with a kept entry was written to: keeping it was in vain.
    pub fn kept_was_written(&self) {
        self.score_keeping(-1);
    }

    fn score_keeping(&self, change: i64) {
        let score = self.keep_score.load(Ordering::Relaxed) + change;
        // Two threads may lose each other's change: the score is a tendency.
        self.keep_score.store(
            score.clamp(-KEEP_SCORE_MAX, KEEP_SCORE_MAX),
            Ordering::Relaxed,
        );
    }

    /// Give up the reference that a page word holds.
    pub fn put_word(&self, word: PageWord) {
        self.put_words()(word);
    }

    /// Give up the references that many page words hold, one after the other.
    pub fn put_words(&self) -> impl FnMut(PageWord) {
        let mut puts = self.engine.puts();
        move |word| match word.state() {
            PageState::Kept(entry) => {
                self.kept_pages.fetch_sub(1, Ordering::Relaxed);
                puts.put(entry);
            }
            PageState::Swapped(entry) => puts.put(entry),
            PageState::Plain => {}
        }
    }

    /// Take one more reference for a copy of a page word, made by a fork.
    pub fn dup_word(&self, word: PageWord) -> bool {
        if matches!(word.state(), PageState::Kept(_)) {
            self.kept_one();
        }
        word.entry()
            .is_none_or(|entry| self.engine.dup(entry).is_ok())
    }

    /// Is `page` mapped in the process now?
    pub fn is_mapped(&self, space: &Space, page: u64) -> bool {
        let Some(process) = space.process.get() else {
            return true;
        };
        let address = page * PAGE_BYTES;
        let mut text = Vec::new();
        if process
            .by_a_thread(|tid| maps::read(tid, &mut text))
            .is_err()
        {
            return false;
        }
        let mut mappings = maps::parse(&text).filter_map(Result::ok);
        mappings.any(|mapping| mapping.start <= address && address < mapping.end)
    }

    /// The content of a page cannot be given back: stop the process before it can read anything else in its place.
    pub fn fail_closed(&self, space: &Space, page: u64, why: &dyn Display) {
        if lifecycle::is_ending(space) {
            return;
        }
        let pid = space.pid();
        eprintln!(
            "vswap: cannot bring back the page at {:#x} of process {}: {why}; stopping it, because it must not \
             read anything else in its place",
            page * PAGE_BYTES,
            pid.map_or_else(|| "?".to_owned(), |pid| pid.to_string()),
        );
        match pid {
            Some(pid) => drop(process::kill(pid)),
            // A child that has not told its pid cannot be stopped alone.
            None => kernel::abort(),
        }
    }

    /// The pool is full: give up the copies that are kept behind resident pages, of entries that are `wanted`.
    pub fn shed_kept_copies(&self, wanted: impl Fn(Entry) -> bool) {
        if self.kept_pages.load(Ordering::Relaxed) <= 0 {
            return;
        }
        for space in self.spaces() {
            // A lock that is held longer than a moment is one that waits for a stopped process.
            if let Some(mut state) = space.try_lock() {
                state.layout.shed_kept(&wanted, &mut self.put_words());
            }
        }
    }

    /// Bytes that vswap needs beside the pool, whatever the load: program text, frames, threads.
    pub fn own_fixed_bytes(&self) -> u64 {
        let shared_bytes = self.own_group.as_ref().map_or(0, |_| SHARED_FIXED_BYTES);
        OWN_FIXED_BYTES + shared_bytes + self.frames() * PAGE_BYTES
    }

    /// Frames that the run may take now. Those of a shared store are for all runs, also when this one cannot empty its
    /// own.
    pub fn frames_left(&self) -> usize {
        let most = usize::try_from(self.frames()).unwrap_or(usize::MAX);
        most.saturating_sub(self.writeback.pending())
    }

    fn frames(&self) -> u64 {
        let frames = self.config.frames();
        match self.own_group {
            Some(_) => frames.min(SHARED_FRAMES / FRAMES_PART),
            None => frames,
        }
    }

    /// Limit what the run has in the pool, by what it may use and has.
    pub fn limit_pool(&self) {
        let limit_bytes = self.governor.pool.renew(self);
        if self.own_group.is_none() {
            return self.engine.set_pool_limit(limit_bytes);
        }
        let limits = GroupLimits {
            pool_max_bytes: self.part.payload_in(limit_bytes),
            ..GroupLimits::default()
        };
        // The group is there as long as the run.
        let _ = self.engine.set_group_limits(self.group, limits);
    }

    /// The group whose pages the run may move out of the pool: where it has a store of its own all are its own.
    pub fn group_in_pool(&self) -> GroupId {
        match self.own_group {
            Some(_) => self.group,
            None => GroupId::ROOT,
        }
    }

    /// How full the pool is, or the run's part of it.
    pub fn pool_fill(&self) -> PoolFill {
        if self.own_group.is_none() {
            return self.engine.pool_fill();
        }
        self.part.fill(self, self.governor.pool.bytes())
    }

    /// Memory is short (or no longer): armed spaces begin to be watched.
    pub fn set_short(&self, short: bool) {
        let was = self.short.swap(short, Ordering::AcqRel);
        if short && !was {
            self.spaces()
                .iter()
                .for_each(|space| space.mailbox.ask(|wanted| wanted.rescan = true));
        }
    }

    /// Is memory short?
    pub fn is_short(&self) -> bool {
        self.short.load(Ordering::Acquire)
    }

    /// A filter's listener is being served.
    pub fn add_listener(&self) {
        self.listeners.fetch_add(1, Ordering::AcqRel);
    }

    /// Has any process of the run a filter?
    pub fn has_listener(&self) -> bool {
        self.listeners.load(Ordering::Acquire) > 0
    }

    fn lock_spaces(&self) -> MutexGuard<'_, Vec<Arc<Space>>> {
        self.spaces.lock()
    }
}
