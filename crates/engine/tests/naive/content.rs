//! The content of the model's pages.

use proptest::prelude::*;
use vswap_engine::{PAGE_BYTES, Page};

/// What a page is filled with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    Zero,
    /// Compresses well: one byte repeated, with a few others.
    Dense(u8),
    /// Does not compress.
    Random(u64),
    /// Random as well, but each byte has two bits of zeros: zstd packs it, lz4 does not.
    Narrow(u64),
}

impl Content {
    pub fn fill(self, page: &mut Page) {
        match self {
            Content::Zero => page.0.fill(0),
            Content::Dense(byte) => {
                page.0.fill(byte);
                for (at, mark) in page.0.iter_mut().step_by(97).enumerate() {
                    *mark = at.to_le_bytes()[0];
                }
            }
            Content::Random(seed) | Content::Narrow(seed) => {
                let is_narrow = matches!(self, Content::Narrow(_));
                let bits = if is_narrow {
                    0x3f3f_3f3f_3f3f_3f3f
                } else {
                    u64::MAX
                };
                let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
                for chunk in page.0.chunks_mut(8) {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    chunk.copy_from_slice(&(state & bits).to_le_bytes());
                }
            }
        }
    }

    pub fn page(self) -> Box<Page> {
        let mut page = Box::new(Page([0; PAGE_BYTES]));
        self.fill(&mut page);
        page
    }
}

pub fn content() -> impl Strategy<Value = Content> {
    prop_oneof![
        2 => Just(Content::Zero),
        4 => (1..=255u8).prop_map(Content::Dense),
        2 => any::<u64>().prop_map(Content::Random),
        1 => any::<u64>().prop_map(Content::Narrow),
    ]
}
