//! Phases of a workload: wall time, and a latency histogram of single accesses.
//!
//! The clock is the processor's counter, calibrated against the monotonic clock at the program's start. On x86-64 two
//! readings cost some 20 ns, so an access never seems to take less.

#[cfg_attr(target_arch = "x86_64", path = "measure/x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "measure/aarch64.rs")]
mod machine;

use std::fmt;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;

pub use machine::ticks;

/// The longest latency that is recorded. Longer ones count as this one.
const LATENCY_TICKS_MAX: u64 = 1 << 40;
/// Two significant figures keep the histogram at some ten KiB, so that it stays in the cache.
const LATENCY_FIGURES: u8 = 2;
/// How long the counter is compared with the clock.
const CALIBRATION: Duration = Duration::from_millis(20);

/// Ticks of the counter in a microsecond.
#[must_use]
#[expect(
    clippy::cast_precision_loss,
    reason = "tick counts of a short run are below 2^53"
)]
pub fn ticks_per_us() -> f64 {
    let (clock, counter) = (Instant::now(), ticks());
    while clock.elapsed() < CALIBRATION {
        std::hint::spin_loop();
    }
    let passed = ticks().wrapping_sub(counter) as f64;
    passed / (clock.elapsed().as_secs_f64() * 1e6)
}

/// Latencies of one thread's accesses.
#[derive(Debug)]
pub struct Latencies(Histogram<u32>);

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

impl Latencies {
    /// An empty set.
    ///
    /// # Panics
    /// Never: the bounds are constants that the histogram accepts.
    #[must_use]
    #[expect(
        clippy::expect_used,
        reason = "constant arguments, checked by every test"
    )]
    pub fn new() -> Self {
        Self(
            Histogram::new_with_bounds(1, LATENCY_TICKS_MAX, LATENCY_FIGURES)
                .expect("bounds of the histogram are constants"),
        )
    }

    /// Runs `access` and records how long it took.
    #[inline]
    pub fn time<T>(&mut self, access: impl FnOnce() -> T) -> T {
        let start = ticks();
        let result = access();
        self.0.saturating_record(ticks().wrapping_sub(start).max(1));
        result
    }

    /// Adds what another thread recorded.
    pub fn merge(&mut self, other: &Latencies) {
        // The bounds are equal, so nothing is out of range.
        let _ = self.0.add(&other.0);
    }

    /// The number of ticks that the fraction `quantile` of all accesses did not exceed.
    #[must_use]
    pub fn quantile_ticks(&self, quantile: f64) -> u64 {
        self.0.value_at_quantile(quantile)
    }
}

/// The figures of one phase, as printed.
#[derive(Clone, Debug, Serialize)]
pub struct Phase {
    /// What was done, such as `fill`.
    pub phase: String,
    /// Pages or accesses of all threads together.
    pub pages: u64,
    /// Threads that did it.
    pub threads: usize,
    /// Wall time, in seconds.
    pub wall_s: f64,
    /// Wall time divided by accesses, in microseconds.
    pub us_per_op: f64,
    /// Mean latency of an access within its thread, in microseconds.
    pub mean_us: f64,
    /// Median latency.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Longest.
    pub max_us: f64,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "phase={} pages={} threads={} wall_s={:.3} us_per_op={:.3} mean_us={:.3} \
             p50_us={:.2} p99_us={:.2} p999_us={:.1} max_us={:.1}",
            self.phase,
            self.pages,
            self.threads,
            self.wall_s,
            self.us_per_op,
            self.mean_us,
            self.p50_us,
            self.p99_us,
            self.p999_us,
            self.max_us
        )
    }
}

/// Runs phases on a fixed number of threads.
#[derive(Debug)]
pub struct Stage {
    threads: usize,
    ticks_per_us: f64,
}

impl Stage {
    /// Calibrates the clock. With one thread everything runs on the caller's thread.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        Self {
            threads: threads.max(1),
            ticks_per_us: ticks_per_us(),
        }
    }

    /// Number of threads.
    #[must_use]
    pub const fn threads(&self) -> usize {
        self.threads
    }

    /// Runs `work(thread, latencies)` on every thread at once, and measures from the first start to the last end.
    ///
    /// # Errors
    /// The first error of a thread.
    ///
    /// # Panics
    /// When a thread panics.
    pub fn run<E: Send>(
        &self,
        name: &str,
        work: impl Fn(usize, &mut Latencies) -> Result<(), E> + Sync,
    ) -> Result<Phase, E> {
        let mut all = Latencies::new();
        let wall;
        if self.threads == 1 {
            let start = Instant::now();
            work(0, &mut all)?;
            wall = start.elapsed();
        } else {
            let ready = Barrier::new(self.threads);
            let work = &work;
            let ready = &ready;
            let parts = std::thread::scope(|scope| {
                let handles: Vec<_> = (0..self.threads)
                    .map(|thread| {
                        scope.spawn(move || {
                            let mut latencies = Latencies::new();
                            ready.wait();
                            let begun = Instant::now();
                            work(thread, &mut latencies).map(|()| (begun, latencies))
                        })
                    })
                    .collect();
                handles
                    .into_iter()
                    .map(std::thread::ScopedJoinHandle::join)
                    .collect::<Vec<_>>()
            });
            let ended = Instant::now();
            let mut first = ended;
            for part in parts {
                match part {
                    Ok(done) => {
                        let (begun, latencies) = done?;
                        first = first.min(begun);
                        all.merge(&latencies);
                    }
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            wall = ended - first;
        }
        Ok(self.figures(name, wall, &all))
    }

    /// Runs `work` on this thread only, so that it may change what it has borrowed.
    ///
    /// # Errors
    /// That of the work.
    pub fn run_alone<E>(
        &self,
        name: &str,
        work: impl FnOnce(&mut Latencies) -> Result<(), E>,
    ) -> Result<Phase, E> {
        let mut all = Latencies::new();
        let start = Instant::now();
        work(&mut all)?;
        Ok(self.figures(name, start.elapsed(), &all))
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "counts and ticks are far below 2^53"
    )]
    fn figures(&self, name: &str, wall: Duration, latencies: &Latencies) -> Phase {
        let histogram = &latencies.0;
        let us = |ticks: u64| ticks as f64 / self.ticks_per_us;
        let wall_s = wall.as_secs_f64();
        Phase {
            phase: name.to_owned(),
            pages: histogram.len(),
            threads: self.threads,
            wall_s,
            us_per_op: wall_s * 1e6 / histogram.len().max(1) as f64,
            mean_us: histogram.mean() / self.ticks_per_us,
            p50_us: us(histogram.value_at_quantile(0.5)),
            p99_us: us(histogram.value_at_quantile(0.99)),
            p999_us: us(histogram.value_at_quantile(0.999)),
            max_us: us(histogram.max()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_accesses_of_all_threads_and_times_them_in_microseconds() {
        let stage = Stage::new(3);
        let phase = stage
            .run("nap", |_, latencies| {
                for _ in 0..4 {
                    latencies.time(|| std::thread::sleep(Duration::from_millis(2)));
                }
                Ok::<(), ()>(())
            })
            .unwrap();
        assert_eq!(phase.pages, 12);
        assert!((1900.0..20_000.0).contains(&phase.p50_us), "{phase}");
        assert!(phase.wall_s >= 0.008);
    }

    #[test]
    fn an_error_of_a_thread_is_the_error_of_the_phase() {
        let stage = Stage::new(2);
        assert!(
            stage
                .run("bad", |thread, _| if thread == 1 { Err(7) } else { Ok(()) })
                .is_err()
        );
    }
}
