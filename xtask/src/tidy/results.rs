//! Checks that what is made from stored runs is as they make it: nobody edits a figure by hand.

use std::path::Path;

use super::{Finding, TextFile};
use crate::results::{DOCS, MARK, files};

/// Compares the pages with the stored runs.
pub fn check(tree: &[TextFile], findings: &mut Vec<Finding>) {
    let docs = Path::new(DOCS);
    let text_of = |path: &str| {
        let path = docs.join(path);
        let file = tree.iter().find(|file| file.path == path);
        file.map(|file| file.text.clone())
    };
    let made = files::all(&text_of);
    for (name, text) in &made {
        let what = match text {
            Ok(text) if text_of(name).as_ref() == Some(text) => continue,
            Ok(_) => "is not what the stored runs make it; run cargo xtask results --render",
            Err(what) => what,
        };
        findings.push(Finding::error(&docs.join(name), 0, what));
    }
    for file in tree {
        let Ok(path) = file.path.strip_prefix(docs) else {
            continue;
        };
        let is_made = |path: &Path| made.iter().any(|(name, _)| Path::new(name) == path);
        if path.starts_with(files::STORED) {
            let name = path.file_stem().unwrap_or_default();
            let page = Path::new(files::PAGES_DIR).join(name).with_extension("md");
            if !is_made(&page) {
                let what =
                    "belongs to no page of xtask/src/results/list.rs; remove it, or list its page";
                findings.push(Finding::error(&file.path, 0, what));
            }
        } else if file.text.starts_with(MARK) && !is_made(path) {
            let what = "says that it is made from a stored run, but there is none; measure it, or remove it";
            findings.push(Finding::error(&file.path, 0, what));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{errors, sample};
    use super::*;
    use crate::results::one_workload;

    const PAGE: &str = "docs/results/memhog.md";

    /// A tree with one stored run and all that is made from it, in which `change` has changed a file's text.
    fn wrong(change: impl Fn(&mut Vec<TextFile>)) -> Vec<String> {
        let run = one_workload().to_text();
        let stored = "results/json/memhog.json";
        let made = files::all(&|path| (path == stored).then(|| run.clone()));
        let mut tree = vec![sample(&format!("docs/{stored}"), &run)];
        tree.extend(
            made.into_iter()
                .map(|(path, text)| sample(&format!("docs/{path}"), &text.unwrap())),
        );
        change(&mut tree);
        errors(|findings| check(&tree, findings))
    }

    fn edit(tree: &mut [TextFile], path: &str, from: &str, to: &str) {
        let file = tree
            .iter_mut()
            .find(|file| file.path == Path::new(path))
            .unwrap();
        assert!(file.text.contains(from), "{}", file.text);
        file.text = file.text.replace(from, to);
    }

    #[test]
    fn what_was_made_passes() {
        let more = sample("docs/results/limit.md", "# By hand\n");
        assert_eq!(wrong(|tree| tree.push(more.clone())), Vec::<String>::new());
    }

    #[test]
    fn changes_by_hand_are_found() {
        let only = |found: Vec<String>, what: &str| {
            assert!(found.len() == 1 && found[0].contains(what), "{found:?}");
        };
        only(
            wrong(|tree| edit(tree, PAGE, "1200 (600", "900 (600")),
            "--render",
        );
        only(
            wrong(|tree| edit(tree, "docs/results/README.md", "abc1234", "abc1235")),
            "--render",
        );
        only(
            wrong(|tree| tree.retain(|file| file.path != Path::new(PAGE))),
            "--render",
        );
        let old = sample("docs/results/json/gone.json", "{}\n");
        only(wrong(|tree| tree.push(old.clone())), "list its page");
        let page = sample("docs/results/zipf.md", &format!("{MARK} -->\n"));
        only(wrong(|tree| tree.push(page.clone())), "there is none");
    }

    #[test]
    fn changed_figures_change_the_page() {
        let found = wrong(|tree| edit(tree, "docs/results/json/memhog.json", "1200.0", "900.0"));
        assert_eq!(found.len(), 1, "{found:?}");
    }
}
