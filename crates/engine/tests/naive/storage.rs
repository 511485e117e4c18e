//! Storage in memory that breaks after some requests.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use vswap_engine::{Page, RamStorage, Storage, StorageError};

/// Storage for all areas. It breaks after some more requests and is then repaired.
#[derive(Debug)]
pub struct Fragile {
    ram: RamStorage,
    requests_left: Arc<AtomicU64>,
}

/// So many requests that it never breaks.
pub const SOUND: u64 = u64::MAX;

impl Fragile {
    pub fn new(slots: u64, requests_left: &Arc<AtomicU64>) -> Fragile {
        Fragile {
            ram: RamStorage::new(usize::try_from(slots).expect("few")),
            requests_left: Arc::clone(requests_left),
        }
    }

    fn check(&self) -> Result<(), StorageError> {
        let one_less = |left: u64| match left {
            0 => None,
            SOUND => Some(SOUND),
            left => Some(left - 1),
        };
        let order = Ordering::Relaxed;
        let left = self.requests_left.fetch_update(order, order, one_less);
        left.map(|_| ())
            .map_err(|_| StorageError::Failed { errno: 5 })
    }
}

impl Storage for Fragile {
    fn read(&self, slot: u64, pages: &mut [&mut Page]) -> Result<(), StorageError> {
        self.check()?;
        self.ram.read(slot, pages)
    }

    fn discard(&self, slots: Range<u64>) -> Result<(), StorageError> {
        self.check()?;
        self.ram.discard(slots)
    }

    fn write(&self, slot: u64, pages: &[&Page]) -> Result<(), StorageError> {
        self.check()?;
        self.ram.write(slot, pages)
    }
}
