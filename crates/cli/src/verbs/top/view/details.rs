//! Everything known of the run that is chosen.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph};

use crate::output::figures::{bytes, count, microseconds};
use crate::verbs::top::history::{History, Moved};
use crate::verbs::top::model::Model;
use crate::verbs::top::run::Run;
use crate::verbs::top::view::figures::{cut, percent, short, whole};
use crate::verbs::top::view::palette::Palette;
use crate::verbs::top::view::tiers;

/// Rows that it takes without tiers, its frame included.
const ROWS: u16 = 9;
/// Columns of the word at the beginning of a line, and of the figure behind a strip.
const LABEL_COLUMNS: usize = 8;
const HIGHEST_COLUMNS: usize = 14;

/// Rows that it takes of as many as there are, its frame included.
pub fn rows(run: Option<&Run>, room: u16) -> u16 {
    let tiers = run.map_or(&[][..], |run| &run.tiers);
    ROWS + tiers::rows(tiers, room.saturating_sub(ROWS))
}

/// Draws it.
pub fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, palette: Palette) {
    let block = Block::bordered();
    let Some(run) = model.run() else {
        return frame.render_widget(block, area);
    };
    let inner = block.inner(area);
    let width = usize::from(inner.width);
    let title = Line::from(vec![
        Span::raw(format!(" {} {} ", run.pid, cut(&run.command, width / 2))),
        Span::styled(format!("{} ", run.state), palette.state(&run.state)),
    ]);
    let lines = lines(run, &model.history, (width, inner.height), palette);
    frame.render_widget(Paragraph::new(lines).block(block.title(title)), area);
}

fn lines(
    run: &Run,
    history: &History,
    (width, height): (usize, u16),
    palette: Palette,
) -> Vec<Line<'static>> {
    if let Some(error) = &run.error {
        return vec![line("", &format!("it does not answer: {error}"), width)];
    }
    let mut lines = vec![
        line("memory", &memory(run), width),
        line("in swap", &swap(run), width),
        line("a second", &pace(run), width),
        line("areas", &listed(&run.areas), width),
    ];
    let room = (height + 2).saturating_sub(ROWS);
    lines.extend(tiers::lines(&run.tiers, room, width));
    lines.extend([
        line("groups", &listed(&run.groups), width),
        strip("out", run.pid, history, width, |moved| moved.out_bytes).style(palette.moved_out()),
        strip("in", run.pid, history, width, |moved| moved.in_bytes).style(palette.moved_in()),
    ]);
    lines
}

fn line(label: &str, text: &str, width: usize) -> Line<'static> {
    Line::from(cut(&format!("{label:<LABEL_COLUMNS$} {text}"), width))
}

fn memory(run: &Run) -> String {
    if run.is_daemon {
        return format!(
            "{} of this process, {} of it the pool",
            bytes(run.used_bytes),
            bytes(run.pool_bytes)
        );
    }
    let goal = if run.wanted_bytes > 0 && run.wanted_bytes < run.limit_bytes {
        format!(" (to {})", short(run.wanted_bytes))
    } else {
        String::new()
    };
    format!(
        "{} of {}{goal}: resident {}, pool {}, vswap {}",
        bytes(run.used_bytes),
        bytes(run.limit_bytes),
        short(run.resident_bytes),
        short(run.pool_bytes),
        short(run.own_bytes.saturating_sub(run.pool_bytes))
    )
}

fn swap(run: &Run) -> String {
    let ratio = run
        .ratio()
        .map_or_else(String::new, |ratio| format!(" ({ratio:.1}x)"));
    let zero = run
        .zero_bytes
        .map_or_else(String::new, |zero| format!(", zeros {}", short(zero)));
    format!(
        "{}: compressed {}{ratio}, disk {}{zero}",
        bytes(run.swapped_bytes),
        short(run.compressed_bytes),
        short(run.disk_bytes)
    )
}

fn pace(run: &Run) -> String {
    let Some(rates) = run.rates else {
        return "-".to_owned();
    };
    let [p50, p99] = run.fault_us;
    let latency = if p99 > 0.0 {
        format!(", p50 {}, p99 {}", microseconds(p50), microseconds(p99))
    } else {
        String::new()
    };
    format!(
        "faults {}{latency}; lost {}, waited {}",
        count(whole(rates.faults)),
        percent(rates.stalled),
        percent(rates.waiting)
    )
}

/// The first of them stand for all where there is no room.
fn listed(all: &[String]) -> String {
    if all.is_empty() {
        return "-".to_owned();
    }
    let more = match all.len() {
        1 => String::new(),
        count => format!("{count}: "),
    };
    more + &all.join("; ")
}

fn strip(
    label: &str,
    pid: u32,
    history: &History,
    width: usize,
    value: fn(Moved) -> f64,
) -> Line<'static> {
    let columns = width.saturating_sub(LABEL_COLUMNS + 1 + HIGHEST_COLUMNS);
    let bars = history.strip(pid, columns, value);
    let highest = bytes(whole(history.highest(pid, value)));
    line(label, &format!("{bars:<columns$} {highest}/s"), width)
}
