//! The engine's parts, and the operations that concern only areas, groups and counts. Operations on pages are in
//! `verbs`.
//!
//! Every operation may be called from any thread at any time. Operations on the same entry exclude each other by the
//! lock of its cluster. [`Engine::lookup`] and [`Engine::swap_in`] take no lock. During compression a thread holds only
//! the frame's claim, so a second writer of the frame gives up. During decompression it holds only a pin on the slot's
//! backing, so the last `put` leaves the freeing to the reader.

use std::sync::Arc;

use crate::area::{Aging, Area, AreaStats};
use crate::areas::{AreaFigures, Areas, NewArea, SwapOnError};
use crate::base::buffer::PageBuffer;
use crate::base::pages::{PAGE_BYTES, Page, PageSource};
use crate::base::sync::ModelPoint;
use crate::cluster::{Cluster, ClusterGuard};
use crate::codec::{Codec, Scratch, SecondCodec};
use crate::frames::{CleanFrames, FRAMES_MAX, Frames};
use crate::groups::{
    GroupCharges, GroupError, GroupFigures, GroupId, GroupIndex, GroupLimits, GroupName, Groups,
};
use crate::stats::Stats;
use crate::words::entry::{AreaId, Entry};
use crate::words::tier::TierId;
use crate::zpool::{Pool, PoolFill};

/// Settings of a new engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Number of frames, 4 KiB each. They hold pages on their way between memory and pool.
    pub frames: usize,
    /// How many CPUs allocate slots from clusters of their own. A larger CPU number is taken modulo this.
    pub cpus: usize,
    /// How new pages are compressed.
    pub codec: Codec,
    /// Memory that the pool may take.
    pub pool_limit_bytes: u64,
    /// Whether stored pages carry a checksum that is verified when they are read.
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
    pub(crate) virtual_area: Area,
    /// The physical areas.
    pub(crate) areas: Areas,
    pub(crate) frames: Frames,
    pub(crate) clean: CleanFrames,
    pub(crate) pool: Pool,
    /// Which group each page belongs to.
    pub(crate) groups: Groups,
    /// Keeps the age of pages in the pool.
    pub(crate) aging: Aging,
    pub(crate) second_codec: SecondCodec,
    /// Model checkers pass this before the pool is used, because the pool's own atomics are not modelled.
    pub(crate) at_pool: ModelPoint,
    /// The same for the use of storage.
    pub(crate) at_storage: ModelPoint,
    pub(crate) codec: Codec,
    pages: Arc<dyn PageSource>,
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
            virtual_area: Area::virtual_area(config.cpus, Arc::clone(&pages)).ok_or(no_memory)?,
            areas: Areas::new(config.cpus, Arc::clone(&pages)),
            frames: Frames::new(frames, Arc::clone(&pages)).ok_or(no_memory)?,
            clean: CleanFrames::new(frames),
            pool: Pool::new(Arc::clone(&pages), config.pool_limit_bytes)
                .with_checksums(config.checksums),
            groups: Groups::new(),
            aging: Aging::new(),
            second_codec: SecondCodec::new(),
            at_pool: ModelPoint::new(),
            at_storage: ModelPoint::new(),
            codec: config.codec,
            pages,
        })
    }

    /// Codec contexts and buffers for one thread. Make them once and pass them to every call.
    #[must_use]
    pub fn scratch(&self) -> Scratch {
        self.codec.scratch_in(&self.pages)
    }

    /// Has areas remove what they would leave behind on other machines. Nobody may need a page any more: the process is
    /// about to end. Blocks for some seconds at most.
    pub fn retire_areas(&self) {
        self.areas.retire_storage();
    }

    /// How new pages are compressed. What is stored says by itself how it is packed.
    #[must_use]
    pub fn codec(&self) -> Codec {
        self.codec
    }

    /// Pages for one thread to work with, in the engine's own memory.
    #[must_use]
    pub fn buffer(&self, count: usize) -> PageBuffer {
        PageBuffer::new(&self.pages, count)
    }

    /// Changes the memory that the pool may take. Pages stored above a smaller limit stay.
    pub fn set_pool_limit(&self, bytes: u64) {
        self.pool.set_limit(bytes);
    }

    /// Whether the pool would store this content in less than a page. Compresses the content to find out.
    #[must_use]
    pub fn packs(&self, page: &Page, scratch: &mut Scratch) -> bool {
        self.codec.compress(page, scratch).is_ok()
    }

    /// How full the pool is. Takes the locks of the pool's classes one after the other, about 2 us in all.
    #[must_use]
    pub fn pool_fill(&self) -> PoolFill {
        self.pool.fill()
    }

    /// Starts to use a physical area. It takes pages that do not compress or that the pool has no room for. Areas of
    /// higher priority are used first. Areas of equal priority take turns.
    pub fn swap_on(&self, area: NewArea) -> Result<AreaId, SwapOnError> {
        self.areas.add(area)
    }

    /// Tells the storage of areas swapped on with [`Discard::Pages`] about clusters that have become empty, at most
    /// `budget_clusters` of them. Returns how many clusters can be used again. Blocks meanwhile. If nobody calls this,
    /// waiting clusters are discarded when no other cluster is left to allocate from.
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

    /// Makes a group inside the group that its name says. [`Engine::swap_out`] is told which group a page belongs to.
    pub fn add_group(&self, name: &GroupName, limits: GroupLimits) -> Result<GroupId, GroupError> {
        self.groups.add(name, limits)
    }

    /// Finds the group with this name.
    #[must_use]
    pub fn find_group(&self, name: &GroupName) -> Option<GroupId> {
        self.groups.find(name)
    }

    /// Changes a group's limits. Charges above a smaller limit stay.
    pub fn set_group_limits(&self, id: GroupId, limits: GroupLimits) -> Result<(), GroupError> {
        self.groups.set_limits(id, limits)
    }

    /// Removes a group that has no pages in swap. Looks through all clusters and takes the lock of each for a moment.
    /// Swap-outs to the group may go on meanwhile: one that comes before the end keeps the group.
    pub fn remove_group(&self, id: GroupId) -> Result<(), GroupError> {
        self.groups.remove(id, |group| self.slots_of_group(group))
    }

    /// Figures of all groups but the root, sorted by name. Those of the root are [`Stats::physical`] and
    /// [`Stats::payload_bytes`], and the root is refused nothing.
    #[must_use]
    pub fn groups(&self) -> Vec<GroupFigures> {
        self.groups.figures()
    }

    /// What is charged to a group and the groups inside it. Nothing for the root or a removed group. Takes no lock.
    #[must_use]
    pub fn group_charges(&self, id: GroupId) -> GroupCharges {
        self.groups.charges(id)
    }

    /// Number of slots that belong to this group itself, which is not the root. Looks through all clusters and takes
    /// the lock of each for a moment.
    #[must_use]
    pub fn group_slots(&self, id: GroupId) -> u64 {
        self.slots_of_group(id.index())
    }

    /// Whether the group's limits permit another page to go to an area: in all, and in a tier that has a free slot. If
    /// no area has one, or there is none, limits alone decide. A hint.
    #[must_use]
    pub fn has_swap_room(&self, group: GroupId) -> bool {
        self.groups
            .has_swap_room(group, self.areas.tiers_with_room())
    }

    /// The area of a directly mapped entry, or `None` if it was swapped off. A function of its own, so that looking up
    /// a virtual slot stays short.
    #[cold]
    #[inline(never)]
    fn direct_area_of(&self, entry: Entry) -> Option<&Area> {
        self.areas.get(entry.area()).map(|physical| &physical.area)
    }

    /// The cluster and slot of an entry, virtual or directly mapped. `None` if there never was such a cluster.
    #[inline]
    pub(crate) fn locate(&self, entry: Entry) -> Option<(&Cluster, usize)> {
        if entry.is_direct() {
            return self.locate_direct(entry);
        }
        self.virtual_area.locate_own(entry)
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

    /// Frees a slot that a page table named, and which has neither frame nor backing any longer. Returns the tier in
    /// which the slot is still charged to its group, if it was directly mapped.
    #[inline]
    #[must_use]
    pub(crate) fn release_slot(
        &self,
        cluster: &mut ClusterGuard<'_>,
        entry: Entry,
    ) -> Option<TierId> {
        if entry.is_direct() {
            return Some(self.areas.release_mapped(cluster, entry));
        }
        self.virtual_area.release_slot(cluster, entry);
        None
    }

    fn slots_of_group(&self, group: GroupIndex) -> u64 {
        let of_each = self.mapped_areas().map(|area| area.slots_of_group(group));
        of_each.sum()
    }

    /// The areas whose slots page tables may name.
    fn mapped_areas(&self) -> impl Iterator<Item = &Area> {
        let physical = self.areas.mapped().map(|physical| &physical.area);
        [&self.virtual_area].into_iter().chain(physical)
    }

    /// The virtual area and the physical ones.
    pub(crate) fn all_areas(&self) -> impl Iterator<Item = &Area> {
        let physical = self.areas.all().map(|(_, physical)| &physical.area);
        [&self.virtual_area].into_iter().chain(physical)
    }

    /// The virtual area and all physical ones that ever were. Those that are gone have tables and no slots.
    pub(crate) fn ever_areas(&self) -> impl Iterator<Item = &Area> {
        [&self.virtual_area].into_iter().chain(self.areas.ever())
    }

    /// The areas of `mapped_areas` without those that are being closed: nothing is moved there any more.
    pub(crate) fn areas_to_age(&self) -> impl Iterator<Item = &Area> {
        let staying = self
            .areas
            .mapped()
            .filter(|physical| !physical.is_closing());
        let physical = staying.map(|physical| &physical.area);
        [&self.virtual_area].into_iter().chain(physical)
    }

    /// The exact count of references; 0 for a free entry. Takes the cluster's lock.
    #[must_use]
    pub fn count(&self, entry: Entry) -> u32 {
        let locked = self.lock(entry);
        locked.map_or(0, |(cluster, slot)| cluster.count(slot))
    }

    /// Whether an entry has more than one reference. A hint; takes no lock.
    #[inline]
    #[must_use]
    pub fn is_shared(&self, entry: Entry) -> bool {
        let located = self.locate(entry);
        located.is_some_and(|(cluster, slot)| cluster.word(slot).count_field() > 1)
    }

    /// Moves stored payloads together. Looks at no more than `budget_pages` pages, and returns how many were given
    /// back.
    pub fn compact(&self, budget_pages: usize) -> usize {
        self.pool.compact(budget_pages)
    }

    /// Current figures. Each is right by itself, but they are not all of one moment. Goes through all clusters and
    /// frames; [`Engine::recount`] does not.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let physical = self.areas.ever().map(Area::stats);
        let physical = physical.fold(AreaStats::default(), |sum, one| sum.and(&one));
        self.figures(&self.virtual_area.stats(), &physical)
    }

    /// The figures of all, where these are those of the areas.
    pub(crate) fn figures(&self, slots: &AreaStats, physical: &AreaStats) -> Stats {
        let mut stats = Stats::gather(slots, physical, &self.frames, &self.pool.stats());
        stats.table_bytes += self.groups.table_bytes() as u64;
        stats
    }
}
