//! The table: misses of a thousand touches.

use std::path::Path;

use crate::policies::{Clock, Lru, Min, Policy, Sweep};
use crate::replay::misses;
use crate::trace::Trace;

/// Two lines above the rows, as Markdown.
pub const HEAD: &str = "\
| trace | pages | touches | room | MIN | LRU | CLOCK | sweep | vswap | vswap / MIN | vswap / CLOCK |
|---|---|---|---|---|---|---|---|---|---|---|";

/// The row of a trace with so much room.
pub fn row(path: &Path, trace: &Trace, percent: u8) -> String {
    let room = (trace.pages * usize::from(percent) / 100).max(1);
    let policies: [Box<dyn Policy>; 5] = [
        Box::new(Min::new(trace)),
        Box::new(Lru::new(trace.pages)),
        Box::new(Clock::new(trace.pages)),
        Box::new(Sweep::without_heat(trace.pages, room)),
        Box::new(Sweep::with_heat(trace.pages, room)),
    ];
    let found = policies.map(|mut policy| misses(trace, room, policy.as_mut()));
    let of_thousand = found.map(|misses| {
        let touches = trace.touches.len();
        format!("{:.1}", misses as f64 * 1000.0 / touches as f64)
    });
    let [min, _, clock, _, ours] = found;
    format!(
        "| {} | {} | {} | {percent} % | {} | {} | {} |",
        path.file_stem().unwrap_or_default().display(),
        trace.pages,
        trace.touches.len(),
        of_thousand.join(" | "),
        ratio(ours, min),
        ratio(ours, clock),
    )
}

fn ratio(ours: usize, theirs: usize) -> String {
    if theirs == 0 {
        "-".to_owned()
    } else {
        format!("{:.2}", ours as f64 / theirs as f64)
    }
}
