//! docs/messages.md explains messages that vswap has: each is found in the sources.
//!
//! The first cell of a row is the message, in which `[..]` stands for what varies. What is left between these must be
//! in one file of the sources.

use std::path::Path;

use super::{Finding, TextFile};

const PAGE: &str = "docs/messages.md";
const SOURCES: &str = "crates";
/// What varies in a message.
const VARIES: &str = "[..]";

/// Checks every message of the page.
pub fn check(tree: &[TextFile], findings: &mut Vec<Finding>) {
    let Some(page) = tree.iter().find(|file| file.path == Path::new(PAGE)) else {
        return;
    };
    let sources: Vec<String> = tree
        .iter()
        .filter(|file| file.is("rs") && file.path.starts_with(SOURCES))
        .map(|file| joined(&file.text))
        .collect();
    for (index, line) in page.text.lines().enumerate() {
        let Some(message) = message(line) else {
            continue;
        };
        let has_all = |source: &String| {
            message
                .split(VARIES)
                .all(|piece| source.contains(piece.trim()))
        };
        if !sources.iter().any(has_all) {
            let what = format!("no file in {SOURCES} has the message {message:?}");
            findings.push(Finding::error(&page.path, index + 1, what));
        }
    }
}

/// The message of a row: a first cell that is all code.
fn message(line: &str) -> Option<&str> {
    let (message, rest) = line.strip_prefix("| `")?.split_once('`')?;
    rest.starts_with(" |").then_some(message)
}

/// The text with strings of several lines in one.
fn joined(text: &str) -> String {
    let mut pieces = text.split("\\\n");
    let mut joined = pieces.next().unwrap_or("").to_owned();
    for piece in pieces {
        joined.push_str(piece.trim_start());
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::super::tests::{errors, sample};
    use super::*;

    #[test]
    fn messages_are_those_of_the_sources() {
        let source = "say(\"no such \\\n     thing: {path}, which is needed\")";
        let wrong = |row: &str| {
            let tree = [sample(PAGE, row), sample("crates/a/src/b.rs", source)];
            errors(|findings| check(&tree, findings))
        };
        assert!(wrong("| `no such thing: [..], which is needed` | make it |\n").is_empty());
        assert!(wrong("| message | means |\n").is_empty());
        assert!(wrong("| `no such thong` | make it |\n")[0].contains("no such thong"));
    }
}
