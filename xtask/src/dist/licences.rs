//! The licences of everything that is linked into the binary, with their texts, because most of them demand that.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::binary::TARGET;
use super::{printed, said};
use crate::checks::cargo;

/// What crates call the files with their licences.
const NAMES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE"];
/// Where in a crate they lie: at its top, and beside the libraries in C that it carries.
const PLACES: [&str; 3] = [".", "liblz4/lib", "zstd"];
const HEAD: &str = "\
vswap itself is under the MIT license or the Apache License 2.0, as you prefer.

The binary has in it, beside the crates below:
- the Rust standard library: MIT or Apache-2.0, https://www.rust-lang.org
- the GNU C Library: LGPL-2.1-or-later, https://www.gnu.org/software/libc. With the sources of vswap,
  `cargo xtask dist` links the binary with another version of it.
";

/// One text: each licence once, after the names of the crates that it is of.
///
/// # Errors
/// cargo does not know the crates, or one of them names no licence, or a file cannot be read.
pub fn of_dependencies(root: &Path) -> Result<String, String> {
    let mut command = cargo(root, &["metadata", "--locked", "--format-version", "1"]);
    let metadata = printed(command.args(["--filter-platform", TARGET]))?;
    let metadata: Value = serde_json::from_slice(&metadata)
        .map_err(|error| format!("cargo metadata gave no JSON: {error}"))?;
    let mut text = HEAD.to_owned();
    let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in linked(&metadata) {
        let name = format!("{} {}", word(&package["name"]), word(&package["version"]));
        let licence = package["license"]
            .as_str()
            .ok_or_else(|| format!("{name} names no licence"))?;
        text += &format!("- {name}: {licence}\n");
        for path in files_of(&package) {
            let found = std::fs::read(&path).map_err(|error| said(&path, &error))?;
            let found = String::from_utf8_lossy(&found).trim().to_owned();
            texts.entry(found).or_default().insert(name.clone());
        }
    }
    // In the order of names, not of texts.
    let mut texts: Vec<_> = texts
        .into_iter()
        .map(|(text, names)| (names, text))
        .collect();
    texts.sort();
    for (names, licence) in texts {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        text += &format!("\n{}\n{}:\n\n{licence}\n", "=".repeat(80), names.join(", "));
    }
    Ok(text)
}

/// Packages from elsewhere that the command is linked with, by name.
fn linked(metadata: &Value) -> Vec<Value> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let packages: BTreeMap<String, Value> = list(&metadata["packages"])
        .into_iter()
        .map(|package| (word(&package["id"]), package))
        .collect();
    let nodes: BTreeMap<String, Value> = list(&metadata["resolve"]["nodes"])
        .into_iter()
        .map(|node| (word(&node["id"]), node))
        .collect();
    let command = packages.values().find(|package| package["name"] == "vswap");
    let mut pending: Vec<String> = command
        .map(|package| word(&package["id"]))
        .into_iter()
        .collect();
    let mut seen = BTreeSet::new();
    while let Some(id) = pending.pop() {
        if !seen.insert(id.clone()) {
            continue;
        }
        for dependency in nodes
            .get(&id)
            .map(|node| list(&node["deps"]))
            .unwrap_or_default()
        {
            // Neither for tests nor for build scripts.
            if list(&dependency["dep_kinds"])
                .iter()
                .any(|kind| kind["kind"].is_null())
            {
                pending.push(word(&dependency["pkg"]));
            }
        }
    }
    let mut found: Vec<Value> = seen
        .iter()
        .filter_map(|id| packages.get(id))
        .cloned()
        .collect();
    found.retain(|package| !package["source"].is_null());
    found.sort_by_key(|package| (word(&package["name"]), word(&package["version"])));
    found
}

fn word(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The files with licences of one package, sorted.
fn files_of(package: &Value) -> Vec<PathBuf> {
    let manifest = PathBuf::from(word(&package["manifest_path"]));
    let directory = manifest.parent().unwrap_or(&manifest);
    let is_licence = |path: &PathBuf| {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .to_uppercase();
        path.is_file() && NAMES.iter().any(|known| name.starts_with(known))
    };
    let mut files = Vec::new();
    for place in PLACES.map(|place| directory.join(place)) {
        // Most crates have one of the places alone.
        let listed = std::fs::read_dir(place).into_iter().flatten().flatten();
        files.extend(listed.map(|entry| entry.path()).filter(is_licence));
    }
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_linked_is_listed_and_what_only_tests_need_is_not() {
        let text = of_dependencies(&crate::workspace_root()).unwrap();
        for linked in ["- clap ", "- lz4-sys ", "- rustix "] {
            assert!(text.contains(linked), "no {linked}");
        }
        for not in ["- tempfile ", "- libtest-mimic ", "- vswap"] {
            assert!(!text.contains(not), "{not}");
        }
        for licence in [
            "Permission is hereby granted, free of charge",
            "Yann Collet",
            "Meta Platforms",
        ] {
            assert!(text.contains(licence), "no {licence}");
        }
    }
}
