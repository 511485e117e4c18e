//! The mailbox of a space's evictor. Through it the governor, the readers and kin talk to the evictor without knowing
//! the space.
//!
//! The lock of the wishes is innermost and is held for a few stores. The lock of the proposals is held while the counts
//! of entries are raised. No other lock of the pager is taken under it.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar};
use std::time::Duration;

use vswap_engine::{Engine, Entry};

use crate::base::lock::{Mutex, Row};
use crate::space::flight::{Flight, Seat};

/// Most proposals that wait for one space. Its own hand finds the rest. They take 128 KiB, but many wait only for a
/// space that holds up its family.
const PROPOSALS_MAX: usize = 4096;

/// A page that one of the kin has moved out, with a reference to its entry.
#[derive(Debug)]
pub struct Proposal {
    /// Number of the page.
    pub page: u64,
    /// The content of the other's page. This space's page may differ.
    pub entry: Entry,
    /// Whoever is the last to give the page up frees it.
    pub seat: Seat,
}

/// What an evictor is asked for, and whether there is one.
#[derive(Debug)]
pub struct Mailbox {
    /// The space's number.
    pub id: u64,
    /// Memory may be registered.
    pub active: AtomicBool,
    /// The evictor's thread has been started.
    pub evictor_started: AtomicBool,
    /// The last pages that the evictor met are shared, and it was not its turn to move them out.
    pub left_to_kin: AtomicBool,
    /// The space ends or has ended.
    pub ended: AtomicBool,
    /// Laps that were asked for, and those of them that are over.
    laps_wanted: AtomicU64,
    laps_over: AtomicU64,
    wanted: Mutex<Wanted>,
    changed: Condvar,
    /// Pages that kin have moved out.
    proposals: Mutex<Vec<Proposal>>,
}

/// What an evictor is asked for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wanted {
    /// Pages to move out.
    pub pages: u64,
    /// Move out all that can be, once around.
    pub lap: bool,
    /// Look at the mappings again, because memory has grown.
    pub rescan: bool,
    /// Look at the deferred faults.
    pub deferred: bool,
    /// Look at what kin have proposed.
    pub proposals: bool,
    /// End.
    pub stop: bool,
}

impl Mailbox {
    /// The mailbox of a space whose evictor has not begun.
    pub fn new(id: u64) -> Mailbox {
        Mailbox {
            id,
            active: AtomicBool::new(false),
            evictor_started: AtomicBool::new(false),
            left_to_kin: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            laps_wanted: AtomicU64::new(0),
            laps_over: AtomicU64::new(0),
            wanted: Mutex::new(Row::Innermost, "an evictor's wishes", Wanted::default()),
            changed: Condvar::new(),
            proposals: Mutex::new(Row::Proposals, "a space's proposals", Vec::new()),
        }
    }

    /// May memory be registered?
    pub fn is_active(&self) -> bool {
        self.active.load(Ordering::Acquire)
    }

    /// Has the process ended?
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Can pages be moved out?
    pub fn has_evictor(&self) -> bool {
        self.is_active() && self.evictor_started.load(Ordering::Acquire)
    }

    /// Ask for more. `change` edits the request.
    pub fn ask(&self, change: impl FnOnce(&mut Wanted)) {
        change(&mut self.wanted.lock());
        self.changed.notify_one();
    }

    /// Ask for a lap, which begins with a new look at the mappings. False while the one before is not over: the look
    /// would cut it short.
    pub fn ask_lap(&self) -> bool {
        let is_over = self.is_lap_over();
        if is_over {
            self.laps_wanted.fetch_add(1, Ordering::AcqRel);
            self.ask(|wanted| (wanted.lap, wanted.rescan) = (true, true));
        }
        is_over
    }

    /// Are all laps over that were asked for?
    pub fn is_lap_over(&self) -> bool {
        self.laps_over.load(Ordering::Acquire) == self.laps_wanted.load(Ordering::Acquire)
    }

    /// A lap that was asked for is over.
    pub fn end_lap(&self) {
        self.laps_over.fetch_add(1, Ordering::AcqRel);
    }

    /// Does somebody want a new look at the mappings? That is more urgent than moving out.
    pub fn is_rescan_wanted(&self) -> bool {
        self.wanted.lock().rescan
    }

    /// Wait up to `timeout` for a request and take it. `stop` stays set.
    pub fn take(&self, timeout: Duration) -> Wanted {
        let idle = |w: &mut Wanted| {
            w.pages == 0 && !(w.lap || w.rescan || w.deferred || w.proposals || w.stop)
        };
        let wanted = self.wanted.lock();
        let mut wanted = wanted.wait_timeout_while(&self.changed, timeout, idle);
        let taken = *wanted;
        *wanted = Wanted {
            stop: taken.stop,
            ..Wanted::default()
        };
        taken
    }

    /// Take references to entries of one of the kin and queue the proposals. Returns how many wait then.
    pub fn propose(&self, engine: &Engine, pages: &[(u64, Entry)], flight: &Arc<Flight>) -> usize {
        let mut waiting = self.proposals.lock();
        // Checked under the lock: whoever ends the space drops what waits afterwards.
        if self.has_ended() || waiting.len() + pages.len() > PROPOSALS_MAX {
            return waiting.len();
        }
        // dup fails if the count is at its limit or the entry was given up. Then each of the kin stores its own copy.
        let mut dups = engine.dups();
        let held = pages.iter().enumerate();
        let held = held.filter(|(_, (_, entry))| dups.dup(*entry).is_ok());
        waiting.extend(held.map(|(at, &(page, entry))| {
            let seat = flight.seat(at);
            Proposal { page, entry, seat }
        }));
        waiting.len()
    }

    /// Remove from `pages` those that are proposed and wait to be followed.
    pub fn leave_out(&self, pages: &mut Vec<u64>) {
        let waiting = self.proposals.lock();
        if waiting.is_empty() {
            return;
        }
        let proposed: HashSet<u64> = waiting.iter().map(|proposal| proposal.page).collect();
        pages.retain(|page| !proposed.contains(page));
    }

    /// Does no proposal wait?
    pub fn is_nothing_proposed(&self) -> bool {
        self.proposals.lock().is_empty()
    }

    /// Take up to `most` proposals, in address order.
    pub fn take_proposals(&self, most: usize) -> Vec<Proposal> {
        let mut waiting = self.proposals.lock();
        let count = waiting.len().min(most);
        let mut taken: Vec<Proposal> = waiting.drain(..count).collect();
        if waiting.is_empty() {
            *waiting = Vec::new();
        }
        drop(waiting);
        taken.sort_by_key(|proposal| proposal.page);
        taken
    }

    /// Queue again the proposals that could not be followed now, unless the space has ended.
    pub fn give_back(&self, proposals: &mut Vec<Proposal>) {
        let mut waiting = self.proposals.lock();
        // Checked under the lock, as in `propose`.
        if !self.has_ended() {
            waiting.append(proposals);
        }
    }

    /// Drop the proposals whose entries are `unwanted` and put their references. When the space has ended, these are
    /// all.
    pub fn put_proposals(&self, engine: &Engine, unwanted: impl Fn(Entry) -> bool) {
        let mut waiting = self.proposals.lock();
        let taken: Vec<Proposal> = waiting
            .extract_if(.., |proposal| unwanted(proposal.entry))
            .collect();
        drop(waiting);
        taken
            .into_iter()
            .for_each(|proposal| engine.put(proposal.entry));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::flight::Flights;

    #[test]
    fn one_lap_at_a_time() {
        let mailbox = Mailbox::new(1);
        assert!(mailbox.is_lap_over());
        assert!(mailbox.ask_lap() && !mailbox.ask_lap() && !mailbox.is_lap_over());
        let wanted = mailbox.take(Duration::ZERO);
        assert!(wanted.lap && wanted.rescan);
        assert!(!mailbox.ask_lap(), "it has begun");
        mailbox.end_lap();
        assert!(mailbox.is_lap_over() && !mailbox.take(Duration::ZERO).lap);
        assert!(mailbox.ask_lap());
    }

    #[test]
    fn what_is_proposed_is_left_out_of_a_window() {
        let mailbox = Mailbox::new(1);
        let flight = Flights::default().begin(4, 1, 0);
        let proposal = |page| Proposal {
            page,
            entry: Entry::from_raw(1 << 48).expect("a slot"),
            seat: flight.seat(0),
        };
        mailbox
            .proposals
            .lock()
            .extend([9, 3, 700, 4].map(proposal));
        let mut pages = vec![1, 3, 4, 5, 9, 10];
        mailbox.leave_out(&mut pages);
        assert_eq!(pages, [1, 5, 10]);
        mailbox.leave_out(&mut pages);
        assert_eq!(pages, [1, 5, 10]);
    }
}
