//! Numbers that look random and are the same each time.

use std::time::Duration;

/// A generator. Whoever has the seed has the numbers.
#[derive(Clone)]
pub struct Seeded(pub u64);

impl Seeded {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Less than `bound`, which is not 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).expect("64 bits");
        usize::try_from(self.next() % bound).expect("small")
    }

    pub fn between(&mut self, least: Duration, most: Duration) -> Duration {
        let span = u64::try_from((most - least).as_nanos()).expect("short");
        least + Duration::from_nanos(self.next() % span.max(1))
    }

    /// True once in so many times. Never if that is 0.
    pub fn once_in(&mut self, times: usize) -> bool {
        times > 0 && self.below(times) == 0
    }
}
