//! Sampling: which pages of a program are watched, and when each of them is moved out to see when it is touched next.
//!
//! A page that is in memory says nothing of its use. So a few are moved out on purpose, and each tells by its fault
//! when it is next touched. Blocks of pages are chosen by a hash of their address (SHARDS, Waldspurger 2015): whoever
//! is watched stays watched, and the share that is watched is known. A budget bounds what the program loses by it.
//! What was seen becomes a list of events, from which `vswap advise` reckons what less memory would cost. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Pages that are chosen together: neighbours show whether accesses follow one another.
pub const BLOCK_PAGES: u64 = 16;
/// Pages of a space that are watched at the most. Some hundred blocks suffice for a few per cent, and are
/// visited often.
const WATCHED_MAX: usize = 1 << 12;
/// What a fault of a watched page costs the program, and what moving a page out costs, roughly, in nanoseconds.
const FAULT_NS: i64 = 15_000;
const OUT_NS: i64 = 3_000;
/// Sampling may cost one part in this many of the time.
const COST_PART: u64 = 25;
/// Most that may be saved up, as time at which the budget grows.
const SAVED_US: u64 = 1_000_000;
/// A page that came back sooner than this is in use all the time ...
const QUICK_US: u64 = 100_000;
/// ... and is left in memory for twice as long each time, so many times at the most, ...
const QUICK_MAX: u32 = 6;
/// ... but no longer than one part in this many of the time so far.
const LEFT_PART: u64 = 16;
/// A page that could not be moved is tried again after so long.
const BUSY_US: u64 = 1_000_000;

/// What happened to a watched page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// It is there for the first time.
    Seen,
    /// It was moved out.
    Out,
    /// It was touched, and came back.
    Back,
    /// It was discarded or unmapped, or its process has ended.
    Gone,
}

/// One thing that happened to a watched page. There are many, so they are short in messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "(u64, u64, u32, What)", from = "(u64, u64, u32, What)")]
pub struct Event {
    /// Microseconds since sampling began.
    pub at_us: u64,
    /// Number of the page.
    pub page: u64,
    /// Number of the space.
    pub space: u32,
    /// What happened.
    pub what: What,
}

impl From<Event> for (u64, u64, u32, What) {
    fn from(event: Event) -> Self {
        (event.at_us, event.page, event.space, event.what)
    }
}

impl From<(u64, u64, u32, What)> for Event {
    fn from((at_us, page, space, what): (u64, u64, u32, What)) -> Event {
        Event {
            at_us,
            page,
            space,
            what,
        }
    }
}

/// Is the page's block among the one in 2^`shift` that are watched?
pub fn is_chosen(space: u32, page: u64, shift: u32) -> bool {
    mix(block_of(space, page)).trailing_zeros() >= shift
}

/// The number of a page's block, different in each space.
pub fn block_of(space: u32, page: u64) -> u64 {
    (page / BLOCK_PAGES) ^ (u64::from(space) << 40)
}

/// A number whose bits all depend on all bits of `value` (splitmix64).
pub fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Where a watched page is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In memory, to be moved out at this time.
    In { due_us: u64 },
    /// Out since then, moved by sampling or because memory was short.
    Out { since_us: u64, is_ours: bool },
}

#[derive(Debug, Clone, Copy)]
struct Watched {
    place: Place,
    /// How often in a row it came back at once.
    quick: u32,
}

/// The watched pages of one space.
#[derive(Debug)]
pub struct Plan {
    space: u32,
    shift: u32,
    pages: BTreeMap<u64, Watched>,
    /// What may still be spent.
    saved_ns: i64,
    earned_us: u64,
    began_us: u64,
    /// The last look.
    looked_us: u64,
}

impl Plan {
    /// No page yet.
    pub fn new(space: u32, shift: u32, now_us: u64) -> Plan {
        Plan {
            space,
            shift,
            pages: BTreeMap::new(),
            saved_ns: 0,
            earned_us: now_us,
            began_us: now_us,
            looked_us: now_us,
        }
    }

    /// The number of the space.
    pub fn space(&self) -> u32 {
        self.space
    }

    /// One block in 2^this is watched.
    pub fn shift(&self) -> u32 {
        self.shift
    }

    /// Are there more pages than shall be watched?
    pub fn is_too_large(&self) -> bool {
        self.pages.len() > WATCHED_MAX
    }

    /// Watch fewer pages.
    pub fn thin(&mut self, shift: u32) {
        self.shift = shift.max(self.shift);
        let (space, shift) = (self.space, self.shift);
        self.pages.retain(|page, _| is_chosen(space, *page, shift));
    }

    /// The chosen ones of these pages are in memory (ascending), and these others, all of them chosen, are out; those
    /// that are on their way are `still_out` too. Returns which pages are new, which have gone, and which were moved
    /// out by others than sampling, because memory is short.
    pub fn look(
        &mut self,
        present: &[u64],
        out: &[u64],
        now_us: u64,
        still_out: impl Fn(u64) -> bool,
    ) -> Vec<Event> {
        let (space, shift) = (self.space, self.shift);
        let event = |page, what| Event {
            at_us: now_us,
            page,
            space,
            what,
        };
        let mut events = Vec::new();
        self.pages.retain(|&page, _| {
            let lives = present.binary_search(&page).is_ok() || still_out(page);
            if !lives {
                events.push(event(page, What::Gone));
            }
            lives
        });
        let chosen = present
            .iter()
            .filter(|page| is_chosen(space, **page, shift));
        for &page in chosen {
            self.pages.entry(page).or_insert_with(|| {
                events.push(event(page, What::Seen));
                Watched {
                    place: Place::In { due_us: now_us },
                    quick: 0,
                }
            });
        }
        let is_ours = false;
        let left = Place::Out {
            since_us: now_us,
            is_ours,
        };
        for &page in out {
            let watched = self.pages.entry(page).or_insert_with(|| {
                events.push(event(page, What::Seen));
                let place = Place::In { due_us: now_us };
                Watched { place, quick: 0 }
            });
            if matches!(watched.place, Place::In { .. }) {
                watched.place = left;
                events.push(event(page, What::Out));
            }
        }
        self.looked_us = now_us;
        events
    }

    /// Pages to move out now, as many as the budget permits, those first that were due first. In address order.
    pub fn due(&mut self, now_us: u64) -> Vec<u64> {
        self.earn(now_us);
        let most = usize::try_from(self.saved_ns / (FAULT_NS + OUT_NS)).unwrap_or(0);
        let due = self.pages.iter().filter_map(|(&page, watched)| {
            let Place::In { due_us } = watched.place else {
                return None;
            };
            // Of those that are due at the same time any may come first, but not those at low addresses.
            (due_us <= now_us).then_some((due_us, mix(page), page))
        });
        let mut due: Vec<(u64, u64, u64)> = due.collect();
        due.sort_unstable();
        due.truncate(most);
        let mut pages: Vec<u64> = due.into_iter().map(|(_, _, page)| page).collect();
        pages.sort_unstable();
        pages
    }

    /// The budget grows.
    fn earn(&mut self, now_us: u64) {
        let most = (SAVED_US / COST_PART * 1000).cast_signed();
        let earned = now_us.saturating_sub(self.earned_us).min(SAVED_US) * 1000 / COST_PART;
        self.saved_ns = (self.saved_ns + earned.cast_signed()).min(most);
        self.earned_us = now_us;
    }

    /// A page was moved out.
    pub fn went_out(&mut self, page: u64, at_us: u64) -> Option<Event> {
        let watched = self.pages.get_mut(&page)?;
        watched.place = Place::Out {
            since_us: at_us,
            is_ours: true,
        };
        self.saved_ns -= OUT_NS;
        Some(self.event(page, at_us, What::Out))
    }

    /// A page could not be moved.
    pub fn was_busy(&mut self, page: u64, now_us: u64) {
        if let Some(watched) = self.pages.get_mut(&page) {
            let due_us = now_us + BUSY_US;
            watched.place = Place::In { due_us };
        }
    }

    /// A page has come back. One that was not known to be out left since the last look, nobody knows when.
    pub fn came_back(&mut self, page: u64, at_us: u64) -> Vec<Event> {
        let looked_us = self.looked_us.min(at_us);
        let Some(watched) = self.pages.get_mut(&page) else {
            return Vec::new();
        };
        let (since_us, is_ours, is_known) = match watched.place {
            Place::Out { since_us, is_ours } => (since_us, is_ours, true),
            Place::In { .. } => (u64::midpoint(looked_us, at_us), false, false),
        };
        watched.quick = match at_us.saturating_sub(since_us) {
            waited if waited < QUICK_US => (watched.quick + 1).min(QUICK_MAX),
            _ => 0,
        };
        let left_us = (QUICK_US << watched.quick) - QUICK_US;
        let so_far_us = at_us.saturating_sub(self.began_us);
        let due_us = at_us + left_us.min(so_far_us / LEFT_PART);
        watched.place = Place::In { due_us };
        // What the limit costs is not what sampling costs.
        self.saved_ns -= if is_ours { FAULT_NS } else { 0 };
        let back = self.event(page, at_us.max(since_us), What::Back);
        let left = (!is_known).then(|| self.event(page, since_us, What::Out));
        left.into_iter().chain([back]).collect()
    }

    /// The space has ended: all its pages have gone.
    pub fn end(&mut self, now_us: u64) -> Vec<Event> {
        let pages = std::mem::take(&mut self.pages);
        let gone = pages
            .keys()
            .map(|&page| self.event(page, now_us, What::Gone));
        gone.collect()
    }

    fn event(&self, page: u64, at_us: u64, what: What) -> Event {
        Event {
            at_us,
            page,
            space: self.space,
            what,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_block_in_so_many_is_chosen_whole() {
        for shift in [0, 3, 5] {
            let blocks = 1 << 14;
            let chosen = (0..blocks).filter(|block| is_chosen(7, block * BLOCK_PAGES, shift));
            let expected = f64::from(1 << (14 - shift));
            let count = chosen.count() as f64;
            assert!(
                (count / expected - 1.0).abs() < 0.15,
                "{count} of {expected}"
            );
        }
        for page in 0..1000 {
            assert_eq!(is_chosen(1, page, 4), is_chosen(1, page / 16 * 16, 4));
            assert!(
                !is_chosen(1, page, 5) || is_chosen(1, page, 4),
                "thinning only takes away"
            );
        }
    }

    #[test]
    fn the_budget_bounds_what_is_moved_out() {
        let mut plan = Plan::new(1, 0, 0);
        let present: Vec<u64> = (0..8000).collect();
        assert_eq!(plan.look(&present, &[], 0, |_| false).len(), 8000);
        assert!(plan.due(0).is_empty(), "nothing was earned yet");
        let (mut faults, mut now) = (0_i64, 0);
        for _ in 0..100 {
            now += 100_000;
            for page in plan.due(now) {
                plan.went_out(page, now);
                plan.came_back(page, now + 50);
                faults += 1;
            }
        }
        let cost_us = faults * (FAULT_NS + OUT_NS) / 1000;
        let most_us = (now / COST_PART).cast_signed();
        assert!(cost_us <= most_us, "{cost_us} of {most_us}");
        assert!(cost_us > most_us / 4, "{cost_us} of {most_us}");
    }

    #[test]
    fn a_page_lives_from_its_first_look_to_its_last() {
        let mut plan = Plan::new(1, 0, 0);
        let kinds = |events: Vec<Event>| -> Vec<(u64, What)> {
            events
                .iter()
                .map(|event| (event.page, event.what))
                .collect()
        };
        let seen = kinds(plan.look(&[4, 5], &[], 10, |_| false));
        assert_eq!(seen, [(4, What::Seen), (5, What::Seen)]);
        assert_eq!(plan.due(1_000_000), [4, 5]);
        plan.went_out(4, 1_000_000);
        plan.went_out(5, 1_000_000);
        assert!(plan.came_back(9, 1_000_500).is_empty(), "nobody watches it");
        let gone = kinds(plan.look(&[], &[], 1_100_000, |page| page == 4));
        assert_eq!(gone, [(5, What::Gone)]);
        let back = plan.came_back(4, 3_000_000)[0];
        assert_eq!((back.what, back.at_us), (What::Back, 3_000_000));
        assert_eq!(
            plan.due(3_000_000),
            [4],
            "it was out for long: again at once"
        );
        assert_eq!(kinds(plan.end(3_500_000)), [(4, What::Gone)]);
    }

    #[test]
    fn what_the_limit_moves_out_is_seen_too_and_costs_sampling_nothing() {
        let mut plan = Plan::new(1, 0, 0);
        let kinds = |events: Vec<Event>| -> Vec<(u64, u64, What)> {
            let kind = |event: &Event| (event.at_us, event.page, event.what);
            events.iter().map(kind).collect()
        };
        let out = |page| page == 7;
        let seen = kinds(plan.look(&[4], &[7], 1_000, out));
        let expected = [
            (1_000, 4, What::Seen),
            (1_000, 7, What::Seen),
            (1_000, 7, What::Out),
        ];
        assert_eq!(seen, expected, "one was out when sampling began");
        let left = kinds(plan.look(&[], &[4, 7], 2_000, |_| true));
        assert_eq!(left, [(2_000, 4, What::Out)]);
        let saved_ns = plan.saved_ns;
        assert_eq!(kinds(plan.came_back(7, 3_000)), [(3_000, 7, What::Back)]);
        let both = kinds(plan.came_back(7, 4_000));
        assert_eq!(
            both,
            [(3_000, 7, What::Out), (4_000, 7, What::Back)],
            "it left in between"
        );
        assert_eq!(plan.saved_ns, saved_ns);
    }

    #[test]
    fn what_comes_back_at_once_is_left_alone_for_longer_each_time() {
        let mut plan = Plan::new(1, 0, 0);
        let mut now = 100_000_000;
        plan.look(&[4], &[], now, |_| false);
        let mut pauses = Vec::new();
        for _ in 0..9 {
            let since = now;
            while plan.due(now).is_empty() {
                now += 100_000;
            }
            pauses.push((now - since) / 100_000);
            plan.went_out(4, now);
            plan.came_back(4, now + 10);
            now += 10;
        }
        assert!(pauses.is_sorted(), "{pauses:?}");
        assert!(pauses[8] > 30, "{pauses:?}");
    }
}
