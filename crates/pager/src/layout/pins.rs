//! Pages that are never evicted, because the kernel writes to them when a thread ends.
//!
//! A thread that ends can no longer wait for a fault. If such a page is out, the kernel's write to it is lost. Whoever
//! waits for the thread or its robust mutexes then waits for ever. Three kinds of memory are kept:
//! - the heads of the robust lists of living threads: a process may be killed at any moment, and other processes may
//!   wait for mutexes that it shares with them;
//! - words that the kernel clears when a thread ends (CLONE_CHILD_CLEARTID), wherever they lie;
//! - what a thread needs that is ending just now (`thread_exit.rs`), until it has ended.
//!
//! In libc both word and head lie in the control block of the thread, and they are released with it. A word that lies
//! elsewhere is kept for good, because nobody tells whose it is.
//!
//! Plain data, protected by the space lock.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::page_run::PAGE_BYTES;

/// How far around a word or a head everything is kept. In libc's control block the word lies 16 bytes before the head,
/// and the head has 24 bytes.
pub const AROUND_BYTES: u64 = 64;
/// Addresses that are kept at most: two for each of 256 thousand threads, more than a process can have by default. A
/// program that names more has made them up, and must not fill the pager's memory with them.
const ADDRESSES_MAX: usize = 2 << 18;
/// How many ending threads are checked for one window of pages.
const ASKED_MAX: usize = 64;

/// The kept memory.
#[derive(Debug, Default)]
pub struct Pins {
    /// Addresses of heads and words.
    addresses: BTreeSet<u64>,
    /// Ending threads, each with its pages.
    ending: BTreeMap<u32, BTreeSet<u64>>,
    /// From this thread on they are asked next.
    asked: u32,
    /// How often each page is in `ending`.
    held: BTreeMap<u64, u32>,
    /// Pages that are to be kept but could not be brought back yet.
    owed: BTreeSet<u64>,
}

impl Pins {
    /// Must `page` stay in memory?
    pub fn contains(&self, page: u64) -> bool {
        let first = (page * PAGE_BYTES).saturating_sub(AROUND_BYTES);
        let end = (page + 1)
            .saturating_mul(PAGE_BYTES)
            .saturating_add(AROUND_BYTES);
        self.addresses.range(first..end).next().is_some() || self.held.contains_key(&page)
    }

    /// Keep what is around `address`: a word that is cleared when a thread ends, or the head of a robust list.
    pub fn add(&mut self, address: u64) {
        if self.addresses.len() < ADDRESSES_MAX {
            self.addresses.insert(address);
        }
    }

    /// The thread whose robust list is at `head` ends. What it still needs is held for it separately. Its word, if it
    /// lies in the same control block, may already belong to the next thread.
    pub fn remove_block(&mut self, head: u64) {
        let around = head.saturating_sub(AROUND_BYTES)..=head;
        let known: Vec<u64> = self.addresses.range(around).copied().collect();
        for address in known {
            self.addresses.remove(&address);
        }
    }

    /// Thread `tid` is ending and needs `page`.
    pub fn hold(&mut self, tid: u32, page: u64) {
        if self.ending.entry(tid).or_default().insert(page) {
            *self.held.entry(page).or_default() += 1;
        }
    }

    /// `page` is to be kept and is not in memory yet.
    pub fn owe(&mut self, page: u64) {
        self.owed.insert(page);
    }

    /// Take the owed pages, to try them again.
    pub fn take_owed(&mut self) -> BTreeSet<u64> {
        std::mem::take(&mut self.owed)
    }

    /// The ending threads that are to be asked next whether they have ended by now: a few at a time, in turn. Asking
    /// reads a file for each, so it is done without the lock.
    pub fn ask_next(&mut self) -> Vec<u32> {
        let behind = self.ending.range(self.asked..);
        let before = self.ending.range(..self.asked);
        let next = behind.chain(before).map(|(&tid, _)| tid);
        let next: Vec<u32> = next.take(ASKED_MAX).collect();
        self.asked = next.last().map_or(0, |last| last.wrapping_add(1));
        next
    }

    /// Release what these threads needed. They have ended.
    pub fn forget_ended(&mut self, ended: &[u32]) {
        for tid in ended {
            for page in self.ending.remove(tid).unwrap_or_default() {
                self.release(page);
            }
        }
    }

    fn release(&mut self, page: u64) {
        if let Some(times) = self.held.get_mut(&page) {
            *times -= 1;
            if *times == 0 {
                self.held.remove(&page);
            }
        }
    }

    /// What a forked child starts with. The child has one thread, and its control block is among these. Which one is
    /// not known before the child says hello.
    pub fn of_child(&self) -> Pins {
        Pins {
            addresses: self.addresses.clone(),
            owed: self.owed.clone(),
            ..Pins::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_crosses_a_page_keeps_both() {
        let mut pins = Pins::default();
        pins.add(5 * PAGE_BYTES - 8);
        assert!(pins.contains(4) && pins.contains(5));
        pins.add(9 * PAGE_BYTES + 8);
        assert!(pins.contains(8) && pins.contains(9));
        assert!(!pins.contains(6) && !pins.contains(10));
    }

    #[test]
    fn a_control_block_is_let_go_of_with_its_thread() {
        let mut pins = Pins::default();
        let (word, head) = (100 * PAGE_BYTES + 720, 100 * PAGE_BYTES + 736);
        pins.add(word);
        pins.add(head);
        // Another thread's, in the same page.
        pins.add(word + 1024);
        pins.remove_block(head);
        assert!(pins.contains(100));
        pins.remove_block(head + 1024);
        assert!(!pins.contains(100));
    }

    #[test]
    fn pages_of_threads_that_end_are_held_until_the_last_has_ended() {
        let mut pins = Pins::default();
        for tid in 1..=200 {
            pins.hold(tid, 7);
            pins.hold(tid, 7);
            pins.hold(tid, 1000 + u64::from(tid));
        }
        // All but one have ended. A few windows later that is known.
        for _ in 0..4 {
            let mut ended = pins.ask_next();
            assert!(!ended.is_empty() && ended.len() <= ASKED_MAX);
            ended.retain(|tid| *tid != 150);
            pins.forget_ended(&ended);
        }
        assert_eq!(pins.ask_next(), [150]);
        assert!(pins.contains(7) && pins.contains(1150));
        assert!(!pins.contains(1001) && !pins.contains(1200));
        pins.forget_ended(&[150, 151]);
        assert!(pins.ask_next().is_empty() && pins.held.is_empty());
        assert!(!pins.contains(7) && !pins.contains(1150));
        assert!(!pins.of_child().contains(7));
    }

    #[test]
    fn threads_that_do_not_end_keep_nobody_from_being_asked() {
        let mut pins = Pins::default();
        let tids = [1, 2, u32::MAX].into_iter().chain(1000..1300);
        tids.clone().for_each(|tid| pins.hold(tid, 7));
        let rounds = 303_usize.div_ceil(ASKED_MAX);
        let mut asked: Vec<u32> = (0..rounds).flat_map(|_| pins.ask_next()).collect();
        asked.sort_unstable();
        asked.dedup();
        assert_eq!((asked.len(), pins.ending.len()), (303, 303));
    }
}
