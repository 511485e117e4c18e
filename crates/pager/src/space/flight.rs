//! Windows of shared pages on their way out of a family.
//!
//! A page that processes share since a fork is in memory until the last of them has given it up. A flight counts for
//! each page of a window who still has it. So whoever is last knows that memory has become free. The kernel says so
//! only to who walks the page tables of all of them, which takes long.
//!
//! A flight is over when nobody holds a seat in it any more: all have given its pages up, or do not follow. One that a
//! process holds up, because it is stopped, counts no more after a while: the family goes on without it.
//!
//! The lock is held for list operations. No other lock of the pager is taken under it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::base::kernel::clock;
use crate::base::lock::{Mutex, Row};

/// A flight of which nobody has given up a page for so long is held up.
pub const HELD_UP: Duration = Duration::from_millis(100);

/// The flights of a family.
#[derive(Debug)]
pub struct Flights {
    list: Mutex<Vec<Weak<Flight>>>,
}

/// A window of pages on their way out.
#[derive(Debug)]
pub struct Flight {
    /// For each page, how many still have it.
    holders: Vec<AtomicU32>,
    /// Pages that somebody still has.
    left: AtomicU64,
    /// How often somebody had joined the family before.
    joined: u64,
    began: Instant,
    /// When somebody gave up a page, in milliseconds after it began.
    moved_ms: AtomicU64,
}

/// The place of one page in a flight, and of one process that may have the page.
#[derive(Debug, Clone)]
pub struct Seat {
    flight: Arc<Flight>,
    page: usize,
}

impl Default for Flights {
    fn default() -> Flights {
        Flights {
            list: Mutex::new(Row::Innermost, "the flights of a family", Vec::new()),
        }
    }
}

impl Flights {
    /// A flight of so many pages, which so many others may have, in a family that had been joined so often.
    pub fn begin(&self, pages: usize, holders: usize, joined: u64) -> Arc<Flight> {
        let holders = u32::try_from(holders).unwrap_or(u32::MAX);
        let flight = Arc::new(Flight {
            holders: (0..pages).map(|_| AtomicU32::new(holders)).collect(),
            left: AtomicU64::new(pages as u64),
            joined,
            began: clock::now(),
            moved_ms: AtomicU64::new(0),
        });
        let mut list = self.list.lock();
        list.retain(|flight| flight.strong_count() > 0);
        list.push(Arc::downgrade(&flight));
        flight
    }

    /// How many are under way.
    pub fn under_way(&self) -> usize {
        self.moving().len()
    }

    /// Pages that leave with those that are under way.
    pub fn pages(&self) -> u64 {
        let flights = self.moving();
        let left = flights.iter().map(|it| it.left.load(Ordering::Relaxed));
        left.sum()
    }

    fn moving(&self) -> Vec<Arc<Flight>> {
        let list = self.list.lock();
        let flights = list.iter().filter_map(Weak::upgrade);
        flights.filter(|flight| !flight.is_held_up()).collect()
    }
}

impl Flight {
    /// The seat of a page.
    pub fn seat(self: &Arc<Flight>, page: usize) -> Seat {
        Seat {
            flight: Arc::clone(self),
            page,
        }
    }

    fn is_held_up(&self) -> bool {
        let moved = Duration::from_millis(self.moved_ms.load(Ordering::Relaxed));
        clock::now().saturating_duration_since(self.began) > moved + HELD_UP
    }
}

impl Seat {
    /// Its process does not have the page any more. True if nobody has: this was the last one, and nobody joined the
    /// family meanwhile, which has now been joined so often.
    pub fn give_up(self, joined: u64) -> bool {
        let flight = &self.flight;
        let now = clock::now().saturating_duration_since(flight.began);
        let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        flight.moved_ms.fetch_max(now_ms, Ordering::Relaxed);
        let Some(holders) = flight.holders.get(self.page) else {
            return false;
        };
        let is_last = holders.fetch_sub(1, Ordering::AcqRel) == 1;
        if is_last {
            flight.left.fetch_sub(1, Ordering::Relaxed);
        }
        is_last && flight.joined == joined
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_all_holders_frees_a_page() {
        let flights = Flights::default();
        let flight = flights.begin(2, 2, 7);
        assert_eq!((flights.under_way(), flights.pages()), (1, 2));
        let seats: Vec<Seat> = [0, 1, 0, 1].map(|page| flight.seat(page)).into();
        drop(flight);
        let gave_up: Vec<bool> = seats.into_iter().map(|seat| seat.give_up(7)).collect();
        assert_eq!(gave_up, [false, false, true, true]);
        assert_eq!((flights.under_way(), flights.pages()), (0, 0));
    }

    #[test]
    fn a_page_that_a_newcomer_may_have_is_not_known_to_be_free() {
        let flights = Flights::default();
        let flight = flights.begin(1, 1, 7);
        assert!(!flight.seat(0).give_up(8));
    }

    #[test]
    fn a_flight_that_is_held_up_counts_no_more() {
        let flights = Flights::default();
        let flight = flights.begin(64, 2, 0);
        std::thread::sleep(HELD_UP + Duration::from_millis(20));
        assert_eq!((flights.under_way(), flights.pages()), (0, 0));
        assert!(!flight.seat(3).give_up(0));
        assert_eq!(
            (flights.under_way(), flights.pages()),
            (1, 64),
            "it goes on"
        );
    }
}
