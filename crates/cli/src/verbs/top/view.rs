//! Draws a model. Nothing here changes anything.

mod details;
mod figures;
mod palette;
mod popups;
mod processes;
mod runs;
#[cfg(test)]
mod tests;
mod tiers;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

pub use palette::Palette;

use crate::verbs::top::model::{Model, Page};

/// The smallest terminal that it can be shown on.
const COLUMNS_LEAST: u16 = 40;
const ROWS_LEAST: u16 = 10;
/// From this many rows on there are details below the list.
const ROWS_FOR_DETAILS: u16 = 20;

/// Rows that the list keeps when there are many tiers, its heading included.
const LIST_ROWS_LEAST: u16 = 6;

/// Narrower ones name fewer keys.
const COLUMNS_FOR_KEYS: u16 = 76;

/// Draws all of it.
pub fn draw(frame: &mut Frame<'_>, model: &Model, palette: Palette) {
    let area = frame.area();
    if area.width < COLUMNS_LEAST || area.height < ROWS_LEAST {
        return too_small(frame, area);
    }
    let details = if area.height >= ROWS_FOR_DETAILS {
        let room = area.height - 2 - LIST_ROWS_LEAST;
        details::rows(model.run(), room)
    } else {
        0
    };
    let parts = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(details),
        Constraint::Length(1),
    ]);
    let [head, list, below, foot] = parts.areas(area);
    frame.render_widget(Paragraph::new(heading(model)).style(palette.bar()), head);
    match model.page {
        Page::Runs => runs::draw(frame, list, model, palette),
        Page::Processes(_) => processes::draw(frame, list, model, palette),
    }
    if details > 0 {
        details::draw(frame, below, model, palette);
    }
    frame.render_widget(
        Paragraph::new(footer(model, area.width)).style(palette.bar()),
        foot,
    );
    popups::draw(frame, area, model, palette);
}

fn too_small(frame: &mut Frame<'_>, area: Rect) {
    let words = format!(
        "too small: {}x{}, needs {COLUMNS_LEAST}x{ROWS_LEAST}",
        area.width, area.height
    );
    frame.render_widget(Paragraph::new(words), area);
}

/// What is shown, of when, and how.
fn heading(model: &Model) -> Line<'static> {
    let mut words = match model.page {
        Page::Runs => format!("vswap top  {} runs", model.all().len()),
        Page::Processes(pid) => {
            let command = model.run().map_or("", |run| &run.command);
            let command: String = command.chars().take(24).collect();
            format!("vswap top  run {pid} {command}")
        }
    };
    let sorted = match model.page {
        Page::Runs => (model.runs.column.name(), model.runs.is_reversed),
        Page::Processes(_) => (model.processes.column.name(), model.processes.is_reversed),
    };
    words += &format!(
        "  by {}{}",
        sorted.0,
        if sorted.1 { " reversed" } else { "" }
    );
    if !model.filter().is_empty() {
        words += &format!("  /{}", model.filter());
    }
    if model.is_frozen {
        words += "  FROZEN";
    }
    if let Some(look) = &model.look {
        words += &format!("  {}", look.time);
    }
    Line::from(words)
}

/// The keys, or what has come of the last one.
fn footer(model: &Model, width: u16) -> Line<'static> {
    let keys = match (&model.message, model.page) {
        (Some(message), _) => message.clone(),
        (None, _) if width < COLUMNS_FOR_KEYS => "h help  q quit  Enter  l limit  k end".to_owned(),
        (None, Page::Runs) => {
            "h help  q quit  Enter processes  / filter  s sort  f freeze  l limit  k end".to_owned()
        }
        (None, Page::Processes(_)) => {
            "h help  q quit  Esc back  / filter  s sort  f freeze  l limit  k end".to_owned()
        }
    };
    Line::from(keys)
}
