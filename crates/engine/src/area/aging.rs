//! Which pages of the pool have been left alone for longest, and are next to be written back or packed again.
//!
//! Time is counted in generations. A generation begins as the pool fills ([`Aging::begin`]), and when all pages are of
//! the youngest two. A page's generation is the one in which it was stored or last read from the pool. The number is in
//! its backing word (`words/backing.rs`); the store and the read's pin write that word anyway. A hand goes slot by slot
//! round the virtual area and the areas that have directly mapped slots. It takes the pages of the oldest generation.
//! Among those that it passes over it notes the oldest generation, and takes that one after it has come round. So a
//! page that was just stored or read is passed over until two generations have begun since, which is a second chance.
//! The pages that go are the coldest, to within a generation. They go in the order of their slots, which is nearly the
//! order in which they were evicted.
//!
//! Packing again (`verbs/repack.rs`) has a hand of its own, which passes over the pages that it has given out before.
//! It never makes pages older: where nothing has been left alone, nothing is worth the work.
//!
//! A mark that the hand clears would tell only two generations apart: after a lap the ages of pages differ by a whole
//! lap, and each lap writes to every word. Lists in order of age, as the kernel has them, would take 8 bytes a page and
//! a lock on every store and free. The hand's cost is that it also reads the words of pages that are not in the pool.

use crossbeam_utils::CachePadded;

use super::Area;
use crate::base::lock_order;
use crate::base::sync::{AtomicU32, Lock, Ordering};
use crate::cluster::{Cluster, Place};
use crate::groups::GroupIndex;
use crate::words::backing::{Backing, Stored};
use crate::words::backing_word::BackingWord;
use crate::words::entry::{AreaId, Entry};
use crate::words::geometry::SLOTS_PER_CLUSTER;
use crate::words::slot::Kind;
use crate::zpool::Handle;

/// Generations whose pages are safe: the youngest and the one before. So every page has at least one whole generation.
pub(crate) const SAFE_GENERATIONS: u8 = 2;

/// How many generations are told apart: a few less than there are numbers.
const GENERATIONS_MAX: u8 = 250;

/// How many laps without a page the hand makes before there counts as being none. One is for the noted oldest
/// generation, which may be gone by now. More follow until every page that nobody reads is old enough, and one more
/// finds it.
const LAPS_MAX: u8 = SAFE_GENERATIONS + 2;

/// What pages are picked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To be written back. Some page is found as long as one in the pool is not being read.
    WriteBack,
    /// To be packed again, if that was not tried before. Only pages that have been left alone for so many generations.
    Repack {
        /// At least [`SAFE_GENERATIONS`].
        least: u8,
    },
}

/// Where a hand starts.
const START: (AreaId, u64) = (AreaId::VIRTUAL, 0);

/// A page in the pool that has been left alone. It is pinned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cold {
    pub(crate) entry: Entry,
    pub(crate) handle: Handle,
    /// The backing word as it was before the pin.
    pub(crate) backing: Backing,
}

/// The youngest generation, and the hands.
#[derive(Debug)]
pub(crate) struct Aging {
    /// Every store and read of the pool reads it; it is seldom written. Its lowest 8 bits count.
    youngest: CachePadded<AtomicU32>,
    write_back: Lock<AgingHand, { lock_order::AGING }>,
    repack: Lock<AgingHand, { lock_order::AGING }>,
}

#[derive(Debug)]
struct AgingHand {
    /// Area and offset where the hand goes on.
    next: (AreaId, u64),
    /// The hand takes pages of this generation and older ones.
    taken: u8,
    /// Age of the oldest page that the hand has passed over since it last came round.
    oldest_passed: u8,
}

impl AgingHand {
    fn new() -> AgingHand {
        AgingHand {
            next: START,
            taken: 0,
            oldest_passed: 0,
        }
    }

    /// Starts again, for pages as old as the oldest that it has passed over.
    fn come_round(&mut self, youngest: u8) {
        let age = self.oldest_passed.max(SAFE_GENERATIONS);
        self.taken = youngest.wrapping_sub(age);
        (self.next, self.oldest_passed) = (START, 0);
    }
}

impl Aging {
    pub(crate) fn new() -> Aging {
        Aging {
            youngest: CachePadded::new(AtomicU32::new(0)),
            write_back: Lock::new(AgingHand::new()),
            repack: Lock::new(AgingHand::new()),
        }
    }

    /// The generation of pages that are stored or read now.
    #[inline]
    pub(crate) fn youngest(&self) -> u8 {
        // Relaxed: nothing is read through it.
        self.youngest.load(Ordering::Relaxed).to_le_bytes()[0]
    }

    /// Begins a generation. `areas` are all areas whose slots page tables name.
    pub(crate) fn begin<'a, A>(&self, areas: impl Fn() -> A)
    where
        A: Iterator<Item = &'a Area>,
    {
        let mut hand = self.write_back.lock();
        if self.youngest().wrapping_sub(hand.taken) >= GENERATIONS_MAX {
            self.fold(areas(), &mut hand);
        }
        self.advance();
    }

    fn advance(&self) {
        let next = u32::from(self.youngest().wrapping_add(1));
        self.youngest.store(next, Ordering::Relaxed);
    }

    /// Makes one generation of the older half. Numbers are reused, and without this the oldest pages would be taken for
    /// young ones. The other hand may afterwards look for an age that no page has, and notices when it comes round.
    #[cold]
    fn fold<'a>(&self, areas: impl Iterator<Item = &'a Area>, hand: &mut AgingHand) {
        let youngest = self.youngest();
        let oldest = youngest.wrapping_sub(GENERATIONS_MAX / 2);
        visit_pool(areas, GroupIndex::ROOT, START, |word, _, backing| {
            if youngest.wrapping_sub(backing.generation()) > GENERATIONS_MAX / 2 {
                word.age(backing, oldest);
            }
            true
        });
        hand.taken = oldest;
    }

    /// Picks up to `most` pages of `group` in `areas` that are next for this purpose, and pins them. Returns none if no
    /// such page is in the pool, or if all are being read. Groups that take turns share the hand. What the hand knows
    /// of the oldest page is then from the last group, and a lap corrects it.
    pub(crate) fn pick<'a, A>(
        &self,
        purpose: Purpose,
        areas: impl Fn() -> A,
        group: GroupIndex,
        most: usize,
    ) -> Vec<Cold>
    where
        A: Iterator<Item = &'a Area>,
    {
        let mut picked = Vec::with_capacity(most);
        let (mut hand, least) = match purpose {
            Purpose::WriteBack => (self.write_back.lock(), SAFE_GENERATIONS),
            Purpose::Repack { least } => (self.repack.lock(), least.max(SAFE_GENERATIONS)),
        };
        let is_repacking = purpose != Purpose::WriteBack;
        for _ in 0..LAPS_MAX {
            let youngest = self.youngest();
            let old = youngest.wrapping_sub(hand.taken).max(least);
            let mut oldest_passed = hand.oldest_passed;
            let is_whole_lap = hand.next == START;
            let next = visit_pool(areas(), group, hand.next, |word, entry, backing| {
                if is_repacking && backing.is_dense() {
                    return true;
                }
                let age = youngest.wrapping_sub(backing.generation());
                if age < old {
                    oldest_passed = oldest_passed.max(age);
                } else {
                    picked.extend(take(word, entry, backing));
                }
                picked.len() < most
            });
            hand.oldest_passed = oldest_passed;
            match next {
                Some(next) => {
                    hand.next = next;
                    break;
                }
                None if is_repacking => {
                    let is_over = is_whole_lap && oldest_passed < least;
                    hand.come_round(youngest);
                    if is_over {
                        break;
                    }
                }
                None => self.come_round(&mut hand),
            }
            if !picked.is_empty() {
                break;
            }
        }
        picked
    }

    /// Nothing is left that is older than the pages passed over. Goes on with those. If they are not old enough yet,
    /// they will be.
    fn come_round(&self, hand: &mut AgingHand) {
        if hand.oldest_passed < SAFE_GENERATIONS {
            self.advance();
        }
        hand.come_round(self.youngest());
    }
}

/// Shows `visit` the pages of `group` in the pool that could be written back, from `start` on, until it has enough.
/// Returns where to go on, or `None` at the end of the last area. Takes a cluster's lock only if a group is named. By
/// the time that a slot is shown it may belong to another group.
fn visit_pool<'a>(
    areas: impl Iterator<Item = &'a Area>,
    group: GroupIndex,
    start: (AreaId, u64),
    mut visit: impl FnMut(BackingWord<'_>, Entry, Backing) -> bool,
) -> Option<(AreaId, u64)> {
    for area in areas.filter(|area| area.id >= start.0) {
        let from = if area.id == start.0 { start.1 } else { 0 };
        let next = visit_area(area, group, from, &mut visit);
        if let Some(next) = next {
            return Some((area.id, next));
        }
    }
    None
}

/// Like `visit_pool` in one area, from the slot at `from` on.
fn visit_area(
    area: &Area,
    group: GroupIndex,
    from: u64,
    visit: &mut impl FnMut(BackingWord<'_>, Entry, Backing) -> bool,
) -> Option<u64> {
    let (first, slot) = Entry::at(area.id, from)?.position();
    for (id, cluster) in area.clusters_from(first) {
        // A hint, read without a lock. Reading a free cluster's tables would bring back their memory, only to find them
        // empty.
        if cluster.place() != Place::Free && cluster.backing(0).is_some() {
            let start = if id == first { slot } else { 0 };
            let Some(is_of_group) = members(cluster, group) else {
                continue;
            };
            for slot in (start..SLOTS_PER_CLUSTER).filter(|&slot| is_of_group[slot]) {
                let entry = Entry::of(area.id, id, slot);
                let in_pool = in_pool(cluster, slot);
                if in_pool.is_some_and(|(word, backing)| !visit(word, entry, backing)) {
                    return Some(entry.offset() + 1);
                }
            }
        }
    }
    None
}

/// Which slots of a cluster belong to a group; all, for the root. `None` if no slot does.
fn members(cluster: &Cluster, group: GroupIndex) -> Option<[bool; SLOTS_PER_CLUSTER]> {
    if group == GroupIndex::ROOT {
        return Some([true; SLOTS_PER_CLUSTER]);
    }
    let locked = cluster.lock()?;
    let of_group = std::array::from_fn(|slot| locked.state.groups.of(slot) == group);
    of_group.contains(&true).then_some(of_group)
}

/// The backing word of a page that is in the pool and could be written back. A page that is also in a frame is warm.
/// One that is being read will be of the youngest generation. A damaged one stays.
fn in_pool(cluster: &Cluster, slot: usize) -> Option<(BackingWord<'_>, Backing)> {
    let word = cluster.backing(slot)?;
    let backing = word.peek();
    let is_idle = backing.pins() == 0 && !backing.is_abandoned() && !backing.is_damaged();
    let in_pool = matches!(backing.stored(), Some(Stored::Pool(_)));
    let is_stored_only = || matches!(cluster.word(slot).kind(), Kind::Shadow(_));
    (is_idle && in_pool && is_stored_only()).then_some((word, backing))
}

/// Pins a page if its word is still `backing`.
fn take(word: BackingWord<'_>, entry: Entry, backing: Backing) -> Option<Cold> {
    let Some(Stored::Pool(handle)) = backing.stored() else {
        return None;
    };
    word.pin_idle(backing).then_some(Cold {
        entry,
        handle,
        backing,
    })
}
