//! The metrics: which there are, what they mean, and what they are taken from.
//!
//! Names are as those of node_exporter: base units, `_total` for what only grows. Labels have few values: runs, areas
//! (at most 64), and a bounded number of groups and processes.

mod processes;
mod run;
mod store;
mod writer;

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use crate::metrics::figures::Figures;

/// All metrics of one moment.
#[derive(Debug)]
pub struct Families(Figures);

impl Families {
    pub fn of(figures: Figures) -> Families {
        Families(figures)
    }
}

impl Collector for Families {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut writer = writer::Writer::new(encoder);
        let version = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
        writer.info("vswap_build", "The version of vswap.", [version])?;
        run::write(&self.0.runs, &mut writer)?;
        processes::write(&self.0.runs, &mut writer)?;
        match &self.0.store {
            Some(store) => store::write(store, &mut writer),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use vswap_areas::TierName;
    use vswap_pager::{
        AreaStatus, GroupStatus, GroupTier, LatencyBucket, ProcessStatus, Status, StoreStatus,
        TierStatus,
    };

    use crate::metrics::figures::{Figures, RunFigures, StoreFigures};
    use crate::metrics::text::Format;

    fn tier() -> TierStatus {
        TierStatus {
            name: TierName::default(),
            areas: 1,
            priority_min: -1,
            priority_max: -1,
            size_bytes: 8192,
            used_bytes: 4096,
            read_bytes: 1,
            written_bytes: 2,
            latency_us: Some(50.0),
        }
    }

    fn group() -> GroupStatus {
        GroupStatus {
            name: "/".to_owned(),
            swap_bytes: 4096,
            swap_max_bytes: None,
            pool_bytes: 0,
            pool_max_bytes: None,
            writeback: true,
            tiers: vec![GroupTier {
                name: TierName::default(),
                bytes: 4096,
                max_bytes: None,
            }],
            events: vswap_pager::groups::Events::default(),
        }
    }

    fn figures() -> Figures {
        let bucket = |until_us, count| LatencyBucket { until_us, count };
        let process = |pid| ProcessStatus {
            pid,
            name: "sort".to_owned(),
            managed: true,
            resident_bytes: Some(u64::from(pid)),
            ..ProcessStatus::default()
        };
        let status = Status {
            limit_bytes: 64 << 20,
            pages_out: 7,
            fault_seconds: 0.5,
            fault_buckets: vec![bucket(Some(5), 2), bucket(Some(1000), 1), bucket(None, 1)],
            processes: (1..300).map(process).collect(),
            ..Status::default()
        };
        let area = AreaStatus {
            encrypted: true,
            name: "/a \"file\"\nof mine".to_owned(),
            kind: "file",
            size_bytes: 8192,
            used_bytes: 4096,
            held_bytes: 4096,
            priority: -1,
            read_bytes: 1,
            written_bytes: 2,
            errors: 0,
            failing: false,
            io: "calls",
            tier: TierName::default(),
            latency_us: None,
            far: None,
        };
        Figures {
            runs: vec![RunFigures {
                pid: 4711,
                program: Some("sort".to_owned()),
                started: Some(UNIX_EPOCH + Duration::from_secs(1000)),
                status,
            }],
            store: Some(StoreFigures {
                codec: "zstd:3".to_owned(),
                status: StoreStatus {
                    areas: vec![area],
                    tiers: vec![tier()],
                    groups: vec![group()],
                    ..StoreStatus::default()
                },
            }),
        }
    }

    #[test]
    fn names_have_units_and_counters_totals() {
        let text = Format::OpenMetrics.write(figures());
        for line in [
            "# TYPE vswap_memory_limit_bytes gauge",
            "# UNIT vswap_memory_limit_bytes bytes",
            "vswap_memory_limit_bytes{run=\"4711\"} 67108864",
            "# TYPE vswap_pages_out counter",
            "vswap_pages_out_total{run=\"4711\"} 7",
            "vswap_run_info{run=\"4711\",program=\"sort\"} 1",
            "vswap_run_start_time_seconds{run=\"4711\"} 1000.0",
            "vswap_run_state{run=\"4711\",state=\"running\"} 1",
            "vswap_run_state{run=\"4711\",state=\"full\"} 0",
            "vswap_fault_latency_seconds_bucket{le=\"0.000005\",run=\"4711\"} 2",
            "vswap_fault_latency_seconds_bucket{le=\"0.001\",run=\"4711\"} 3",
            "vswap_fault_latency_seconds_bucket{le=\"+Inf\",run=\"4711\"} 4",
            "vswap_fault_latency_seconds_count{run=\"4711\"} 4",
            concat!(
                "vswap_build_info{version=\"",
                env!("CARGO_PKG_VERSION"),
                "\"} 1"
            ),
            "vswap_store_info{codec=\"zstd:3\"} 1",
            "vswap_tier_used_bytes{tier=\"default\"} 4096",
            "vswap_tier_latency_seconds{tier=\"default\"} 0.00005",
            "vswap_group_tier_bytes{group=\"/\",tier=\"default\"} 4096",
            "vswap_area_used_bytes{area=\"/a \\\"file\\\"\\nof mine\"} 4096",
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "no {line} in {text}"
            );
        }
        assert!(text.ends_with("# EOF\n"));
        assert!(!text.contains("_total_total"));
    }

    #[test]
    fn the_other_format_has_the_same_names() {
        let text = Format::Prometheus.write(figures());
        assert!(
            text.contains("# TYPE vswap_pages_out_total counter\n"),
            "{text}"
        );
        assert!(!text.contains("# UNIT") && !text.contains("# EOF"));
    }

    #[test]
    fn every_metric_is_explained_once_and_a_process_has_few() {
        let text = Format::OpenMetrics.write(figures());
        let mut explained: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# HELP ")?.split(' ').next())
            .collect();
        let count = explained.len();
        explained.sort_unstable();
        explained.dedup();
        assert_eq!(explained.len(), count);
        let of_processes = |line: &&str| line.starts_with("vswap_process_resident_bytes{");
        assert_eq!(text.lines().filter(of_processes).count(), 64);
    }

    #[test]
    fn a_daemon_without_runs_and_a_run_without_store_are_fine() {
        let mut daemon = figures();
        daemon.runs.clear();
        let text = Format::OpenMetrics.write(daemon);
        assert!(text.contains("vswap_store_pool_bytes 0") && !text.contains("run="));
        let joined = Figures {
            store: None,
            ..figures()
        };
        assert!(!Format::OpenMetrics.write(joined).contains("vswap_store"));
    }
}
