//! Writing: payloads are put into blocks in memory, the blocks get places, and are written with one request for each
//! run of neighbours. Only then do the slots name them. So whatever fails, each slot has what it had.

use vswap_engine::{PAGE_BYTES, Page, StorageError};
use vswap_sys::disk::PageBytes;

use super::PackedDisk;
use super::filling::{Buffer, Filling};
use crate::on_disk::error;

impl PackedDisk {
    /// Writes payloads to neighbouring slots from `slot` on. Blocks.
    ///
    /// # Errors
    /// [`StorageError`]; nothing has changed.
    pub(super) fn write_payloads<'p>(
        &self,
        slot: u64,
        payloads: impl ExactSizeIterator<Item = &'p [u8]>,
        buffer: &mut Buffer,
    ) -> Result<(), StorageError> {
        let end = slot.checked_add(payloads.len() as u64);
        if end.is_none_or(|end| end > self.tables.slots()) {
            return Err(StorageError::Short);
        }
        let mut filling = Filling::new(buffer, usize::MAX);
        let mut spots = Vec::with_capacity(payloads.len());
        for (slot, payload) in (slot..).zip(payloads) {
            let name = u32::try_from(slot).map_err(|_| StorageError::Short)?;
            // There are as many blocks as are wanted, so one that finds none is too long.
            let spot = filling.put(name, payload);
            spots.push((slot, spot.ok_or(StorageError::Unsupported)?));
        }
        let blocks = self.take(filling.count())?;
        self.write_filled(&blocks, &filling)?;
        for (slot, spot) in spots {
            self.tables.enter(slot, spot.on(blocks[spot.nth]));
        }
        Ok(())
    }

    /// Writes pages to neighbouring slots from `slot` on. They are packed with the codec of the engine: what comes as
    /// it is comes from another area, or from memory because the pool was full or off, and packs as well as anything.
    /// A page that does not pack costs a try, which is little beside its request.
    ///
    /// # Errors
    /// [`StorageError`]; nothing has changed.
    pub(super) fn write_pages(&self, slot: u64, pages: &[&Page]) -> Result<(), StorageError> {
        self.with_work(|work| {
            let mut packed = Buffer::new(Vec::with_capacity(pages.len() * PAGE_BYTES));
            let mut ends = Vec::with_capacity(pages.len());
            for page in pages {
                match self.codec.compress(page, &mut work.scratch) {
                    Ok(payload) => packed.extend_from_slice(payload),
                    Err(_incompressible) => packed.extend_from_slice(&page.0),
                }
                ends.push(packed.len());
            }
            let starts = std::iter::once(0).chain(ends.iter().copied());
            let payloads: Vec<&[u8]> = starts
                .zip(&ends)
                .map(|(start, &end)| &packed[start..end])
                .collect();
            self.write_payloads(slot, payloads.into_iter(), &mut work.buffer)
        })
    }

    /// Writes blocks that were filled to those that were taken, and says what lies in them. If that fails they are
    /// free again.
    pub(super) fn write_filled(
        &self,
        blocks: &[u32],
        filling: &Filling<'_>,
    ) -> Result<(), StorageError> {
        if let Err(error) = self.write_blocks(blocks, filling.blocks()) {
            let mut map = self.tables.map();
            blocks.iter().for_each(|&block| map.give(block));
            return Err(error);
        }
        for (&block, share) in blocks.iter().zip(filling.shares()) {
            self.tables.begin(block, share);
        }
        Ok(())
    }

    fn write_blocks(&self, blocks: &[u32], mut contents: &[PageBytes]) -> Result<(), StorageError> {
        for run in blocks.chunk_by(|a, b| a + 1 == *b) {
            let (of_run, rest) = contents.split_at(run.len());
            contents = rest;
            let of_run: Vec<&PageBytes> = of_run.iter().collect();
            let at = u64::from(run[0]) * PAGE_BYTES as u64;
            self.disk.write(at, &of_run).map_err(error)?;
        }
        Ok(())
    }
}
