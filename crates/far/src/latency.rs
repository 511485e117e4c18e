//! How long requests take: an average that forgets, and percentiles of all.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Weight of the newest in the average: one part in this many.
const PART: u64 = 8;
/// Counters: one for each half of a power of two of nanoseconds.
const STEPS: usize = 2 * 40;

/// Times of requests. For any number of threads.
#[derive(Debug)]
pub(crate) struct Latency {
    average_ns: AtomicU64,
    steps: [AtomicU64; STEPS],
}

impl Latency {
    pub(crate) fn new() -> Latency {
        Latency {
            average_ns: AtomicU64::new(0),
            steps: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    pub(crate) fn note(&self, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).max(2);
        // Two threads may lose each other's change. It is only an average.
        let so_far = self.average_ns.load(Ordering::Relaxed);
        let average = match so_far {
            0 => took,
            _ => so_far - so_far / PART + took / PART,
        };
        self.average_ns.store(average, Ordering::Relaxed);
        if let Some(step) = self.steps.get(step(took)) {
            step.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// None if nothing was measured yet.
    pub(crate) fn average(&self) -> Option<Duration> {
        let average = self.average_ns.load(Ordering::Relaxed);
        (average > 0).then(|| Duration::from_nanos(average))
    }

    /// What this many of a thousand did not exceed, to half of a power of two. None if nothing was measured yet.
    pub(crate) fn quantile(&self, of_a_thousand: u64) -> Option<Duration> {
        let counts = self
            .steps
            .each_ref()
            .map(|step| step.load(Ordering::Relaxed));
        let all: u64 = counts.iter().sum();
        let wanted = (all * of_a_thousand).div_ceil(1000);
        let mut seen = 0;
        for (step, count) in counts.iter().enumerate() {
            seen += count;
            if *count > 0 && seen >= wanted {
                return Some(Duration::from_nanos(end(step)));
            }
        }
        None
    }
}

fn step(ns: u64) -> usize {
    let power = ns.ilog2() as usize;
    let upper_half = power > 0 && ns & (1 << (power - 1)) != 0;
    (2 * power + usize::from(upper_half)).min(STEPS - 1)
}

/// The first number of nanoseconds behind a step.
fn end(step: usize) -> u64 {
    let power = step / 2;
    match step % 2 {
        0 => (1 << power) + (1 << power) / 2,
        _ => 1 << (power + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_to_half_a_power_of_two() {
        let latency = Latency::new();
        assert_eq!((latency.average(), latency.quantile(500)), (None, None));
        for us in 1..=1000 {
            latency.note(Duration::from_micros(us));
        }
        let half = latency.quantile(500).unwrap();
        assert!(half >= Duration::from_micros(500) && half <= Duration::from_micros(800));
        let most = latency.quantile(990).unwrap();
        assert!(most >= Duration::from_micros(990) && most <= Duration::from_micros(1600));
        assert!(latency.average().unwrap() > Duration::from_micros(900));
        for ns in [2, 3, 100, 1 << 39, u64::MAX] {
            assert!(step(ns) == STEPS - 1 || end(step(ns)) > ns);
        }
    }
}
