//! The mailbox of a space's evictor: how the governor, the readers and kin talk to it without knowing the space.
//!
//! The lock of what is wanted is innermost and held for a few stores; that of the proposals is held while entries are
//! counted once more, and no other lock of the pager is taken under it.

use std::sync::Condvar;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use vswap_engine::{Engine, Entry};

use crate::base::lock::{Mutex, Row};

/// Proposals that wait for one space, at the most: what is more is left to its own hand. 64 KiB, which a process of
/// many that share pages may cost.
const PROPOSALS_MAX: usize = 4096;

/// A page that a kin has moved out, and a reference to its entry.
#[derive(Debug)]
pub struct Proposal {
    /// Number of the page.
    pub page: u64,
    /// What its page held; may differ from this one's.
    pub entry: Entry,
}

/// What may be asked of one evictor, and whether there is anybody to ask.
#[derive(Debug)]
pub struct Mailbox {
    /// The space's number.
    pub id: u64,
    /// Memory may be registered.
    pub active: AtomicBool,
    /// The evictor's thread has been started.
    pub evictor_started: AtomicBool,
    /// The space ends or has ended.
    pub ended: AtomicBool,
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
    /// Look again at the mappings: memory has grown.
    pub rescan: bool,
    /// Look at deferred faults.
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
            ended: AtomicBool::new(false),
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

    /// Ask for more; `change` edits the request.
    pub fn ask(&self, change: impl FnOnce(&mut Wanted)) {
        change(&mut self.wanted.lock());
        self.changed.notify_one();
    }

    /// Does somebody ask for a new look at the mappings? That is more urgent than moving out.
    pub fn is_rescan_wanted(&self) -> bool {
        self.wanted.lock().rescan
    }

    /// Wait for a request, at most `timeout`, and take it. `stop` stays.
    pub fn take(&self, timeout: Duration) -> Wanted {
        let idle =
            |w: &mut Wanted| w.pages == 0 && !(w.rescan || w.deferred || w.proposals || w.stop);
        let wanted = self.wanted.lock();
        let mut wanted = wanted.wait_timeout_while(&self.changed, timeout, idle);
        let taken = *wanted;
        *wanted = Wanted {
            stop: taken.stop,
            ..Wanted::default()
        };
        taken
    }

    /// Take references of what a kin has moved out, and queue; true when there is something to do.
    pub fn propose(&self, engine: &Engine, pages: &[(u64, Entry)]) -> bool {
        let mut waiting = self.proposals.lock();
        // Looked at under the lock: whoever ends the space drops what waits afterwards.
        if self.has_ended() || waiting.len() + pages.len() > PROPOSALS_MAX {
            return false;
        }
        // A count at its end, or an entry that was given up meanwhile: then each keeps its own.
        let held = pages.iter().filter(|(_, entry)| engine.dup(*entry).is_ok());
        waiting.extend(held.map(|&(page, entry)| Proposal { page, entry }));
        !waiting.is_empty()
    }

    /// Take those out of `pages` that are proposed and wait to be followed.
    pub fn leave_out(&self, pages: &mut Vec<u64>) {
        let waiting = self.proposals.lock();
        pages.retain(|page| !waiting.iter().any(|proposal| proposal.page == *page));
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

    /// Queue proposals again that could not be followed now, unless the space has ended.
    pub fn give_back(&self, proposals: &mut Vec<Proposal>) {
        let mut waiting = self.proposals.lock();
        // Looked at under the lock, as in `propose`.
        if !self.has_ended() {
            waiting.append(proposals);
        }
    }

    /// Put the references of proposals whose entries are `unwanted`: all of them when the space has ended.
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
