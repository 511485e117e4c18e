//! Counters of a run and the latency of its faults.
//!
//! Counters are plain atomics, raised where the thing happens. Each thread has its own histogram of latencies, so
//! recording never waits. A snapshot merges the histograms.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::base::lock::{Mutex, Row};

/// Longest latency that the histograms distinguish, in nanoseconds: a minute.
const LATENCY_MAX_NS: u64 = 60_000_000_000;
/// Two digits: within 1 % of the true latency, at 30 KiB a histogram.
const LATENCY_DIGITS: u8 = 2;

/// Where the buckets of latencies end, in microseconds: three to a decade from a fault that the pool serves to one that
/// waits for a slow disk.
const BUCKET_ENDS_US: [u32; 20] = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000,
    200_000, 500_000, 1_000_000, 10_000_000,
];

/// One counter.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Count `n` more.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// The count so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Everything that is counted from the start of the run.
#[derive(Debug, Default)]
pub struct Stats {
    /// Pages moved out.
    pub pages_out: Counter,
    /// Pages brought back.
    pub pages_in: Counter,
    /// Pages that came back so soon that they had gone too early.
    pub pages_early: Counter,
    /// Pages that a sweep has passed over because they had come back early.
    pub pages_spared: Counter,
    /// Pages read from an area along with a wanted one.
    pub pages_read_ahead: Counter,
    /// Those of them that were wanted afterwards.
    pub read_ahead_hits: Counter,
    /// Pages brought back from areas.
    pub pages_in_areas: Counter,
    /// Pages that came back from areas too early.
    pub pages_in_areas_early: Counter,
    /// Pages moved from the pool to areas.
    pub pages_written_back: Counter,
    /// Pages of the pool that were packed again, more densely.
    pub pages_repacked: Counter,
    /// Bytes that this has freed.
    pub repack_saved_bytes: Counter,
    /// Pages moved from an area to one of lower priority.
    pub pages_demoted: Counter,
    /// Pages that stayed in pool or area, because an area could not be written or read, or because they are damaged.
    pub write_back_failures: Counter,
    /// Pages that could not be read back from their area.
    pub pages_lost: Counter,
    /// Pages moved out while their entry was still kept. Nothing was compressed for them.
    pub pages_dropped_clean: Counter,
    /// Pages that went out as zeros.
    pub pages_out_zero: Counter,
    /// Bytes that came out of the compressor.
    pub compressed_out_bytes: Counter,
    /// Pages that went into the compressor.
    pub compressed_pages: Counter,
    /// Faults served, of every kind.
    pub faults: Counter,
    /// Those that were first touches.
    pub faults_first_touch: Counter,
    /// Faults that had to wait for memory.
    pub faults_deferred: Counter,
    /// Kept pages that were written to.
    pub faults_unprotect: Counter,
    /// Pages that could not be moved because they were shared or pinned.
    pub pages_busy: Counter,
    /// Pages that had moved although the kernel said otherwise (rule P8).
    pub moved_unsaid: Counter,
    /// Moves and copies that the kernel refused because a layout event was unread.
    pub retries: Counter,
    /// Spaces that became active.
    pub activations: Counter,
    latencies: Latencies,
}

/// A histogram for each thread that serves faults.
#[derive(Debug)]
struct Latencies(Mutex<Vec<Arc<Mutex<Histogram<u64>>>>>);

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies(Mutex::new(
            Row::Histograms,
            "the list of histograms",
            Vec::new(),
        ))
    }
}

/// One thread's histogram of swap-in latencies.
#[derive(Debug, Clone)]
pub struct LatencyRecorder(Arc<Mutex<Histogram<u64>>>);

impl LatencyRecorder {
    /// Record one swap-in.
    pub fn record(&self, latency: Duration) {
        let ns = u64::try_from(latency.as_nanos()).unwrap_or(LATENCY_MAX_NS);
        self.0.lock().saturating_record(ns);
    }
}

/// How many swap-ins took so long.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyBucket {
    /// The longest that is counted here, in microseconds. None in the last bucket, which has all that are longer.
    pub until_us: Option<u32>,
    /// Those that are longer than the bucket before has them.
    pub count: u64,
}

/// Latency of swap-ins in microseconds.
#[derive(Debug, Clone, Default)]
pub struct LatencySummary {
    /// Median.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// Longest.
    pub max_us: f64,
    /// All of them together, in seconds.
    pub sum_seconds: f64,
    /// How many took how long.
    pub buckets: Vec<LatencyBucket>,
}

impl Stats {
    /// A histogram for the calling thread.
    pub fn recorder(&self) -> LatencyRecorder {
        let histogram = Arc::new(one_histogram(new_histogram()));
        self.latencies.0.lock().push(Arc::clone(&histogram));
        LatencyRecorder(histogram)
    }

    /// Was memory ever registered?
    pub fn was_active(&self) -> bool {
        self.activations.get() > 0
    }

    /// All threads' latencies together.
    pub fn latency(&self) -> LatencySummary {
        let mut all = new_histogram();
        let mut latencies = self.latencies.0.lock();
        for histogram in latencies.iter() {
            // The bounds and digits are the same, so the histograms always add up.
            let _ = all.add(&*histogram.lock());
        }
        // Fold the histograms of ended threads into one, so that they do not pile up in a long run.
        if latencies
            .iter()
            .filter(|h| Arc::strong_count(h) == 1)
            .count()
            > 1
        {
            let mut ended = new_histogram();
            latencies.retain(|histogram| {
                let lives = Arc::strong_count(histogram) > 1;
                if !lives {
                    let _ = ended.add(&*histogram.lock());
                }
                lives
            });
            latencies.push(Arc::new(one_histogram(ended)));
        }
        LatencySummary {
            p50_us: us(all.value_at_quantile(0.5)),
            p99_us: us(all.value_at_quantile(0.99)),
            max_us: us(all.max()),
            sum_seconds: sum_seconds(&all),
            buckets: buckets(&all),
        }
    }
}

/// As exact as the histogram is.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts and latencies fit 52 bits"
)]
fn sum_seconds(all: &Histogram<u64>) -> f64 {
    let times = all.iter_recorded().map(|step| {
        let ns = all.median_equivalent(step.value_iterated_to());
        ns as f64 * step.count_since_last_iteration() as f64
    });
    times.sum::<f64>() / 1e9
}

fn buckets(all: &Histogram<u64>) -> Vec<LatencyBucket> {
    let ends = BUCKET_ENDS_US.iter().copied().map(Some).chain([None]);
    let mut buckets: Vec<LatencyBucket> = ends
        .map(|until_us| LatencyBucket { until_us, count: 0 })
        .collect();
    for step in all.iter_recorded() {
        let us = step.value_iterated_to() / 1000;
        let place = BUCKET_ENDS_US.partition_point(|end| u64::from(*end) <= us);
        if let Some(bucket) = buckets.get_mut(place) {
            bucket.count += step.count_since_last_iteration();
        }
    }
    buckets
}

fn one_histogram(histogram: Histogram<u64>) -> Mutex<Histogram<u64>> {
    Mutex::new(Row::Innermost, "a histogram", histogram)
}

#[expect(
    clippy::expect_used,
    reason = "the bounds are constants that the tests try"
)]
fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MAX_NS, LATENCY_DIGITS)
        .expect("constant bounds are valid")
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a latency below a minute fits 52 bits"
)]
fn us(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_of_ended_threads_stay() {
        let stats = Stats::default();
        for _ in 0..3 {
            stats.recorder().record(Duration::from_micros(10));
        }
        let living = stats.recorder();
        living.record(Duration::from_micros(1000));
        for _ in 0..2 {
            let summary = stats.latency();
            assert!((summary.p50_us - 10.0).abs() < 0.2, "{summary:?}");
            assert!((summary.max_us - 1000.0).abs() < 20.0, "{summary:?}");
        }
        assert_eq!(stats.latencies.0.lock().len(), 2);
    }

    #[test]
    fn every_latency_is_in_the_bucket_of_its_length() {
        let stats = Stats::default();
        let recorder = stats.recorder();
        for us in [3, 4, 300, 59_000_000] {
            recorder.record(Duration::from_micros(us));
        }
        let summary = stats.latency();
        let counted: Vec<(Option<u32>, u64)> = summary
            .buckets
            .iter()
            .filter(|bucket| bucket.count > 0)
            .map(|bucket| (bucket.until_us, bucket.count))
            .collect();
        assert_eq!(counted, [(Some(5), 2), (Some(500), 1), (None, 1)]);
        assert!((summary.sum_seconds - 59.0).abs() < 0.6, "{summary:?}");
        assert!(BUCKET_ENDS_US.is_sorted());
    }
}
