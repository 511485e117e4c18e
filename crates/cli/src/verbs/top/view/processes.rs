//! The list of a run's processes.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Rect};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState};

use crate::output::figures::count;
use crate::verbs::top::model::Model;
use crate::verbs::top::run::Process;
use crate::verbs::top::view::figures::{short_or_dash, whole};
use crate::verbs::top::view::palette::Palette;

const HEADINGS: [&str; 6] = ["PID", "NAME", "STATE", "RES", "SWAP", "FLT/s"];
const WIDTHS: [Constraint; 6] = [
    Constraint::Length(7),
    Constraint::Min(8),
    Constraint::Length(9),
    Constraint::Length(5),
    Constraint::Length(5),
    Constraint::Length(5),
];
/// Columns with text are left-aligned. The others hold figures.
const TEXT_COLUMNS: [usize; 2] = [1, 2];

/// Draws the list.
pub fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, palette: Palette) {
    let all = model.all_processes();
    let lines = model.processes.lines(all);
    if lines.is_empty() {
        let words = if all.is_empty() {
            "this run tells of no processes".to_owned()
        } else {
            format!("no process has \"{}\" in it", model.filter())
        };
        return frame.render_widget(Paragraph::new(words), area);
    }
    let rows = lines.iter().map(|process| row(process));
    let table = Table::new(rows, WIDTHS)
        .header(aligned(HEADINGS.map(str::to_owned)).style(palette.heading()))
        .row_highlight_style(palette.chosen())
        .column_spacing(1);
    let mut state = TableState::new().with_selected(model.processes.position(all));
    frame.render_stateful_widget(table, area, &mut state);
}

fn row(process: &Process) -> Row<'static> {
    let rate = process.fault_rate.map(whole);
    aligned([
        process.pid.to_string(),
        process.name.clone(),
        process.state().to_owned(),
        short_or_dash(process.resident_bytes),
        short_or_dash(process.swapped_bytes),
        rate.map_or_else(|| "-".to_owned(), count),
    ])
}

fn aligned(cells: [String; 6]) -> Row<'static> {
    Row::new(cells.into_iter().enumerate().map(|(column, text)| {
        let line = Line::from(text);
        Cell::new(if TEXT_COLUMNS.contains(&column) {
            line
        } else {
            line.alignment(Alignment::Right)
        })
    }))
}
