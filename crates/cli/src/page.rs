//! The page that `--report` writes: one HTML file with plots of a run over time, its figures, and what happened. That
//! of `vswap advise` has its curve (`advice`).
//!
//! It needs no network, no script and no other file. All text goes through the templates of `maud`, which escape it:
//! names of programs, areas and groups can be anything, `<script>` included. Plots are SVG with constant words and
//! numbers alone. For whom colours or plots say nothing, lines have dashes of their own, and the words and the table
//! below each plot tell the same.

pub mod advice;
mod chart;
mod charts;
pub mod file;
mod map;
mod style;
mod tables;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::Value;
use vswap_pager::Status;

use crate::output::summary::summary_line;
use crate::output::tables::printable;
use crate::record::Record;

/// Nothing from elsewhere is loaded and nothing is run, even if there were a hole in the escaping.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// What the page is made of.
#[derive(Debug)]
pub struct Page<'a> {
    /// The program and its arguments.
    pub command: &'a [String],
    /// When it was started, in universal time.
    pub began: &'a str,
    /// How it ended, in words.
    pub ending: &'a str,
    /// The run was ended because everything was full.
    pub was_full: bool,
    /// The last figures. None if nobody has them any more.
    pub status: Option<&'a Status>,
    /// The same and more as `--summary` has them.
    pub report: &'a Value,
    /// What was seen meanwhile. None if there was no thread to look.
    pub record: Option<&'a Record>,
}

impl Page<'_> {
    /// The page as HTML.
    pub fn html(&self) -> String {
        let command = printable(&self.command.join(" "));
        let body = html! {
            h1 { "vswap run: " code { bdi { (command) } } }
            p { "Began " (self.began) "; " (self.ending) "." }
            @match self.status {
                Some(status) => p id="summary" { (summary_line(status, self.was_full)) "." },
                None => p.bad id="summary" {
                    "The last figures are missing: the daemon has ended before the run, and the run's programs with it."
                },
            }
            (self.over_time())
            h2 { "All figures at the end" }
            (tables::all_figures(self.report))
            footer { "Made by vswap " (env!("CARGO_PKG_VERSION")) ". Times are seconds since the start of the program. "
                "Sizes of what is in swap are as large as it is to the program." }
        };
        document(&format!("vswap run: {command}"), &body)
    }

    fn over_time(&self) -> Markup {
        let Some(record) = self.record else {
            return html! { p.bad { "There are no plots: there was no thread for looks at the run." } };
        };
        let samples = record.samples.items();
        html! {
            @if samples.len() < 2 {
                p id="no-plots" { "There are no plots: the run ended before it could be looked at twice." }
            } @else {
                p { "Looked at every " (record.samples.pace().as_secs_f64()) " s; " (samples.len())
                    " looks are kept. Lines with a number are events, see the " a href="#events" { "list" } "." }
                (charts::all(samples, record.events.list()))
            }
            h2 id="events" { "Events" }
            (tables::events(&record.events))
            (map::maps(&record.maps))
            h2 { "Processes" }
            (tables::processes(&record.processes))
            (tables::unmanaged(self.report))
            (tables::areas(self.report))
            (tables::groups(self.report))
        }
    }
}

/// What stands in the file as long as there is no page.
pub fn placeholder(command: &[String], words: &str) -> String {
    let command = printable(&command.join(" "));
    let body = html! {
        h1 { "vswap run: " code { bdi { (command) } } }
        p.bad id="no-report" { (words) }
    };
    document(&format!("vswap run: {command}"), &body)
}

fn document(title: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(style::sheet())) }
            }
            body { main { (body) } }
        }
    };
    page.into_string()
}

#[cfg(test)]
mod tests;
