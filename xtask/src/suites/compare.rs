//! Compares a suite's native results with its results under vswap.

use std::fmt::Write;

use super::Suite;
use super::cases::{Cases, Outcome};
use super::side::Said;

/// How many differences are listed at most. A suite that broke as a whole would list all of its cases.
const SHOWN_MAX: usize = 60;

/// One line of the table, and the differences behind it.
#[derive(Debug)]
pub struct Row {
    name: String,
    part: String,
    with: String,
    result: Result<Counts, String>,
    differences: Vec<String>,
}

#[derive(Debug)]
struct Counts {
    cases: usize,
    native: usize,
    vswap: usize,
    pages_out: u64,
}

impl Row {
    /// A suite that did not run, and why.
    pub fn not_run(suite: &Suite, with: &str, reason: &str) -> Self {
        Self {
            name: suite.name.to_string(),
            part: suite.part.to_string(),
            with: with.to_string(),
            result: Err(reason.to_string()),
            differences: Vec::new(),
        }
    }

    /// A suite of which both sides ran.
    pub fn new(suite: &Suite, with: &str, native: &Said, vswap: &Said) -> Self {
        let passed = |cases: &Cases| cases.values().filter(|it| **it == Outcome::Passed).count();
        let mut differences = differences(&native.cases, &vswap.cases);
        if native.end != vswap.end {
            let end = |said: &Said| said.end.clone().unwrap_or_else(|| "well".to_string());
            let line = format!(
                "(the whole): natively {}, under vswap {}",
                end(native),
                end(vswap)
            );
            differences.push(line);
        }
        Self {
            name: suite.name.to_string(),
            part: suite.part.to_string(),
            with: with.to_string(),
            result: Ok(Counts {
                cases: native.cases.len(),
                native: passed(&native.cases),
                vswap: passed(&vswap.cases),
                pages_out: vswap.pages_out,
            }),
            differences,
        }
    }

    /// Did it run, swap, and have the same outcome in each case?
    pub fn is_equal(&self) -> bool {
        self.differences.is_empty()
            && self
                .result
                .as_ref()
                .is_ok_and(|counts| counts.pages_out > 0)
    }

    /// The differences, one line each.
    pub fn differences(&self) -> String {
        let count = self.differences.len();
        let mut text = match &self.result {
            Err(reason) => format!("{}: not run: {reason}", self.name),
            Ok(counts) if counts.pages_out == 0 => format!("{}: no page went out", self.name),
            Ok(_) => format!("{}: {count} differences", self.name),
        };
        for line in self.differences.iter().take(SHOWN_MAX) {
            let _ = write!(text, "\n  {line}");
        }
        if count > SHOWN_MAX {
            let _ = write!(text, "\n  and {} more", count - SHOWN_MAX);
        }
        text
    }
}

/// Each case with different outcomes on the two sides. A case that only one side had counts too.
fn differences(native: &Cases, vswap: &Cases) -> Vec<String> {
    let word = |outcome: Option<&Outcome>| outcome.map_or("missing", |outcome| outcome.word());
    let mut names: Vec<&String> = native.keys().chain(vswap.keys()).collect();
    names.sort();
    names.dedup();
    names
        .into_iter()
        .filter(|name| native.get(*name) != vswap.get(*name))
        .map(|name| {
            let (one, other) = (word(native.get(name)), word(vswap.get(name)));
            format!("{name}: natively {one}, under vswap {other}")
        })
        .collect()
}

/// The table.
pub fn markdown(rows: &[Row]) -> String {
    let mut text = String::from(
        "| suite | what of it | with | cases | passed natively | passed under vswap | equal | pages out |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let _ = match &row.result {
            Err(reason) => writeln!(
                text,
                "| {} | {} | not run: {reason} | | | | |",
                row.name, row.part
            ),
            Ok(counts) => {
                let equal = match row.differences.len() {
                    0 => "yes".to_string(),
                    count => format!("no, {count}"),
                };
                writeln!(
                    text,
                    "| {} | {} | {} | {} | {} | {} | {equal} | {} |",
                    row.name,
                    row.part,
                    row.with,
                    counts.cases,
                    counts.native,
                    counts.vswap,
                    counts.pages_out
                )
            }
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::table::SUITES;
    use super::*;

    fn said(cases: &[(&str, Outcome)], pages_out: u64) -> Said {
        Said {
            cases: cases
                .iter()
                .map(|(name, outcome)| (name.to_string(), *outcome))
                .collect(),
            end: None,
            pages_out,
        }
    }

    #[test]
    fn each_difference_is_named() {
        let native = said(
            &[
                ("a", Outcome::Passed),
                ("b", Outcome::Skipped),
                ("c", Outcome::Failed),
            ],
            0,
        );
        let vswap = said(
            &[
                ("a", Outcome::Failed),
                ("c", Outcome::Failed),
                ("d", Outcome::Passed),
            ],
            9,
        );
        let row = Row::new(&SUITES[0], "64M", &native, &vswap);
        let text = row.differences();
        for line in [
            "a: natively passed, under vswap failed",
            "b: natively skipped, under vswap missing",
            "d: natively missing, under vswap passed",
        ] {
            assert!(text.contains(line), "{text}");
        }
        assert!(!text.contains("c:"), "{text}");
        assert!(!row.is_equal());
        assert!(markdown(&[row]).contains("| 64M | 3 | 1 | 1 | no, 3 | 9 |"));
    }

    #[test]
    fn equal_means_that_it_ran_and_swapped() {
        let cases = [("a", Outcome::Passed)];
        assert!(Row::new(&SUITES[0], "64M", &said(&cases, 0), &said(&cases, 5)).is_equal());
        assert!(!Row::new(&SUITES[0], "64M", &said(&cases, 0), &said(&cases, 0)).is_equal());
        assert!(!Row::not_run(&SUITES[0], "64M", "no source").is_equal());
        let mut hung = said(&cases, 5);
        hung.end = Some("not ended after 9 minutes".to_string());
        assert!(!Row::new(&SUITES[0], "64M", &said(&cases, 0), &hung).is_equal());
    }
}
