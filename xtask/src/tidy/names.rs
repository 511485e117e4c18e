//! Names of tests, in sources and in tables.

use std::collections::BTreeSet;

use super::TextFile;

/// The texts between back-ticks.
pub fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Names of all functions in the sources.
pub fn functions(tree: &[TextFile]) -> BTreeSet<&str> {
    tree.iter()
        .filter(|file| file.is("rs"))
        .flat_map(|file| file.text.lines())
        .filter_map(|line| {
            let line = line.trim_start();
            let line = line.strip_prefix("pub ").unwrap_or(line);
            line.strip_prefix("fn ")?.split(['(', '<']).next()
        })
        .collect()
}
