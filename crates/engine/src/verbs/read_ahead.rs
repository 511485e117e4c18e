//! Reading ahead: what lies around a page in its area comes along into the swap cache.
//!
//! Pages that left together lie together, and are often wanted together. So the request that fetches one page can also
//! fetch its neighbours in the area, into free frames. Such a page is in its frame *and* in its slot. The frame is a
//! clean copy: the next swap-in finds it without a request, and it is given up without a write. The kernel calls this
//! cluster readahead (swap_state.c). The caller decides how far to reach: [`SwapIn::ReadAhead`] tells it that a page
//! was worth it, and [`Engine::read_around_max`] what the area is measured to make worth a request (`areas/cost.rs`).
//!
//! Clean frames are the first to go. The oldest goes when there are as many as there may be, and whenever a frame is
//! wanted and none is free. When the last reference of a page is put, its clean frame goes with it.
//!
//! Locks: the queue's is innermost. Neighbours are pinned while they are read, but never waited for.

use std::time::Instant;

use super::runs::{self, Wanted};
use super::swap_in::{Begun, SwapIn, SwapInError};
use crate::areas::READ_AROUND_MAX;
use crate::base::pages::Page;
use crate::base::storage::StorageError;
use crate::base::sync::yield_now;
use crate::codec::Scratch;
use crate::engine::Engine;
use crate::frames::FrameMut;
use crate::words::backing_word::Pin;
use crate::words::entry::{AreaId, Entry};
use crate::words::slot::Kind;

/// A page that is read along with the wanted one.
struct Neighbour<'a> {
    entry: Entry,
    physical: Entry,
    frame: FrameMut<'a>,
}

impl Engine {
    /// Like [`Engine::swap_in`], but also reads ahead. If the page lies in an area with slow storage, the same request
    /// reads the pages around it into the swap cache. It takes those in the aligned block of `window` slots, as far as
    /// there are free frames and no slot in between holds anything else. Also returns how many pages came along.
    /// `window` is at most [`READ_AROUND_MAX`]; with 1 only the page itself is read. Holds no lock while it reads, and
    /// blocks meanwhile.
    ///
    /// # Errors
    /// [`SwapInError`] of the page itself. A neighbour that cannot be read stays where it is.
    pub fn swap_in_around(
        &self,
        entry: Entry,
        window: usize,
        dst: &mut Page,
        scratch: &mut Scratch,
    ) -> Result<(SwapIn, usize), SwapInError> {
        loop {
            match self.begin(entry, dst, scratch)? {
                Begun::Done(from) => return Ok((from, 0)),
                Begun::Pinned(physical) => {
                    // With what it takes here to find neighbours and to keep them.
                    let begun = Instant::now();
                    let mut along = self.pin_around(physical, window);
                    let (read, along_read) = self.read_with(entry, physical, dst, &mut along);
                    let from = self.end(entry, read);
                    let neighbours = along.into_iter().zip(along_read);
                    let asked = neighbours.len();
                    let count = neighbours.map(|(one, read)| self.keep(one, read)).sum();
                    let from = from?;
                    // What was not kept may not have been read.
                    if count == asked {
                        let took = begun.elapsed();
                        self.areas.note_read(physical.area(), 1 + count, took);
                    }
                    return Ok((from, count));
                }
                Begun::Crowded => yield_now(),
            }
        }
    }

    /// The most pages that one request to this area is worth, the wanted one included: 1 if none is to come along. It
    /// comes from what reading there was measured to take. Takes no lock. Counts on being followed now and then, so
    /// that it can measure.
    #[must_use]
    pub fn read_around_max(&self, area: AreaId) -> usize {
        self.areas.window_max(area)
    }

    /// Pins the neighbours of `physical` in its block. On either side it stops at the first slot that holds no page, or
    /// a page that is also in a frame.
    fn pin_around(&self, physical: Entry, window: usize) -> Vec<Neighbour<'_>> {
        let window = window.clamp(1, READ_AROUND_MAX) as u64;
        if window == 1 || self.areas.is_quick(physical.area()) {
            return Vec::new();
        }
        let at = physical.offset();
        let block = at - at % window;
        let neighbour = |offset| self.pin_neighbour(Entry::at(physical.area(), offset)?);
        let below = (block..at).rev().map_while(neighbour);
        let mut along: Vec<_> = below.take(self.clean.most).collect();
        let above = (at + 1..block + window).map_while(neighbour);
        along.extend(above.take(self.clean.most - along.len()));
        along
    }

    fn pin_neighbour(&self, physical: Entry) -> Option<Neighbour<'_>> {
        let entry = self.areas.owner(physical)?;
        let (cluster, slot) = self.locate(entry)?;
        let is_stored = matches!(cluster.word(slot).kind(), Kind::Shadow(_));
        let frame = is_stored.then(|| self.frames.pop())??;
        match self.pin_behind(physical, entry) {
            Pin::Taken(_) => Some(Neighbour {
                entry,
                physical,
                frame,
            }),
            Pin::Nothing | Pin::Crowded => None,
        }
    }

    /// Reads the wanted page, and its neighbours with the same request. Returns the results for the page and for each
    /// neighbour.
    fn read_with(
        &self,
        entry: Entry,
        physical: Entry,
        dst: &mut Page,
        along: &mut [Neighbour<'_>],
    ) -> (Result<(), StorageError>, Vec<Result<(), StorageError>>) {
        let along = (1..)
            .zip(along)
            .map(|(at, one)| Wanted::new(at, one.entry, one.physical, &mut one.frame));
        let mut all = vec![Wanted::new(0, entry, physical, dst)];
        all.extend(along);
        runs::sort(&mut all);
        self.read_runs(&mut all);
        all.sort_unstable_by_key(|one| one.at);
        let mut read = all.into_iter().map(|one| one.read);
        (read.next().unwrap_or(Ok(())), read.collect())
    }

    /// Puts a neighbour that was read into the swap cache, and unpins its slot. Returns 1, or 0 if that is not
    /// possible.
    fn keep(&self, one: Neighbour<'_>, read: Result<(), StorageError>) -> usize {
        let is_kept = read.is_ok() && self.add_to_cache(one.entry, one.frame);
        self.unpin_entry(one.entry);
        if is_kept && let Some(oldest) = self.clean.push(one.entry) {
            self.drop_clean(oldest);
        }
        usize::from(is_kept)
    }

    /// Publishes a clean copy of a stored page. Does nothing if the page is already cached or its last reference was
    /// put.
    fn add_to_cache(&self, entry: Entry, mut frame: FrameMut<'_>) -> bool {
        let Some((mut cluster, slot)) = self.lock(entry) else {
            return false;
        };
        let word = cluster.word(slot);
        let Kind::Shadow(shadow) = word.kind() else {
            return false;
        };
        if word.count_field() == 0 {
            return false;
        }
        frame.set_shadow(shadow);
        frame.mark_read_ahead();
        cluster.set_word(slot, word.into_cached(frame.index()));
        frame.into_cache();
        true
    }

    /// An exclusive free frame to fill. If all are in use, takes the frame of a page that was read ahead. `None` if
    /// there is none: then write pages out first.
    pub fn frame(&self) -> Option<FrameMut<'_>> {
        self.frames.pop().or_else(|| self.frame_of_clean())
    }

    /// Takes a frame from the pages that were read ahead, the oldest first.
    #[cold]
    fn frame_of_clean(&self) -> Option<FrameMut<'_>> {
        while let Some(oldest) = self.clean.oldest() {
            if self.drop_clean(oldest)
                && let Some(frame) = self.frames.pop()
            {
                return Some(frame);
            }
        }
        None
    }

    /// Gives up the pages that were read ahead.
    pub fn drop_read_ahead(&self) {
        while let Some(oldest) = self.clean.oldest() {
            self.drop_clean(oldest);
        }
    }

    /// Gives the memory of all free frames back. They stay usable: it comes with the first byte. For a time in which
    /// nobody moves pages out: who wants a frame meanwhile may find none. Returns how many were free.
    pub fn give_frames_back(&self) -> usize {
        self.frames.give_memory_back()
    }

    /// Takes a page out of the swap cache if its bytes are also stored behind its slot.
    fn drop_clean(&self, entry: Entry) -> bool {
        let Some((mut cluster, slot)) = self.lock(entry) else {
            return false;
        };
        let frame = cluster.word(slot).frame();
        let Some(frame) = frame.filter(|_| cluster.is_clean(slot)) else {
            return false;
        };
        let word = cluster.word(slot).into_shadow(self.frames.shadow(frame));
        cluster.set_word(slot, word);
        drop(cluster);
        self.frames.release(frame);
        true
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::base::pages::PAGE_BYTES;
    use crate::base::storage::Storage;
    use crate::frames::FRAMES_PART;
    use crate::testing::{BROKEN, Probe, assert_holds, engine_with_areas, out, slot_of};
    use crate::zpool::testing::{Content, page_bytes};

    /// Frames of the engine. A part of them, four, may hold pages that were read ahead.
    const FRAMES: usize = 16;

    /// Pages with the seeds 0, 1, ... in the slots 1, 2, ... of an area. Slot 0 is bad.
    fn stored(pages: u64) -> (Engine, Vec<Entry>, Probe) {
        let (engine, mut probes) = engine_with_areas(FRAMES, 0, &[64]);
        let entries: Vec<Entry> = (0..pages)
            .map(|seed| out(&engine, Content::Text, seed))
            .collect();
        let mut scratch = engine.scratch();
        engine.write_out_all(0, &entries, &mut scratch, |_, written| {
            written.expect("room");
        });
        (engine, entries, probes.remove(0))
    }

    /// Swaps in the page of this seed. Returns where it was and how many pages came along.
    fn around(engine: &Engine, entry: Entry, window: usize, seed: u64) -> (SwapIn, usize) {
        let mut page = Page([0xee; PAGE_BYTES]);
        let mut scratch = engine.scratch();
        let read = engine.swap_in_around(entry, window, &mut page, &mut scratch);
        assert!(
            page.0 == page_bytes(Content::Text, seed)[..],
            "{seed} differs"
        );
        read.expect("readable")
    }

    /// The other pages in the aligned block of four slots around the page at `at`.
    fn block_of_four(engine: &Engine, entries: &[Entry], at: usize) -> Vec<usize> {
        let block = slot_of(engine, entries[at]) / 4;
        let others = (0..entries.len()).filter(|&other| other != at);
        others
            .filter(|&other| slot_of(engine, entries[other]) / 4 == block)
            .collect()
    }

    #[test]
    #[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
    fn a_block_comes_with_one_request_and_is_found_without_any() {
        let (engine, entries, probe) = stored(12);
        let along = block_of_four(&engine, &entries, 5);
        assert!(!along.is_empty());
        let read = around(&engine, entries[5], 4, 5);
        assert_eq!(read, (SwapIn::Physical, along.len()));
        assert_eq!(probe.reads(), 1);
        assert_eq!(engine.stats().frames_used, along.len() as u64);
        for &at in &along {
            let seed = at as u64;
            assert!(!engine.is_physical(entries[at]));
            assert_holds(&engine, entries[at], Content::Text, seed, SwapIn::ReadAhead);
            assert_holds(&engine, entries[at], Content::Text, seed, SwapIn::Cached);
            let again = engine.write_out(entries[at], &mut engine.scratch());
            assert_eq!(again, Err(crate::WriteOutError::NotCached), "it is clean");
        }
        assert_eq!(probe.reads(), 1);
        assert_eq!(engine.stats().physical, 12, "and still in their slots");
        entries.into_iter().for_each(|entry| engine.put(entry));
        let stats = engine.stats();
        assert_eq!(
            (stats.slots_used, stats.physical, stats.frames_used),
            (0, 0, 0)
        );
    }

    #[test]
    #[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
    fn clean_frames_are_few_and_go_when_one_is_wanted() {
        let (engine, entries, probe) = stored(FRAMES as u64);
        let most = FRAMES / FRAMES_PART;
        for (at, &entry) in entries.iter().enumerate() {
            around(&engine, entry, 64, at as u64);
            assert!(engine.stats().frames_used <= most as u64);
        }
        assert!(engine.stats().frames_used > 0);
        let frames: Vec<_> = std::iter::from_fn(|| engine.frame()).collect();
        assert_eq!(frames.len(), FRAMES, "every one of them");
        let reads = probe.reads();
        for (at, &entry) in entries.iter().enumerate() {
            assert_holds(&engine, entry, Content::Text, at as u64, SwapIn::Physical);
        }
        assert_eq!(probe.reads(), reads + FRAMES as u64);
        assert_eq!(around(&engine, entries[3], 64, 3).1, 0, "no frame is free");
    }

    #[test]
    #[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
    fn frames_that_are_given_back_hold_nothing_and_can_be_used_again() {
        let (engine, entries, _) = stored(FRAMES as u64);
        around(&engine, entries[8], 64, 8);
        assert!(engine.stats().frames_used > 0);
        engine.drop_read_ahead();
        assert_eq!(engine.stats().frames_used, 0);
        assert_eq!(engine.give_frames_back(), FRAMES);
        for (at, &entry) in entries.iter().enumerate() {
            assert_holds(&engine, entry, Content::Text, at as u64, SwapIn::Physical);
        }
        let frames: Vec<_> = std::iter::from_fn(|| engine.frame()).collect();
        assert_eq!(frames.len(), FRAMES);
    }

    #[test]
    #[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
    fn a_neighbour_that_cannot_be_read_is_left_alone() {
        let (engine, entries, probe) = stored(8);
        let along = block_of_four(&engine, &entries, 4);
        probe.unreadable(&[slot_of(&engine, entries[along[0]])]);
        assert_eq!(
            around(&engine, entries[4], 4, 4),
            (SwapIn::Physical, along.len() - 1)
        );
        assert!(engine.is_physical(entries[along[0]]));
        probe.unreadable(&[slot_of(&engine, entries[4])]);
        let mut page = Page::zeroed();
        let mut scratch = engine.scratch();
        let read = engine.swap_in_around(entries[4], 4, &mut page, &mut scratch);
        let raw = entries[4].raw();
        assert_eq!(read, Err(SwapInError::Unreadable { raw, error: BROKEN }));
        entries.into_iter().for_each(|entry| engine.put(entry));
        let stats = engine.stats();
        assert_eq!((stats.slots_used, stats.frames_used), (0, 0));
    }

    /// They may be on another machine, which is gone.
    #[test]
    #[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
    fn neighbours_that_get_no_answer_cost_the_wanted_page_nothing_but_time() {
        for at in 0..8 {
            let (engine, entries, probe) = stored(8);
            let along = block_of_four(&engine, &entries, at);
            let slots = along.iter().map(|&one| slot_of(&engine, entries[one]));
            probe.silent(&slots.collect::<Vec<_>>());
            let before = probe.reads();
            assert_eq!(
                around(&engine, entries[at], 4, at as u64),
                (SwapIn::Physical, 0)
            );
            let reads = if along.is_empty() { 1 } else { 3 };
            assert_eq!(probe.reads() - before, reads, "all, it, and one more");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
    fn a_clean_copy_stays_right_when_its_page_moves_to_another_home() {
        let (engine, entries, probe) = stored(8);
        let along = block_of_four(&engine, &entries, 2);
        around(&engine, entries[2], 4, 2);
        engine.set_pool_limit(1 << 20);
        let id = engine.areas()[0].id;
        let off = engine.swap_off(id, &mut engine.scratch(), &|| false);
        assert_eq!(off, Ok(()));
        assert!(probe.is_closed());
        for at in along {
            let seed = at as u64;
            assert_holds(&engine, entries[at], Content::Text, seed, SwapIn::ReadAhead);
        }
        let held: Vec<_> = std::iter::from_fn(|| engine.frame()).collect();
        assert_eq!(held.len(), FRAMES);
        for (at, &entry) in entries.iter().enumerate() {
            assert_holds(&engine, entry, Content::Text, at as u64, SwapIn::Compressed);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
    fn memory_is_not_read_ahead() {
        let (engine, _) = engine_with_areas(FRAMES, 0, &[]);
        let storage = Box::new(crate::RamStorage::new(16));
        let area = crate::NewArea {
            storage,
            ..crate::testing::area_on(&Probe::new(16), 16)
        };
        engine.swap_on(area).expect("a good area");
        let entries: Vec<Entry> = (0..8)
            .map(|seed| out(&engine, Content::Text, seed))
            .collect();
        let mut scratch = engine.scratch();
        engine.write_out_all(0, &entries, &mut scratch, |_, written| {
            written.expect("room");
        });
        assert_eq!(around(&engine, entries[3], 8, 3), (SwapIn::Physical, 0));
    }

    /// Storage that takes its time: so much for a request, and so much for each page.
    #[derive(Debug)]
    struct Timed {
        probe: Probe,
        request: Duration,
        page: Duration,
    }

    impl Storage for Timed {
        fn read(&self, slot: u64, pages: &mut [&mut Page]) -> Result<(), StorageError> {
            let count = u32::try_from(pages.len()).expect("few");
            std::thread::sleep(self.request + self.page * count);
            self.probe.read(slot, pages)
        }

        fn write(&self, slot: u64, pages: &[&Page]) -> Result<(), StorageError> {
            self.probe.write(slot, pages)
        }
    }

    /// How many pages are worth a request to such storage, and how long a lone one takes, when some were read.
    fn measured(request: Duration, page: Duration) -> (usize, Duration) {
        let (engine, _) = engine_with_areas(256, 0, &[]);
        let probe = Probe::new(64);
        let storage = Box::new(Timed {
            probe: probe.clone(),
            request,
            page,
        });
        let area = crate::NewArea {
            storage,
            ..crate::testing::area_on(&probe, 64)
        };
        let id = engine.swap_on(area).expect("a good area");
        let entries: Vec<Entry> = (0..48)
            .map(|seed| out(&engine, Content::Text, seed))
            .collect();
        engine.write_out_all(0, &entries, &mut engine.scratch(), |_, written| {
            written.expect("room");
        });
        let latency = || engine.areas()[0].latency;
        assert_eq!((latency(), engine.read_around_max(id)), (None, 8));
        for at in [0, 20, 40] {
            assert_eq!(around(&engine, entries[at], 1, at as u64).1, 0);
            let along = around(&engine, entries[at + 3], 8, at as u64 + 3).1;
            assert!(along >= 4, "{along}");
        }
        for (at, &entry) in entries.iter().enumerate() {
            around(&engine, entry, 16, at as u64);
        }
        (engine.read_around_max(id), latency().expect("measured"))
    }

    #[test]
    #[cfg_attr(miri, ignore = "its time is not that of storage")]
    fn slow_requests_are_worth_more_pages_than_slow_pages() {
        let (none, long) = (Duration::ZERO, Duration::from_millis(20));
        let (window, latency) = measured(long, none);
        assert!(window >= 4 && latency >= long, "{window}, {latency:?}");
        let (window, latency) = measured(none, long / 2);
        assert!(window == 1 && latency >= long / 2, "{window}, {latency:?}");
    }
}
