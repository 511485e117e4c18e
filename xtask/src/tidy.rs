//! Rules that no compiler checks: text, file heads, file sizes, links, chapters of the book, pages made from stored
//! results, unsafe counts, arrows between crates and between the floors of a crate.
//!
//! Tidy reads the files of the tree as they are and knows nothing of commits. So it says the same in a clone, in a copy
//! and before a commit. It collects all findings and shows them together.

mod book;
mod bugs;
mod coverage;
mod deps;
mod floors;
pub mod links;
mod messages;
mod names;
mod results;
mod text;
pub mod unsafe_count;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::step::Report;

/// A text file of the tree.
#[derive(Debug, Clone)]
pub struct TextFile {
    /// Relative to the workspace.
    pub path: PathBuf,
    /// Its content.
    pub text: String,
}

impl TextFile {
    /// Does the file have this extension, given without its dot?
    pub fn is(&self, extension: &str) -> bool {
        self.path
            .extension()
            .is_some_and(|found| found == extension)
    }
}

/// Something that is wrong or, as a warning, almost wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The file, relative to the workspace.
    pub path: PathBuf,
    /// Line, from 1; 0 for the whole file.
    pub line: usize,
    /// What is wrong, and what should be there.
    pub what: String,
    /// A warning does not fail the check.
    pub warning: bool,
}

impl Finding {
    /// A finding that fails the check.
    pub fn error(path: &Path, line: usize, what: impl Into<String>) -> Finding {
        Finding {
            path: path.into(),
            line,
            what: what.into(),
            warning: false,
        }
    }

    /// A finding that does not fail the check.
    pub fn warning(path: &Path, line: usize, what: impl Into<String>) -> Finding {
        Finding {
            warning: true,
            ..Finding::error(path, line, what)
        }
    }
}

/// Runs all of tidy.
///
/// # Errors
/// A rule is broken; the findings have been printed.
pub fn check(root: &Path, _limit: Duration) -> Result<Report, String> {
    let tree = read_tree(root).map_err(|error| format!("cannot read the tree: {error}"))?;
    let mut findings = Vec::new();
    for file in &tree {
        text::check(file, &mut findings);
        links::check(root, file, &mut findings);
    }
    book::check(&tree, &mut findings);
    messages::check(&tree, &mut findings);
    bugs::check(&tree, &mut findings);
    coverage::check(&tree, &mut findings);
    results::check(&tree, &mut findings);
    unsafe_count::check(&tree, &mut findings);
    floors::check(&tree, &mut findings);
    deps::check_into(root, &mut findings)?;
    conclude(&findings, tree.len())
}

/// Checks only the arrows between crates.
///
/// # Errors
/// A crate has a dependency that it may not have; the findings have been printed.
pub fn check_deps(root: &Path, _limit: Duration) -> Result<Report, String> {
    let mut findings = Vec::new();
    let crates = deps::check_into(root, &mut findings)?;
    conclude(&findings, crates)
}

fn conclude(findings: &[Finding], things: usize) -> Result<Report, String> {
    for finding in findings {
        let kind = if finding.warning { "warning: " } else { "" };
        println!(
            "{}:{}: {kind}{}",
            finding.path.display(),
            finding.line,
            finding.what
        );
    }
    let errors = findings.iter().filter(|finding| !finding.warning).count();
    println!(
        "{things} looked at, {errors} wrong, {} warnings",
        findings.len() - errors
    );
    match errors {
        0 => Ok(Report::default()),
        _ => Err(format!("{errors} places break a rule, see above")),
    }
}

/// Every text file under `root`, sorted by path; binary files are left out.
fn read_tree(root: &Path) -> std::io::Result<Vec<TextFile>> {
    let mut files = Vec::new();
    let mut pending = vec![root.to_path_buf()];
    while let Some(directory) = pending.pop() {
        for entry in std::fs::read_dir(&directory)? {
            let entry = entry?;
            let path = entry.path();
            let kind = entry.file_type()?;
            if is_foreign(&path) {
                continue;
            }
            if kind.is_dir() {
                pending.push(path);
            } else if kind.is_file()
                && let Ok(text) = String::from_utf8(std::fs::read(&path)?)
            {
                let path = path.strip_prefix(root).unwrap_or(&path).to_path_buf();
                files.push(TextFile { path, text });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// Directories that hold nothing of ours. cargo marks its build directories with a tag. git's own is a directory or, in
/// a linked working tree, a file.
fn is_foreign(path: &Path) -> bool {
    path.join("CACHEDIR.TAG").exists()
        || path
            .file_name()
            .is_some_and(|name| name == ".git" || name == "target")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file as a rule sees it.
    pub fn sample(path: &str, text: &str) -> TextFile {
        TextFile {
            path: path.into(),
            text: text.into(),
        }
    }

    /// The errors that `rule` finds, without warnings.
    pub fn errors(rule: impl Fn(&mut Vec<Finding>)) -> Vec<String> {
        let mut findings = Vec::new();
        rule(&mut findings);
        findings
            .into_iter()
            .filter(|finding| !finding.warning)
            .map(|finding| finding.what)
            .collect()
    }

    #[test]
    fn built_things_are_not_ours() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let tree = read_tree(root).unwrap();
        let this = Path::new("xtask/src/tidy.rs");
        assert!(
            tree.iter().any(|file| file.path == this),
            "tidy does not see itself"
        );
        assert!(!tree.iter().any(|file| file.path.starts_with("target")));
        assert!(!tree.iter().any(|file| file.path.starts_with(".git")));
    }

    #[test]
    fn warnings_do_not_fail() {
        let path = Path::new("a.rs");
        assert!(conclude(&[Finding::warning(path, 1, "close")], 1).is_ok());
        assert!(conclude(&[Finding::error(path, 1, "wrong")], 1).is_err());
    }
}
