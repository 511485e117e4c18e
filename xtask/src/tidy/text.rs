//! Rules on the text of single files: widths, white space, heads, sizes, words that must not stay.

use std::path::Path;

use super::{Finding, TextFile};
use crate::source;

/// The longest line, in characters. Table rows, lines with a link and strings of JSON are exempt because they cannot be
/// folded.
const LINE_CHARS_MAX: usize = 120;
/// From this many lines of code, without unit tests, a file is too long for one person to own.
const CODE_LINES_MAX: usize = 600;
/// From this many lines of code a file should be split.
const CODE_LINES_WARN: usize = 400;
/// The most lines of a file's head. Longer text belongs into the documentation. Only a warning, because drawings may
/// need more.
const HEAD_LINES_WARN: usize = 40;

/// Words that name somebody's machine instead of the project. They are written in two pieces, because this file is
/// checked too.
const FOREIGN_WORDS: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/tmp/vs", "wap-spec"),
    concat!("bash_", "jobs"),
];
/// Marks of unfinished work or of an unfinished merge.
const LEFTOVERS: &[&str] = &[
    concat!("FIX", "ME"),
    concat!("XX", "X:"),
    concat!("NOCOM", "MIT"),
];
const CONFLICT_MARKS: &[&str] = &[
    concat!("<<<<", "<<< "),
    concat!(">>>>", ">>> "),
    concat!("||||", "||| "),
];

/// Files that were taken whole from elsewhere or written by a tool, and fuzzers' inputs, which are no text.
fn is_verbatim(path: &Path) -> bool {
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or("");
    name.ends_with(".lock")
        || name.ends_with(".svg")
        || name.starts_with("LICENSE")
        || path.starts_with("fuzz/corpus")
}

/// Checks every rule on one file.
pub fn check(file: &TextFile, findings: &mut Vec<Finding>) {
    if is_verbatim(&file.path) {
        return;
    }
    lines(file, findings);
    if !file.text.is_empty() && !file.text.ends_with('\n') {
        findings.push(Finding::error(&file.path, 0, "the last line has no end"));
    }
    if file.is("rs") {
        rust(file, findings);
    }
}

fn lines(file: &TextFile, findings: &mut Vec<Finding>) {
    for (index, line) in file.text.lines().enumerate() {
        let mut wrong = |what: String| findings.push(Finding::error(&file.path, index + 1, what));
        let width = line.chars().count();
        if width > LINE_CHARS_MAX && !cannot_be_folded(file, line) {
            wrong(format!("{width} characters, more than {LINE_CHARS_MAX}"));
        }
        if line.ends_with([' ', '\t', '\r']) {
            wrong("white space at the end of the line".into());
        }
        if file.is("rs") && line.contains('\t') {
            wrong("a tab; indent with spaces, write \\t in strings".into());
        }
        for word in FOREIGN_WORDS.iter().filter(|word| line.contains(**word)) {
            wrong(format!("{word:?} names a place outside the project"));
        }
        for word in LEFTOVERS.iter().filter(|word| line.contains(**word)) {
            wrong(format!("{word:?} is left over"));
        }
        if CONFLICT_MARKS.iter().any(|mark| line.starts_with(mark)) {
            wrong("a conflict marker is left over".into());
        }
    }
}

fn cannot_be_folded(file: &TextFile, line: &str) -> bool {
    line.contains("://") || (file.is("md") && line.starts_with('|')) || file.is("json")
}

fn rust(file: &TextFile, findings: &mut Vec<Finding>) {
    let head = file
        .text
        .lines()
        .take_while(|line| line.starts_with("//!"))
        .collect::<Vec<_>>();
    if head
        .first()
        .is_none_or(|line| line.trim_start_matches("//!").trim().is_empty())
    {
        findings.push(Finding::error(
            &file.path,
            1,
            "a file begins with its role, in `//!` lines",
        ));
    }
    if head.len() > HEAD_LINES_WARN {
        let what = format!(
            "a head of {} lines; what is longer belongs into docs",
            head.len()
        );
        findings.push(Finding::warning(&file.path, 1, what));
    }
    let product = source::product_code(&file.text);
    let count = source::code_lines(&product);
    if count > CODE_LINES_MAX {
        let what = format!("{count} lines of code, more than {CODE_LINES_MAX}: cut it by concept");
        findings.push(Finding::error(&file.path, 0, what));
    } else if count > CODE_LINES_WARN {
        findings.push(Finding::warning(
            &file.path,
            0,
            format!("{count} lines of code"),
        ));
    }
    let code = source::code_only(&file.text);
    for (offset, word) in source::words(&code) {
        if word == "dbg" && code[offset + word.len()..].starts_with('!') {
            let line = code[..offset].matches('\n').count() + 1;
            findings.push(Finding::error(
                &file.path,
                line,
                "a debugging print is left over",
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{errors, sample};
    use super::*;

    fn wrong(path: &str, text: &str) -> Vec<String> {
        errors(|findings| check(&sample(path, text), findings))
    }

    #[test]
    fn a_good_file_passes() {
        let text = "//! What it is for.\n\nfn main() {\n    println!(\"a\\tb\");\n}\n";
        assert_eq!(wrong("src/a.rs", text), Vec::<String>::new());
    }

    #[test]
    fn a_head_is_wanted() {
        assert!(wrong("a.rs", "fn main() {}\n")[0].contains("role"));
        assert!(wrong("a.rs", "//!\nfn main() {}\n")[0].contains("role"));
        assert!(wrong("a.py", "print()\n").is_empty());
    }

    #[test]
    fn long_lines_are_found_and_tables_and_links_let_through() {
        let long = "x".repeat(LINE_CHARS_MAX + 1);
        assert_eq!(wrong("a.md", &format!("{long}\n")).len(), 1);
        assert!(wrong("a.md", &format!("{}\n", "ü".repeat(LINE_CHARS_MAX))).is_empty());
        assert!(wrong("a.md", &format!("| {long} |\n")).is_empty());
        assert!(wrong("a.md", &format!("https://{long}\n")).is_empty());
        assert!(wrong("a.json", &format!("\"{long}\"\n")).is_empty());
        assert!(wrong("Cargo.lock", &format!("{long}\n")).is_empty());
        assert!(wrong("plot.svg", &format!("{long} \n")).is_empty());
    }

    #[test]
    fn white_space_is_checked() {
        assert!(wrong("a.rs", "//! A.\nfn a() {\n\tb();\n}\n")[0].contains("tab"));
        assert!(wrong("a.md", "word \n")[0].contains("white space"));
        assert!(wrong("a.md", "word")[0].contains("no end"));
    }

    #[test]
    fn leftovers_are_found() {
        for word in LEFTOVERS.iter().chain(FOREIGN_WORDS) {
            assert_eq!(
                wrong("a.md", &format!("see {word} here\n")).len(),
                1,
                "{word}"
            );
        }
        for mark in CONFLICT_MARKS {
            assert_eq!(
                wrong("a.toml", &format!("{mark}branch\n")).len(),
                1,
                "{mark}"
            );
        }
        assert!(wrong("a.rs", "//! A.\nfn a() {\n    dbg!(1);\n}\n")[0].contains("debugging"));
        assert!(wrong("a.rs", "//! A.\n// dbg!(1) in a comment\n").is_empty());
    }

    #[test]
    fn file_sizes_count_code_alone() {
        let code = |lines: usize| format!("//! A.\n{}", "fn a() {}\n".repeat(lines));
        assert!(wrong("a.rs", &code(CODE_LINES_MAX)).is_empty());
        assert!(wrong("a.rs", &code(CODE_LINES_MAX + 1))[0].contains("cut it"));
        let comments = format!("//! A.\n{}", "// a\n\n".repeat(CODE_LINES_MAX * 2));
        assert!(wrong("a.rs", &comments).is_empty());
        let tests = format!(
            "//! A.\n#[cfg(test)]\nmod tests {{\n{}}}\n",
            code(CODE_LINES_MAX)
        );
        assert!(wrong("a.rs", &tests).is_empty());
    }
}
