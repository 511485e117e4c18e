//! Reading: each block once for all pages of it, and blocks that lie apart at the same time.
//!
//! Nothing holds a payload where it is while its block is read. So the word of the slot is looked at again afterwards.
//! If the payload was moved meanwhile, the block may have held anything, and the page is read again from where the word
//! says now. That ends: each time somebody has read and written this very payload since.

use std::sync::atomic::{Ordering, fence};

use vswap_engine::{PAGE_BYTES, Page, ReadRun, Scratch, StorageError};
use vswap_sys::disk::{self, PageBytes};

use super::PackedDisk;
use super::filling::Buffer;
use super::place::Place;
use super::record;
use crate::on_disk::error;

/// A page that is to be read.
struct Wanted<'p> {
    /// Which run it is of.
    run: usize,
    slot: u64,
    place: Place,
    page: &'p mut Page,
}

impl PackedDisk {
    /// Reads runs of slots, each with a result of its own. Blocks.
    pub(super) fn read_all(&self, runs: &mut [ReadRun<'_>]) {
        let mut outcomes = vec![Ok(()); runs.len()];
        let mut wanted = Vec::new();
        for (run, of_run) in runs.iter_mut().enumerate() {
            for (slot, page) in (of_run.slot..).zip(&mut of_run.pages) {
                match self.tables.place(slot) {
                    Some(place) => wanted.push(Wanted {
                        run,
                        slot,
                        place,
                        page,
                    }),
                    None => outcomes[run] = Err(StorageError::Lost),
                }
            }
        }
        self.with_work(|work| {
            while !wanted.is_empty() {
                let (scratch, buffer) = (&mut work.scratch, &mut work.buffer);
                wanted = self.read_once(wanted, &mut outcomes, scratch, buffer);
            }
        });
        for (run, outcome) in runs.iter_mut().zip(outcomes) {
            run.outcome = outcome;
        }
    }

    /// Reads each page from where it lies now. Returns those that were moved meanwhile.
    fn read_once<'p>(
        &self,
        mut wanted: Vec<Wanted<'p>>,
        outcomes: &mut [Result<(), StorageError>],
        scratch: &mut Scratch,
        buffer: &mut Buffer,
    ) -> Vec<Wanted<'p>> {
        wanted.sort_unstable_by_key(|one| one.place.block);
        let mut blocks: Vec<u32> = wanted.iter().map(|one| one.place.block).collect();
        blocks.dedup();
        let read = self.read_blocks(&blocks, buffer);
        let (contents, _) = buffer.as_chunks::<PAGE_BYTES>();
        // What the words say now they say after the reading.
        fence(Ordering::SeqCst);
        let mut again = Vec::new();
        let mut blocks = blocks.iter().zip(contents).zip(read).peekable();
        for mut one in wanted {
            while blocks
                .next_if(|((block, _), _)| **block < one.place.block)
                .is_some()
            {}
            let Some(&((_, content), read)) = blocks.peek() else {
                outcomes[one.run] = Err(StorageError::Altered);
                continue;
            };
            match self.tables.place(one.slot) {
                Some(place) if place == one.place => {
                    let unpacked = read.and_then(|()| unpack(content, &mut one, scratch));
                    outcomes[one.run] = outcomes[one.run].and(unpacked);
                }
                Some(place) => again.push(Wanted { place, ..one }),
                None => outcomes[one.run] = Err(StorageError::Lost),
            }
        }
        again
    }

    /// Reads blocks, which are sorted, one behind the other into the buffer. Returns what came of each.
    pub(super) fn read_blocks(
        &self,
        blocks: &[u32],
        buffer: &mut Buffer,
    ) -> Vec<Result<(), StorageError>> {
        buffer.clear();
        buffer.resize(blocks.len() * PAGE_BYTES, 0);
        let (mut rest, _) = buffer.as_chunks_mut::<PAGE_BYTES>();
        let mut runs = Vec::new();
        for run in blocks.chunk_by(|a, b| a + 1 == *b) {
            let (pages, others) = rest.split_at_mut(run.len());
            rest = others;
            runs.push(disk::ReadRun {
                at: u64::from(run[0]) * PAGE_BYTES as u64,
                pages: pages.iter_mut().collect(),
                outcome: Ok(()),
            });
        }
        self.disk.read_runs(&mut runs);
        let outcomes = runs.iter().flat_map(|run| {
            let outcome = run.outcome.map_err(error);
            std::iter::repeat_n(outcome, run.pages.len())
        });
        outcomes.collect()
    }
}

fn unpack(
    content: &PageBytes,
    one: &mut Wanted<'_>,
    scratch: &mut Scratch,
) -> Result<(), StorageError> {
    let payload = record::payload(content, one.slot, one.place);
    let payload = payload.map_err(|_| StorageError::Altered)?;
    let unpacked = scratch.decompress(payload, one.page);
    unpacked.map_err(|_| StorageError::Altered)
}
