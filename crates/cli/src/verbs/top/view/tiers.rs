//! The table of tiers of the run that is chosen. A single tier is what the line of areas tells of already.

use ratatui::text::Line;

use crate::output::figures::{PAGE_BYTES, count, microseconds};
use crate::verbs::top::run::Tier;
use crate::verbs::top::view::figures::{cut, short, whole};

/// Columns of a name at least: those of the words above.
const NAME_COLUMNS_LEAST: usize = 8;
/// Narrower tables leave the size out.
const COLUMNS_FOR_SIZE: usize = 48;

/// How many rows it takes of those that there are: a heading, and one for each tier. None if not even one tier fits.
pub fn rows(tiers: &[Tier], room: u16) -> u16 {
    let wanted = u16::try_from(tiers.len() + 1).unwrap_or(u16::MAX);
    match tiers.len() {
        0 | 1 => 0,
        _ if room < 2 => 0,
        _ => wanted.min(room),
    }
}

/// The table in so many rows. Where there are too few, its heading says how many tiers there are.
pub fn lines(tiers: &[Tier], room: u16, width: usize) -> Vec<Line<'static>> {
    let Some(count) = usize::from(rows(tiers, room)).checked_sub(1) else {
        return Vec::new();
    };
    let label = match count == tiers.len() {
        true => "tiers".to_owned(),
        false => format!("{count} of {}", tiers.len()),
    };
    let headings = ["SIZE", "USED", "DOWN/s", "UP/s", "LATENCY"].map(str::to_owned);
    let rows = tiers.iter().take(count);
    let rows = rows.map(|tier| (tier.name.clone(), figures(tier)));
    let rows: Vec<(String, [String; 5])> = std::iter::once((label, headings)).chain(rows).collect();
    let has_size = width >= COLUMNS_FOR_SIZE;
    let longest = rows.iter().map(|(name, _)| name.chars().count()).max();
    let columns = longest.unwrap_or_default().max(NAME_COLUMNS_LEAST);
    let figures = if has_size { 34 } else { 28 };
    let columns = columns.min(width.saturating_sub(figures));
    let lines = rows.into_iter().map(|(name, cells)| {
        let [size, used, down, up, latency] = cells;
        let size = if has_size {
            format!(" {size:>5}")
        } else {
            String::new()
        };
        let name = cut(&name, columns);
        let text = format!("{name:<columns$}{size} {used:>5} {down:>6} {up:>6} {latency:>7}");
        Line::from(cut(&text, width))
    });
    lines.collect()
}

/// Pages that went down to it and came up from it are by the second.
fn figures(tier: &Tier) -> [String; 5] {
    let none = || "-".to_owned();
    let pages = |bytes: Option<f64>| {
        bytes.map_or_else(none, |bytes| count(whole(bytes / PAGE_BYTES as f64)))
    };
    [
        short(tier.size_bytes),
        short(tier.used_bytes),
        pages(tier.rates.map(|rates| rates.written_bytes)),
        pages(tier.rates.map(|rates| rates.read_bytes)),
        tier.latency_us.map_or_else(none, microseconds),
    ]
}
