//! Making an arena, allocating from it, and its figures.

use std::alloc::Layout;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use vswap_areas::Opening;
use vswap_engine::{Codec, Config, Engine, PageSource};
use vswap_sys::machine::check_page_size;
use vswap_sys::process::cpu;
use vswap_sys::sigbus::Masked;
use vswap_sys::watched::{WatchError, Watched};

use crate::allocator::ArenaAllocator;
use crate::allowance::{Allowance, RAM_LEAST_BYTES};
use crate::areas::{Areas, Asked};
use crate::error::ArenaError;
use crate::groups::{GroupNumber, Groups};
use crate::heap::Heap;
use crate::limits::Limits;
use crate::memory::MappedPages;
use crate::observer;
use crate::owed::Owed;
use crate::owner::Owner;
use crate::packing::Packing;
use crate::pin::Pin;
use crate::region::{Advice, Region};
use crate::size::{Size, SizeError};
use crate::state::{Core, PAGE_BYTES, Parts};
use crate::stats::{AreaStats, GroupStats, Stats};
use crate::word::PageWords;

/// Frames: pages on their way out. A window needs 64, and what is not placed yet as many.
const FRAMES: usize = 128;
/// Addresses that are reserved if nobody says how many: so many times the RAM, and all areas once more.
const CAPACITY_TIMES: u64 = 16;
/// But no more than 4 TiB: an area may be as large as a file system.
const CAPACITY_MOST_BYTES: u64 = 4 << 40;

/// Says what an arena is to be like.
#[derive(Debug)]
pub struct Builder {
    ram: Result<u64, SizeError>,
    pool: Option<Result<u64, SizeError>>,
    capacity: Option<Result<u64, SizeError>>,
    areas: Vec<Asked>,
    opening: Opening,
    packing: Packing,
}

impl Builder {
    /// RAM that the arena may take: its pages in memory, its compressed pool and its tables, together. Inside of
    /// `vswap run` it takes less of it, if the run has less.
    #[must_use]
    pub fn ram(mut self, size: impl Size) -> Builder {
        self.ram = size.size_bytes();
        self
    }

    /// The most that the compressed pool may take of it. 0 is no pool. Without this it is half where there is a swap
    /// area, and else seven eighths.
    #[must_use]
    pub fn pool(mut self, size: impl Size) -> Builder {
        self.pool = Some(size.size_bytes());
        self
    }

    /// A swap area for what the pool has no room for: an encrypted file without a name in this directory, which grows
    /// up to `size` and is gone with the process.
    #[must_use]
    pub fn swap(mut self, directory: impl AsRef<Path>, size: impl Size) -> Builder {
        let directory = directory.as_ref().to_owned();
        self.areas
            .push(Asked::Private(directory, size.size_bytes()));
        self
    }

    /// A swap area, named as for `vswap run --swap`: a directory for a private file, a file or device that
    /// `vswap mkswap` has prepared, or a store on other machines, with options: `/dev/vdb,prio=5,tier=fast`,
    /// `/var/tmp:8G,tier=slow`, `valkey://far:6379:32G`. The highest priority is used first. `docs/usage.md` has all
    /// forms.
    #[must_use]
    pub fn area(mut self, named: &str) -> Builder {
        self.areas.push(Asked::Named(named.to_owned()));
        self
    }

    /// On how many nodes a store keeps each page: 1, or 2, with which a node may be lost. Other numbers are as the
    /// nearer one.
    #[must_use]
    pub fn far_copies(mut self, copies: usize) -> Builder {
        self.opening.far_copies = copies.clamp(1, 2);
        self
    }

    /// What goes to a store is also written to a private file in this directory, in the background. It is read when
    /// the store has lost a page.
    #[must_use]
    pub fn far_backup(mut self, directory: impl AsRef<Path>) -> Builder {
        self.opening.far_backup = Some(directory.as_ref().to_owned());
        self
    }

    /// How pages are compressed: a [`Codec`], or [`Packing::Auto`], which it is without this.
    #[must_use]
    pub fn codec(mut self, packing: impl Into<Packing>) -> Builder {
        self.packing = packing.into();
        self
    }

    /// Addresses to reserve: the most that can be allocated at a time. They cost nothing before they are used.
    #[must_use]
    pub fn capacity(mut self, size: impl Size) -> Builder {
        self.capacity = Some(size.size_bytes());
        self
    }

    /// Makes the arena and starts its threads.
    ///
    /// # Errors
    /// [`ArenaError`].
    pub fn build(self) -> Result<Arena, ArenaError> {
        check_page_size()?;
        let ram_bytes = self.ram?;
        if ram_bytes < RAM_LEAST_BYTES {
            return Err(ArenaError::TooLittleRam {
                bytes: ram_bytes,
                least_bytes: RAM_LEAST_BYTES,
            });
        }
        let has_areas = !self.areas.is_empty();
        let pool_limit_bytes = match self.pool {
            Some(pool) => pool?,
            None if has_areas => ram_bytes / 2,
            None => ram_bytes / 8 * 7,
        };
        let allowance = Allowance::new(ram_bytes, pool_limit_bytes.min(ram_bytes / 8 * 7));
        let cpus = cpu::count().max(1);
        let pages = Arc::new(MappedPages::new(ram_bytes)?);
        let config = Config {
            frames: FRAMES,
            cpus: 1,
            codec: match self.packing {
                Packing::Auto => Codec::Lz4,
                Packing::With(codec) => codec,
            },
            pool_limit_bytes: allowance.pool_bytes(),
            checksums: true,
        };
        let engine = Engine::new(&config, Arc::clone(&pages) as Arc<dyn PageSource>)?;
        let areas = Areas::open(self.areas, &self.opening, &engine)?;
        let capacity = match self.capacity {
            Some(capacity) => capacity?,
            None => ram_bytes
                .saturating_mul(CAPACITY_TIMES)
                .saturating_add(areas.bytes())
                .min(CAPACITY_MOST_BYTES),
        };
        let capacity = usize::try_from(capacity).unwrap_or(usize::MAX);
        let count = capacity
            .div_ceil(PAGE_BYTES)
            .clamp(1, usize::MAX / PAGE_BYTES);
        let (memory, is_observed) = watch(count * PAGE_BYTES)?;
        let core = Arc::new(Core::new(Parts {
            memory,
            is_observed,
            words: PageWords::new(count)?,
            owed: Owed::new(count)?,
            engine,
            pages,
            areas,
            groups: Groups::new(count)?,
            chooses_codec: self.packing == Packing::Auto,
            allowance,
            cpus,
        }));
        Ok(Arena {
            owner: Arc::new(Owner::new(core)?),
            group: GroupNumber::ROOT,
        })
    }
}

/// Reserves addresses. They are observed if that is asked for and permitted.
fn watch(bytes: usize) -> Result<(Watched, bool), WatchError> {
    if observer::is_wanted() {
        match Watched::observed(bytes) {
            Ok(memory) => return Ok((memory, true)),
            Err(why) => observer::say_not_to_be_had(&why),
        }
    }
    Ok((Watched::new(bytes)?, false))
}

/// An arena, or one of its [groups](Arena::group). Handles are cheap to clone, and what was allocated keeps the arena
/// alive.
#[derive(Debug, Clone)]
pub struct Arena {
    owner: Arc<Owner>,
    group: GroupNumber,
}

impl Arena {
    /// Begins to say what the arena is to be like. `ram` must be said.
    #[must_use]
    pub fn builder() -> Builder {
        Builder {
            ram: Ok(0),
            pool: None,
            capacity: None,
            areas: Vec::new(),
            opening: Opening::default(),
            packing: Packing::Auto,
        }
    }

    /// A handle of the same arena. What is allocated by it belongs to a group, which may have only so much in pool and
    /// areas. `NAME/SUB` is a group inside of NAME, whose limits hold for both together. If there is such a group, it
    /// has these limits from now on; what it has beyond them stays. Groups last as long as the arena, and there can be
    /// 255. A page that its group's limits leave no room for stays in RAM.
    ///
    /// # Errors
    /// `GroupName`, `TierName`, `UnknownTier`, `Size`, `TooManyGroups`, `Group`, `Forked`.
    pub fn group(&self, name: &str, limits: &Limits) -> Result<Arena, ArenaError> {
        self.owner.check_home()?;
        let core = &self.owner.core;
        let limits = limits.resolve(&core.areas)?;
        let group = core.groups.make(&core.engine, &name.parse()?, limits)?;
        Ok(Arena {
            owner: Arc::clone(&self.owner),
            group,
        })
    }

    /// What the group of this handle has, with those inside of it. None for the arena itself, for which there is
    /// [`Arena::stats`], and in the child of a fork.
    #[must_use]
    pub fn group_stats(&self) -> Option<GroupStats> {
        self.owner.check_home().ok()?;
        let core = &self.owner.core;
        let _masked = Masked::new();
        let id = core.groups.id(self.group);
        let found = core.engine.groups().into_iter().find(|it| it.id == id)?;
        Some(GroupStats {
            name: found.name.to_string(),
            pool_bytes: found.pool_bytes,
            swap_bytes: found.swap_bytes,
            refused_pages: found.events.swap_max
                + found.events.pool_max
                + found.events.writeback_refused,
        })
    }

    /// Figures of each swap area, in the order in which they were named. None of them in the child of a fork.
    #[must_use]
    pub fn areas(&self) -> Vec<AreaStats> {
        if self.owner.check_home().is_err() {
            return Vec::new();
        }
        let core = &self.owner.core;
        core.areas.stats(&core.engine)
    }

    /// Allocates whole pages for so many bytes, which are zero.
    ///
    /// # Errors
    /// `Empty`, `NoAddresses`, `Full`, `Forked`.
    pub fn allocate(&self, bytes: usize) -> Result<Region, ArenaError> {
        let no_addresses = |_| ArenaError::NoAddresses { bytes };
        let layout = Layout::from_size_align(bytes, 1).map_err(no_addresses)?;
        self.allocate_layout(layout)
    }

    /// As [`Arena::allocate`], with a size and an alignment.
    ///
    /// # Errors
    /// As [`Arena::allocate`].
    pub fn allocate_layout(&self, layout: Layout) -> Result<Region, ArenaError> {
        if layout.size() == 0 {
            return Err(ArenaError::Empty);
        }
        let pages = self.owner.take_aligned(layout, self.group)?;
        Ok(Region::new(Arc::clone(&self.owner), pages, layout.size()))
    }

    /// An allocator for collections.
    #[must_use]
    pub fn allocator(&self) -> ArenaAllocator {
        ArenaAllocator::new(Arc::clone(&self.owner), self.group)
    }

    /// Memory by its address, for interfaces to other languages.
    #[must_use]
    pub fn heap(&self) -> Heap {
        Heap::new(Arc::clone(&self.owner), self.group)
    }

    /// Keeps memory of the arena in RAM until the pin is dropped, whoever allocated it.
    ///
    /// # Errors
    /// `NotOurs`, `TooMuchPinned`, `Full`, `Lost`, `Forked`.
    pub fn pin<'a, T>(&self, memory: &'a [T]) -> Result<Pin<'a>, ArenaError> {
        self.owner.check_home()?;
        Pin::new(&self.owner.core, self.pages_of(&addresses_of(memory))?)
    }

    /// Says something of memory of the arena, whoever allocated it.
    ///
    /// # Errors
    /// As [`Arena::pin`].
    pub fn advise<T>(&self, memory: &[T], advice: Advice) -> Result<(), ArenaError> {
        self.advise_addresses(&addresses_of(memory), advice)
    }

    /// The same for addresses, for interfaces to other languages.
    ///
    /// # Errors
    /// As [`Arena::pin`].
    pub fn advise_addresses(
        &self,
        addresses: &Range<usize>,
        advice: Advice,
    ) -> Result<(), ArenaError> {
        self.owner.check_home()?;
        self.owner.core.advise(self.pages_of(addresses)?, advice)
    }

    fn pages_of(&self, addresses: &Range<usize>) -> Result<Range<usize>, ArenaError> {
        let start = self
            .owner
            .offset(addresses.start)
            .ok_or(ArenaError::NotOurs)?;
        let end = start
            .checked_add(addresses.len())
            .ok_or(ArenaError::NotOurs)?;
        if end > self.owner.core.memory.pages() * PAGE_BYTES {
            return Err(ArenaError::NotOurs);
        }
        Ok(start / PAGE_BYTES..end.div_ceil(PAGE_BYTES))
    }

    /// Figures of now. All are 0 in the child of a fork: locks that others held there stay locked.
    #[must_use]
    pub fn stats(&self) -> Stats {
        if self.owner.check_home().is_err() {
            return Stats::default();
        }
        let core = &self.owner.core;
        let _masked = Masked::new();
        let allocated = core
            .space
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .used();
        let engine = core.engine.stats();
        let page_bytes = PAGE_BYTES as u64;
        let so_far = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            ram_bytes: core.allowance.ram_bytes(),
            used_bytes: core.room.resident() * page_bytes + core.overhead_bytes(),
            allocated_bytes: allocated as u64 * page_bytes,
            resident_bytes: core.room.resident() * page_bytes,
            pinned_bytes: core.room.pinned() * page_bytes,
            out_pages: engine.slots_used,
            pool_bytes: engine.pool_bytes,
            area_pages: engine.physical,
            zero_faults: so_far(&core.counts.zero_faults),
            pool_faults: so_far(&core.counts.pool_faults),
            area_faults: so_far(&core.counts.area_faults),
            write_faults: so_far(&core.counts.write_faults),
            evicted_pages: core.room.evicted(),
            clean_drops: so_far(&core.counts.clean_drops),
            cancelled_pages: so_far(&core.counts.cancelled),
            damaged_pages: engine.damaged,
            raw_pages: so_far(&core.counts.raw),
            packed_again_pages: so_far(&core.counts.packed_again),
            pages_brought_along: so_far(&core.counts.brought_along),
        }
    }
}

fn addresses_of<T>(memory: &[T]) -> Range<usize> {
    let start = memory.as_ptr().addr();
    start..start + size_of_val(memory)
}
