//! How densely pages are packed where nobody has named a codec.
//!
//! With lz4, which is fast, as long as there is room. An arena without an area has nowhere else to put what does not
//! fit. So when its pool is nearly full, or nothing could leave, what leaves is packed with zstd, and what lies in the
//! pool is packed again (`verbs/repack.rs` of the engine), what is coldest first. It goes back to lz4 when the pool is
//! half empty, but not once nothing could leave. With an area what is cold goes there instead.
//!
//! Of the evictor alone. What is decided here holds for its next window.

use vswap_engine::{Codec, Engine, PoolFill, Scratch};

/// The pool is nearly full when one part in so many of its limit is left.
const FREE_PART: u64 = 8;
/// Pages that are packed again at a time: a window.
const STEP_PAGES: usize = 64;
/// A generation of the pool's pages begins when one part in so many of them has been exchanged. The engine packs again
/// what is two generations old.
const GENERATION_PART: u64 = 4;

/// Is the pool nearly full?
pub fn is_nearly_full(fill: &PoolFill) -> bool {
    fill.span_bytes + fill.limit_bytes / FREE_PART >= fill.limit_bytes
}

/// How what leaves is packed.
#[derive(Debug)]
pub struct Density {
    /// Nobody has named a codec, and there is no area.
    is_free: bool,
    is_dense: bool,
    /// Pages that have left since the youngest generation began.
    left: u64,
    /// For so many ends of laps, what lz4 could not pack and stayed in memory is tried with zstd.
    laps_with_raw: u32,
    /// Nothing could leave once.
    was_full: bool,
}

impl Density {
    /// It is decided here if it is `free`. Otherwise all is packed with the engine's codec.
    pub fn new(is_free: bool) -> Density {
        Density {
            is_free,
            is_dense: false,
            left: 0,
            laps_with_raw: 0,
            was_full: false,
        }
    }

    /// Takes in how full the pool is.
    pub fn look(&mut self, fill: &PoolFill) {
        if self.is_free && is_nearly_full(fill) {
            self.begin();
        } else if fill.span_bytes < fill.limit_bytes / 2 && !self.was_full {
            self.is_dense = false;
        }
    }

    fn begin(&mut self) {
        if !self.is_dense {
            // It may begin in the middle of a lap.
            self.laps_with_raw = 2;
        }
        self.is_dense = true;
    }

    /// The codec of what leaves now.
    pub fn codec(&self, engine: &Engine) -> Codec {
        if self.is_dense {
            Codec::Zstd
        } else {
            engine.codec()
        }
    }

    /// Are pages to be taken that lz4 could not pack?
    pub fn takes_raw(&self) -> bool {
        self.laps_with_raw > 0
    }

    /// The hand has come to its end.
    pub fn note_lap(&mut self) {
        self.laps_with_raw = self.laps_with_raw.saturating_sub(1);
    }

    /// So many pages have left.
    pub fn note_left(&mut self, pages: u64, engine: &Engine) {
        if !self.is_free {
            return;
        }
        self.left += pages;
        if self.left > engine.pool_fill().objects / GENERATION_PART {
            engine.begin_generation();
            self.left = 0;
        }
    }

    /// Packs some cold pages again, if that is to be. Returns how many that were.
    pub fn pack_again(&self, engine: &Engine, scratch: &mut Scratch) -> u64 {
        if self.is_dense {
            engine.repack(STEP_PAGES, scratch).pages as u64
        } else {
            0
        }
    }

    /// Nothing could leave. From now on it is dense, and whatever is in the pool counts as cold. False if there is
    /// nothing that was not tried before.
    pub fn begin_when_full(&mut self, engine: &Engine) -> bool {
        if !self.is_free {
            return false;
        }
        let was_dense = self.is_dense;
        self.begin();
        self.was_full = true;
        // What is older than two generations is cold.
        engine.begin_generation();
        engine.begin_generation();
        !was_dense
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(span_bytes: u64) -> PoolFill {
        PoolFill {
            limit_bytes: 1 << 20,
            span_bytes,
            needed_bytes: span_bytes,
            objects: 100,
        }
    }

    #[test]
    fn it_is_dense_from_nearly_full_to_half_empty() {
        let mut density = Density::new(true);
        let mut dense_at = |span_bytes| {
            density.look(&fill(span_bytes));
            density.is_dense
        };
        let spans = [0, 7 << 17, (7 << 17) + 1, 1 << 20, 1 << 19, (1 << 19) - 1];
        let seen = spans.map(&mut dense_at);
        assert_eq!(seen, [false, true, true, true, true, false]);
        let mut named = Density::new(false);
        named.look(&fill(1 << 20));
        assert!(!named.is_dense, "a codec is named, or there is an area");
    }

    #[test]
    fn what_lz4_could_not_pack_is_tried_once() {
        let mut density = Density::new(true);
        density.look(&fill(1 << 20));
        density.note_lap();
        density.look(&fill(1 << 20));
        assert!(density.takes_raw(), "that was a part of a lap");
        density.note_lap();
        density.look(&fill(1 << 20));
        assert!(!density.takes_raw());
    }
}
