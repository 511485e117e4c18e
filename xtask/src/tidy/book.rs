//! The book: every page of `docs` is a chapter, and chapters link to no page that is none. That the entries of the list
//! exist is checked with all other links.

use std::path::{Path, PathBuf};

use super::links::targets;
use super::{Finding, TextFile};
use crate::book::SUMMARY;

/// Where every page must be a chapter.
const PAGES: &str = "docs";

/// Checks chapters against pages, and the links of chapters.
pub fn check(tree: &[TextFile], findings: &mut Vec<Finding>) {
    let summary = Path::new(SUMMARY);
    let Some(list) = tree.iter().find(|file| file.path == summary) else {
        let what = "there is no such file, and the book has no chapters";
        findings.push(Finding::error(summary, 0, what));
        return;
    };
    let mut chapters: Vec<PathBuf> = Vec::new();
    for (line, chapter) in targets(summary, &list.text) {
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
            chapter(file, &chapters, findings);
        }
    }
}

/// The links of one chapter. Targets that do not exist at all are found elsewhere.
fn chapter(file: &TextFile, chapters: &[PathBuf], findings: &mut Vec<Finding>) {
    for (line, target) in targets(&file.path, &file.text) {
        let is_page = target.extension().is_some_and(|dot| dot == "md");
        if is_page && !chapters.contains(&target) {
            let what = format!("{} is no chapter: add it to {SUMMARY}", target.display());
            findings.push(Finding::error(&file.path, line, what));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{errors, sample};
    use super::*;

    fn wrong(tree: &[TextFile]) -> Vec<String> {
        errors(|findings| check(tree, findings))
    }

    #[test]
    fn chapters_are_listed_once_and_linked_from_chapters() {
        let list = |text| sample(SUMMARY, text);
        let page = |text| sample("docs/usage.md", text);
        let good = [list("- [a](../docs/usage.md)\n"), page("[b](usage.md#x)\n")];
        assert_eq!(wrong(&good), Vec::<String>::new());
        let unlisted = [list("- [a](../README.md)\n"), page("\n")];
        assert!(wrong(&unlisted)[0].contains("no chapter of the book"));
        let twice = [
            list("- [a](../docs/usage.md)\n- [b](../docs/usage.md)\n"),
            page("\n"),
        ];
        assert!(wrong(&twice)[0].contains("already"));
        let to_no_chapter = [
            list("- [a](../docs/usage.md)\n"),
            page("[b](../CONTRIBUTING.md)\n"),
        ];
        assert!(wrong(&to_no_chapter)[0].contains("is no chapter"));
        assert!(wrong(&[])[0].contains("no such file"));
    }
}
