//! `cargo xtask book`: the book, as pages for a browser in `target/book`.
//!
//! mdBook does the work. It wants all chapters below one directory, and pages stay where they are: the directory is
//! made of links, below `target`. So a link from page to page is the same in the book and on a forge. The tree itself
//! has no links, which not every copy of it keeps.
//!
//! It is not part of `ci`, because not everybody has mdBook. `tidy` checks what can be checked without it.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::command;
use crate::step::Report;
use crate::tidy::links::targets;

/// The version that the book was made with last.
const MDBOOK_VERSION: &str = "0.5.4";
/// The list of chapters. Its links name pages from where it is.
pub const SUMMARY: &str = "book/SUMMARY.md";
/// Where mdBook finds the chapters, as book.toml says.
const SOURCE: &str = "target/book-source";

/// Builds the book.
///
/// # Errors
/// There is no mdBook, or it fails.
pub fn build(root: &Path, limit: Duration) -> Result<Report, String> {
    if Command::new("mdbook").arg("--version").output().is_err() {
        return Err(format!(
            "there is no mdbook: cargo install mdbook --locked --version {MDBOOK_VERSION}"
        ));
    }
    collect(root, &root.join(SOURCE))
        .map_err(|error| format!("cannot collect the chapters: {error}"))?;
    let mut mdbook = Command::new("mdbook");
    mdbook.args(["build", "book"]).current_dir(root);
    command::run(&mut mdbook, limit)?;
    println!("the book begins with target/book/index.html");
    Ok(Report::default())
}

/// Makes the directory of the list, of links to the chapters, and of links to all that chapters link to.
fn collect(root: &Path, source: &Path) -> std::io::Result<()> {
    if source.exists() {
        fs::remove_dir_all(source)?;
    }
    fs::create_dir_all(source)?;
    let list = fs::read_to_string(root.join(SUMMARY))?;
    fs::write(source.join("SUMMARY.md"), list.replace("](../", "]("))?;
    let chapters = named_by(Path::new(SUMMARY), &list);
    let mut all = chapters.clone();
    for chapter in &chapters {
        let text = fs::read_to_string(root.join(chapter))?;
        all.extend(named_by(chapter, &text));
    }
    // A directory comes before what is in it, and brings that along.
    for path in all {
        let place = source.join(&path);
        if place.exists() {
            continue;
        }
        if let Some(above) = place.parent() {
            fs::create_dir_all(above)?;
        }
        symlink(root.join(&path), place)?;
    }
    Ok(())
}

fn named_by(page: &Path, text: &str) -> BTreeSet<PathBuf> {
    targets(page, text).map(|(_, path)| path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chapters_and_what_they_link_to_are_collected() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let source = std::env::temp_dir().join(format!("vswap-book-{}", std::process::id()));
        collect(root, &source).unwrap();
        // Again, as the second build of the book does.
        collect(root, &source).unwrap();
        let list = fs::read_to_string(source.join("SUMMARY.md")).unwrap();
        assert!(list.contains("](docs/usage.md)") && !list.contains("](../"));
        let chapters = named_by(Path::new("SUMMARY.md"), &list);
        assert!(chapters.len() > 20, "{chapters:?}");
        for chapter in chapters {
            let text = fs::read_to_string(source.join(&chapter)).unwrap();
            for target in named_by(&chapter, &text) {
                assert!(source.join(&target).exists(), "{chapter:?}: {target:?}");
            }
        }
        fs::remove_dir_all(&source).unwrap();
    }
}
