//! How many pages may be in memory, and waiting until one more may be. For any number of threads, and for handlers.
//!
//! The limit of an arena is for resident pages, pool and tables together. So the *cap* on resident pages falls as the
//! pool grows; the evictor sets it again after each window. A page is counted before it comes.
//!
//! Who finds no room asks the evictor and waits. That must end even if the evictor itself waits for the faulting
//! thread, which may be inside malloc. So if nothing has been evicted for a while, some pages more than the cap are
//! given ([`Room::slack`]); at once if the evictor has found nowhere to put pages lately. When it says so again, and
//! these are given too, the arena is full.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::event::Event;

/// How long a wait for room goes on before more than the cap is given, if nothing is evicted meanwhile.
const STALL: Duration = Duration::from_millis(50);
/// How long before the arena counts as full, whatever the evictor says: far longer than a slow disk.
const HOPELESS: Duration = Duration::from_secs(120);
/// How often who waits looks by itself.
const LOOK: Duration = Duration::from_millis(10);
/// How often the evictor must have found no place before the arena counts as full.
const VAIN_ROUNDS: u64 = 3;
/// The slack is one part in so many of the cap, and at least so many pages: 4 %, as a run gives to swap-ins.
const SLACK_PART: u64 = 25;
const SLACK_LEAST: u64 = 64;
/// Pages that the evictor keeps free: one part in so many of the cap, within bounds. It starts when half of them are
/// left.
const FREE_PART: u64 = 64;
const FREE_LEAST: u64 = 32;
const FREE_MOST: u64 = 2048;

/// Pages that come along with one that is touched are at most one part in so many of the cap.
const ALONG_PART: u64 = 64;

/// No room, and none to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

/// The counts.
#[derive(Debug, Default)]
pub struct Room {
    resident: AtomicU64,
    cap: AtomicU64,
    /// Resident pages that must not leave.
    pinned: AtomicU64,
    /// Pages that the evictor has taken out of memory so far.
    evicted: AtomicU64,
    /// Rounds of the evictor that found no place for a page.
    vain: AtomicU64,
    /// The same since it found one, or memory was freed.
    vain_in_a_row: AtomicU64,
    /// Somebody wants the evictor to work.
    pub wanted: Event,
    /// Pages have left.
    pub freed: Event,
}

impl Room {
    /// Resident pages.
    pub fn resident(&self) -> u64 {
        self.resident.load(Ordering::SeqCst)
    }

    /// The most that there may be.
    pub fn cap(&self) -> u64 {
        self.cap.load(Ordering::SeqCst)
    }

    /// Pages that must not leave.
    pub fn pinned(&self) -> u64 {
        self.pinned.load(Ordering::SeqCst)
    }

    /// Pages evicted so far.
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::SeqCst)
    }

    /// Sets the cap.
    pub fn set_cap(&self, pages: u64) {
        self.cap.store(pages, Ordering::SeqCst);
        self.freed.happened();
    }

    fn free_pages(cap: u64) -> u64 {
        (cap / FREE_PART).clamp(FREE_LEAST, FREE_MOST)
    }

    fn slack(cap: u64) -> u64 {
        (cap / SLACK_PART).max(SLACK_LEAST)
    }

    /// How many pages the evictor should take out now. None before half of the free ones are used.
    pub fn to_evict(&self, has_begun: bool) -> u64 {
        let cap = self.cap();
        let free = Room::free_pages(cap);
        let wanted_free = if has_begun { free } else { free / 2 };
        (self.resident() + wanted_free).saturating_sub(cap)
    }

    /// Is there anything for the evictor to do?
    pub fn is_short(&self) -> bool {
        self.to_evict(false) > 0
    }

    /// Counts a page that is about to come, if there is room without waiting.
    pub fn try_take(&self) -> bool {
        self.take_below(self.cap())
    }

    /// Wakes the evictor if pages came without asking for it.
    pub fn look(&self) {
        if self.is_short() {
            self.wanted.happened();
        }
    }

    /// The most pages that may come along with one: few of a small arena, where they would push out what is used.
    pub fn along(&self) -> u64 {
        self.cap() / ALONG_PART
    }

    /// Never counts one page too many, not even for a moment. Otherwise who finds no room had to give it back, which
    /// wakes all who wait, and each of them would do the same again.
    fn take_below(&self, most: u64) -> bool {
        let order = Ordering::SeqCst;
        let one_more = |resident| (resident < most).then(|| resident + 1);
        self.resident.fetch_update(order, order, one_more).is_ok()
    }

    /// Counts a page that is about to come. Waits for room.
    ///
    /// # Errors
    /// There is none to be made.
    pub fn take(&self) -> Result<(), Full> {
        if self.try_take() {
            self.look();
            return Ok(());
        }
        self.wait_and_take()
    }

    #[cold]
    fn wait_and_take(&self) -> Result<(), Full> {
        let (mut since, mut evicted) = (Instant::now(), self.evicted());
        let mut vain = self.vain.load(Ordering::SeqCst);
        loop {
            self.wanted.happened();
            // Otherwise each page of the slack would cost a stall, and a large arena minutes before it is full.
            let cap = self.cap();
            if self.is_full() && self.take_below(cap + Room::slack(cap)) {
                return Ok(());
            }
            let has_room = || self.resident() < self.cap();
            self.freed.wait_unless(Some(LOOK), has_room);
            if self.try_take() {
                return Ok(());
            }
            if self.evicted() != evicted {
                (since, evicted) = (Instant::now(), self.evicted());
                vain = self.vain.load(Ordering::SeqCst);
                continue;
            }
            let waited = since.elapsed();
            let cap = self.cap();
            if waited >= STALL && self.take_below(cap + Room::slack(cap)) {
                return Ok(());
            }
            let rounds = self.vain.load(Ordering::SeqCst) - vain;
            if (waited >= STALL && rounds >= VAIN_ROUNDS) || waited >= HOPELESS {
                return Err(Full);
            }
        }
    }

    /// Pages that were counted have not come, or were given up.
    pub fn give_back(&self, pages: u64) {
        self.resident.fetch_sub(pages, Ordering::SeqCst);
        self.freed.happened();
    }

    /// The evictor has taken pages out.
    pub fn evict(&self, pages: u64) {
        if pages > 0 {
            self.evicted.fetch_add(pages, Ordering::SeqCst);
            self.note_progress();
            self.give_back(pages);
        }
    }

    /// The evictor has found no place for what it wanted to take out.
    pub fn note_vain(&self) {
        self.vain.fetch_add(1, Ordering::SeqCst);
        self.vain_in_a_row.fetch_add(1, Ordering::SeqCst);
    }

    /// There may be a place again.
    pub fn note_progress(&self) {
        self.vain_in_a_row.store(0, Ordering::SeqCst);
    }

    /// Has it found none lately?
    pub fn is_full(&self) -> bool {
        self.vain_in_a_row.load(Ordering::SeqCst) >= VAIN_ROUNDS
    }

    /// Counts pages that are to stay, if enough others remain that may leave.
    ///
    /// # Errors
    /// How many there may be.
    pub fn pin(&self, pages: u64) -> Result<(), u64> {
        let cap = self.cap();
        // What the evictor keeps free twice, so that it has a window to take out too.
        let most = cap.saturating_sub(2 * Room::free_pages(cap));
        let before = self.pinned.fetch_add(pages, Ordering::SeqCst);
        if before.saturating_add(pages) > most {
            self.unpin(pages);
            return Err(most);
        }
        Ok(())
    }

    /// They may leave again.
    pub fn unpin(&self, pages: u64) {
        self.pinned.fetch_sub(pages, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_full_says_so_after_the_slack() {
        let room = Room::default();
        room.set_cap(100);
        for _ in 0..100 {
            assert_eq!(room.take(), Ok(()));
        }
        assert!(!room.try_take());
        std::thread::scope(|scope| {
            let taker = scope.spawn(|| (0..).take_while(|_| room.take().is_ok()).count());
            while !taker.is_finished() {
                std::thread::sleep(Duration::from_millis(5));
                room.note_vain();
            }
            assert_eq!(taker.join().expect("no panic"), 64);
        });
        assert!(room.is_full());
        room.evict(100);
        assert!(!room.is_full());
        assert_eq!((room.take(), room.resident()), (Ok(()), 65));
    }

    #[test]
    fn where_nothing_can_leave_the_slack_costs_no_stalls() {
        let room = Room::default();
        room.set_cap(10_000);
        (0..10_000).for_each(|_| assert!(room.try_take()));
        (0..VAIN_ROUNDS).for_each(|_| room.note_vain());
        let begun = Instant::now();
        (0..400).for_each(|_| assert_eq!(room.take(), Ok(())));
        let took = begun.elapsed();
        assert!(took < 100 * STALL, "{took:?}");
        assert!(!room.take_below(10_400), "that was all of it");
    }

    /// A count that is too high for a moment would have to be given back, which wakes all who wait.
    #[test]
    fn who_finds_no_room_is_not_counted_meanwhile() {
        const TRIES: u32 = 100_000;
        let room = Room::default();
        room.set_cap(1);
        assert!(room.try_take());
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| (0..TRIES).for_each(|_| assert!(!room.try_take())));
            }
            let most = (0..TRIES).map(|_| room.resident()).max();
            assert_eq!(most, Some(1));
        });
    }

    #[test]
    fn pins_leave_room_for_a_window() {
        let room = Room::default();
        room.set_cap(1000);
        assert_eq!(room.pin(900), Ok(()));
        assert_eq!(room.pin(100), Err(936));
        assert_eq!(room.pinned(), 900);
    }
}
