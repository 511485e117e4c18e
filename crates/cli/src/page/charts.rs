//! Which plots there are.

use maud::{Markup, html};

use crate::output::figures::{bytes, count, microseconds};
use crate::page::chart::{Chart, Scale, Series, TIME};
use crate::record::events::Event;
use crate::record::sample::{Latency, Sample};
use crate::watching::rates::Rates;

/// All plots of these samples.
pub fn all(samples: &[Sample], events: &[Event]) -> Markup {
    let charts = [
        places(samples),
        limit(samples),
        moved(samples),
        faults(samples),
        latency(samples),
        pressure(samples),
    ];
    html! { @for chart in charts { (chart.markup(events)) } }
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
               so on), so the times were shorter rather than longer.",
        along: TIME,
        scale: Scale::Log,
        show: microseconds,
        series: vec![
            Series {
                name: "half",
                points: since(|latency| latency.p50_us),
            },
            Series {
                name: "one in a hundred",
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
        name,
        points: points.collect(),
    }
}

fn rate(name: &'static str, samples: &[Sample], of: fn(Rates) -> f64) -> Series {
    let points = samples.windows(2).map(|pair| {
        let rates = pair[1].rates_since(&pair[0]);
        (pair[1].seconds, rates.map(of))
    });
    Series {
        name,
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
fn whole(value: f64) -> u64 {
    value.round() as u64
}
