//! Blocks that have few live payloads left: these are moved together when blocks run short, and what is empty is given
//! back to the file system.
//!
//! A pass moves what lives in the emptiest blocks of a part of the area to as few others as it fits into. Some blocks
//! are kept for that, which writers do not get. A pass that would free hardly more than it takes is not made, and where
//! none has gained anything, none is tried until enough was given up. So a full area costs a look at some numbers.
//!
//! How full an area can get: at least seven eighths of its blocks' bytes must be live before it refuses a page, or what
//! is live leaves gaps that no other payload fits into: of payloads that are larger than a third of a block there are
//! two in a block, and of those larger than a half there is one.
//!
//! A block is held while payloads are moved out of it. It cannot get free and be written meanwhile, so what was read of
//! it stays what its slots have as long as their words name it.

use std::ops::Range;
use std::sync::{MutexGuard, PoisonError};

use vswap_engine::{PAGE_BYTES, StorageError};

use super::PackedDisk;
use super::filling::{Filling, Spot};
use super::map::GROUP;
use super::place::Place;
use super::record;
use crate::on_disk::error;

/// Most blocks that are kept for moving, and to which one pass moves payloads: 128 KiB.
const KEPT_MAX: usize = 32;
/// Of how many blocks one is kept.
const KEPT_PART: usize = 64;
/// Most blocks that one pass empties.
const VICTIMS_MAX: usize = 128;
/// How many blocks a pass looks at for the emptiest ones: 256 MiB.
const WINDOW: usize = 1 << 16;
/// Unused bytes in blocks that are in use are worth moving payloads if they are one part in so many.
const SLACK_PART: usize = 8;
/// A block is worth emptying if no more of it is live.
const LIVE_MAX: u64 = (PAGE_BYTES - PAGE_BYTES / SLACK_PART) as u64;
/// Most groups that are given back with one call: 8 MiB.
const GIVEN_GROUPS_MAX: usize = 32;
/// Most such calls in a row.
const GIVEN_MAX: usize = 8;

/// Where moving goes on.
#[derive(Debug, Default)]
pub(super) struct Cleaner {
    /// The block at which the next part of the area begins.
    hand: usize,
    /// How many bytes had been given up when moving gained nothing.
    vain_at: Option<u64>,
}

/// A payload on its way.
struct Moving {
    slot: u64,
    from: Place,
    to: Spot,
}

impl PackedDisk {
    fn room(&self) -> MutexGuard<'_, Cleaner> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks that are kept for moving.
    pub(super) fn kept(&self) -> usize {
        (self.tables.blocks() / KEPT_PART).clamp(1, KEPT_MAX)
    }

    /// Bytes that further payloads find, once what is live has been moved together.
    pub(super) fn can_gain(&self) -> u64 {
        let all = (self.tables.blocks() - self.kept()) * PAGE_BYTES;
        ((all - all / SLACK_PART) as u64).saturating_sub(self.tables.live_bytes())
    }

    /// Takes blocks to be written. Moves payloads together if there are too few.
    ///
    /// # Errors
    /// `Full`.
    pub(super) fn take(&self, count: usize) -> Result<Vec<u32>, StorageError> {
        let take = || self.tables.map().take(count, self.kept());
        if let Some(blocks) = take() {
            return Ok(blocks);
        }
        // What is about to be given back, or is being moved, counts as used until that is over.
        let mut cleaner = self.room();
        loop {
            if let Some(blocks) = take() {
                return Ok(blocks);
            }
            if !self.make_room(&mut cleaner) {
                return Err(StorageError::Full);
            }
        }
    }

    /// Moves payloads together. False if that would gain nothing.
    fn make_room(&self, cleaner: &mut Cleaner) -> bool {
        let freed = self.tables.freed_bytes();
        let enough = (self.kept() * PAGE_BYTES / 2) as u64;
        if cleaner.vain_at.is_some_and(|at| freed - at < enough) || !self.has_slack() {
            return false;
        }
        let blocks = self.tables.blocks();
        let gains = |_| {
            let start = cleaner.hand;
            cleaner.hand = if blocks - start > WINDOW {
                start + WINDOW
            } else {
                0
            };
            self.clean(start..blocks.min(start + WINDOW))
        };
        let gained = (0..blocks.div_ceil(WINDOW)).any(gains);
        cleaner.vain_at = (!gained).then_some(freed);
        gained
    }

    fn has_slack(&self) -> bool {
        let used = self.tables.map().in_use() * PAGE_BYTES;
        (used as u64).saturating_sub(self.tables.live_bytes()) >= (used / SLACK_PART) as u64
    }

    /// Moves what lives in the emptiest of some blocks together. False if that gained nothing. The caller holds the
    /// lock of room.
    fn clean(&self, among: Range<usize>) -> bool {
        let most = self.kept().min(self.tables.map().free());
        let mut victims = self.victims(among, most);
        victims.retain(|&block| self.tables.hold(block));
        let gained = victims.len() > 1 && self.move_out_of(&victims, most).unwrap_or(false);
        victims.iter().for_each(|&block| self.tables.let_go(block));
        gained
    }

    /// The emptiest blocks, as many as may fit into `most` others, by number. None if that would not pay.
    fn victims(&self, among: Range<usize>, most: usize) -> Vec<u32> {
        let live = |block| {
            let bytes = self
                .tables
                .live_in(block)
                .filter(|&bytes| bytes <= LIVE_MAX)?;
            Some((bytes, u32::try_from(block).ok()?))
        };
        let mut found: Vec<(u64, u32)> = among.filter_map(live).collect();
        if found.len() > VICTIMS_MAX {
            found.select_nth_unstable(VICTIMS_MAX);
            found.truncate(VICTIMS_MAX);
        }
        found.sort_unstable();
        let mut bytes = 0;
        let mut fits = |live: u64| {
            bytes += live;
            bytes <= (most * PAGE_BYTES) as u64
        };
        found
            .into_iter()
            .map_while(|(live, block)| fits(live).then_some(block))
            .collect()
    }

    /// Moves what lives in held blocks to at most `most` others. False if hardly more would get free than is taken:
    /// then nothing has changed.
    fn move_out_of(&self, victims: &[u32], most: usize) -> Result<bool, StorageError> {
        let mut sorted = victims.to_vec();
        sorted.sort_unstable();
        self.with_work(|from| {
            let read = self.read_blocks(&sorted, &mut from.buffer);
            self.with_work(|to| {
                let mut filling = Filling::new(&mut to.buffer, most);
                let content = |block: u32| {
                    let nth = sorted.binary_search(&block).ok()?;
                    read.get(nth)?.ok()?;
                    Some(&from.buffer.as_chunks::<PAGE_BYTES>().0[nth])
                };
                let mut moving = Vec::new();
                let mut emptied = 0;
                for &block in victims {
                    // A block that cannot be read keeps what it has.
                    let Some(content) = content(block) else {
                        continue;
                    };
                    let Some(bytes) = self.collect(block, content, &mut filling, &mut moving)
                    else {
                        break;
                    };
                    // There may be a payload that its slot does not name yet, or a damaged one.
                    emptied += usize::from(self.tables.left_in(block) <= bytes);
                }
                let taken = filling.count();
                if emptied < taken + (taken / SLACK_PART).max(1) {
                    return Ok(false);
                }
                let Some(blocks) = self.tables.map().take(taken, 0) else {
                    return Ok(false);
                };
                self.write_filled(&blocks, &filling)?;
                for one in moving {
                    let to = one.to.on(blocks[one.to.nth]);
                    self.tables.replace(one.slot, one.from, to);
                }
                Ok(true)
            })
        })
    }

    /// Puts what is live in a block into others. Returns how many bytes of the block that is. None if not all of it
    /// found room.
    fn collect(
        &self,
        block: u32,
        content: &[u8; PAGE_BYTES],
        filling: &mut Filling<'_>,
        moving: &mut Vec<Moving>,
    ) -> Option<u64> {
        let mut bytes = 0;
        for record in record::records(content) {
            let slot = u64::from(record.slot);
            let is_live = |from: &Place| {
                let length = usize::from(from.length);
                (from.block, from.offset, length) == (block, record.offset, record.payload.len())
            };
            let Some(from) = self.tables.place(slot).filter(is_live) else {
                continue;
            };
            let to = filling.put(record.slot, record.payload)?;
            bytes += from.share().bytes();
            moving.push(Moving { slot, from, to });
        }
        Some(bytes)
    }

    /// Gives blocks back to the file system that are empty, in large pieces and a bounded number of them. Blocks.
    ///
    /// # Errors
    /// As [`Storage::discard`](vswap_engine::Storage::discard).
    pub(super) fn give_back(&self) -> Result<(), StorageError> {
        if !self.tables.map().has_empty() {
            return Ok(());
        }
        let _room = self.room();
        for _ in 0..GIVEN_MAX {
            let Some(blocks) = self.tables.map().begin_giving_back(GIVEN_GROUPS_MAX) else {
                break;
            };
            let bytes = |block: usize| (block * PAGE_BYTES) as u64;
            let given = self.disk.discard(bytes(blocks.start)..bytes(blocks.end));
            self.tables.map().end_giving_back(&blocks);
            given.map_err(error)?;
        }
        Ok(())
    }
}

const _: () = assert!(WINDOW.is_multiple_of(GROUP));
