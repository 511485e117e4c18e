//! Checks the table of kernel bugs: every number has one row, and every row names a test that exists, or a reason.

use std::path::Path;

use super::names::{functions, quoted};
use super::{Finding, TextFile};

/// The table's file.
const TABLE: &str = "docs/kernel-bugs.md";
/// How many bugs there are.
const BUGS: usize = 39;
/// How the last cell of a row without a test begins. The reason follows.
const REASONS: [&str; 2] = ["cannot: ", "pending: "];
/// How the names of tests for a bug begin. The bug's number follows, in two digits.
const TEST_PREFIX: &str = "bug_";

/// A row of the table.
#[derive(Debug)]
struct Row<'a> {
    line: usize,
    number: usize,
    proof: &'a str,
}

impl Row<'_> {
    fn tests(&self) -> impl Iterator<Item = &str> {
        quoted(self.proof)
    }

    fn has_reason(&self) -> bool {
        let is_given = |reason: &&str| {
            let rest = self.proof.strip_prefix(*reason);
            rest.is_some_and(|rest| !rest.trim().is_empty())
        };
        REASONS.iter().any(is_given)
    }
}

/// Compares the table with the sources.
pub fn check(tree: &[TextFile], findings: &mut Vec<Finding>) {
    let path = Path::new(TABLE);
    let Some(table) = tree.iter().find(|file| file.path == path) else {
        return findings.push(Finding::error(path, 0, "the file is missing"));
    };
    let rows = rows(&table.text);
    for number in 1..=BUGS {
        let count = rows.iter().filter(|row| row.number == number).count();
        if count != 1 {
            let what = format!("bug {number} has {count} rows, expected one");
            findings.push(Finding::error(path, 0, what));
        }
    }
    let functions = functions(tree);
    for row in &rows {
        let mut wrong = |what: String| findings.push(Finding::error(path, row.line, what));
        if !(1..=BUGS).contains(&row.number) {
            wrong(format!("there is no bug {}", row.number));
        }
        for test in row.tests().filter(|_| !row.has_reason()) {
            if !functions.contains(test) {
                wrong(format!("there is no test {test:?}"));
            }
        }
        if !row.has_reason() && row.tests().next().is_none() {
            wrong("no test is named and no reason given".into());
        }
    }
    for test in functions
        .iter()
        .filter(|name| name.starts_with(TEST_PREFIX))
    {
        let number = test[TEST_PREFIX.len()..].split('_').next();
        let number = number.and_then(|digits| digits.parse().ok());
        let names_it =
            |row: &Row<'_>| Some(row.number) == number && row.tests().any(|t| t == *test);
        if number.is_some() && !rows.iter().any(names_it) {
            let what = format!("{test} is named after a bug whose row does not name it");
            findings.push(Finding::error(path, 0, what));
        }
    }
}

fn rows(text: &str) -> Vec<Row<'_>> {
    let lines = (1..).zip(text.lines());
    lines
        .filter_map(|(line, text)| {
            let mut cells = text.strip_prefix('|')?.strip_suffix('|')?.split('|');
            let number = cells.next()?.trim().parse().ok()?;
            let proof = cells.next_back()?.trim();
            Some(Row {
                line,
                number,
                proof,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{errors, sample};
    use super::*;

    const SOURCE: &str = "    fn bug_02_it_is_found() {\n    pub fn a_race() {\n";

    fn wrong(change: impl Fn(usize, &str) -> String, source: &str) -> Vec<String> {
        let row = |number: usize| {
            let proof = match number {
                1 => "`a_race`",
                2 => "`bug_02_it_is_found`, `a_race`",
                3 => "pending: a feature",
                _ => "cannot: there is none",
            };
            change(number, &format!("| {number} | a bug | here | {proof} |\n"))
        };
        let text: String = (1..=BUGS).map(row).collect();
        let tree = [sample(TABLE, &text), sample("crates/a/src/lib.rs", source)];
        errors(|findings| check(&tree, findings))
    }

    #[test]
    fn a_whole_table_passes() {
        assert_eq!(
            wrong(|_, row| row.to_string(), SOURCE),
            Vec::<String>::new()
        );
    }

    #[test]
    fn what_is_missing_or_wrong_is_found() {
        let at_seven = |change: fn(&str) -> String| {
            move |number: usize, row: &str| match number {
                7 => change(row),
                _ => row.to_string(),
            }
        };
        let only = |found: Vec<String>, what: &str| {
            assert!(found.len() == 1 && found[0].contains(what), "{found:?}");
        };
        only(wrong(at_seven(|_| String::new()), SOURCE), "has 0 rows");
        only(wrong(at_seven(|row| row.repeat(2)), SOURCE), "has 2 rows");
        let unproved = at_seven(|row| row.replace("cannot: there is none", "surely not"));
        only(wrong(unproved, SOURCE), "no reason");
        let unknown = at_seven(|row| row.replace("cannot: there is none", "`no_such_test`"));
        only(wrong(unknown, SOURCE), "no_such_test");
        let more = format!("{SOURCE}fn bug_05_of_no_row() {{\n");
        only(wrong(|_, row| row.to_string(), &more), "bug_05_of_no_row");
    }
}
