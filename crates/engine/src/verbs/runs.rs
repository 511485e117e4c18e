//! Reading pages from physical areas: neighbours with one request, and several runs of them at the same time. If a run
//! fails its pages are read one at a time, so that a bad place costs only the page that is in it. Storage that does not
//! answer is waited for twice, for the run and for one page alone, and not once for each page.
//!
//! Callers have pinned what is behind the virtual slots of their pages, so the physical slots stay theirs during the
//! read.

use crate::base::pages::Page;
use crate::base::storage::{ReadRun, StorageError};
use crate::engine::Engine;
use crate::words::entry::Entry;

/// A page to be read.
pub(crate) struct Wanted<'a> {
    /// The page's place among those that the caller asked for.
    pub(crate) at: usize,
    /// The entry whose backing is pinned.
    pub(crate) entry: Entry,
    /// Where the bytes are.
    pub(crate) physical: Entry,
    pub(crate) page: &'a mut Page,
    /// The result.
    pub(crate) read: Result<(), StorageError>,
}

impl<'a> Wanted<'a> {
    pub(crate) fn new(at: usize, entry: Entry, physical: Entry, page: &'a mut Page) -> Wanted<'a> {
        Wanted {
            at,
            entry,
            physical,
            page,
            read: Ok(()),
        }
    }
}

/// Whether `b` is the slot behind `a`. The slots of different areas are never neighbours.
pub(crate) fn are_neighbours(a: Entry, b: Entry) -> bool {
    a.raw() + 1 == b.raw()
}

/// Sorts pages so that neighbours are next to each other.
pub(crate) fn sort(wanted: &mut [Wanted<'_>]) {
    wanted.sort_unstable_by_key(|one| one.physical);
}

impl Engine {
    /// Reads all pages. Neighbours must be next to each other.
    pub(crate) fn read_runs(&self, wanted: &mut [Wanted<'_>]) {
        let areas = |a: &Wanted<'_>, b: &Wanted<'_>| a.physical.area() == b.physical.area();
        for of_area in wanted.chunk_by_mut(areas) {
            of_area
                .iter()
                .for_each(|one| self.areas.mark_read(one.physical));
            let outcomes = self.read_area(of_area);
            for (run, outcome) in runs_of(of_area).zip(outcomes) {
                match run {
                    [one] => one.read = outcome,
                    _ if outcome.is_err() => self.read_each(run),
                    _ => {}
                }
            }
        }
    }

    /// Reads the pages wanted from one area. Returns the result for each run.
    fn read_area(&self, wanted: &mut [Wanted<'_>]) -> Vec<Result<(), StorageError>> {
        let Some(area) = wanted.first().map(|one| one.physical.area()) else {
            return Vec::new();
        };
        let mut runs: Vec<ReadRun<'_>> = runs_of(wanted)
            .map(|run| ReadRun {
                slot: run[0].physical.offset(),
                pages: run.iter_mut().map(|one| &mut *one.page).collect(),
                outcome: Ok(()),
            })
            .collect();
        self.at_storage.pass();
        self.areas.read_runs(area, &mut runs);
        runs.into_iter().map(|run| run.outcome).collect()
    }

    /// Reads the pages of a run that has failed one at a time, in the order in which they were asked for: what a fault
    /// wants comes before what is read along with it. After the first that gets no answer no other is tried. The first
    /// is tried even if the run got none: storage on several machines may have it on one that answers.
    fn read_each(&self, run: &mut [Wanted<'_>]) {
        let mut in_order: Vec<&mut Wanted<'_>> = run.iter_mut().collect();
        in_order.sort_unstable_by_key(|one| one.at);
        let mut answers = true;
        for one in in_order {
            one.read = match answers {
                true => self.read_one(one),
                false => Err(StorageError::TimedOut),
            };
            answers = one.read != Err(StorageError::TimedOut);
        }
    }

    fn read_one(&self, one: &mut Wanted<'_>) -> Result<(), StorageError> {
        let outcomes = self.read_area(std::slice::from_mut(one));
        outcomes.first().copied().unwrap_or(Ok(()))
    }
}

/// Rows of neighbours. None is empty.
fn runs_of<'w, 'a>(wanted: &'w mut [Wanted<'a>]) -> impl Iterator<Item = &'w mut [Wanted<'a>]> {
    wanted.chunk_by_mut(|a, b| are_neighbours(a.physical, b.physical))
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::base::pages::PAGE_BYTES;
    use crate::testing::{BROKEN, engine_with_areas, out, slot_of};
    use crate::verbs::swap_in::{SwapIn, SwapInError};
    use crate::zpool::testing::{Content, page_bytes};

    type Outcome = Result<SwapIn, SwapInError>;

    /// Swaps all in at once. Where the outcome is good, the pages must be those of the seeds.
    fn swap_in_all(engine: &Engine, entries: &[Entry], seeds: &[u64]) -> Vec<Outcome> {
        let mut pages = vec![Page([0xee; PAGE_BYTES]); entries.len()];
        let mut outcomes = vec![None; entries.len()];
        engine.swap_in_all(
            entries,
            &mut pages.iter_mut().collect::<Vec<_>>(),
            &mut engine.scratch(),
            |at, outcome| assert!(outcomes[at].replace(outcome).is_none(), "{at} twice"),
        );
        let outcomes: Vec<Outcome> = outcomes
            .into_iter()
            .map(|one| one.expect("heard"))
            .collect();
        for (at, outcome) in outcomes.iter().enumerate() {
            let expected = page_bytes(Content::Text, seeds[at]);
            assert!(
                outcome.is_err() || pages[at].0 == expected[..],
                "page {at} differs"
            );
        }
        outcomes
    }

    /// Eight pages in neighbouring slots.
    fn eight_in_an_area(engine: &Engine) -> Vec<Entry> {
        let entries: Vec<Entry> = (0..8)
            .map(|seed| out(engine, Content::Text, seed))
            .collect();
        engine.write_out_all(0, &entries, &mut engine.scratch(), |_, written| {
            written.expect("room");
        });
        assert!(entries.iter().all(|&entry| engine.is_physical(entry)));
        entries
    }

    #[test]
    fn neighbours_are_read_at_once_in_whatever_order_they_are_asked_for() {
        let (engine, probes) = engine_with_areas(8, 0, &[16]);
        let entries = eight_in_an_area(&engine);
        let seeds = [5, 3, 4, 0, 7, 1];
        let asked = seeds.map(|seed| entries[usize::try_from(seed).expect("small")]);
        let outcomes = swap_in_all(&engine, &asked, &seeds);
        assert_eq!(outcomes, [Ok(SwapIn::Physical); 6]);
        assert_eq!(probes[0].reads(), 3, "0 and 1, 3 to 5, and 7");
        assert_eq!(engine.areas()[0].pages_read, 6);
    }

    #[test]
    fn a_bad_place_costs_the_page_that_is_in_it() {
        let (engine, probes) = engine_with_areas(8, 0, &[16]);
        let entries = eight_in_an_area(&engine);
        probes[0].unreadable(&[slot_of(&engine, entries[2])]);
        let seeds: Vec<u64> = (0..8).collect();
        let outcomes = swap_in_all(&engine, &entries, &seeds);
        let raw = entries[2].raw();
        for (at, outcome) in outcomes.into_iter().enumerate() {
            let unreadable = SwapInError::Unreadable { raw, error: BROKEN };
            let expected = if at == 2 {
                Err(unreadable)
            } else {
                Ok(SwapIn::Physical)
            };
            assert_eq!(outcome, expected, "page {at}");
        }
        entries.into_iter().for_each(|entry| engine.put(entry));
        assert_eq!(engine.stats().slots_used, 0, "nothing stayed pinned");
    }

    /// Each page alone would wait as long as the run did.
    #[test]
    fn storage_that_does_not_answer_is_waited_for_twice_and_not_for_each_page() {
        let (engine, probes) = engine_with_areas(8, 0, &[16]);
        let entries = eight_in_an_area(&engine);
        let slot = |at: usize| slot_of(&engine, entries[at]);
        probes[0].silent(&(0..8).map(slot).collect::<Vec<_>>());
        let seeds: Vec<u64> = (0..8).collect();
        let timed_out = |at: usize| {
            Err(SwapInError::Unreadable {
                raw: entries[at].raw(),
                error: StorageError::TimedOut,
            })
        };
        let outcomes = swap_in_all(&engine, &entries, &seeds);
        let all: Vec<Outcome> = (0..8).map(timed_out).collect();
        assert_eq!((outcomes, probes[0].reads()), (all, 2));
        // The page of the fault is not the first in the area.
        probes[0].silent(&[slot(1), slot(2)]);
        let (asked, seeds) = ([3, 1, 2, 4].map(|at| entries[at]), [3, 1, 2, 4]);
        let outcomes = swap_in_all(&engine, &asked, &seeds);
        let expected = [
            Ok(SwapIn::Physical),
            timed_out(1),
            timed_out(2),
            timed_out(4),
        ];
        assert_eq!(outcomes, expected);
        assert_eq!(probes[0].reads(), 2 + 3, "the run, 3 and 1");
        probes[0].silent(&[]);
        let outcomes = swap_in_all(&engine, &asked, &seeds);
        assert_eq!(outcomes, [Ok(SwapIn::Physical); 4]);
        entries.into_iter().for_each(|entry| engine.put(entry));
        assert_eq!(engine.stats().slots_used, 0, "nothing stayed pinned");
    }

    #[test]
    #[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
    fn every_kind_of_place_and_one_page_more_often_than_it_can_be_pinned() {
        let (engine, _) = engine_with_areas(8, 0, &[16]);
        let mut entries = eight_in_an_area(&engine);
        let (cached, gone) = (
            out(&engine, Content::Text, 8),
            out(&engine, Content::Text, 9),
        );
        engine.put(gone);
        engine.set_pool_limit(1 << 20);
        let packed = out(&engine, Content::Text, 10);
        let written = engine.write_out(packed, &mut engine.scratch());
        assert!(written.is_ok() && !engine.is_physical(packed) && !engine.is_physical(cached));
        let often = [entries[4]; 40];
        entries.extend([cached, gone, packed]);
        entries.extend(often);
        let seeds: Vec<u64> = (0..11).chain([4; 40]).collect();
        let outcomes = swap_in_all(&engine, &entries, &seeds);
        assert_eq!(outcomes[8], Ok(SwapIn::Cached));
        assert_eq!(outcomes[9], Err(SwapInError::Gone));
        assert_eq!(outcomes[10], Ok(SwapIn::Compressed));
        assert!(
            outcomes[11..]
                .iter()
                .all(|one| *one == Ok(SwapIn::Physical))
        );
    }
}
