//! The engine's face: swap pages out, write them out, bring them back, share and free them.
//!
//! Every operation may be called from any thread at any time. Operations on one entry meet at its cluster's lock,
//! except [`Engine::lookup`] and [`Engine::swap_in`], which take none. Nothing is held across compression but the
//! frame's claim (which makes a second writer give up), and nothing across decompression but a pin on the slot's
//! backing (which makes the last `put` leave the freeing to the reader).

use std::sync::Arc;

use crate::area::Area;
use crate::areas::{AreaFigures, Areas, NewArea, SwapOnError};
use crate::cluster::{Cluster, ClusterGuard};
use crate::codec::{Codec, Scratch};
use crate::count::DupError;
use crate::entry::{AreaId, Entry};
use crate::frame::{FRAMES_MAX, FrameMut, Frames};
use crate::groups::{
    GroupCharges, GroupError, GroupFigures, GroupId, GroupLimits, GroupName, Groups, slots_of_group,
};
use crate::pages::{PAGE_BYTES, Page, PageSource};
use crate::read_ahead::ReadAhead;
use crate::stats::Stats;
use crate::sync::ModelPoint;
use crate::write_back::Aging;
use crate::zpool::{Pool, PoolFill};

/// What an engine is made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Frames, 4 KiB each: pages that are on their way between memory and pool.
    pub frames: usize,
    /// CPUs that allocate slots apart from each other. A larger CPU number is folded.
    pub cpus: usize,
    /// How pages are compressed.
    pub codec: Codec,
    /// Memory that the pool may take.
    pub pool_limit_bytes: u64,
    /// Whether stored pages carry a checksum that is tested when they are read.
    pub checksums: bool,
}

/// Why an engine could not be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Too few or too many frames.
    #[error(
        "{frames} frames were asked for, expected 1 to {FRAMES_MAX}: choose a number in between"
    )]
    Frames {
        /// What was asked for.
        frames: usize,
    },
    /// No CPUs.
    #[error("0 CPUs were given, expected how many allocate at the same time: pass 1 or more")]
    Cpus,
    /// The page source has no memory for the frames or the tables.
    #[error(
        "no memory for {frames} frames of {PAGE_BYTES} bytes: ask for fewer, or raise the limit"
    )]
    NoMemory {
        /// What was asked for.
        frames: usize,
    },
}

/// The swap engine.
#[derive(Debug)]
pub struct Engine {
    /// The virtual area.
    pub(crate) space: Area,
    /// The physical ones.
    pub(crate) areas: Areas,
    pub(crate) frames: Frames,
    pub(crate) read_ahead: ReadAhead,
    pub(crate) pool: Pool,
    /// Whose the pages are.
    pub(crate) groups: Groups,
    /// How long pages have been in the pool.
    pub(crate) aging: Aging,
    /// Passed before the pool is used, whose own atomics are not modelled.
    pub(crate) at_pool: ModelPoint,
    /// The same before storage is used.
    pub(crate) at_storage: ModelPoint,
    pub(crate) codec: Codec,
}

impl Engine {
    /// An engine without pages.
    ///
    /// # Errors
    /// [`ConfigError`] if a number is out of range or there is no memory.
    pub fn new(config: &Config, pages: Arc<dyn PageSource>) -> Result<Engine, ConfigError> {
        let frames = config.frames;
        if frames == 0 || frames > FRAMES_MAX {
            return Err(ConfigError::Frames { frames });
        }
        if config.cpus == 0 {
            return Err(ConfigError::Cpus);
        }
        let no_memory = ConfigError::NoMemory { frames };
        Ok(Engine {
            space: Area::virtual_area(config.cpus, Arc::clone(&pages)).ok_or(no_memory)?,
            areas: Areas::new(config.cpus, Arc::clone(&pages)),
            frames: Frames::new(frames, Arc::clone(&pages)).ok_or(no_memory)?,
            read_ahead: ReadAhead::new(frames),
            pool: Pool::new(pages, config.pool_limit_bytes).with_checksums(config.checksums),
            groups: Groups::new(),
            aging: Aging::new(),
            at_pool: ModelPoint::new(),
            at_storage: ModelPoint::new(),
            codec: config.codec,
        })
    }

    /// One thread's codec contexts and buffers, to be made once and passed to every call.
    #[must_use]
    pub fn scratch(&self) -> Scratch {
        self.codec.scratch()
    }

    /// Changes the memory that the pool may take. What is stored above a smaller limit stays.
    pub fn set_pool_limit(&self, bytes: u64) {
        self.pool.set_limit(bytes);
    }

    /// Whether the pool takes less than a page for this content. Compresses it to see.
    #[must_use]
    pub fn packs(&self, page: &Page, scratch: &mut Scratch) -> bool {
        self.codec.compress(page, scratch).is_ok()
    }

    /// How full the pool is. Takes the locks of the pool's classes, one after the other: some 2 us.
    #[must_use]
    pub fn pool_fill(&self) -> PoolFill {
        self.pool.fill()
    }

    /// Begins to use a physical area: pages that the pool has no room for or that do not compress go there. One of a
    /// higher priority comes first, those of equal priority take turns.
    ///
    /// # Errors
    /// [`SwapOnError`]; nothing has changed.
    pub fn swap_on(&self, area: NewArea) -> Result<AreaId, SwapOnError> {
        self.areas.add(area)
    }

    /// Tells the storage of areas that were swapped on with [`Discard::Pages`] of clusters that have become empty,
    /// `budget_clusters` at most, and returns how many can be used again. Blocks while it does. If nobody calls it,
    /// what waits is discarded when there is nothing else to give out.
    ///
    /// [`Discard::Pages`]: crate::Discard::Pages
    pub fn discard(&self, budget_clusters: usize) -> usize {
        self.areas.discard(budget_clusters)
    }

    /// Figures of the physical areas, by their numbers.
    #[must_use]
    pub fn areas(&self) -> Vec<AreaFigures> {
        self.areas.figures()
    }

    /// Makes a group, which is in the one that its name says. Pages are of it if [`Engine::swap_out`] is told so.
    ///
    /// # Errors
    /// [`GroupError`]; nothing has changed.
    pub fn add_group(&self, name: &GroupName, limits: GroupLimits) -> Result<GroupId, GroupError> {
        self.groups.add(name, limits)
    }

    /// The group of this name.
    #[must_use]
    pub fn find_group(&self, name: &GroupName) -> Option<GroupId> {
        self.groups.find(name)
    }

    /// Changes a group's limits. What it has above smaller ones stays.
    ///
    /// # Errors
    /// [`GroupError`]; nothing has changed.
    pub fn set_group_limits(&self, id: GroupId, limits: GroupLimits) -> Result<(), GroupError> {
        self.groups.set_limits(id, limits)
    }

    /// Removes a group without pages in swap. Looks through all clusters, taking the lock of each for a moment.
    /// Swap-outs to the group may go on meanwhile: one that comes before the end keeps the group.
    ///
    /// # Errors
    /// [`GroupError`]; nothing has changed.
    pub fn remove_group(&self, id: GroupId) -> Result<(), GroupError> {
        self.groups.remove(id, self.mapped_areas())
    }

    /// Figures of all groups but the root, by their names. The root's are [`Stats::physical`] and
    /// [`Stats::payload_bytes`], and nothing is refused to it.
    #[must_use]
    pub fn groups(&self) -> Vec<GroupFigures> {
        self.groups.figures()
    }

    /// What is charged to a group and to those inside it; nothing if it is the root or was removed. Takes no lock.
    #[must_use]
    pub fn group_charges(&self, id: GroupId) -> GroupCharges {
        self.groups.charges(id)
    }

    /// Slots that are of this very group, which is not the root. Looks through all clusters, taking the lock of each
    /// for a moment.
    #[must_use]
    pub fn group_slots(&self, id: GroupId) -> u64 {
        slots_of_group(self.mapped_areas(), id.index())
    }

    /// May another page of the group go to an area, as far as its limits are concerned? A hint.
    #[must_use]
    pub fn has_swap_room(&self, group: GroupId) -> bool {
        self.groups.has_swap_room(group)
    }

    /// An exclusive free frame to fill; `None` when all are in use: write some out. Pages that were read ahead give
    /// theirs up.
    pub fn frame(&self) -> Option<FrameMut<'_>> {
        self.frames.pop().or_else(|| self.frame_of_clean())
    }

    /// Adds a reference: a fork shares the entry. Counts above 14 take room in the cluster's extend table.
    ///
    /// # Errors
    /// [`DupError`]; the count is as it was.
    pub fn dup(&self, entry: Entry) -> Result<(), DupError> {
        let (mut cluster, slot) = self.lock(entry).ok_or(DupError::Gone)?;
        cluster.dup(slot)
    }

    /// The area of a directly mapped entry; `None` if it was swapped off. Apart, so that looking up a virtual slot
    /// stays short.
    #[cold]
    #[inline(never)]
    fn direct_area_of(&self, entry: Entry) -> Option<&Area> {
        self.areas.get(entry.area()).map(|physical| &physical.area)
    }

    /// The cluster and the slot of an entry, virtual or directly mapped; `None` if there never was such a cluster.
    #[inline]
    pub(crate) fn locate(&self, entry: Entry) -> Option<(&Cluster, usize)> {
        if entry.is_direct() {
            return self.locate_direct(entry);
        }
        self.space.locate_own(entry)
    }

    #[cold]
    #[inline(never)]
    fn locate_direct(&self, entry: Entry) -> Option<(&Cluster, usize)> {
        self.direct_area_of(entry)?.locate(entry)
    }

    /// As [`Engine::locate`], with the cluster locked; `None` also if the cluster was never used.
    #[inline]
    pub(crate) fn lock(&self, entry: Entry) -> Option<(ClusterGuard<'_>, usize)> {
        let (cluster, slot) = self.locate(entry)?;
        Some((cluster.lock()?, slot))
    }

    /// Frees a slot that a page table named, and which has neither frame nor backing any longer.
    #[inline]
    pub(crate) fn release_slot(&self, cluster: &mut ClusterGuard<'_>, entry: Entry) {
        if entry.is_direct() {
            self.areas.release_mapped(cluster, entry);
        } else {
            self.space.release_slot(cluster, entry);
        }
    }

    /// The areas in which there are slots that page tables name.
    fn mapped_areas(&self) -> impl Iterator<Item = &Area> {
        let physical = self.areas.mapped().map(|physical| &physical.area);
        [&self.space].into_iter().chain(physical)
    }

    /// The same without those that are about to go: nothing is to be moved there any more.
    pub(crate) fn areas_to_age(&self) -> impl Iterator<Item = &Area> {
        let staying = self
            .areas
            .mapped()
            .filter(|physical| !physical.is_closing());
        let physical = staying.map(|physical| &physical.area);
        [&self.space].into_iter().chain(physical)
    }

    /// The exact count of references; 0 for a free entry. Takes the cluster's lock.
    #[must_use]
    pub fn count(&self, entry: Entry) -> u32 {
        let locked = self.lock(entry);
        locked.map_or(0, |(cluster, slot)| cluster.count(slot))
    }

    /// Whether an entry has more than one reference; a hint, which takes no lock.
    #[inline]
    #[must_use]
    pub fn is_shared(&self, entry: Entry) -> bool {
        let located = self.locate(entry);
        located.is_some_and(|(cluster, slot)| cluster.word(slot).count_field() > 1)
    }

    /// Moves stored payloads together, looking at `budget_pages` at most, and returns how many pages were given back.
    pub fn compact(&self, budget_pages: usize) -> usize {
        self.pool.compact(budget_pages)
    }

    /// Current figures. Each is right by itself; they are not of one moment. Goes through all clusters and frames.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut stats = Stats::gather(&self.space, &self.areas, &self.frames, &self.pool);
        stats.table_bytes += self.groups.table_bytes() as u64;
        stats
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::directory::CLUSTERS_MAX;
    use crate::pages::HeapPages;
    use crate::shadow::Shadow;
    use crate::swap_in::{Lookup, SwapIn, SwapInError};
    use crate::transition::Pin;
    use crate::write_out::{Destination, WriteOutError, Written};

    const AGE: Shadow = Shadow::truncated(0x0123_4567_89ab_cdef);

    fn engine(frames: usize, pool_limit_bytes: u64) -> (Engine, Arc<HeapPages>) {
        let pages = Arc::new(HeapPages::new());
        let config = Config {
            frames,
            cpus: 2,
            codec: Codec::Lz4,
            pool_limit_bytes,
            checksums: true,
        };
        let engine = Engine::new(&config, Arc::clone(&pages) as _).expect("memory");
        (engine, pages)
    }

    fn low(at: usize) -> u8 {
        at.to_le_bytes()[0]
    }

    fn out(engine: &Engine, fill: impl Fn(usize) -> u8) -> Entry {
        let mut frame = engine.frame().expect("a free frame");
        for (at, byte) in frame.0.iter_mut().enumerate() {
            *byte = fill(at);
        }
        engine
            .swap_out(0, frame, AGE, GroupId::ROOT)
            .expect("a slot")
    }

    fn back(engine: &Engine, entry: Entry) -> Result<(SwapIn, Box<Page>), SwapInError> {
        let mut page = Box::new(Page([0xee; PAGE_BYTES]));
        let from = engine.swap_in(entry, &mut page, &mut engine.scratch())?;
        Ok((from, page))
    }

    #[test]
    fn configurations_out_of_range_are_refused() {
        let config = Config {
            frames: 0,
            cpus: 1,
            codec: Codec::Lz4,
            pool_limit_bytes: 0,
            checksums: false,
        };
        let make = |config: &Config| Engine::new(config, Arc::new(HeapPages::new())).unwrap_err();
        assert_eq!(make(&config), ConfigError::Frames { frames: 0 });
        let config = Config {
            frames: 1,
            cpus: 0,
            ..config
        };
        assert_eq!(make(&config), ConfigError::Cpus);
    }

    #[test]
    fn a_page_is_cached_then_stored_then_gone() {
        let (engine, pages) = engine(1, 1 << 20);
        let entry = out(&engine, |at| low(at / 100));
        assert_eq!(engine.count(entry), 1);
        assert_eq!(engine.shadow(entry), Some(AGE));
        assert!(engine.frame().is_none());
        assert_eq!(back(&engine, entry).expect("cached").0, SwapIn::Cached);
        let written = engine
            .write_out(entry, &mut engine.scratch())
            .expect("room");
        assert!(
            matches!(written, Written::Compressed { bytes } if bytes < 1000),
            "{written:?}"
        );
        assert_eq!(
            engine.write_out(entry, &mut engine.scratch()),
            Err(WriteOutError::NotCached)
        );
        assert!(engine.frame().is_some(), "the frame is free again");
        let (from, page) = back(&engine, entry).expect("stored");
        assert_eq!(from, SwapIn::Compressed);
        assert!(
            page.0
                .iter()
                .enumerate()
                .all(|(at, &byte)| byte == low(at / 100))
        );
        assert_eq!(engine.shadow(entry), Some(AGE));
        let stats = engine.stats();
        assert_eq!(
            (stats.slots_used, stats.compressed, stats.frames_used),
            (1, 1, 0)
        );
        engine.put(entry);
        assert_eq!(back(&engine, entry).unwrap_err(), SwapInError::Gone);
        assert_eq!((engine.count(entry), engine.shadow(entry)), (0, None));
        assert_eq!(engine.dup(entry), Err(DupError::Gone));
        engine.put(entry);
        let stats = engine.stats();
        assert_eq!(
            (stats.slots_used, stats.compressed, stats.payload_bytes),
            (0, 0, 0)
        );
        drop(engine);
        assert_eq!(pages.pages_out(), 0);
    }

    #[test]
    fn zero_pages_take_no_memory_and_keep_flag_count_and_shadow() {
        let (engine, _) = engine(1, 0);
        let entry = out(&engine, |_| 0);
        engine.dup(entry).expect("in use");
        assert_eq!(
            engine.write_out(entry, &mut engine.scratch()),
            Ok(Written::Zero)
        );
        assert_eq!(engine.count(entry), 2);
        assert_eq!(engine.shadow(entry), Some(AGE));
        engine.put(entry);
        let (from, page) = back(&engine, entry).expect("one reference is left");
        assert_eq!(from, SwapIn::Zero);
        assert!(page.is_zero());
        assert_eq!(engine.stats().zero, 1);
        assert_eq!(engine.stats().pool_bytes, 0);
        engine.put(entry);
        assert!(matches!(engine.lookup(entry), Lookup::Gone));
        assert_eq!(engine.stats().zero, 0);
    }

    #[test]
    fn a_full_pool_leaves_the_page_in_its_frame() {
        let (engine, _) = engine(1, 0);
        let entry = out(&engine, |at| low(at) | 1);
        let mut scratch = engine.scratch();
        for _ in 0..2 {
            assert_eq!(
                engine.write_out(entry, &mut scratch),
                Err(WriteOutError::Full)
            );
            let (from, page) = back(&engine, entry).expect("not lost");
            assert_eq!(from, SwapIn::Cached);
            assert!(
                page.0
                    .iter()
                    .enumerate()
                    .all(|(at, &byte)| byte == low(at) | 1)
            );
        }
        engine.set_pool_limit(1 << 20);
        assert!(engine.write_out(entry, &mut scratch).is_ok());
        assert_eq!(back(&engine, entry).expect("stored").0, SwapIn::Compressed);
    }

    #[test]
    fn an_incompressible_page_is_kept_as_it_is() {
        let (engine, _) = engine(1, 1 << 20);
        let content = crate::zpool::testing::page_bytes(crate::zpool::testing::Kind::Random, 1);
        assert!(!engine.packs(&Page(*content), &mut engine.scratch()));
        assert!(engine.packs(&Page([7; PAGE_BYTES]), &mut engine.scratch()));
        let entry = out(&engine, |at| content[at]);
        assert_eq!(
            engine.write_out(entry, &mut engine.scratch()),
            Ok(Written::Raw)
        );
        assert_eq!(engine.stats().raw, 1);
        assert!(back(&engine, entry).expect("stored").1.0 == *content);
    }

    #[test]
    fn a_writer_excludes_writers_and_frees_what_was_put_meanwhile() {
        let (engine, _) = engine(1, 1 << 20);
        let entry = out(&engine, |_| 3);
        let mut leaving = engine.claim(entry).expect("cached");
        assert_eq!(
            engine.write_out(entry, &mut engine.scratch()),
            Err(WriteOutError::Busy)
        );
        engine.put(entry);
        assert_eq!(back(&engine, entry).unwrap_err(), SwapInError::Gone);
        assert_eq!(engine.stats().slots_used, 1, "left to the writer");
        leaving.to = Destination::Zero;
        assert_eq!(engine.finish(&leaving), Ok(Written::Freed));
        drop(leaving);
        let stats = engine.stats();
        assert_eq!((stats.slots_used, stats.zero, stats.frames_used), (0, 0, 0));
    }

    #[test]
    fn a_put_during_a_read_is_finished_by_the_last_reader() {
        let (engine, _) = engine(1, 1 << 20);
        let entry = out(&engine, |_| 3);
        engine
            .write_out(entry, &mut engine.scratch())
            .expect("room");
        let (cluster, slot) = engine.space.locate(entry).expect("in use");
        assert_eq!(engine.pin(cluster, slot), engine.pin(cluster, slot));
        engine.put(entry);
        assert_eq!(engine.pin(cluster, slot), Pin::Nothing);
        assert_eq!(engine.stats().slots_used, 1);
        engine.unpin(entry, cluster, slot);
        assert_eq!(engine.stats().compressed, 1);
        engine.unpin(entry, cluster, slot);
        assert_eq!(
            (engine.stats().slots_used, engine.stats().compressed),
            (0, 0)
        );
    }

    #[test]
    fn counts_beyond_a_word_are_kept_and_their_table_goes_with_them() {
        let (engine, _) = engine(2, 1 << 20);
        let (entry, other) = (out(&engine, |_| 0), out(&engine, |_| 1));
        let table_bytes = engine.stats().table_bytes;
        const SHARERS: u32 = 40;
        for count in 2..=SHARERS {
            assert_eq!(engine.is_shared(entry), count > 2);
            engine.dup(entry).expect("in use");
            assert_eq!(engine.count(entry), count);
            assert_eq!(engine.stats().table_bytes > table_bytes, count >= 15);
        }
        // Zero flag, shadow and overflow live together in one word.
        assert_eq!(
            engine.write_out(entry, &mut engine.scratch()),
            Ok(Written::Zero)
        );
        assert_eq!((engine.count(entry), engine.count(other)), (SHARERS, 1));
        for count in (0..SHARERS).rev() {
            engine.put(entry);
            assert_eq!(engine.count(entry), count);
            assert_eq!(engine.stats().table_bytes > table_bytes, count >= 15);
        }
        assert_eq!(engine.count(other), 1);
    }

    #[test]
    fn entries_of_clusters_that_never_were_are_harmless() {
        let (engine, _) = engine(1, 1 << 20);
        let far = |cluster| Entry::of(AreaId::VIRTUAL, cluster, 1);
        for entry in [0, 1, CLUSTERS_MAX / 2, CLUSTERS_MAX - 1].map(far) {
            assert_eq!(Entry::from_raw(entry.raw()), Some(entry));
            engine.put(entry);
            assert_eq!((engine.count(entry), engine.shadow(entry)), (0, None));
            assert_eq!(engine.dup(entry), Err(DupError::Gone));
            assert_eq!(back(&engine, entry).unwrap_err(), SwapInError::Gone);
            let written = engine.write_out(entry, &mut engine.scratch());
            assert_eq!(written, Err(WriteOutError::NotCached));
        }
    }
}
