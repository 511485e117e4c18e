//! References that page words hold to entries, and whether it pays to keep entries behind resident pages.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use vswap_engine::{Engine, Entry};

use crate::layout::words::{PageState, PageWord};
use crate::run::spaces::Spaces;

/// While keeping does not pay, one swap-in in this many keeps its entry, to learn whether keeping pays again.
const KEEP_PROBE: u64 = 64;
/// Bound of the score of keeping: so many pages change the decision.
const KEEP_SCORE_MAX: i64 = 256;

/// Takes and puts the references of a run's page words.
#[derive(Debug)]
pub struct References {
    engine: Arc<Engine>,
    /// Entries kept behind resident pages.
    kept_pages: AtomicI64,
    /// Keeping pays at 0 and above.
    keep_score: AtomicI64,
    keep_asked: AtomicU64,
}

impl References {
    /// References to entries of `engine`, none so far.
    pub fn new(engine: Arc<Engine>) -> References {
        References {
            engine,
            kept_pages: AtomicI64::new(0),
            keep_score: AtomicI64::new(0),
            keep_asked: AtomicU64::new(0),
        }
    }

    /// May a page that comes back for reading keep its entry? Only if keeping pays. A program that writes to what it
    /// has just read takes a second fault for each page kept in vain.
    pub fn may_keep(&self) -> bool {
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

    /// A page with a kept entry went out again, so keeping it paid. The entry is a swapped one now.
    pub fn kept_went_out(&self) {
        self.kept_pages.fetch_sub(1, Ordering::Relaxed);
        self.score_keeping(1);
    }

    /// A page with a kept entry was written to, so keeping it was in vain.
    pub fn kept_was_written(&self) {
        self.score_keeping(-1);
    }

    fn score_keeping(&self, change: i64) {
        let score = self.keep_score.load(Ordering::Relaxed) + change;
        // Two threads may lose each other's change. The score is only a tendency.
        self.keep_score.store(
            score.clamp(-KEEP_SCORE_MAX, KEEP_SCORE_MAX),
            Ordering::Relaxed,
        );
    }

    /// Put the reference of one page word.
    pub fn put(&self, word: PageWord) {
        self.puts()(word);
    }

    /// Put the references of many page words, one after the other.
    pub fn puts(&self) -> impl FnMut(PageWord) {
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

    /// Take one more reference each for the copies of page words that a fork made. False where that cannot be.
    pub fn dups(&self) -> impl FnMut(PageWord) -> bool {
        let mut dups = self.engine.dups();
        move |word| {
            let taken = word.entry().is_none_or(|entry| dups.dup(entry).is_ok());
            if taken && matches!(word.state(), PageState::Kept(_)) {
                self.kept_one();
            }
            taken
        }
    }

    /// Storage is full: give up the `wanted` entries that are kept behind resident pages of these spaces.
    pub fn shed_kept(&self, spaces: &Spaces, wanted: impl Fn(Entry) -> bool) {
        if self.kept_pages.load(Ordering::Relaxed) <= 0 {
            return;
        }
        for space in spaces.all() {
            // Whoever holds the lock for longer than a moment waits for a stopped process. Such a space is passed over.
            if let Some(mut state) = space.try_lock() {
                state.layout.shed_kept(&wanted, &mut self.puts());
            }
        }
    }
}
