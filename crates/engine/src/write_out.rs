//! Second half of a swap-out: from the frame to the zero flag, the pool, or a physical area.
//!
//! The frame's claim is held from start to end, so there is one writer; the cluster's lock only at both ends, not while
//! the page is compressed or written. A put that reaches count 0 in between leaves the slot to the writer, who looks at
//! the count when it gives the claim back. Readers are not held up: they find the frame until the word says otherwise.
//!
//! Pages are written out several at a time: those that go to an area get a run of neighbouring slots there, and one
//! request writes them all. Where no run is long enough, several shorter ones take them; those that happen to be
//! neighbours are written with one request as well.
//!
//! A page gets no place that its group may not have (`charge.rs`); then it stays where it was.

use std::ops::Deref;

use crate::backing::Stored;
use crate::charge::{NotStored, Uncharges};
use crate::codec::Scratch;
use crate::engine::Engine;
use crate::entry::Entry;
use crate::frame::FrameRef;
use crate::groups::GroupIndex;
use crate::pages::Page;
use crate::read_ahead::is_clean;
use crate::runs::are_neighbours;
use crate::storage::StorageError;
use crate::table::Word;
use crate::transition::place_fits;

/// What [`Engine::write_out`] made of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// All zeros: kept as a flag.
    Zero,
    /// Compressed to this many bytes.
    Compressed {
        /// Length of the payload.
        bytes: usize,
    },
    /// Did not compress; kept in the pool as it is.
    Raw,
    /// In a physical area.
    Physical,
    /// The last reference went away meanwhile: everything is freed.
    Freed,
}

/// Why a page was not written out. Nothing is lost in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WriteOutError {
    /// The pool is at its limit, and no area has room. The page stays in its frame.
    #[error(
        "the compressed pool is at its limit and no area has room: the page stays in its frame; raise the limit, add \
         an area or free entries, and repeat"
    )]
    Full,
    /// There may be room, but not for the page's group. The page stays in its frame.
    #[error(
        "a limit of the page's group, or of one that it is in, leaves no room for it: the page stays in its frame; \
         raise the limit or free entries of the group, and repeat"
    )]
    Limited,
    /// An area could not be written. The page stays in its frame.
    #[error(
        "an area cannot be written: {0}: the page stays in its frame; check the device, and repeat"
    )]
    Unwritable(StorageError),
    /// Another thread is writing the entry out.
    #[error("another thread is writing this entry out: let it finish")]
    Busy,
    /// The entry has no frame whose content is nowhere else: it is free or was written out before.
    #[error(
        "the entry is not waiting to be written out, expected one that was swapped out: nothing is to be done"
    )]
    NotCached,
}

/// A page on its way to another place: out of its frame, out of an area that is swapped off, or out of the pool.
pub(crate) struct Leaving<P> {
    pub(crate) entry: Entry,
    pub(crate) group: GroupIndex,
    pub(crate) page: P,
    pub(crate) to: Destination,
}

impl<P> Leaving<P> {
    pub(crate) fn new(entry: Entry, group: GroupIndex, page: P) -> Leaving<P> {
        Leaving {
            entry,
            group,
            page,
            to: Destination::NOWHERE,
        }
    }

    /// Did an area fail to take it?
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self.to, Destination::Refused(_))
    }
}

/// Where a page goes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Destination {
    /// Nowhere: it is all zeros.
    Zero,
    Stored(Stored, Written),
    /// None yet: the pool did not take it.
    None {
        /// It did not compress, and the pool was not asked.
        is_raw: bool,
        /// Something had room and its group's limits did not.
        is_limited: bool,
    },
    /// An area failed to take it.
    Refused(StorageError),
}

impl Destination {
    const NOWHERE: Destination = Destination::None {
        is_raw: false,
        is_limited: false,
    };

    /// The same; if it is none, `limited` may be why.
    fn or_limited(self, limited: bool) -> Destination {
        match self {
            Destination::None { is_raw, is_limited } => Destination::None {
                is_raw,
                is_limited: is_limited || limited,
            },
            other => other,
        }
    }
}

/// What pages that go to areas come out of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coming {
    /// Frames or the pool: their groups are charged for the slots.
    FromMemory,
    /// Another area: their groups are charged already.
    FromArea,
}

impl Engine {
    /// Second half, of one page: as [`Engine::write_out_all`].
    ///
    /// # Errors
    /// [`WriteOutError`]; the content is where it was.
    pub fn write_out(&self, entry: Entry, scratch: &mut Scratch) -> Result<Written, WriteOutError> {
        let mut outcome = Err(WriteOutError::NotCached);
        self.write_out_all(0, &[entry], scratch, |_, of_one| outcome = of_one);
        outcome
    }

    /// Second half: finds the content of each page a place (zero flag, pool or area) and takes its frame out of
    /// the cache. The words keep count, zero flag and shadow. If the last reference of one goes away meanwhile,
    /// everything behind it is freed. `done` hears how it went for each. `cpu` is a hint where in an area to take slots
    /// from. Blocks while an area is written.
    pub fn write_out_all(
        &self,
        cpu: usize,
        entries: &[Entry],
        scratch: &mut Scratch,
        mut done: impl FnMut(Entry, Result<Written, WriteOutError>),
    ) {
        let mut leaving = Vec::with_capacity(entries.len());
        for &entry in entries {
            match self.claim(entry) {
                Ok(page) => leaving.push(page),
                Err(error) => done(entry, Err(error)),
            }
        }
        leaving.iter_mut().for_each(|page| self.pack(page, scratch));
        self.write_to_areas(cpu, &mut leaving, Coming::FromMemory);
        for page in leaving {
            done(page.entry, self.finish(&page));
        }
    }

    /// Tries the zero flag and the pool. A page that does not compress is kept for an area, if it may go to one.
    pub(crate) fn pack<P>(&self, leaving: &mut Leaving<P>, scratch: &mut Scratch)
    where
        P: Deref<Target = Page>,
    {
        let (entry, group, page) = (leaving.entry, leaving.group, &*leaving.page);
        leaving.to = if page.is_zero() {
            Destination::Zero
        } else if self.pool.is_off() {
            // Nothing would take what was compressed.
            Destination::NOWHERE
        } else {
            match self.codec.compress(page, scratch) {
                Ok(packed) => {
                    let bytes = packed.len();
                    self.store(entry, group, packed, Written::Compressed { bytes })
                }
                Err(_incompressible) if self.may_go_to_areas(group) => Destination::None {
                    is_raw: true,
                    is_limited: false,
                },
                Err(_incompressible) => self.store(entry, group, &page.0, Written::Raw),
            }
        };
    }

    fn may_go_to_areas(&self, group: GroupIndex) -> bool {
        !self.areas.is_empty() && self.groups.writes_back(group)
    }

    fn store(
        &self,
        entry: Entry,
        group: GroupIndex,
        payload: &[u8],
        written: Written,
    ) -> Destination {
        match self.store_charged(group, entry.raw(), payload) {
            Ok(handle) => Destination::Stored(Stored::Pool(handle), written),
            Err(why) => Destination::None {
                is_raw: false,
                is_limited: why == NotStored::Limited,
            },
        }
    }

    /// Gives the pages that have no place yet slots in the areas, and writes each row of neighbours at once. What gets
    /// no slot there and was not offered to the pool goes to the pool as it is.
    pub(crate) fn write_to_areas<P>(&self, cpu: usize, leaving: &mut [Leaving<P>], coming: Coming)
    where
        P: Deref<Target = Page>,
    {
        if !self.areas.is_empty() {
            let mut admitted = self.admit(leaving, coming);
            let alike = |a: &&mut Leaving<P>, b: &&mut Leaving<P>| are_alike(a.entry, b.entry);
            for admitted in admitted.chunk_by_mut(alike) {
                self.write_admitted(cpu, admitted, coming);
            }
        }
        for page in leaving {
            let Destination::None {
                is_raw: true,
                is_limited,
            } = page.to
            else {
                continue;
            };
            let to = self.store(page.entry, page.group, &page.page.0, Written::Raw);
            page.to = to.or_limited(is_limited);
        }
    }

    /// Writes pages that may have slots in areas, all virtual or all directly mapped, as many as get one.
    fn write_admitted<P>(&self, cpu: usize, admitted: &mut [&mut Leaving<P>], coming: Coming)
    where
        P: Deref<Target = Page>,
    {
        let slots = self.slots_for(cpu, admitted.iter().map(|page| page.entry));
        let (placed, without) = admitted.split_at_mut(slots.len());
        self.write_runs(&slots, placed);
        if coming == Coming::FromMemory {
            let mut uncharges = Uncharges::new(&self.groups);
            let in_vain = without.iter().map(|page| page.group);
            in_vain.for_each(|group| self.admitted_in_vain(group, &mut uncharges));
            let refused = placed.iter().filter(|page| page.is_refused());
            refused.for_each(|page| uncharges.slot_for(page.entry, page.group));
        }
    }

    /// The homeless among `leaving` that may have slots in areas, and are charged for them. The limits are those of
    /// each group in turn, neighbours of one group at once.
    fn admit<'a, P>(
        &self,
        leaving: &'a mut [Leaving<P>],
        coming: Coming,
    ) -> Vec<&'a mut Leaving<P>> {
        let mut admitted = Vec::with_capacity(leaving.len());
        let alike =
            |a: &Leaving<P>, b: &Leaving<P>| a.group == b.group && are_alike(a.entry, b.entry);
        for run in leaving.chunk_by_mut(alike) {
            let homeless = run
                .iter_mut()
                .filter(|page| matches!(page.to, Destination::None { .. }));
            let mut homeless: Vec<&mut Leaving<P>> = homeless.collect();
            let count = match (coming, homeless.first()) {
                (Coming::FromMemory, Some(first)) => {
                    self.admit_to_areas(first.entry, first.group, homeless.len())
                }
                _ => homeless.len(),
            };
            for page in homeless.drain(count..) {
                page.to = page.to.or_limited(true);
            }
            admitted.append(&mut homeless);
        }
        admitted
    }

    /// Slots in the areas for the pages of the first of `entries`, for all of them if there is room. A directly mapped
    /// page has its own; the entries are all of them such, or none.
    pub(crate) fn slots_for(&self, cpu: usize, entries: impl Iterator<Item = Entry>) -> Vec<Entry> {
        let entries: Vec<Entry> = entries.collect();
        if entries.first().is_some_and(|first| first.is_direct()) {
            debug_assert!(entries.iter().all(|entry| entry.is_direct()));
            return entries;
        }
        slots_from(entries.into_iter(), |words| self.areas.allocate(cpu, words))
    }

    /// Writes pages to `slots`, one each, and each row of neighbours at once.
    pub(crate) fn write_runs<P>(&self, slots: &[Entry], mut pages: &mut [&mut Leaving<P>])
    where
        P: Deref<Target = Page>,
    {
        for run in slots.chunk_by(|&a, &b| are_neighbours(a, b)) {
            let (of_run, rest) = pages.split_at_mut(run.len());
            self.write_run(run, of_run);
            pages = rest;
        }
    }

    /// Writes pages to the neighbouring slots of `run`, which are given back if that fails; those that page tables name
    /// stay their pages'.
    fn write_run<P>(&self, run: &[Entry], pages: &mut [&mut Leaving<P>])
    where
        P: Deref<Target = Page>,
    {
        let content: Vec<&Page> = pages.iter().map(|page| &*page.page).collect();
        self.at_storage.pass();
        let written = run
            .first()
            .map_or(Ok(()), |&first| self.areas.write(first, &content));
        for (page, &slot) in pages.iter_mut().zip(run) {
            page.to = match written {
                Ok(()) => Destination::Stored(Stored::Physical(slot), Written::Physical),
                Err(error) => {
                    if slot != page.entry {
                        self.areas.give_back(slot);
                    }
                    Destination::Refused(error)
                }
            };
        }
    }

    /// Claims the entry's frame: from here until `finish` a put leaves the slot to us.
    pub(crate) fn claim(&self, entry: Entry) -> Result<Leaving<FrameRef<'_>>, WriteOutError> {
        let (cluster, slot) = self.lock(entry).ok_or(WriteOutError::NotCached)?;
        if is_clean(&cluster, slot) {
            return Err(WriteOutError::NotCached);
        }
        let word = cluster.word(slot);
        let index = word.frame().ok_or(WriteOutError::NotCached)?;
        if word.count_field() == 0 {
            // Put while another thread writes it out, or not published yet.
            return Err(WriteOutError::NotCached);
        }
        // The word names the frame and we hold the cluster, so the cache's reference is there to add ours to.
        let frame = self.frames.try_get(index).ok_or(WriteOutError::NotCached)?;
        if !self.frames.try_claim(index) {
            return Err(WriteOutError::Busy);
        }
        Ok(Leaving::new(entry, cluster.group(slot), frame))
    }

    /// Gives the claim back and puts the slot into its new state.
    pub(crate) fn finish(&self, page: &Leaving<FrameRef<'_>>) -> Result<Written, WriteOutError> {
        let Some((mut cluster, slot)) = self.lock(page.entry) else {
            return Err(WriteOutError::NotCached);
        };
        let index = page.page.index();
        let word = cluster.word(slot);
        // While we hold the claim nobody else takes the frame away from the slot.
        debug_assert_eq!(word.frame(), Some(index));
        self.frames.unclaim(index);
        if word.count_field() == 0 {
            // The last reference was put meanwhile and left the slot to us.
            self.release_slot(&mut cluster, page.entry);
            drop(cluster);
            self.frames.release(index);
            let stored = match page.to {
                Destination::Stored(stored, _) => Some(stored),
                _ => None,
            };
            let mut uncharges = Uncharges::new(&self.groups);
            self.lose_all(page.entry, page.group, stored, &mut uncharges);
            return Ok(Written::Freed);
        }
        let word = word.into_shadow(self.frames.shadow(index));
        let written = match page.to {
            Destination::None { is_limited, .. } if is_limited => {
                return Err(WriteOutError::Limited);
            }
            Destination::None { .. } => return Err(WriteOutError::Full),
            Destination::Refused(error) => return Err(WriteOutError::Unwritable(error)),
            Destination::Zero => {
                cluster.set_word(slot, word.with_zero(true));
                Written::Zero
            }
            Destination::Stored(stored, written) => {
                debug_assert!(place_fits(page.entry, stored));
                // The backing first: whoever sees the word without a frame finds it.
                cluster.store_backing(slot, self.backing_of(stored));
                cluster.set_word(slot, word);
                written
            }
        };
        drop(cluster);
        self.frames.release(index);
        Ok(written)
    }
}

/// Slots for the pages of the first of `entries`, in runs that `allocate` takes for these words until it has none.
pub(crate) fn slots_from(
    entries: impl Iterator<Item = Entry>,
    mut allocate: impl FnMut(&[Word]) -> Option<(Entry, usize)>,
) -> Vec<Entry> {
    // No entry's offset is too wide for a word; were one, its page would stay where it is.
    let words: Vec<Word> = entries
        .map(Entry::offset)
        .map_while(|offset| Word::pointer(offset, false))
        .collect();
    let mut slots = Vec::with_capacity(words.len());
    while let Some((first, count)) = allocate(&words[slots.len()..]) {
        slots.extend((0..count).map(|at| first.behind(at)));
    }
    slots
}

/// Virtual both, or directly mapped both.
pub(crate) fn are_alike(a: Entry, b: Entry) -> bool {
    a.is_direct() == b.is_direct()
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::areas::NewArea;
    use crate::cluster::SLOTS_PER_CLUSTER;
    use crate::order::Order;
    use crate::swap_in::{SwapIn, SwapInError};
    use crate::testing::{BROKEN, Probe, area_on, assert_holds, engine_with_areas, out, read};
    use crate::zpool::testing::Kind;

    const SLOTS: u64 = 24;

    fn engine(pool_limit_bytes: u64) -> (Engine, Probe) {
        engine_with_area(pool_limit_bytes, SLOTS, vec![0])
    }

    fn engine_with_area(pool_limit_bytes: u64, slots: u64, bad: Vec<u64>) -> (Engine, Probe) {
        let (engine, _) = engine_with_areas(16, pool_limit_bytes, &[]);
        let probe = Probe::new(slots);
        let area = NewArea {
            bad,
            ..area_on(&probe, slots)
        };
        engine.swap_on(area).expect("a good area");
        (engine, probe)
    }

    fn write_all(engine: &Engine, entries: &[Entry]) -> Vec<Result<Written, WriteOutError>> {
        let mut results = Vec::new();
        engine.write_out_all(0, entries, &mut engine.scratch(), |_, result| {
            results.push(result);
        });
        results
    }

    #[test]
    #[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
    fn what_the_full_pool_refuses_goes_to_the_area_with_one_request() {
        let (engine, probe) = engine(0);
        let entries: Vec<Entry> = (1..=8).map(|seed| out(&engine, Kind::Text, seed)).collect();
        assert_eq!(write_all(&engine, &entries), [Ok(Written::Physical); 8]);
        assert_eq!(probe.writes(), 1);
        for (&entry, seed) in entries.iter().zip(1..) {
            assert_holds(&engine, entry, Kind::Text, seed, SwapIn::Physical);
        }
        let stats = engine.stats();
        assert_eq!(
            (stats.physical, stats.compressed, stats.frames_used),
            (8, 0, 0)
        );
        entries.into_iter().for_each(|entry| engine.put(entry));
        assert_eq!((engine.stats().physical, engine.stats().slots_used), (0, 0));
    }

    /// Pages in an area, written in batches, with the seeds of their content.
    struct Batches {
        engine: Engine,
        probe: Probe,
        written: Vec<Vec<(Entry, u64)>>,
        seed: u64,
    }

    impl Batches {
        fn new(clusters: usize) -> Batches {
            let slots = (clusters * SLOTS_PER_CLUSTER) as u64;
            let (engine, probe) = engine_with_area(0, slots, Vec::new());
            Batches {
                engine,
                probe,
                written: Vec::new(),
                seed: 0,
            }
        }

        /// Writes a batch and returns how many requests that took.
        fn write(&mut self, pages: usize) -> u64 {
            let before = self.probe.writes();
            let mut batch = Vec::new();
            for _ in 0..pages {
                self.seed += 1;
                batch.push((out(&self.engine, Kind::Text, self.seed), self.seed));
            }
            let entries: Vec<Entry> = batch.iter().map(|(entry, _)| *entry).collect();
            let results = write_all(&self.engine, &entries);
            assert!(
                results
                    .iter()
                    .all(|&result| result == Ok(Written::Physical))
            );
            self.written.push(batch);
            self.probe.writes() - before
        }

        fn put(&mut self, at: usize) {
            for (entry, _) in self.written[at].drain(..) {
                self.engine.put(entry);
            }
        }

        fn verify(&self) {
            for &(entry, seed) in self.written.iter().flatten() {
                assert_holds(&self.engine, entry, Kind::Text, seed, SwapIn::Physical);
            }
            let pages = self.written.iter().flatten().count() as u64;
            assert_eq!(self.engine.stats().physical, pages);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
    fn a_batch_is_one_request_beside_pages_that_come_and_go() {
        let mut area = Batches::new(4 + Order::COUNT);
        for _ in 0..2 * SLOTS_PER_CLUSTER {
            assert_eq!(area.write(1), 1);
        }
        (0..2 * SLOTS_PER_CLUSTER)
            .step_by(2)
            .for_each(|at| area.put(at));
        let fits =
            |pages: &usize| Order::for_pages(*pages).is_some_and(|run| run.slots() >= *pages);
        for pages in (1..=12).filter(fits).chain([16].into_iter().filter(fits)) {
            assert_eq!(area.write(pages), 1, "{pages} pages");
        }
        area.verify();
    }

    #[test]
    #[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
    fn where_only_short_runs_are_left_a_batch_is_written_with_those() {
        const RUN: usize = 4;
        let mut area = Batches::new(2);
        let runs = 2 * SLOTS_PER_CLUSTER / RUN;
        for _ in 0..runs {
            assert_eq!(area.write(RUN), 1);
        }
        (0..runs).step_by(2).for_each(|at| area.put(at));
        assert_eq!(area.write(RUN), 1);
        // Small clusters have but one run.
        if SLOTS_PER_CLUSTER > RUN {
            assert_eq!(area.write(2 * RUN), 2, "no two runs are neighbours");
        }
        area.verify();
    }

    #[test]
    #[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
    fn in_the_last_holes_a_batch_still_finds_room() {
        let mut area = Batches::new(2);
        let slots = 2 * SLOTS_PER_CLUSTER;
        while area.written.iter().flatten().count() + 4 <= slots {
            area.write(4);
        }
        let holes = slots / 4;
        for batch in &mut area.written {
            let (entry, _) = batch.swap_remove(1);
            area.engine.put(entry);
        }
        let mut requests = 0;
        let mut left = holes;
        while left > 0 {
            requests += area.write(left.min(8));
            left -= left.min(8);
        }
        assert_eq!(requests, holes as u64, "no two holes are neighbours");
        area.verify();
    }

    #[test]
    fn a_page_that_packs_goes_to_the_pool_and_one_that_does_not_to_the_area() {
        let (engine, _) = engine(1 << 20);
        let (text, noise) = (out(&engine, Kind::Text, 1), out(&engine, Kind::Random, 2));
        let results = write_all(&engine, &[text, noise]);
        assert!(matches!(results[0], Ok(Written::Compressed { .. })));
        assert_eq!(results[1], Ok(Written::Physical));
        assert_holds(&engine, text, Kind::Text, 1, SwapIn::Compressed);
        assert_holds(&engine, noise, Kind::Random, 2, SwapIn::Physical);
    }

    #[test]
    #[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
    fn with_the_area_full_the_rest_goes_to_the_pool_or_stays() {
        let (engine, _) = engine(1 << 20);
        let usable = usize::try_from(SLOTS - 1).expect("few");
        let mut entries = Vec::new();
        for seed in 1..=SLOTS + 1 {
            entries.push(out(&engine, Kind::Random, seed));
            let written = engine.write_out(entries[entries.len() - 1], &mut engine.scratch());
            let expected = if entries.len() <= usable {
                Written::Physical
            } else {
                Written::Raw
            };
            assert_eq!(written, Ok(expected), "page {seed}");
        }
        engine.set_pool_limit(0);
        let last = out(&engine, Kind::Random, 99);
        let result = engine.write_out(last, &mut engine.scratch());
        assert_eq!(result, Err(WriteOutError::Full));
        assert_holds(&engine, last, Kind::Random, 99, SwapIn::Cached);
        for (at, &entry) in entries.iter().enumerate() {
            let from = if at < usable {
                SwapIn::Physical
            } else {
                SwapIn::Compressed
            };
            assert_holds(&engine, entry, Kind::Random, at as u64 + 1, from);
        }
        engine.put(entries[0]);
        let result = engine.write_out(last, &mut engine.scratch());
        assert_eq!(result, Ok(Written::Physical), "a slot is free again");
    }

    #[test]
    fn a_page_that_cannot_be_written_stays_and_one_that_cannot_be_read_is_an_error() {
        let (engine, probe) = engine(0);
        let written = out(&engine, Kind::Text, 1);
        assert_eq!(write_all(&engine, &[written]), [Ok(Written::Physical)]);
        probe.broken(true);
        let kept = [out(&engine, Kind::Text, 2), out(&engine, Kind::Text, 3)];
        let refused = Err(WriteOutError::Unwritable(BROKEN));
        assert_eq!(write_all(&engine, &kept), [refused; 2]);
        assert_holds(&engine, kept[0], Kind::Text, 2, SwapIn::Cached);
        // The area is passed over now.
        assert_eq!(write_all(&engine, &kept), [Err(WriteOutError::Full); 2]);
        let raw = written.raw();
        let unreadable = SwapInError::Unreadable { raw, error: BROKEN };
        assert_eq!(read(&engine, written).unwrap_err(), unreadable);
        assert_eq!(engine.count(written), 1, "it may be readable again");
        probe.broken(false);
        assert_holds(&engine, written, Kind::Text, 1, SwapIn::Physical);
        engine.put(written);
        assert_eq!(write_all(&engine, &kept), [Ok(Written::Physical); 2]);
        assert_holds(&engine, kept[1], Kind::Text, 3, SwapIn::Physical);
        assert_eq!(engine.stats().physical, 2);
        assert_eq!(engine.areas()[0].errors, 2);
    }
}
