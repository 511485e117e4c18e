//! Blocks that are being filled, in memory.
//!
//! Each payload goes to the first block that has room for it. So payloads that came together lie together, and what one
//! block has left a later payload takes.

use vswap_engine::PAGE_BYTES;
use vswap_sys::disk::PageBytes;
use zeroize::Zeroizing;

use super::place::{HEADER_BYTES, Place, Share};
use super::record;

/// A buffer of blocks. It had content of programs, so it is wiped when it is dropped or given back.
pub(super) type Buffer = Zeroizing<Vec<u8>>;

/// Where a payload lies among the blocks that are being filled.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spot {
    /// Which of the blocks.
    pub(super) nth: usize,
    offset: usize,
    length: usize,
}

impl Spot {
    /// The place, once the block has a number.
    pub(super) fn on(self, block: u32) -> Place {
        // Both are at most a page.
        let narrow = |bytes: usize| u16::try_from(bytes).unwrap_or(u16::MAX);
        Place::new(block, narrow(self.offset), narrow(self.length))
    }
}

/// One of the blocks.
#[derive(Debug, Clone, Copy)]
struct Fill {
    used: usize,
    share: Share,
}

/// Blocks that are being filled. The buffer is empty at first.
#[derive(Debug)]
pub(super) struct Filling<'b> {
    buffer: &'b mut Buffer,
    fills: Vec<Fill>,
    most: usize,
}

impl<'b> Filling<'b> {
    /// Fills at most `most` blocks.
    pub(super) fn new(buffer: &'b mut Buffer, most: usize) -> Filling<'b> {
        buffer.clear();
        Filling {
            buffer,
            fills: Vec::new(),
            most,
        }
    }

    /// How many blocks there are.
    pub(super) fn count(&self) -> usize {
        self.fills.len()
    }

    /// Puts a payload into a block. None if no block has room for it, and there may be no further one.
    pub(super) fn put(&mut self, slot: u32, payload: &[u8]) -> Option<Spot> {
        let length = payload.len();
        let is_whole = length == PAGE_BYTES;
        let needed = if is_whole {
            length
        } else {
            HEADER_BYTES + length
        };
        let has_room = |fill: &Fill| fill.used + needed <= PAGE_BYTES;
        let nth = match self.fills.iter().position(has_room) {
            Some(nth) => nth,
            None if self.fills.len() < self.most && needed <= PAGE_BYTES => self.begin(),
            None => return None,
        };
        let offset = self.fills[nth].used;
        let (blocks, _) = self.buffer.as_chunks_mut::<PAGE_BYTES>();
        if is_whole {
            blocks[nth].copy_from_slice(payload);
        } else {
            record::put(&mut blocks[nth], offset, slot, payload);
        }
        let fill = &mut self.fills[nth];
        fill.used += needed;
        fill.share = fill.share.and(Share::of(length));
        Some(Spot {
            nth,
            offset,
            length,
        })
    }

    fn begin(&mut self) -> usize {
        let end = self.buffer.len() + PAGE_BYTES;
        self.buffer.resize(end, 0);
        self.fills.push(Fill {
            used: 0,
            share: Share::default(),
        });
        self.fills.len() - 1
    }

    /// The blocks.
    pub(super) fn blocks(&self) -> &[PageBytes] {
        self.buffer.as_chunks().0
    }

    /// What lies in each of them.
    pub(super) fn shares(&self) -> impl Iterator<Item = Share> {
        self.fills.iter().map(|fill| fill.share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_share_a_block_and_none_straddles_two() {
        let mut buffer = Buffer::default();
        let mut filling = Filling::new(&mut buffer, 3);
        let lengths = [2000, 2500, 1000, 4096, 1500, 50];
        let spots = lengths.map(|length| filling.put(1, &vec![7; length]).map(|spot| spot.nth));
        let expected = [Some(0), Some(1), Some(0), Some(2), Some(1), Some(0)];
        assert_eq!(spots, expected);
        assert!(filling.put(1, &[7; 1100]).is_none(), "a fourth block");
        let bytes: Vec<u64> = filling.shares().map(Share::bytes).collect();
        assert_eq!(bytes, [3050 + 30, 4000 + 20, 4096]);
        assert_eq!(filling.blocks().len(), 3);
    }
}
