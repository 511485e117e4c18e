//! A seeded random number generator: the same seed gives the same program on every machine and in every build.

/// One step of the splitmix64 mixing function. Different inputs give different outputs.
#[must_use]
pub const fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The generator.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The numbers of this seed, from the first on.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    /// Any number.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number in `0..bound`, or 0 if the range is empty.
    pub fn below(&mut self, bound: u32) -> u32 {
        // The rest is below the bound, so it fits.
        u32::try_from(self.next() % u64::from(bound.max(1))).unwrap_or(0)
    }

    /// A place in something of this length, which is not 0.
    pub fn index(&mut self, length: usize) -> usize {
        let wide = u128::from(self.next()) * (length as u128);
        // The high half of the product is below the length, so it fits.
        usize::try_from(wide >> 64).unwrap_or(0)
    }

    /// A number in `low..=high`.
    pub fn between(&mut self, low: u32, high: u32) -> u32 {
        low + self.below(high - low + 1)
    }

    /// True in `percent` of a hundred cases.
    pub fn chance(&mut self, percent: u32) -> bool {
        self.below(100) < percent
    }

    /// One of them. There has to be one.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        let bound = u32::try_from(choices.len()).unwrap_or(u32::MAX);
        choices[self.below(bound) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_again_and_others_give_others() {
        let numbers = |seed| {
            let mut random = Random::new(seed);
            [0; 8].map(|_: u64| random.next())
        };
        assert_eq!(numbers(7), numbers(7));
        assert_ne!(numbers(7), numbers(8));
    }

    #[test]
    fn bounds_hold() {
        let mut random = Random::new(1);
        for _ in 0..1000 {
            assert!((3..=5).contains(&random.between(3, 5)));
            assert!(random.below(4) < 4);
            assert!(random.index(4) < 4);
        }
        assert_eq!(random.below(0), 0);
    }
}
