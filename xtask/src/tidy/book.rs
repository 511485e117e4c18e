//! The book: every page of `docs` is a chapter, and what chapters link to is in the book.
//!
//! Pages stay where they are. `book/src` has symbolic links to them and to what they name, so a relative link means the
//! same on a forge and in the book if its target is reachable from there. That the entries of SUMMARY.md exist is
//! checked with all other links.

use std::path::{Path, PathBuf};

use super::links::{inside, links};
use super::{Finding, TextFile};

/// The list of chapters.
const SUMMARY: &str = "book/src/SUMMARY.md";
/// Where every page must be a chapter.
const PAGES: &str = "docs";

/// Checks chapters against pages, and the links of chapters.
pub fn check(root: &Path, tree: &[TextFile], findings: &mut Vec<Finding>) {
    let summary = Path::new(SUMMARY);
    let Some(list) = tree.iter().find(|file| file.path == summary) else {
        let what = "there is no such file, and the book has no chapters";
        findings.push(Finding::error(summary, 0, what));
        return;
    };
    let mut chapters: Vec<PathBuf> = Vec::new();
    for (line, target) in links(&list.text) {
        let chapter = PathBuf::from(target);
        if chapters.contains(&chapter) {
            let what = format!("{} is a chapter already", chapter.display());
            findings.push(Finding::error(summary, line, what));
        }
        chapters.push(chapter);
    }
    for file in tree {
        if file.is("md") && file.path.starts_with(PAGES) && !chapters.contains(&file.path) {
            let what = format!("is no chapter of the book: add it to {SUMMARY}");
            findings.push(Finding::error(&file.path, 0, what));
        }
        if chapters.contains(&file.path) {
            chapter(root, file, &chapters, findings);
        }
    }
}

/// The links of one chapter. Targets that do not exist at all are found elsewhere.
fn chapter(root: &Path, file: &TextFile, chapters: &[PathBuf], findings: &mut Vec<Finding>) {
    let beside = file.path.parent().unwrap_or(Path::new(""));
    for (line, target) in links(&file.text) {
        let path = target.split('#').next().unwrap_or("");
        if path.is_empty() || target.contains("://") || target.starts_with("mailto:") {
            continue;
        }
        let Some(target) = inside(&beside.join(path)) else {
            continue;
        };
        let is_page = target.extension().is_some_and(|dot| dot == "md");
        if is_page && !chapters.contains(&target) {
            let what = format!("{} is no chapter: add it to {SUMMARY}", target.display());
            findings.push(Finding::error(&file.path, line, what));
        }
        if !is_page && !root.join("book/src").join(&target).exists() {
            let what = format!(
                "{} is not in the book: make a symbolic link to it below book/src",
                target.display()
            );
            findings.push(Finding::error(&file.path, line, what));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{errors, sample};
    use super::*;

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
    }

    fn wrong(tree: &[TextFile]) -> Vec<String> {
        errors(|findings| check(root(), tree, findings))
    }

    #[test]
    fn chapters_are_listed_once_and_linked_from_chapters() {
        let list = |text| sample(SUMMARY, text);
        let page = |text| sample("docs/usage.md", text);
        let good = [list("- [a](docs/usage.md)\n"), page("[b](usage.md#x)\n")];
        assert_eq!(wrong(&good), Vec::<String>::new());
        let unlisted = [list("- [a](README.md)\n"), page("\n")];
        assert!(wrong(&unlisted)[0].contains("no chapter of the book"));
        let twice = [
            list("- [a](docs/usage.md)\n- [b](docs/usage.md)\n"),
            page("\n"),
        ];
        assert!(wrong(&twice)[0].contains("already"));
        let to_no_chapter = [
            list("- [a](docs/usage.md)\n"),
            page("[b](../CONTRIBUTING.md)\n"),
        ];
        assert!(wrong(&to_no_chapter)[0].contains("is no chapter"));
        assert!(wrong(&[])[0].contains("no such file"));
    }

    #[test]
    fn what_chapters_link_to_is_in_the_book() {
        let tree = |target: &str| {
            [
                sample(SUMMARY, "- [a](docs/usage.md)\n"),
                sample("docs/usage.md", &format!("[b]({target})\n")),
            ]
        };
        assert_eq!(wrong(&tree("../examples/lines.pl")), Vec::<String>::new());
        assert_eq!(
            wrong(&tree("https://example.org/x.png")),
            Vec::<String>::new()
        );
        assert!(wrong(&tree("../xtask/src/main.rs"))[0].contains("symbolic link"));
    }
}
