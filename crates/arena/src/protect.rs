//! Write-protecting the pages of a window with as few calls as may be: each interrupts the other processors.
//!
//! Pages that are read and written at random leave in rows of one or two, with pages in between that are not in memory.
//! One call protects them all: it *bridges* pages that are missing, or stay protected. Somebody may bring one of these
//! in meanwhile, and then it is protected too, though its word says that it may be written to. Nothing goes wrong when
//! a thread writes to it, because its fault lifts the protection. A system call that writes to it fails. So:
//!
//! - when the call is over, the evictor looks through the bridged pages, and lifts the protection of those that are
//!   here. Whoever brings one in later is too late for the call;
//! - pages that are pinned are never bridged, and whoever pins a page waits until no bridge is under way that may have
//!   met it before (`bridges.rs`).
//!
//! Not where there are areas: a page that is read from one may be protected on purpose, and nobody can tell from
//! outside how far that has come.

use std::ops::Range;

use crate::fault::patiently;
use crate::state::Core;
use crate::word::State;

/// The most pages between two rows that are bridged: a page table holds 512.
const BRIDGED_MOST: usize = 64;

impl Core {
    /// Write-protects pages that the evictor has claimed, in the order of their numbers. Returns for how many of them,
    /// from the first on, that worked.
    pub fn protect_claimed(&self, pages: &[usize]) -> usize {
        let mut done = 0;
        for some in pages.chunk_by(|one, next| self.may_bridge(one + 1..*next)) {
            if !self.protect_some(some, |row| self.protect_row(row)) {
                break;
            }
            done += some.len();
        }
        done
    }

    fn may_bridge(&self, gap: Range<usize>) -> bool {
        gap.is_empty() || (!self.areas.any() && gap.len() <= BRIDGED_MOST && self.is_bridge(gap))
    }

    /// Can none of these pages be written to, unless it is brought in first?
    fn is_bridge(&self, mut gap: Range<usize>) -> bool {
        gap.all(|page| self.is_away(page))
    }

    /// Not of one that is leaving or kept: it is dropped without another look, so nobody may lift its protection while
    /// somebody else tries to and then leaves it as it was.
    fn is_away(&self, page: usize) -> bool {
        let state = self.words.load(page).state();
        matches!(state, State::Absent | State::Out(_) | State::Raw)
    }

    /// Protects pages with bridges between them, by calls of `protect`. For `protect_claimed` and its tests.
    pub fn protect_some(&self, pages: &[usize], protect: impl Fn(Range<usize>) -> bool) -> bool {
        let (Some(first), Some(last)) = (pages.first(), pages.last()) else {
            return true;
        };
        let all = *first..last + 1;
        if all.len() == pages.len() {
            return protect(all);
        }
        let gaps = || pages.windows(2).map(|pair| pair[0] + 1..pair[1]);
        self.bridges.begin();
        // Somebody may have pinned a page before he could see the bridge.
        let is_protected = if gaps().all(|gap| self.is_bridge(gap)) {
            protect(all)
        } else {
            let mut rows = pages.chunk_by(|one, next| one + 1 == *next);
            rows.all(|row| protect(row[0]..row[0] + row.len()))
        };
        for page in gaps().flatten().filter(|page| !self.is_away(*page)) {
            // Not of one that is on its way: it does no harm there.
            let _ = patiently(|| self.memory.unprotect(page..page + 1));
        }
        self.bridges.end();
        is_protected
    }

    /// Protects pages that are side by side.
    pub fn protect_row(&self, pages: Range<usize>) -> bool {
        patiently(|| self.memory.protect(pages.clone())).is_ok()
    }
}
