//! Seeded pseudo-random numbers: equal seeds give equal runs on every machine.

/// One step of the splitmix64 mixing function: a bijection that spreads every input bit.
#[must_use]
pub const fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A splitmix64 generator.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// A generator whose sequence depends only on `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: mix(seed) }
    }

    /// The next 64 bits.
    pub const fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// A number in `0..bound`, `bound` > 0. The bias is below 2^-32 for the bounds used here.
    pub fn below(&mut self, bound: usize) -> usize {
        let wide = u128::from(self.next()) * (bound as u128);
        // The high half of a 64 by 64 bit product is below `bound`, so it fits.
        usize::try_from(wide >> 64).unwrap_or(0)
    }

    /// A number in `[0, 1)`.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit a double exactly")]
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Zipf-distributed ranks by rejection-inversion (Hörmann and Derflinger). It needs no table, so the generator itself
/// touches no memory that could be swapped.
#[derive(Clone, Debug)]
pub struct Zipf {
    items: f64,
    exponent: f64,
    integral_first: f64,
    integral_last: f64,
    shortcut: f64,
}

impl Zipf {
    /// Ranks `0..items` with P(rank) proportional to `(rank + 1)^-exponent`; `exponent` > 0.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "page counts are far below 2^53")]
    pub fn new(items: usize, exponent: f64) -> Self {
        let mut zipf = Self {
            items: items as f64,
            exponent,
            integral_first: 0.0,
            integral_last: 0.0,
            shortcut: 0.0,
        };
        zipf.integral_first = zipf.integral(1.5) - 1.0;
        zipf.integral_last = zipf.integral(zipf.items + 0.5);
        zipf.shortcut = 2.0 - zipf.inverse(zipf.integral(2.5) - 2f64.powf(-exponent));
        zipf
    }

    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        let t = (1.0 - self.exponent) * log;
        let ratio = if t.abs() > 1e-8 {
            t.exp_m1() / t
        } else {
            1.0 + t / 2.0
        };
        ratio * log
    }

    fn inverse(&self, x: f64) -> f64 {
        let t = (x * (1.0 - self.exponent)).max(-1.0);
        let ratio = if t.abs() > 1e-8 {
            t.ln_1p() / t
        } else {
            1.0 - t / 2.0
        };
        (ratio * x).exp()
    }

    /// The next rank. 0 is the most frequent.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the rank is clamped to 1..=items before it is cast"
    )]
    pub fn sample(&self, random: &mut Random) -> usize {
        loop {
            let u = self.integral_last + random.unit() * (self.integral_first - self.integral_last);
            let x = self.inverse(u);
            let rank = (x + 0.5).floor().clamp(1.0, self.items);
            if rank - x <= self.shortcut
                || u >= self.integral(rank + 0.5) - rank.powf(-self.exponent)
            {
                return rank as usize - 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn below_stays_below_and_reaches_every_value() {
        let mut random = Random::new(7);
        let mut seen = [0u32; 10];
        for _ in 0..10_000 {
            seen[random.below(10)] += 1;
        }
        assert!(
            seen.iter().all(|&count| (800..1200).contains(&count)),
            "{seen:?}"
        );
    }

    #[test]
    fn zipf_frequencies_follow_the_exponent() {
        for exponent in [0.8, 0.99, 1.2] {
            let zipf = Zipf::new(1000, exponent);
            let mut random = Random::new(3);
            let mut counts = vec![0f64; 1000];
            for _ in 0..400_000 {
                counts[zipf.sample(&mut random)] += 1.0;
            }
            let expected = 8f64.powf(exponent);
            let found = counts[0] / counts[7];
            assert!(
                (found / expected - 1.0).abs() < 0.1,
                "{exponent}: {found} against {expected}"
            );
        }
    }
}
