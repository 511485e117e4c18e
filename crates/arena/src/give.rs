//! Giving memory up: pages of a range become absent, and what is behind them is freed. For threads of the program, with
//! signals blocked.

use std::ops::Range;
use std::sync::atomic::Ordering;

use vswap_sys::sigbus::Masked;

use crate::evict::runs;
use crate::fault::patiently;
use crate::state::Core;
use crate::word::{State, Word};

/// Pages that are claimed together, so that others do not wait for long.
const STEP_PAGES: usize = 64;

impl Core {
    /// Discards pages: they read as zeros. Whether they are to stay when they are in memory again is kept if `keeps`.
    /// Returns false if one is pinned, which then has its content, as some of the others may have.
    pub fn discard(&self, range: Range<usize>, keeps: bool) -> bool {
        let mut all = true;
        let mut start = range.start;
        while start < range.end {
            let end = range.end.min(start + STEP_PAGES);
            let _masked = Masked::new();
            all &= self.discard_step(start..end, keeps);
            start = end;
        }
        self.room.note_progress();
        all
    }

    fn discard_step(&self, range: Range<usize>, keeps: bool) -> bool {
        let mut claimed: Vec<(usize, Word)> = Vec::with_capacity(range.len());
        let mut all = true;
        for page in range {
            let word = self.words.load(page);
            if word.state() == State::Absent && (keeps || !word.stays()) {
                continue;
            }
            let word = self.words.claim(page);
            if let State::Pinned(pins) = word.state() {
                if keeps {
                    self.words.settle(page, word);
                    all = false;
                    continue;
                }
                // To free ends the pins. In Rust such a pin was leaked, because it borrows what it pins.
                self.room.unpin(u64::from(pins));
            }
            claimed.push((page, word));
        }
        let pages: Vec<usize> = claimed
            .iter()
            .filter(|(_, word)| word.is_resident())
            .map(|(page, _)| *page)
            .collect();
        for run in runs(&pages) {
            self.empty(run);
        }
        let mut puts = self.engine.puts();
        for (page, word) in claimed {
            if word.stays() && !keeps {
                self.room.unpin(1);
            }
            if let Some(entry) = word.entry() {
                puts.put(entry);
            }
            if word.state() == State::Raw {
                self.counts.raw.fetch_sub(1, Ordering::Relaxed);
            }
            let absent = word.with(State::Absent);
            self.words
                .settle(page, absent.with_stays(word.stays() && keeps));
        }
        self.room.give_back(pages.len() as u64);
        all
    }

    /// Takes claimed pages out of memory. Locked ones stay; they are zeroed once they may leave.
    fn empty(&self, run: Range<usize>) {
        // SAFETY: the pages are claimed, and their user has given their content up.
        if unsafe { self.memory.discard(run.clone()) }.is_ok() {
            return;
        }
        // SAFETY: as above. Locked memory is unlocked first: what is freed need not be locked.
        unsafe {
            let _ = self.memory.unlock(run.clone());
            let _ = patiently(|| self.memory.unprotect(run.clone()));
            if self.memory.discard(run.clone()).is_err() {
                // Nobody could tell old content from zeros.
                std::process::abort();
            }
        }
    }
}
