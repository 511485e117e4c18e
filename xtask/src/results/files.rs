//! Every file below docs that is made from stored runs: the pages, the list of pages, the measured targets.
//!
//! `cargo xtask results` writes these texts and `cargo xtask tidy` compares them, so both mean the same.

use std::fmt::{self, Write};

use super::list::{PAGES, Page};
use super::page::{self, MARK};
use super::stored::{Stored, Table};

/// Where the stored runs are, where the pages are, and the list of pages.
pub const STORED: &str = "results/json";
pub const PAGES_DIR: &str = "results";
pub const LIST: &str = "results/README.md";
/// The page that has the table of targets between the two marks.
pub const DOCUMENT: &str = "benchmarks.md";
const BEGIN: &str = "<!-- targets: rows that were measured are written by cargo xtask results -->";
const END: &str = "<!-- end of targets -->";

/// A file below docs, and its text, or why it has none.
pub type File = (String, Result<String, String>);

/// The stored run of a page.
pub fn stored_path(page: &Page) -> String {
    format!("{STORED}/{}.json", page.name)
}

/// Every file. `read` gives the present text of a file below docs, if there is one.
pub fn all(read: &dyn Fn(&str) -> Option<String>) -> Vec<File> {
    let mut files = Vec::new();
    let mut runs = Vec::new();
    for page in PAGES {
        let path = stored_path(page);
        let Some(text) = read(&path) else { continue };
        let stored = Stored::read(&text);
        let made = stored.and_then(|stored| Ok((page::render(page, &stored)?, stored)));
        let text = made.map(|(text, stored)| {
            runs.push((page, stored));
            text
        });
        let again = format!("measure again with: cargo xtask results {}", page.name);
        let text = text.map_err(|what| format!("{path} {what}; {again}"));
        files.push((format!("{PAGES_DIR}/{}.md", page.name), text));
    }
    files.push((LIST.to_owned(), Ok(list(&runs))));
    if let Some(document) = read(DOCUMENT) {
        let text = with_targets(&document, &target_rows(&runs));
        let what =
            format!("has no lines {BEGIN} and {END} around the table of targets; put them there");
        files.push((DOCUMENT.to_owned(), text.ok_or(what)));
    }
    files
}

/// The list of pages, with what is not measured yet.
fn list(runs: &[(&Page, Stored)]) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_list(&mut text, runs);
    text
}

fn write_list(out: &mut String, runs: &[(&Page, Stored)]) -> fmt::Result {
    writeln!(
        out,
        "{MARK}. Changes by hand are refused. -->\n\n# Measured pages\n"
    )?;
    writeln!(
        out,
        "`cargo xtask results NAME` measures a page again. The other pages here are [copied by\n\
         hand](../benchmarks.md#results).\n"
    )?;
    let row = |page: &Page| {
        let run = runs.iter().find(|(of, _)| of.name == page.name);
        let (name, when) = match run {
            Some((_, Stored { made, .. })) => {
                let link = format!("[{0}]({0}.md)", page.name);
                (link, [made.commit.clone(), made.date.clone()])
            }
            None => (
                page.name.to_owned(),
                ["not measured yet".to_owned(), String::new()],
            ),
        };
        let [commit, date] = when;
        vec![name, page.about.to_owned(), commit, date]
    };
    let heads = ["page", "what it measures", "commit", "date"];
    let table = Table {
        heads: heads.map(str::to_owned).to_vec(),
        rows: PAGES.iter().map(row).collect(),
    };
    page::write_table(out, &table)?;
    out.truncate(out.trim_end().len());
    writeln!(out)
}

/// A row for each measured target of all runs.
fn target_rows(runs: &[(&Page, Stored)]) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    for (_, stored) in runs {
        let targets = stored.outcome().unwrap_or_default().targets;
        for target in targets.iter().filter(|target| target.measured.is_some()) {
            let (name, commit) = (&target.target, &stored.made.commit);
            let (figure, word) = (target.figure(), target.word().to_owned());
            let cells = [
                name.clone(),
                target.wanted.clone(),
                figure,
                word,
                commit.clone(),
            ];
            rows.push((name.clone(), page::line(&cells)));
        }
    }
    rows
}

/// The document with these rows in its table of targets. A row of a target that no run measured stays as it is. `None`:
/// there is no such table.
fn with_targets(document: &str, rows: &[(String, String)]) -> Option<String> {
    let (before, rest) = document.split_once(BEGIN)?;
    let (table, after) = rest.split_once(END)?;
    let mut lines: Vec<String> = table.trim().lines().map(str::to_owned).collect();
    for (name, row) in rows {
        let begin = format!("| {name} |");
        match lines.iter_mut().find(|line| line.starts_with(&begin)) {
            Some(line) => line.clone_from(row),
            None => lines.push(row.clone()),
        }
    }
    let table = lines.join("\n");
    Some(format!("{before}{BEGIN}\n\n{table}\n\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::super::stored::tests::one_workload;
    use super::*;

    fn made(text: &str, document: &str) -> Vec<File> {
        all(&|path| match path {
            "results/json/memhog.json" => Some(text.to_owned()),
            DOCUMENT => Some(document.to_owned()),
            _ => None,
        })
    }

    #[test]
    fn measured_targets_replace_their_rows_and_no_others() {
        let row = |name: &str, rest: &str| format!("| {name} | {rest} |\n");
        let old = row("fill, 1 task", "<= 0.6 | 0.50 | met | a9f6fe3");
        let new = row("fill, 1 task", "<= 0.6 | 0.70 | missed | abc1234");
        let other = row("build", "<= 0.95 | 1.08 | missed | a9f6fe3");
        let document = |row: &str| format!("a\n{BEGIN}\n\n{row}{other}\n{END}\nb\n");
        let files = made(&one_workload().to_text(), &document(&old));
        let (path, text) = files.last().unwrap();
        assert_eq!(path, DOCUMENT);
        assert_eq!(text.as_ref().unwrap(), &document(&new));
        let without = made(&one_workload().to_text(), "no marks");
        assert!(
            without
                .last()
                .unwrap()
                .1
                .as_ref()
                .unwrap_err()
                .contains("no lines")
        );
    }

    #[test]
    fn the_list_links_to_what_was_measured() {
        let files = made(&one_workload().to_text(), "");
        let paths: Vec<&str> = files.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(paths, ["results/memhog.md", LIST, DOCUMENT]);
        let list = files[1].1.as_ref().unwrap();
        assert!(
            list.contains("\n| [memhog](memhog.md) | A program fills"),
            "{list}"
        );
        assert!(list.contains(". | abc1234 | 2026-11-24 |\n"), "{list}");
        assert!(list.contains("\n| zipf | One thread"), "{list}");
        assert!(list.contains(". | not measured yet | |\n"), "{list}");
    }

    #[test]
    fn a_stored_run_that_cannot_be_read_says_what_to_do() {
        let (path, text) = &made("{", "")[0];
        assert_eq!(path, "results/memhog.md");
        let said = text.as_ref().unwrap_err();
        assert!(said.contains("memhog.json is no stored run"), "{said}");
        assert!(said.ends_with("cargo xtask results memhog"), "{said}");
    }
}
