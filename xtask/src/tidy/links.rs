//! Links of Markdown files: their targets inside the tree exist, and so do the headings that they name.

use std::path::{Component, Path, PathBuf};

use super::{Finding, TextFile};

/// Checks every link of a Markdown file that stays in the tree.
pub fn check(root: &Path, file: &TextFile, findings: &mut Vec<Finding>) {
    if !file.is("md") {
        return;
    }
    for (line, target) in links(&file.text).into_iter().filter(|(_, to)| stays(to)) {
        if let Err(what) = resolve(root, file, &target) {
            findings.push(Finding::error(&file.path, line, what));
        }
    }
}

/// Lines and paths, from the workspace, of what a page links to in the tree.
pub fn targets(page: &Path, text: &str) -> impl Iterator<Item = (usize, PathBuf)> {
    let beside = page.parent().unwrap_or(Path::new("")).to_owned();
    let stay = links(text).into_iter().filter(|(_, to)| stays(to));
    stay.filter_map(move |(line, target)| {
        let path = target.split('#').next().filter(|path| !path.is_empty())?;
        Some((line, inside(&beside.join(path))?))
    })
}

fn stays(target: &str) -> bool {
    !target.contains("://") && !target.starts_with("mailto:")
}

/// Line and target of every `[text](target)` and `[name]: target` outside code.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (index, line) in prose(text) {
        let line = without_code_spans(line);
        for piece in line.split("](").skip(1) {
            if let Some(end) = piece.find(')') {
                let target = piece[..end].split_whitespace().next().unwrap_or("");
                found.push((index, target.to_string()));
            }
        }
        let reference = line
            .strip_prefix('[')
            .and_then(|rest| rest.split_once("]: "));
        if let Some(target) = reference.and_then(|(_, rest)| rest.split_whitespace().next()) {
            found.push((index, target.to_string()));
        }
    }
    found
}

/// Numbered lines, from 1, without fenced blocks.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            return None;
        }
        (!fenced).then_some((index + 1, line))
    })
}

fn without_code_spans(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join(" ")
}

fn resolve(root: &Path, file: &TextFile, target: &str) -> Result<(), String> {
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let relative = if path.is_empty() {
        file.path.clone()
    } else {
        let beside = file.path.parent().unwrap_or(Path::new(""));
        inside(&beside.join(path)).ok_or(format!("the link {target:?} leaves the tree"))?
    };
    let full = root.join(&relative);
    if !path.is_empty() && !full.exists() {
        return Err(format!(
            "the link {target:?} points to nothing: no {}",
            relative.display()
        ));
    }
    let is_text = relative
        .extension()
        .is_some_and(|extension| extension == "md");
    if anchor.is_empty() || !is_text {
        return Ok(());
    }
    let text = if path.is_empty() {
        file.text.clone()
    } else {
        std::fs::read_to_string(&full).map_err(|error| format!("{target:?}: {error}"))?
    };
    if headings(&text).iter().any(|heading| heading == anchor) {
        Ok(())
    } else {
        Err(format!(
            "the link {target:?} names a heading that {} does not have",
            relative.display()
        ))
    }
}

/// The path without `..`, or `None` if it leads outside.
fn inside(path: &Path) -> Option<PathBuf> {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                if !clean.pop() {
                    return None;
                }
            }
            Component::CurDir => {}
            Component::Normal(name) => clean.push(name),
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(clean)
}

/// Names of the headings as forges make them: lower case, spaces to hyphens, other punctuation dropped.
fn headings(text: &str) -> Vec<String> {
    let title = |line: &str| {
        Some(
            line.strip_prefix('#')?
                .trim_start_matches('#')
                .trim()
                .to_string(),
        )
    };
    let name = |title: String| -> String {
        let kept = title
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| {
            if c == ' ' {
                '-'
            } else {
                c.to_ascii_lowercase()
            }
        })
        .collect()
    };
    prose(text)
        .filter_map(|(_, line)| title(line))
        .map(name)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{errors, sample};
    use super::*;

    fn wrong(path: &str, text: &str) -> Vec<String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        errors(|findings| check(root, &sample(path, text), findings))
    }

    #[test]
    fn links_to_files_and_headings_resolve() {
        let text = "# The one door\nsee [it](src/main.rs), [here](#the-one-door) and\n\
                    [there](https://example.org/x)\n[name]: Cargo.toml\n";
        assert_eq!(wrong("a.md", text), Vec::<String>::new());
        assert_eq!(
            wrong("src/a.md", "[up](../Cargo.toml)\n"),
            Vec::<String>::new()
        );
    }

    #[test]
    fn broken_links_are_found() {
        assert!(wrong("a.md", "[it](src/none.rs)\n")[0].contains("points to nothing"));
        assert!(wrong("a.md", "[name]: none.toml\n")[0].contains("points to nothing"));
        assert!(wrong("a.md", "# One\n[it](#two)\n")[0].contains("heading"));
        assert!(wrong("a.md", "[it](../../up.md)\n")[0].contains("leaves"));
        assert!(wrong("a.md", "[it](/etc/passwd)\n")[0].contains("leaves"));
    }

    #[test]
    fn code_is_not_searched_for_links() {
        let text = "`[a](none)` and\n```\n[b](none)\n```\n";
        assert_eq!(wrong("a.md", text), Vec::<String>::new());
        assert!(wrong("a.rs", "//! [a](none)\n").is_empty());
    }

    #[test]
    fn headings_are_named_as_forges_do() {
        assert_eq!(
            headings("## P1: the `DONTNEED` race\n"),
            ["p1-the-dontneed-race"]
        );
    }
}
