//! Checks the table of calls that change memory: every row names tests, victims or canaries that exist, or says what is
//! pending or why no test is possible.

use std::path::Path;

use super::names::{functions, quoted};
use super::{Finding, TextFile};

/// The table's file.
const TABLE: &str = "docs/coverage.md";
/// Where the victims are, one in each file.
const VICTIMS: &str = "e2e/victims/src/victim";
/// Where end-to-end tests are listed.
const LISTS: &str = "e2e/tests";
/// What precedes the name of a victim.
const VICTIM: &str = "victim ";
/// Where the canaries of chaos are, one in each file, and what precedes the name of one.
const CANARIES: &str = "e2e/chaos/canaries";
const CANARY: &str = "canary ";
/// How the last cell of a row without a test begins. What is missing follows.
const PENDING: &str = "pending: ";
/// The same where no test is possible. The reason follows.
const NONE: &str = "none: ";
/// Number of cells in a row.
const CELLS: usize = 4;

/// Compares the table with the sources.
pub fn check(tree: &[TextFile], findings: &mut Vec<Finding>) {
    let path = Path::new(TABLE);
    let Some(table) = tree.iter().find(|file| file.path == path) else {
        return findings.push(Finding::error(path, 0, "the file is missing"));
    };
    let functions = functions(tree);
    let is_file = |place: &str, name: String| {
        let file = Path::new(place).join(name);
        tree.iter().any(|source| source.path == file)
    };
    let mut rows = 0;
    for (line, row) in (1..).zip(table.text.lines()) {
        let Some(cells) = cells(row) else { continue };
        rows += 1;
        let mut wrong = |what: String| findings.push(Finding::error(path, line, what));
        if cells.len() != CELLS || cells.iter().any(|cell| cell.is_empty()) {
            wrong(format!("a row has {CELLS} cells with something in each"));
            continue;
        }
        let proof = cells[CELLS - 1];
        let unproven = [PENDING, NONE];
        if let Some(what) = unproven
            .iter()
            .find_map(|begins| proof.strip_prefix(begins))
        {
            if what.trim().is_empty() {
                wrong("nothing is said of what is pending or why no test is possible".into());
            }
            continue;
        }
        if quoted(proof).next().is_none() {
            wrong("no test is named, and nothing says why".into());
        }
        for part in proof.split(", ") {
            let name = quoted(part).next().unwrap_or(part);
            let exists = if part.starts_with(VICTIM) {
                is_file(VICTIMS, format!("{name}.rs"))
            } else if part.starts_with(CANARY) {
                is_file(CANARIES, format!("{name}.plan"))
            } else {
                functions.contains(name) || is_end_to_end(tree, name)
            };
            if !exists {
                wrong(format!("there is no test {name:?}"));
            }
        }
    }
    if rows == 0 {
        findings.push(Finding::error(path, 0, "the table has no rows"));
    }
}

/// Is there an end-to-end test with this name? Those tests have names of their own, in lists.
fn is_end_to_end(tree: &[TextFile], name: &str) -> bool {
    let listed = format!("\"{name}\",");
    let mut lists = tree.iter().filter(|file| file.path.starts_with(LISTS));
    lists.any(|file| file.text.contains(&listed))
}

/// The cells of a row. `None` for other lines, including heads of tables.
fn cells(line: &str) -> Option<Vec<&str>> {
    let row = line.strip_prefix('|')?.strip_suffix('|')?;
    let cells: Vec<&str> = row.split('|').map(str::trim).collect();
    let is_head = cells.last() == Some(&"test");
    let is_rule = cells.iter().all(|cell| cell.chars().all(|c| c == '-'));
    (!is_head && !is_rule).then_some(cells)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{errors, sample};
    use super::*;

    fn wrong(rows: &str) -> Vec<String> {
        let text = format!("| call | how | half-way | test |\n|---|---|---|---|\n{rows}");
        let tree = [
            sample(TABLE, &text),
            sample("crates/a/src/lib.rs", "fn it_is_right() {\n"),
            sample(&format!("{VICTIMS}/free.rs"), "//! Frees.\n"),
            sample(&format!("{CANARIES}/1-coal.plan"), "{}\n"),
            sample("e2e/tests/a/main.rs", "Test::new(\"real\", 9, it),\n"),
        ];
        errors(|findings| check(&tree, findings))
    }

    #[test]
    fn tests_victims_and_what_is_pending_pass() {
        let rows = "| a | b | c | `it_is_right`, victim `free`, `real`, canary `1-coal` |\n\
            | a | b | c | pending: all |\n| a | b | c | none: no machine has it |\n";
        assert_eq!(wrong(rows), Vec::<String>::new());
    }

    #[test]
    fn what_does_not_exist_is_found() {
        for (row, what) in [
            ("| a | b | c | `it_is_wrong` |", "it_is_wrong"),
            ("| a | b | c | victim `it_is_right` |", "it_is_right"),
            ("| a | b | c | `free` |", "free"),
            ("| a | b | c | canary `free` |", "free"),
            ("| a | b | c | surely |", "no test is named"),
            ("| a | b | c | pending:  |", "no test is named"),
            ("| a | b | `it_is_right` |", "4 cells"),
            ("| a |  | c | `it_is_right` |", "4 cells"),
            ("", "no rows"),
        ] {
            let found = wrong(row);
            assert!(found.iter().any(|f| f.contains(what)), "{row}: {found:?}");
        }
    }
}
