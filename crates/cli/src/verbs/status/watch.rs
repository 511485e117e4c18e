//! `vswap status --watch`: the same again and again, with rates.
//!
//! On a terminal each look takes the place of the one before. Elsewhere each is a block with the time above it, or with
//! `--json` one line. It ends with the last run, with its reader, and at a signal.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use rustix::termios::tcgetwinsize;
use serde_json::{Value, json};
use vswap_sys::process::signals::{self, Blocked};

use crate::args::StatusArgs;
use crate::failure::Failure;
use crate::output::SCHEMA;
use crate::output::tables::{groups_table, pressure_table};
use crate::output::time;
use crate::verbs::status::far_tables::far_tables;
use crate::verbs::status::must_be_there;
use crate::verbs::status::rates_tables::{areas_table, runs_table, tiers_table};
use crate::verbs::status::with_tier_rates;
use crate::watching::rates::LastLook;
use crate::watching::reports::reports;

/// How often it is looked whether the reader has gone.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How looks are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    /// In place of the one before.
    Redrawn,
    /// One after the other.
    Blocks,
    /// As objects of JSON, each in a line.
    Json,
}

impl Style {
    fn of(args: &StatusArgs) -> Style {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        if args.json {
            Style::Json
        } else if io::stdout().is_terminal() && !is_dumb {
            Style::Redrawn
        } else {
            Style::Blocks
        }
    }
}

/// Shows the living runs every so often, until there are none.
pub fn watch(args: &StatusArgs, every: Duration) -> Result<ExitCode, Failure> {
    let signals =
        signals::block().map_err(|error| Failure::own(format!("cannot block signals: {error}")))?;
    let style = Style::of(args);
    let (mut last, mut last_of_tiers) = (LastLook::default(), LastLook::default());
    let mut number = 0_u64;
    loop {
        let next = Instant::now() + every;
        let mut reports = reports(args.run);
        if args.tiers && args.json {
            with_tier_rates(&mut last_of_tiers, &mut reports);
        }
        if number == 0 {
            must_be_there(args, &reports)?;
        }
        if reports.is_empty() {
            // Whoever asks for what is not there is told so; whoever has watched to the end has seen it.
            let words = if number > 0 || args.json {
                ""
            } else {
                "no runs\n"
            };
            return ended(write(words));
        }
        let text = match style {
            Style::Json => line(&mut last, &reports),
            Style::Blocks => format!("{}\n{}\n", time::now(), table(args, &mut last, &reports)),
            Style::Redrawn => screen(&table(args, &mut last, &reports), every, number == 0),
        };
        let written = write(&text);
        if written.is_err() || !pause(&signals, next) {
            return ended(written);
        }
        number += 1;
    }
}

/// All of it at once.
fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

fn ended(written: io::Result<()>) -> Result<ExitCode, Failure> {
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::own(format!(
            "cannot write to standard output: {error}"
        ))),
        // The reader has had enough.
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Waits. False if it is to end instead.
fn pause(signals: &Blocked, until: Instant) -> bool {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        let taken = signals.take(left.min(LOOK_EVERY));
        match taken.map(|taken| taken.signal) {
            Some(signal) if is_end(signal) => return false,
            // It was blocked, so it has to be obeyed here.
            Some(signal) if signal == Signal::TSTP.as_raw() => stop(),
            _ => {}
        }
        if has_no_reader() {
            return false;
        }
    }
}

/// Stops until somebody continues it.
fn stop() {
    let _ = signals::send(std::process::id(), Signal::STOP.as_raw());
}

fn is_end(signal: i32) -> bool {
    [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT]
        .iter()
        .any(|end| end.as_raw() == signal)
}

/// Has the reader of a pipe closed it?
fn has_no_reader() -> bool {
    let out = io::stdout();
    let mut looked = [PollFd::from_borrowed_fd(out.as_fd(), PollFlags::empty())];
    let done = poll(&mut looked, Some(&Timespec::default()));
    let [out] = looked;
    done.is_ok() && out.revents().contains(PollFlags::ERR)
}

fn table(args: &StatusArgs, last: &mut LastLook, reports: &[Value]) -> String {
    if args.areas {
        areas_table(reports, &last.areas(reports))
    } else if args.tiers {
        tiers_table(reports, &last.tiers(reports))
    } else if args.pressure {
        pressure_table(reports)
    } else if args.far {
        far_tables(reports)
    } else if args.groups {
        groups_table(reports)
    } else {
        runs_table(reports, &last.runs(reports))
    }
}

/// One object: the time, and the runs, each with its rates.
fn line(last: &mut LastLook, reports: &[Value]) -> String {
    let rates = last.runs(reports);
    let runs = reports.iter().zip(rates).map(|(report, rates)| {
        let mut report = report.clone();
        report["rates"] = json!(rates);
        report
    });
    let runs: Vec<Value> = runs.collect();
    format!(
        "{}\n",
        json!({"schema": SCHEMA, "time": time::now(), "runs": runs})
    )
}

/// The table in place of what is shown, cut to what the terminal has room for.
fn screen(table: &str, every: Duration, is_first: bool) -> String {
    const HOME: &str = "\x1b[H";
    const CLEAR: &str = "\x1b[H\x1b[2J";
    const REST_OF_LINE: &str = "\x1b[K";
    const REST_OF_SCREEN: &str = "\x1b[J";
    let (rows, columns) = size();
    let heading = format!(
        "vswap status, every {} s; Ctrl-C ends it  {}",
        every.as_secs_f64(),
        time::now()
    );
    let lines: Vec<&str> = [heading.as_str(), ""]
        .into_iter()
        .chain(table.lines())
        .collect();
    let mut text = String::from(if is_first { CLEAR } else { HOME });
    for line in lines.iter().take(rows.saturating_sub(1)) {
        text.extend(line.chars().take(columns));
        text += REST_OF_LINE;
        text.push('\n');
    }
    text + REST_OF_SCREEN
}

/// Rows and columns of the terminal. Where nobody says, as many as there are lines.
fn size() -> (usize, usize) {
    let size = File::open("/dev/tty")
        .ok()
        .and_then(|terminal| tcgetwinsize(terminal).ok())
        .or_else(|| tcgetwinsize(io::stdout()).ok());
    match size {
        Some(size) if size.ws_row > 0 && size.ws_col > 0 => {
            (size.ws_row.into(), size.ws_col.into())
        }
        _ => (usize::MAX, usize::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(seconds: f64, pages: u64) -> Value {
        json!({"pid": 7, "program_pid": 8, "wall_seconds": seconds, "pages_out": pages, "pages_in": 0, "faults": 0})
    }

    #[test]
    fn a_line_is_one_object_with_rates() {
        let mut last = LastLook::default();
        let first = line(&mut last, &[report(1.0, 0)]);
        let second = line(&mut last, &[report(2.0, 10)]);
        assert!(first.ends_with("}\n") && first.lines().count() == 1);
        let second: Value = serde_json::from_str(&second).expect("JSON");
        assert_eq!(second["runs"][0]["rates"]["out_bytes"], 40_960.0);
        assert_eq!(second["runs"][0]["pages_out"], 10);
        assert!(first.contains("\"rates\":null"), "{first}");
    }

    #[test]
    fn a_screen_is_cut_and_cleared() {
        let text = screen("heading\nrow\n", Duration::from_millis(1500), true);
        assert!(text.starts_with("\x1b[H\x1b[2J"), "{text:?}");
        assert!(
            text.contains("every 1.5 s") && text.ends_with("\x1b[J"),
            "{text:?}"
        );
    }
}
