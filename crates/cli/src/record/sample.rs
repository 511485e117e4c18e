//! One look at the figures of a run.

use vswap_areas::TierName;
use vswap_pager::status::State;
use vswap_pager::{LatencyBucket, Status};

use crate::output::figures::PAGE_BYTES;
use crate::watching::rates::{Counts, Rates};

/// What is kept of a look, in bytes unless the name says otherwise.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Seconds since the program was started.
    pub seconds: f64,
    pub state: State,
    pub limit_bytes: u64,
    pub total_bytes: u64,
    pub resident_bytes: u64,
    /// Pool, tables, frames and vswap itself.
    pub own_bytes: u64,
    pub pool_bytes: u64,
    /// What is in swap, as large as it is to the program, and where it is.
    pub swapped_bytes: u64,
    pub compressed_bytes: u64,
    pub raw_bytes: u64,
    pub area_bytes: u64,
    pub zero_bytes: u64,
    /// What each tier of areas has of it, the highest priority first.
    pub tiers: Vec<(TierName, u64)>,
    /// What only grows.
    pub counts: Counts,
    /// How many faults on swapped pages took how long, since the start.
    pub latencies: Vec<LatencyBucket>,
}

/// Times that no more than a part of the faults between two looks took longer than, in microseconds: bounds of the
/// run's histogram, so they are too long rather than too short.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Latency {
    pub p50_us: f64,
    pub p99_us: f64,
}

impl Sample {
    pub fn of(status: &Status, seconds: f64) -> Sample {
        let pages = |pages: u64| pages.saturating_mul(PAGE_BYTES);
        let tiers = status.tiers.iter();
        Sample {
            seconds,
            state: status.state,
            limit_bytes: status.limit_bytes,
            total_bytes: status.total_bytes,
            resident_bytes: status.resident_bytes,
            pool_bytes: status.pool_bytes,
            own_bytes: status.own_bytes,
            swapped_bytes: pages(status.swapped_pages),
            compressed_bytes: pages(status.compressed_pages),
            raw_bytes: pages(status.raw_pages),
            area_bytes: pages(status.physical_pages),
            zero_bytes: pages(status.zero_pages),
            tiers: tiers
                .map(|tier| (tier.name.clone(), tier.used_bytes))
                .collect(),
            counts: Counts::of_status(status, seconds),
            latencies: status.fault_buckets.clone(),
        }
    }

    /// What the run has done since an earlier look.
    pub fn rates_since(&self, before: &Sample) -> Option<Rates> {
        Rates::between(&before.counts, &self.counts)
    }

    /// How long faults on swapped pages took since an earlier look. None if there were none.
    pub fn latency_since(&self, before: &Sample) -> Option<Latency> {
        let added = |bucket: &LatencyBucket| {
            let is_same = |other: &&LatencyBucket| other.until_us == bucket.until_us;
            let before = before.latencies.iter().find(is_same);
            let before = before.map_or(0, |bucket| bucket.count);
            (bucket.until_us, bucket.count.saturating_sub(before))
        };
        let added: Vec<(Option<u32>, u64)> = self.latencies.iter().map(added).collect();
        Some(Latency {
            p50_us: quantile(&added, 0.5)?,
            p99_us: quantile(&added, 0.99)?,
        })
    }
}

/// The bound of the bucket in which this part of all ends. What is longer than the last bound counts as that.
fn quantile(buckets: &[(Option<u32>, u64)], part: f64) -> Option<f64> {
    let all: u64 = buckets.iter().map(|(_, count)| count).sum();
    let wanted = part * all as f64;
    let mut so_far = 0;
    let mut bound = 0;
    for (until, count) in buckets {
        bound = until.unwrap_or(bound);
        so_far += count;
        if so_far > 0 && so_far as f64 >= wanted {
            return Some(f64::from(bound));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(seconds: f64, pages_out: u64, counts: [u64; 3]) -> Sample {
        let buckets = [Some(10), Some(100), None].into_iter().zip(counts);
        let status = Status {
            pages_out,
            swapped_pages: 3,
            zero_pages: 1,
            fault_buckets: buckets
                .map(|(until_us, count)| LatencyBucket { until_us, count })
                .collect(),
            ..Status::default()
        };
        Sample::of(&status, seconds)
    }

    #[test]
    fn what_only_grows_becomes_a_rate() {
        let (first, second) = (sample(1.0, 10, [0; 3]), sample(3.0, 30, [0; 3]));
        let rates = second.rates_since(&first).expect("time has gone by");
        assert_eq!(rates.out_bytes, 10.0 * 4096.0);
        assert_eq!(first.rates_since(&first), None);
        assert_eq!((first.swapped_bytes, first.zero_bytes), (3 * 4096, 4096));
    }

    #[test]
    fn latencies_are_those_of_the_faults_in_between() {
        let before = sample(1.0, 0, [1000, 0, 0]);
        let since = |counts| sample(2.0, 0, counts).latency_since(&before);
        assert_eq!(since([1000, 0, 0]), None, "there was no fault");
        let (p50_us, p99_us) = (100.0, 100.0);
        assert_eq!(since([1000, 1, 0]), Some(Latency { p50_us, p99_us }));
        let (p50_us, p99_us) = (10.0, 100.0);
        assert_eq!(since([1060, 2, 0]), Some(Latency { p50_us, p99_us }));
        assert_eq!(since([1060, 0, 40]), Some(Latency { p50_us, p99_us }));
    }
}
