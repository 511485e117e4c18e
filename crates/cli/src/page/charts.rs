//! Which plots there are.

use std::borrow::Cow;

use maud::{Markup, html};
use vswap_areas::TierName;

use crate::output::figures::{bytes, count, microseconds};
use crate::page::chart::{Chart, Scale, Series, TIME};
use crate::page::style::LINES;
use crate::record::events::Event;
use crate::record::sample::{Latency, Sample};
use crate::watching::rates::Rates;

/// All plots of these samples.
pub fn all(samples: &[Sample], events: &[Event]) -> Markup {
    let charts = [
        Some(places(samples)),
        tiers(samples),
        Some(limit(samples)),
        Some(moved(samples)),
        Some(faults(samples)),
        Some(latency(samples)),
        Some(pressure(samples)),
    ];
    html! { @for chart in charts.iter().flatten() { (chart.markup(events)) } }
}

fn places(samples: &[Sample]) -> Chart {
    Chart {
        id: "where",
        title: "What was where",
        note: "The program's memory, as large as it is to the program.",
        along: TIME,
        scale: Scale::Bytes,
        show: show_bytes,
        series: vec![
            level("in memory", samples, |sample| sample.resident_bytes),
            level("compressed", samples, |sample| sample.compressed_bytes),
            level("in swap areas", samples, |sample| sample.area_bytes),
            level("zeros", samples, |sample| sample.zero_bytes),
            level("does not compress", samples, |sample| sample.raw_bytes),
        ],
    }
}

/// None if there never was more than one tier: the plot before has that.
fn tiers(samples: &[Sample]) -> Option<Chart> {
    let names = tier_names(samples);
    if names.len() < 2 {
        return None;
    }
    // One line is the pool's. The last one left is for all that have none.
    let lines = LINES.len() - 1;
    let own = if names.len() > lines {
        lines - 1
    } else {
        names.len()
    };
    let (own, others) = names.split_at(own);
    let mut series = vec![level("the pool", samples, |sample| {
        sample.compressed_bytes.saturating_add(sample.raw_bytes)
    })];
    series.extend(own.iter().map(|name| {
        let one = std::slice::from_ref(name);
        tier_level(name.to_string().into(), samples, one)
    }));
    if !others.is_empty() {
        series.push(tier_level("other tiers".into(), samples, others));
    }
    Some(Chart {
        id: "tiers",
        title: "What was in which tier",
        note: "Of what is in swap: what was in the compressed pool, as large as it is to the program, and in the \
               areas of each tier.",
        along: TIME,
        scale: Scale::Bytes,
        show: show_bytes,
        series,
    })
}

/// All tiers that there were, those of the last look first.
fn tier_names(samples: &[Sample]) -> Vec<&TierName> {
    let mut names = Vec::new();
    for (name, _) in samples.iter().rev().flat_map(|sample| &sample.tiers) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// What these tiers had together. Nothing where there was none of them.
fn tier_level(name: Cow<'static, str>, samples: &[Sample], of: &[&TierName]) -> Series {
    let points = samples.iter().map(|sample| {
        let tiers = sample.tiers.iter();
        let bytes = tiers.filter(|(name, _)| of.contains(&name));
        let bytes = bytes.map(|(_, bytes)| *bytes).reduce(u64::saturating_add);
        (sample.seconds, bytes.map(|bytes| bytes as f64))
    });
    Series {
        name,
        points: points.collect(),
    }
}

fn limit(samples: &[Sample]) -> Chart {
    Chart {
        id: "limit",
        title: "What counts against the limit",
        note: "All of it together, and the limit; what vswap itself has of it, and the pool of that.",
        along: TIME,
        scale: Scale::Bytes,
        show: show_bytes,
        series: vec![
            level("all", samples, |sample| sample.total_bytes),
            level("limit", samples, |sample| sample.limit_bytes),
            level("vswap", samples, |sample| sample.own_bytes),
            level("pool", samples, |sample| sample.pool_bytes),
        ],
    }
}

fn moved(samples: &[Sample]) -> Chart {
    Chart {
        id: "moved",
        title: "Moved by the second",
        note: "What went out of the program's memory and what came back, between two looks.",
        along: TIME,
        scale: Scale::Bytes,
        show: |value| format!("{}/s", show_bytes(value)),
        series: vec![
            rate("out", samples, |rates| rates.out_bytes),
            rate("in", samples, |rates| rates.in_bytes),
        ],
    }
}

fn faults(samples: &[Sample]) -> Chart {
    Chart {
        id: "faults",
        title: "Faults by the second",
        note: "Faults that vswap served, first touches of memory included.",
        along: TIME,
        scale: Scale::Linear,
        show: |value| format!("{}/s", count(whole(value))),
        series: vec![rate("faults", samples, |rates| rates.faults)],
    }
}

fn latency(samples: &[Sample]) -> Chart {
    let since = |of: fn(Latency) -> f64| {
        let points = samples.windows(2).map(|pair| {
            let latency = pair[1].latency_since(&pair[0]);
            (pair[1].seconds, latency.map(of))
        });
        points.collect()
    };
    Chart {
        id: "latency",
        title: "How long faults took",
        note: "Faults on swapped pages between two looks. Half of them took no longer than the first line shows, and \
               all but one in a hundred no longer than the second. Both are bounds of a histogram (1, 2, 5, 10 us and \
               so on), so the times were shorter rather than longer. A fault begins when vswap reads of it: what it \
               waits in the queue before, and the waking of the thread afterwards, are not in here.",
        along: TIME,
        scale: Scale::Log,
        show: microseconds,
        series: vec![
            Series {
                name: "half".into(),
                points: since(|latency| latency.p50_us),
            },
            Series {
                name: "one in a hundred".into(),
                points: since(|latency| latency.p99_us),
            },
        ],
    }
}

fn pressure(samples: &[Sample]) -> Chart {
    Chart {
        id: "pressure",
        title: "Time lost to paging",
        note: "The part of the time in which a thread waited for a page (some), and in which one waited and none \
               worked (full).",
        along: TIME,
        scale: Scale::Within(0.0, 100.0),
        show: |value| format!("{value:.0} %"),
        series: vec![
            rate("some", samples, |rates| rates.waiting * 100.0),
            rate("full", samples, |rates| rates.stalled * 100.0),
        ],
    }
}

fn level(name: &'static str, samples: &[Sample], of: fn(&Sample) -> u64) -> Series {
    let points = samples.iter();
    let points = points.map(|sample| (sample.seconds, Some(of(sample) as f64)));
    Series {
        name: name.into(),
        points: points.collect(),
    }
}

fn rate(name: &'static str, samples: &[Sample], of: fn(Rates) -> f64) -> Series {
    let points = samples.windows(2).map(|pair| {
        let rates = pair[1].rates_since(&pair[0]);
        (pair[1].seconds, rates.map(of))
    });
    Series {
        name: name.into(),
        points: points.collect(),
    }
}

fn show_bytes(value: f64) -> String {
    bytes(whole(value))
}

/// Figures are not negative, and what is too large is cut.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "such a cast saturates"
)]
pub fn whole(value: f64) -> u64 {
    value.round() as u64
}
