//! The list of runs. Narrow terminals get fewer columns.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState};

use crate::verbs::top::model::Model;
use crate::verbs::top::run::Run;
use crate::verbs::top::view::figures::{cut, percent, short, short_or_dash, whole};
use crate::verbs::top::view::palette::Palette;

/// A column: its heading, its width, and from which width of the terminal on it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Column {
    shows: Shows,
    heading: &'static str,
    width: u16,
    from: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shows {
    Pid,
    Command,
    State,
    Limit,
    Resident,
    Compressed,
    Disk,
    Zero,
    Ratio,
    Out,
    In,
    Lost,
    Strip,
}

const fn column(shows: Shows, heading: &'static str, width: u16, from: u16) -> Column {
    Column {
        shows,
        heading,
        width,
        from,
    }
}

/// The command takes what the others leave.
const COLUMNS: [Column; 13] = [
    column(Shows::Pid, "PID", 7, 0),
    column(Shows::Command, "COMMAND", 0, 0),
    column(Shows::State, "STATE", 9, 0),
    column(Shows::Limit, "LIMIT", 5, 100),
    column(Shows::Resident, "RES", 5, 0),
    column(Shows::Compressed, "COMP", 5, 70),
    column(Shows::Disk, "DISK", 5, 70),
    column(Shows::Zero, "ZERO", 5, 100),
    column(Shows::Ratio, "RATIO", 5, 100),
    column(Shows::Out, "OUT/s", 5, 60),
    column(Shows::In, "IN/s", 5, 60),
    column(Shows::Lost, "LOST", 4, 0),
    column(Shows::Strip, "OUT+IN", 10, 80),
];

/// Draws the list.
pub fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, palette: Palette) {
    let lines = model.runs.lines(model.all());
    if lines.is_empty() {
        return frame.render_widget(Paragraph::new(nothing(model)), area);
    }
    let columns = shown(area.width);
    let command = command_width(area.width, &columns);
    let rows = lines.iter().map(|run| {
        Row::new(
            columns
                .iter()
                .map(|column| cell(column.shows, run, model, command, palette)),
        )
    });
    let widths = columns.iter().map(|column| match column.shows {
        Shows::Command => Constraint::Length(command),
        _ => Constraint::Length(column.width),
    });
    let headings = columns
        .iter()
        .map(|column| Cell::new(aligned(column.shows, column.heading.into())));
    let table = Table::new(rows, widths)
        .header(Row::new(headings).style(palette.heading()))
        .row_highlight_style(palette.chosen())
        .column_spacing(1);
    let mut state = TableState::new().with_selected(model.runs.position(model.all()));
    frame.render_stateful_widget(table, area, &mut state);
}

/// Why there is no line.
fn nothing(model: &Model) -> String {
    if model.look.is_none() {
        "looking ...".to_owned()
    } else if model.all().is_empty() {
        "no runs: start one with `vswap run`".to_owned()
    } else {
        format!("no run has \"{}\" in it", model.filter())
    }
}

fn shown(width: u16) -> Vec<Column> {
    let columns = COLUMNS.into_iter();
    columns.filter(|column| width >= column.from).collect()
}

fn command_width(width: u16, columns: &[Column]) -> u16 {
    let others = columns.iter().map(|column| column.width + 1).sum::<u16>();
    (width + 1).saturating_sub(others).max(1)
}

fn aligned(shows: Shows, line: Line<'static>) -> Line<'static> {
    match shows {
        Shows::Command | Shows::State | Shows::Strip => line,
        _ => line.alignment(Alignment::Right),
    }
}

fn cell(shows: Shows, run: &Run, model: &Model, command: u16, palette: Palette) -> Cell<'static> {
    let rate = |of: fn(&Run) -> Option<f64>| short_or_dash(of(run).map(whole));
    let style = match shows {
        Shows::State => palette.state(&run.state),
        _ => Style::new(),
    };
    let text = match shows {
        Shows::Pid => run.pid.to_string(),
        Shows::Command => cut(&run.command, command.into()),
        Shows::State => run.state.clone(),
        Shows::Out => rate(|run| run.rates.map(|rates| rates.out_bytes)),
        Shows::In => rate(|run| run.rates.map(|rates| rates.in_bytes)),
        Shows::Lost => {
            let stalled = run.rates.map(|rates| rates.stalled);
            stalled.map_or_else(|| "-".to_owned(), percent)
        }
        Shows::Strip => {
            let moved = |of: crate::verbs::top::history::Moved| of.out_bytes + of.in_bytes;
            model.history.strip(run.pid, 10, moved)
        }
        _ => amount(shows, run),
    };
    Cell::new(aligned(shows, Line::from(Span::styled(text, style))))
}

/// How much of something there is. A run that does not answer has no figures.
fn amount(shows: Shows, run: &Run) -> String {
    if run.error.is_some() {
        return "-".to_owned();
    }
    match shows {
        Shows::Limit if run.is_daemon => "-".to_owned(),
        Shows::Limit => short(run.limit_bytes),
        Shows::Resident if run.is_daemon => short(run.used_bytes),
        Shows::Resident => short(run.resident_bytes),
        Shows::Compressed => short(run.compressed_bytes),
        Shows::Disk => short(run.disk_bytes),
        Shows::Zero => short_or_dash(run.zero_bytes),
        Shows::Ratio => run
            .ratio()
            .map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.1}x")),
        _ => String::new(),
    }
}
