//! `cargo xtask book`: the book, as pages for a browser in `target/book`.
//!
//! mdBook does the work. It is not part of `ci`, because not everybody has it. `tidy` checks what can be checked
//! without it.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::command;
use crate::step::Report;

/// The version that the book was made with last.
const MDBOOK_VERSION: &str = "0.5.4";

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
    let mut mdbook = Command::new("mdbook");
    mdbook.args(["build", "book"]).current_dir(root);
    command::run(&mut mdbook, limit)?;
    println!("the book begins with target/book/index.html");
    Ok(Report::default())
}
