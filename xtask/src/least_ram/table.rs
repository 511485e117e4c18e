//! The table: what each codec needs of a program, and what happens with less.

use std::fmt::Write as _;

use super::search::{Found, Outcome, STEPS};

const MIB: f64 = 1_048_576.0;

/// What is known of a program.
#[derive(Debug)]
pub struct Row {
    /// Seconds of the native runs.
    pub seconds: Vec<f64>,
    /// Its peak.
    pub peak_bytes: f64,
    /// By codec.
    pub found: Vec<Found>,
}

/// What came of a program.
#[derive(Debug)]
pub enum Measured {
    /// Its sizes.
    Row(Row),
    /// It cannot run here, and why.
    Skipped(String),
    /// Something went wrong, and what.
    Failed(String),
}

/// A table for a page of the documentation.
pub fn markdown(codecs: &[String], all: &[(&str, Measured)]) -> String {
    let mut text = "| program | native, s | native peak, MiB |".to_owned();
    for codec in codecs {
        // Writing to a string does not fail.
        let _ = write!(text, " {codec}: least, MiB | of the peak | below it |");
    }
    let columns = 3 + 3 * codecs.len();
    let _ = writeln!(text, "\n|{}", "---|".repeat(columns));
    for (about, measured) in all {
        let _ = match measured {
            Measured::Row(row) => writeln!(text, "| {about} | {} |", cells(row).join(" | ")),
            Measured::Skipped(why) => writeln!(
                text,
                "| {about} | skipped: {why} |{}",
                " |".repeat(columns - 2)
            ),
            Measured::Failed(why) => writeln!(
                text,
                "| {about} | failed: {why} |{}",
                " |".repeat(columns - 2)
            ),
        };
    }
    text
}

fn cells(row: &Row) -> Vec<String> {
    let least = row.seconds.iter().copied().fold(f64::INFINITY, f64::min);
    let most = row.seconds.iter().copied().fold(0.0, f64::max);
    let mut cells = vec![
        format!("{:.1} ({least:.1}..{most:.1})", median(&row.seconds)),
        format!("{:.0}", row.peak_bytes / MIB),
    ];
    for found in &row.found {
        let below = found.below.map_or("none was tried", worded);
        cells.extend(match found.least {
            Some(size) => {
                let share = f64::from(size) / f64::from(STEPS);
                let doubt = if found.is_settled {
                    ""
                } else {
                    ", runs differ"
                };
                [
                    format!("{:.0}", row.peak_bytes * share / MIB),
                    format!("{:.0} %", share * 100.0),
                    format!("{below}{doubt}"),
                ]
            }
            None => ["none".to_owned(), String::new(), below.to_owned()],
        });
    }
    cells
}

/// An outcome in words.
pub fn worded(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::InTime => "in time",
        Outcome::TooSlow => "too slow",
        Outcome::Full => "full",
        Outcome::Refused => "refused",
    }
}

/// The middle one.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_all_codecs_and_says_what_is_missing() {
        let found = |least, below| Found {
            least,
            below,
            is_settled: true,
        };
        let row = |found| {
            Measured::Row(Row {
                seconds: vec![5.0, 4.0, 7.0],
                peak_bytes: 200.0 * MIB,
                found,
            })
        };
        let codecs = ["lz4".to_owned(), "auto".to_owned()];
        let mut unsettled = found(Some(10), Some(Outcome::Full));
        unsettled.is_settled = false;
        let text = markdown(
            &codecs,
            &[
                (
                    "one",
                    row(vec![found(Some(12), Some(Outcome::TooSlow)), unsettled]),
                ),
                (
                    "two",
                    row(vec![
                        found(None, Some(Outcome::Refused)),
                        found(Some(1), None),
                    ]),
                ),
                ("three", Measured::Skipped("it is not there".to_owned())),
                ("four", Measured::Failed("it broke".to_owned())),
            ],
        );
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[2],
            "| one | 5.0 (4.0..7.0) | 200 | 96 | 48 % | too slow | 80 | 40 % | full, runs differ |"
        );
        assert_eq!(
            lines[3],
            "| two | 5.0 (4.0..7.0) | 200 | none |  | refused | 8 | 4 % | none was tried |"
        );
        assert!(lines[4].starts_with("| three | skipped: it is not there |"));
        assert!(lines[5].starts_with("| four | failed: it broke |"));
        // As many cells in each line.
        let bars = |line: &str| line.matches('|').count();
        assert!(
            lines.iter().all(|line| bars(line) == bars(lines[0])),
            "{text}"
        );
    }
}
