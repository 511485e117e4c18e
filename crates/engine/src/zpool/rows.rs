//! The table of rows, and which rows are free.
//!
//! Free rows are linked through their own words. Each class keeps a few free rows under its own lock ([`RowCache`]) and
//! trades with the table in batches. So the table's lock is taken only once in [`BATCH`] stores.

use std::sync::{Mutex, PoisonError};

use super::chunks::Chunks;
use super::row::{Location, Row};

/// Rows per chunk: 64 KiB.
const CHUNK_ROWS: usize = if cfg!(miri) { 64 } else { 8192 };

/// The most chunks: 2^29 rows, 700 GiB of 1400-byte payloads. The directory is 512 KiB, touched only as far as it is
/// used.
const CHUNKS_MAX: usize = if cfg!(miri) { 64 } else { 1 << 16 };

/// Rows that move between a class and the table at once. Enough to take the table's lock rarely, and few enough that
/// the rows left with idle classes do not matter.
const BATCH: u32 = if cfg!(miri) { 2 } else { 32 };

/// End of a list of free rows. Row numbers stay below it.
const END: u32 = u32::MAX;
const _: () = assert!(CHUNK_ROWS * CHUNKS_MAX < END as usize);

/// All rows.
pub(super) struct RowTable {
    rows: Chunks<Row, CHUNK_ROWS>,
    free: Mutex<FreeRows>,
}

struct FreeRows {
    head: u32,
    /// Rows from this one on were never used.
    fresh: u32,
}

/// Free rows that one class keeps.
#[derive(Debug)]
pub(super) struct RowCache {
    head: u32,
    count: u32,
}

impl Default for RowCache {
    fn default() -> Self {
        RowCache {
            head: END,
            count: 0,
        }
    }
}

impl RowTable {
    pub(super) fn new() -> Self {
        RowTable {
            rows: Chunks::new(CHUNKS_MAX),
            free: Mutex::new(FreeRows {
                head: END,
                fresh: 0,
            }),
        }
    }

    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<&Row> {
        self.rows.get(index)
    }

    /// The rows that have an object, by number.
    pub(super) fn live(&self) -> impl Iterator<Item = (u32, Location)> {
        let end = self
            .free
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .fresh;
        (0..end).filter_map(|index| Some((index, self.get(index)?.location()?)))
    }

    pub(super) fn bytes(&self) -> usize {
        self.rows.bytes()
    }

    /// A free row. `None` when the table cannot grow.
    pub(super) fn take(&self, cache: &mut RowCache) -> Option<(u32, &Row)> {
        if cache.head == END {
            self.refill(cache);
        }
        let index = cache.head;
        let row = self.get(index)?;
        cache.head = row.next_free();
        cache.count -= 1;
        Some((index, row))
    }

    /// Takes back a row whose object is gone.
    pub(super) fn give(&self, cache: &mut RowCache, index: u32) {
        let Some(row) = self.get(index) else { return };
        row.set_next_free(cache.head);
        cache.head = index;
        cache.count += 1;
        if cache.count >= 2 * BATCH {
            self.spill(cache);
        }
    }

    /// Fills an empty cache with up to [`BATCH`] rows. Prefers used rows, which are warm and whose chunks exist.
    #[cold]
    fn refill(&self, cache: &mut RowCache) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..BATCH {
            let index = if let Some(row) = self.get(free.head) {
                std::mem::replace(&mut free.head, row.next_free())
            } else if self.rows.ensure(free.fresh) {
                free.fresh += 1;
                free.fresh - 1
            } else {
                break;
            };
            if let Some(row) = self.get(index) {
                row.set_next_free(cache.head);
                cache.head = index;
                cache.count += 1;
            }
        }
    }

    /// Gives [`BATCH`] rows back to the table.
    #[cold]
    fn spill(&self, cache: &mut RowCache) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..BATCH {
            let index = cache.head;
            let Some(row) = self.get(index) else { return };
            cache.head = row.next_free();
            cache.count -= 1;
            row.set_next_free(free.head);
            free.head = index;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_given_out_once_and_used_again() {
        let table = RowTable::new();
        let (mut one, mut other) = (RowCache::default(), RowCache::default());
        let wanted = 3 * BATCH + 1;
        let mut rows: Vec<u32> = (0..wanted)
            .map(|_| table.take(&mut one).expect("room").0)
            .collect();
        rows.sort_unstable();
        rows.dedup();
        assert_eq!(rows.len(), wanted as usize);
        for &index in &rows {
            table.give(&mut one, index);
        }
        assert!(one.count < 2 * BATCH);
        let again: Vec<u32> = (0..BATCH)
            .map(|_| table.take(&mut other).expect("room").0)
            .collect();
        assert!(
            again.iter().all(|index| rows.contains(index)),
            "spilled rows come first"
        );
    }

    #[test]
    #[cfg(miri)]
    fn a_full_table_says_so() {
        let (table, mut cache) = (RowTable::new(), RowCache::default());
        for _ in 0..CHUNK_ROWS * CHUNKS_MAX {
            assert!(table.take(&mut cache).is_some());
        }
        assert!(table.take(&mut cache).is_none());
    }
}
