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

use crate::output::summary::{Circumstances, summary_lines};
use crate::output::tables::printable;
use crate::record::Record;

/// Nothing from elsewhere is loaded and nothing is run, even if there were a hole in the escaping.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// What a page is about: the command of vswap, and the program.
#[derive(Debug, Clone)]
pub struct Heading {
    verb: &'static str,
    program: String,
}

impl Heading {
    /// The program is named by its command.
    pub fn new(verb: &'static str, command: &[String]) -> Heading {
        Heading {
            verb,
            program: printable(&command.join(" ")),
        }
    }

    /// The program is that of a run which is under way, by the process of this id.
    pub fn of_run(verb: &'static str, command: &[String], pid: u32) -> Heading {
        let mut heading = Heading::new(verb, command);
        heading.program += &format!(" (run {pid})");
        heading
    }

    fn title(&self) -> String {
        format!("vswap {}: {}", self.verb, self.program)
    }

    fn markup(&self) -> Markup {
        html! { h1 { "vswap " (self.verb) ": " code { bdi { (self.program) } } } }
    }
}

/// What the page is made of.
#[derive(Debug)]
pub struct Page<'a> {
    /// What it is about.
    pub heading: &'a Heading,
    /// When it was started, in universal time.
    pub began: &'a str,
    /// How it ended, in words.
    pub ending: &'a str,
    /// What the last line has to know.
    pub of: Circumstances,
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
        let body = html! {
            (self.heading.markup())
            p { "Began " (self.began) "; " (self.ending) "." }
            @match self.status {
                Some(status) => p id="summary" { (summary_lines(status, self.of).join("; ")) "." },
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
        document(&self.heading.title(), &body)
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
            (tables::tiers(self.report))
            (tables::groups(self.report))
        }
    }
}

/// What stands in the file as long as there is no page.
pub fn placeholder(heading: &Heading, words: &str) -> String {
    let body = html! {
        (heading.markup())
        p.bad id="no-report" { (words) }
    };
    document(&heading.title(), &body)
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
