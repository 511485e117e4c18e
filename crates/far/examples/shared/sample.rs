//! What the examples send and read: pages of which a third cannot be compressed.

use vswap_engine::{Codec, Page, ReadRun, Scratch, Storage};
use vswap_far::FarStorage;

/// Pages of one window.
pub const WINDOW: usize = 64;

/// A page that nothing but this seed has. lz4 makes 1850 bytes of it.
pub fn page(seed: u64) -> Page {
    let mut page = Page::zeroed();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for word in page.0.as_chunks_mut::<8>().0.iter_mut().step_by(3) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        *word = state.to_le_bytes();
    }
    page
}

/// Pages of a window as the engine packs them.
pub fn packed() -> Vec<Vec<u8>> {
    let mut scratch = Scratch::new();
    let pack = |seed| {
        let packed = Codec::Lz4.compress(&page(seed), &mut scratch);
        packed.expect("it compresses").to_vec()
    };
    (0..WINDOW as u64).map(pack).collect()
}

/// Reads as many pages as there are here, as one window.
pub fn read(storage: &FarStorage, slot: u64, pages: &mut [Page]) {
    let mut run = ReadRun {
        slot,
        pages: pages.iter_mut().collect(),
        outcome: Ok(()),
    };
    storage.read_runs(std::slice::from_mut(&mut run));
    run.outcome.expect("read");
}
