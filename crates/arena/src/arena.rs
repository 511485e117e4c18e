//! Making an arena, allocating from it, and its figures.

use std::alloc::Layout;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use vswap_engine::{Codec, Config, Discard, Engine, NewArea, PRIORITY_DEFAULT, PageSource, TierId};
use vswap_sys::disk::{Disk, Options, PrivateError};
use vswap_sys::machine::check_page_size;
use vswap_sys::process::cpu;
use vswap_sys::sigbus::Masked;
use vswap_sys::watched::{WatchError, Watched};

use crate::allocator::ArenaAllocator;
use crate::allowance::{Allowance, RAM_LEAST_BYTES};
use crate::error::ArenaError;
use crate::heap::Heap;
use crate::memory::MappedPages;
use crate::observer;
use crate::owed::Owed;
use crate::owner::Owner;
use crate::packing::Packing;
use crate::pin::Pin;
use crate::region::{Advice, Region};
use crate::size::{Size, SizeError};
use crate::state::{Core, PAGE_BYTES, Parts};
use crate::stats::Stats;
use crate::storage::{OnDisk, SLOT_BYTES};
use crate::word::PageWords;

/// Frames: pages on their way out. A window needs 64, and what is not placed yet as many.
const FRAMES: usize = 128;
/// Addresses that are reserved if nobody says how many: so many times the RAM, and all areas once more.
const CAPACITY_TIMES: u64 = 16;

/// An area that was asked for.
#[derive(Debug)]
struct Swap {
    path: PathBuf,
    bytes: Result<u64, SizeError>,
}

/// Says what an arena is to be like.
#[derive(Debug)]
pub struct Builder {
    ram: Result<u64, SizeError>,
    pool: Option<Result<u64, SizeError>>,
    capacity: Option<Result<u64, SizeError>>,
    swap: Vec<Swap>,
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
        self.swap.push(Swap {
            path: directory.as_ref().to_owned(),
            bytes: size.size_bytes(),
        });
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
        let has_areas = !self.swap.is_empty();
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
        let mut areas_bytes = 0_u64;
        for Swap { path, bytes } in self.swap {
            let bytes = bytes?;
            areas_bytes = areas_bytes.saturating_add(bytes);
            swap_on(&engine, path, bytes)?;
        }
        let capacity = match self.capacity {
            Some(capacity) => capacity?,
            None => ram_bytes
                .saturating_mul(CAPACITY_TIMES)
                .saturating_add(areas_bytes),
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
            has_areas,
            chooses_codec: self.packing == Packing::Auto,
            allowance,
            cpus,
        }));
        Ok(Arena {
            owner: Arc::new(Owner::new(core)?),
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

fn swap_on(engine: &Engine, path: PathBuf, bytes: u64) -> Result<(), ArenaError> {
    // A name that does not exist would lend the directory that it lies in, which nobody has named here.
    if !path.is_dir() {
        let error = PrivateError::NoDirectory(path.clone());
        return Err(ArenaError::Swap { path, error });
    }
    let disk = match Disk::private(&path, bytes, Options::default()) {
        Ok(disk) => disk,
        Err(error) => return Err(ArenaError::Swap { path, error }),
    };
    let added = engine.swap_on(NewArea {
        slots: bytes / SLOT_BYTES,
        bad: Vec::new(),
        priority: PRIORITY_DEFAULT,
        tier: TierId::default(),
        discard: if disk.discards() {
            Discard::Pages
        } else {
            Discard::None
        },
        rotating: disk.is_rotating(),
        storage: Box::new(OnDisk(disk)),
    });
    match added {
        Ok(_) => Ok(()),
        Err(error) => Err(ArenaError::SwapOn { path, error }),
    }
}

/// An arena. Handles are cheap to clone; what was allocated keeps the arena alive.
#[derive(Debug, Clone)]
pub struct Arena {
    owner: Arc<Owner>,
}

impl Arena {
    /// Begins to say what the arena is to be like. `ram` must be said.
    #[must_use]
    pub fn builder() -> Builder {
        Builder {
            ram: Ok(0),
            pool: None,
            capacity: None,
            swap: Vec::new(),
            packing: Packing::Auto,
        }
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
        let pages = self.owner.take_aligned(layout)?;
        Ok(Region::new(Arc::clone(&self.owner), pages, layout.size()))
    }

    /// An allocator for collections.
    #[must_use]
    pub fn allocator(&self) -> ArenaAllocator {
        ArenaAllocator::new(Arc::clone(&self.owner))
    }

    /// Memory by its address, for interfaces to other languages.
    #[must_use]
    pub fn heap(&self) -> Heap {
        Heap::new(Arc::clone(&self.owner))
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

    /// Figures of now.
    #[must_use]
    pub fn stats(&self) -> Stats {
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
