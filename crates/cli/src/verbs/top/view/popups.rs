//! Help, texts that are typed, and questions.

use ratatui::Frame;
use ratatui::layout::{Alignment, Rect};
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};

use crate::output::figures::bytes;
use crate::verbs::top::model::{Limit, Model, Popup};
use crate::verbs::top::view::palette::Palette;

const HELP: &str = "\
arrows, PgUp, PgDn  choose a line
Enter, Esc          processes of a run, and back
s r                 sort by the next column, reverse
/                   only lines with this text
f                   freeze, and go on
l                   another limit for the run
k K                 end or kill a run or process
p w                 park the run, and let it go on
q                   quit

COMP DISK ZERO: in swap, as large as it is to
the program. LOST: time in which a thread waited
for a page and none worked. DOWN/s UP/s: pages
of a tier.";

/// Draws what lies over the page, if anything.
pub fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, palette: Palette) {
    match &model.popup {
        None => {}
        Some(Popup::Help) => over(frame, area, "Help: any key goes back", help(area), palette),
        Some(Popup::Filter(_)) => at_foot(
            frame,
            area,
            format!("filter: {}_  (Enter, Esc)", model.filter()),
            palette,
        ),
        Some(Popup::Limit(limit)) => {
            over(frame, area, "Another limit", asked(limit, palette), palette);
        }
        Some(Popup::Sure(question, _)) => {
            let lines = vec![Line::from(question.clone()), Line::from("y yes   n no")];
            over(frame, area, "Are you sure?", lines, palette);
        }
    }
}

/// Where there is little room, only the keys.
fn help(area: Rect) -> Vec<Line<'static>> {
    let room = usize::from(area.height.saturating_sub(2));
    HELP.lines().take(room).map(Line::from).collect()
}

fn asked(limit: &Limit, palette: Palette) -> Vec<Line<'static>> {
    let mut lines = vec![
        Line::from(format!(
            "Run {} ({}) may use {} now.",
            limit.run,
            limit.command,
            bytes(limit.now_bytes)
        )),
        Line::from(format!("--ram {}_", limit.text)),
    ];
    lines.push(match &limit.wrong {
        Some(wrong) => Line::from(wrong.clone()).style(palette.wrong()),
        None => Line::from("for example: 512M, 512M..2G; Enter, Esc"),
    });
    lines
}

/// In the middle.
fn over(
    frame: &mut Frame<'_>,
    area: Rect,
    title: &str,
    lines: Vec<Line<'static>>,
    palette: Palette,
) {
    let width = area.width.min(56);
    let inner = usize::from(width.saturating_sub(2)).max(1);
    let rows = lines.iter().map(|line| line.width().div_ceil(inner).max(1));
    // Words are not cut where a line ends, which may take a row more.
    let wrapped = lines.iter().filter(|line| line.width() > inner).count();
    let rows = u16::try_from(rows.sum::<usize>() + wrapped).unwrap_or(u16::MAX);
    let height = area.height.min(rows.saturating_add(2));
    let place = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    let block = Block::bordered()
        .title(title.to_owned())
        .title_style(palette.heading());
    frame.render_widget(Clear, place);
    let text = Paragraph::new(lines)
        .wrap(Wrap { trim: false })
        .alignment(Alignment::Left);
    frame.render_widget(text.block(block), place);
}

fn at_foot(frame: &mut Frame<'_>, area: Rect, text: String, palette: Palette) {
    let place = Rect {
        y: area.bottom().saturating_sub(1),
        height: 1,
        ..area
    };
    frame.render_widget(Clear, place);
    frame.render_widget(Paragraph::new(text).style(palette.heading()), place);
}
