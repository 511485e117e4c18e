//! The entry table: rows, and which of them are free.
//!
//! Free rows are linked through their own words. Each class keeps a few at hand under its own lock ([`RowCache`]) and
//! trades with the table in batches, so that the table's lock is taken once in [`BATCH`] stores.

use std::sync::{Mutex, PoisonError};

use super::chunks::Chunks;
use super::entry::Entry;

/// Rows per chunk: 64 KiB.
const CHUNK_ROWS: usize = if cfg!(miri) { 64 } else { 4096 };

/// Chunks at most: 2^29 rows, 700 GiB of 1400-byte payloads. The directory is 1 MiB, touched as far as it is used.
const CHUNKS_MAX: usize = if cfg!(miri) { 64 } else { 1 << 17 };

/// Rows that move between a class and the table at once: enough to make the table's lock rare, few enough that
/// those left with idle classes do not count.
const BATCH: u32 = if cfg!(miri) { 2 } else { 32 };

/// End of a list of free rows. Row numbers stay below it.
const END: u32 = u32::MAX;
const _: () = assert!(CHUNK_ROWS * CHUNKS_MAX < END as usize);

/// All rows.
pub(super) struct EntryTable {
    rows: Chunks<Entry, CHUNK_ROWS>,
    free: Mutex<FreeRows>,
}

struct FreeRows {
    head: u32,
    /// Rows from here on were never used.
    fresh: u32,
}

/// Free rows that one class has at hand.
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

impl EntryTable {
    pub(super) fn new() -> Self {
        EntryTable {
            rows: Chunks::new(CHUNKS_MAX),
            free: Mutex::new(FreeRows {
                head: END,
                fresh: 0,
            }),
        }
    }

    #[inline]
    pub(super) fn get(&self, row: u32) -> Option<&Entry> {
        self.rows.get(row)
    }

    pub(super) fn bytes(&self) -> usize {
        self.rows.bytes()
    }

    /// A free row. None when the table cannot grow.
    pub(super) fn take(&self, cache: &mut RowCache) -> Option<(u32, &Entry)> {
        if cache.head == END {
            self.refill(cache);
        }
        let row = cache.head;
        let entry = self.get(row)?;
        cache.head = entry.next_free();
        cache.count -= 1;
        Some((row, entry))
    }

    /// Takes back a row whose object is gone.
    pub(super) fn give(&self, cache: &mut RowCache, row: u32) {
        let Some(entry) = self.get(row) else { return };
        entry.set_next_free(cache.head);
        cache.head = row;
        cache.count += 1;
        if cache.count >= 2 * BATCH {
            self.spill(cache);
        }
    }

    /// Fills an empty cache with up to [`BATCH`] rows: used ones first, they are warm and their chunks exist.
    #[cold]
    fn refill(&self, cache: &mut RowCache) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..BATCH {
            let row = if let Some(entry) = self.get(free.head) {
                std::mem::replace(&mut free.head, entry.next_free())
            } else if self.rows.ensure(free.fresh) {
                free.fresh += 1;
                free.fresh - 1
            } else {
                break;
            };
            if let Some(entry) = self.get(row) {
                entry.set_next_free(cache.head);
                cache.head = row;
                cache.count += 1;
            }
        }
    }

    /// Gives [`BATCH`] rows back to the table.
    #[cold]
    fn spill(&self, cache: &mut RowCache) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..BATCH {
            let row = cache.head;
            let Some(entry) = self.get(row) else { return };
            cache.head = entry.next_free();
            cache.count -= 1;
            entry.set_next_free(free.head);
            free.head = row;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_given_out_once_and_used_again() {
        let table = EntryTable::new();
        let (mut one, mut other) = (RowCache::default(), RowCache::default());
        let wanted = 3 * BATCH + 1;
        let mut rows: Vec<u32> = (0..wanted)
            .map(|_| table.take(&mut one).expect("room").0)
            .collect();
        rows.sort_unstable();
        rows.dedup();
        assert_eq!(rows.len(), wanted as usize);
        for &row in &rows {
            table.give(&mut one, row);
        }
        assert!(one.count < 2 * BATCH);
        let again: Vec<u32> = (0..BATCH)
            .map(|_| table.take(&mut other).expect("room").0)
            .collect();
        assert!(
            again.iter().all(|row| rows.contains(row)),
            "spilled rows come first"
        );
    }

    #[test]
    #[cfg(miri)]
    fn a_full_table_says_so() {
        let (table, mut cache) = (EntryTable::new(), RowCache::default());
        for _ in 0..CHUNK_ROWS * CHUNKS_MAX {
            assert!(table.take(&mut cache).is_some());
        }
        assert!(table.take(&mut cache).is_none());
    }
}
