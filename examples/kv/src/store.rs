//! Keys and their values. For any number of threads.
//!
//! The keys are cut into shards, each behind a lock. A lock is held while a value is copied out, which may bring its
//! page back. That is fine: whoever serves faults takes no lock of the program.
//!
//! A touch of memory cannot say that the arena is full (`docs/library.md`). So the store watches the arena's figures,
//! and refuses values while there is still some room.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use allocator_api2::boxed::Box as ArenaBox;
use allocator_api2::vec::Vec as ArenaVec;
use vswap_arena::{Arena, ArenaAllocator, ArenaError, Packing, Stats};

const PAGE_BYTES: u64 = 4096;
/// Parts that threads can work on at the same time.
const SHARDS: usize = 64;
/// Of the RAM, one part in so many is counted on for values that are in memory.
const RESIDENT_PART: u64 = 16;
/// One part in so many is kept free, of RAM and of the area.
const RESERVE_PART: u64 = 16;
/// From so many pages in the pool on it is known how well the values compress.
const KNOWN_PAGES: u64 = 128;
/// So many bytes are written between two looks at the figures. Far less than the reserve of the smallest arena.
const LOOK_BYTES: u64 = 64 << 10;

/// What a store is to be like.
#[derive(Debug, Clone)]
pub struct Limits {
    /// RAM for the values: pages, pool and tables.
    pub ram_bytes: u64,
    /// Swap areas, each as `vswap run --swap` takes it.
    pub swap: Vec<String>,
    /// How pages are compressed.
    pub codec: Packing,
    /// The longest value.
    pub value_bytes: usize,
}

/// Why a value is not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Longer than a value may be.
    #[error("ERR string exceeds maximum allowed size (proto-max-bulk-len)")]
    TooLong,
    /// The arena is full.
    #[error("OOM command not allowed when used memory > 'maxmemory'.")]
    Full,
}

type Value = ArenaBox<[u8], ArenaAllocator>;
type Shard = HashMap<Box<[u8]>, Value>;

/// Keys and values.
#[derive(Debug)]
pub struct Store {
    arena: Arena,
    allocator: ArenaAllocator,
    shards: Vec<Mutex<Shard>>,
    hasher: RandomState,
    limits: Limits,
    area_bytes: u64,
    written_bytes: AtomicU64,
    is_full: AtomicBool,
}

impl Store {
    /// Makes an arena and a store without keys.
    ///
    /// # Errors
    /// The arena cannot be made.
    pub fn new(limits: Limits) -> Result<Store, ArenaError> {
        let builder = Arena::builder().ram(limits.ram_bytes).codec(limits.codec);
        let areas = limits.swap.iter();
        let arena = areas
            .fold(builder, |builder, area| builder.area(area))
            .build()?;
        Ok(Store {
            allocator: arena.allocator(),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            limits,
            area_bytes: arena.areas().iter().map(|area| area.size_bytes).sum(),
            arena,
            written_bytes: AtomicU64::new(0),
            is_full: AtomicBool::new(false),
        })
    }

    fn shard(&self, key: &[u8]) -> MutexGuard<'_, Shard> {
        let part = self.hasher.hash_one(key) % SHARDS as u64;
        let at = usize::try_from(part).unwrap_or(0);
        self.shards[at]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// A value in the arena that is made of parts.
    fn make(&self, parts: &[&[u8]]) -> Result<Value, Refused> {
        let bytes = parts.iter().map(|part| part.len()).sum();
        if bytes > self.limits.value_bytes {
            return Err(Refused::TooLong);
        }
        if !self.has_room(bytes as u64) {
            return Err(Refused::Full);
        }
        let mut value = ArenaVec::new_in(self.allocator.clone());
        value.try_reserve_exact(bytes).map_err(|_| Refused::Full)?;
        parts.iter().for_each(|part| value.extend_from_slice(part));
        Ok(value.into_boxed_slice())
    }

    /// Is there room for so many bytes more? The figures are looked at from time to time, and always while there is
    /// none.
    fn has_room(&self, bytes: u64) -> bool {
        let before = self.written_bytes.fetch_add(bytes, Ordering::Relaxed);
        let is_due = before / LOOK_BYTES != (before + bytes) / LOOK_BYTES;
        if is_due || self.is_full.load(Ordering::Relaxed) {
            let is_full = is_full(&Figures::of(&self.arena.stats(), self.area_bytes), bytes);
            self.is_full.store(is_full, Ordering::Relaxed);
        }
        !self.is_full.load(Ordering::Relaxed)
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// [`Refused`]. Then the key has the value that it had.
    pub fn set(&self, key: &[u8], value: &[u8]) -> Result<(), Refused> {
        let value = self.make(&[value])?;
        let mut shard = self.shard(key);
        // Not `insert`, which would want a copy of the key each time.
        let old = match shard.get_mut(key) {
            Some(place) => Some(std::mem::replace(place, value)),
            None => shard.insert(key.into(), value),
        };
        drop(shard);
        drop(old);
        Ok(())
    }

    /// Appends to the value of a key. Returns how long it is then.
    ///
    /// # Errors
    /// [`Refused`]. Then the key has the value that it had.
    pub fn append(&self, key: &[u8], more: &[u8]) -> Result<usize, Refused> {
        let mut shard = self.shard(key);
        let value = match shard.get(key) {
            Some(old) => self.make(&[old, more])?,
            None => self.make(&[more])?,
        };
        let length = value.len();
        shard.insert(key.into(), value);
        Ok(length)
    }

    /// Gives the value of a key to `work`, in the arena. It may not be passed to a system call.
    pub fn read<T>(&self, key: &[u8], work: impl FnOnce(&[u8]) -> T) -> Option<T> {
        self.shard(key).get(key).map(|value| work(value))
    }

    /// How long the value of a key is. This brings no page back.
    pub fn length(&self, key: &[u8]) -> Option<usize> {
        self.shard(key).get(key).map(|value| value.len())
    }

    /// Removes a key. Returns whether it was there.
    pub fn remove(&self, key: &[u8]) -> bool {
        let old = self.shard(key).remove(key);
        old.is_some()
    }

    /// Removes all keys.
    pub fn clear(&self) {
        for shard in &self.shards {
            let old = std::mem::take(&mut *shard.lock().unwrap_or_else(PoisonError::into_inner));
            drop(old);
        }
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        let count =
            |shard: &Mutex<Shard>| shard.lock().unwrap_or_else(PoisonError::into_inner).len();
        self.shards.iter().map(count).sum()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What the store may take.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The arena's figures.
    pub fn stats(&self) -> Stats {
        self.arena.stats()
    }
}

/// What it takes to know whether an arena is full.
#[derive(Debug, Clone, Copy)]
struct Figures {
    ram: u64,
    area: u64,
    allocated: u64,
    /// What is neither pages nor pool.
    tables: u64,
    /// Pages in the pool, as they are in memory and as they are packed. Those that stay in memory because they do not
    /// pack count as well.
    pooled: u64,
    packed: u64,
}

impl Figures {
    fn of(stats: &Stats, area: u64) -> Figures {
        let used = stats.resident_bytes + stats.pool_bytes;
        Figures {
            ram: stats.ram_bytes,
            area,
            allocated: stats.allocated_bytes,
            tables: stats.used_bytes.saturating_sub(used),
            pooled: (stats.out_pages.saturating_sub(stats.area_pages) + stats.raw_pages)
                * PAGE_BYTES,
            packed: stats.pool_bytes + stats.raw_pages * PAGE_BYTES,
        }
    }
}

/// Would all have room, with so many bytes more? Some has to be in memory, an area takes what it can, and the rest has
/// to be packed as well as that which is packed. Before anything is packed there is room.
fn is_full(figures: &Figures, more: u64) -> bool {
    if figures.pooled < KNOWN_PAGES * PAGE_BYTES {
        return false;
    }
    let resident = figures.ram / RESIDENT_PART;
    let area = figures.area - figures.area / RESERVE_PART;
    let rest = (figures.allocated + more).saturating_sub(resident + area);
    let packed = u128::from(rest) * u128::from(figures.packed) / u128::from(figures.pooled);
    let may_take = figures.ram - figures.ram / RESERVE_PART;
    u128::from(resident + figures.tables) + packed > u128::from(may_take)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> Store {
        let limits = Limits {
            ram_bytes: 8 << 20,
            swap: Vec::new(),
            codec: Packing::Auto,
            value_bytes: 100,
        };
        Store::new(limits).expect("an arena")
    }

    fn read(store: &Store, key: &[u8]) -> Option<Vec<u8>> {
        store.read(key, <[u8]>::to_vec)
    }

    #[test]
    fn values_are_set_appended_to_and_removed() {
        let store = store();
        assert_eq!(read(&store, b"a"), None);
        store.set(b"a", b"one").expect("room");
        store.set(b"a", b"two").expect("room");
        store.set(b"", b"").expect("room");
        assert_eq!(store.append(b"a", b", three"), Ok(10));
        assert_eq!(store.append(b"b", b"new"), Ok(3));
        assert_eq!(read(&store, b"a"), Some(b"two, three".to_vec()));
        assert_eq!(read(&store, b""), Some(Vec::new()));
        assert_eq!((store.length(b"b"), store.length(b"c")), (Some(3), None));
        assert_eq!(store.len(), 3);
        assert!(store.remove(b"a") && !store.remove(b"a"));
        store.clear();
        assert!(store.is_empty() && read(&store, b"b").is_none());
    }

    #[test]
    fn a_refused_value_leaves_the_old_one() {
        let store = store();
        store.set(b"a", &[1; 100]).expect("room");
        assert_eq!(store.set(b"a", &[2; 101]), Err(Refused::TooLong));
        assert_eq!(store.append(b"a", b"x"), Err(Refused::TooLong));
        assert_eq!(read(&store, b"a"), Some(vec![1; 100]));
    }

    #[test]
    fn full_is_what_could_not_be_packed_into_the_ram() {
        const MIB: u64 = 1 << 20;
        // Packed four to one.
        let figures = |allocated: u64, area: u64| Figures {
            ram: 16 * MIB,
            area: area * MIB,
            allocated: allocated * MIB,
            tables: MIB,
            pooled: 8 * MIB,
            packed: 2 * MIB,
        };
        // 1 in memory, 1 of tables, and 13 for 52 that are packed.
        assert!(!is_full(&figures(53, 0), 0));
        assert!(is_full(&figures(53, 0), 4));
        assert!(!is_full(&figures(83, 32), 0));
        assert!(is_full(&figures(84, 32), 0));
        // Nothing is known yet.
        let pooled = KNOWN_PAGES * PAGE_BYTES - 1;
        assert!(!is_full(
            &Figures {
                pooled,
                packed: pooled,
                ..figures(50, 0)
            },
            0
        ));
    }
}
