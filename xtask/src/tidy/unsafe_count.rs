//! Compares the number of unsafe blocks and unsafe implementations in each crate with the agreed number.
//!
//! The numbers are in `xtask/unsafe-counts.txt`. A change that needs another number changes that file too, so that
//! reviewers see it and discuss it. A number that fell is recorded as well, or it could creep back. Unsafe code in
//! tests does not count.

use std::collections::BTreeMap;
use std::path::Path;

use super::{Finding, TextFile, read_tree};
use crate::source;

/// The file with the numbers.
const RECORD: &str = "xtask/unsafe-counts.txt";
const RECORD_HEAD: &str = "# Unsafe blocks and unsafe impls per crate, without tests. Raising a number is a decision:\n\
                           # say why in the commit. `cargo xtask unsafe-counts --write` writes this file.\n";

/// Compares the tree's numbers with the recorded ones.
pub fn check(tree: &[TextFile], findings: &mut Vec<Finding>) {
    let path = Path::new(RECORD);
    let recorded = tree
        .iter()
        .find(|file| file.path == path)
        .map(|file| parse(&file.text));
    let recorded = match recorded {
        Some(Ok(numbers)) => numbers,
        Some(Err((line, what))) => return findings.push(Finding::error(path, line, what)),
        None => return findings.push(Finding::error(path, 0, "the file is missing")),
    };
    let actual = count(tree);
    for (name, now) in &actual {
        let agreed = recorded.get(name).copied().unwrap_or(0);
        if *now != agreed {
            let what = format!(
                "{name} has {now} unsafe blocks and impls, agreed are {agreed}; if that is meant: \
                 cargo xtask unsafe-counts --write"
            );
            findings.push(Finding::error(path, 0, what));
        }
    }
    for name in recorded.keys().filter(|name| !actual.contains_key(*name)) {
        findings.push(Finding::error(
            path,
            0,
            format!("{name} is listed and does not exist"),
        ));
    }
}

/// The verb `unsafe-counts`: prints the numbers, and records them if told to.
///
/// # Errors
/// The option is unknown.
pub fn show(root: &Path, options: &[String]) -> Result<bool, String> {
    let write = match options {
        [] => false,
        [option] if option == "--write" => true,
        _ => return Err("usage: cargo xtask unsafe-counts [--write]".into()),
    };
    let tree = match read_tree(root) {
        Ok(tree) => tree,
        Err(error) => {
            println!("cannot read the tree: {error}");
            return Ok(false);
        }
    };
    let text = render(&count(&tree));
    print!("{text}");
    if write && let Err(error) = std::fs::write(root.join(RECORD), &text) {
        println!("cannot write {RECORD}: {error}");
        return Ok(false);
    }
    Ok(true)
}

fn render(numbers: &BTreeMap<String, usize>) -> String {
    let mut text = String::from(RECORD_HEAD);
    for (name, number) in numbers {
        text.push_str(&format!("{name} {number}\n"));
    }
    text
}

fn parse(text: &str) -> Result<BTreeMap<String, usize>, (usize, String)> {
    let mut numbers = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        if line.starts_with('#') || line.trim().is_empty() {
            continue;
        }
        let number = line
            .split_once(' ')
            .and_then(|(name, rest)| Some((name, rest.parse().ok()?)));
        let (name, number) =
            number.ok_or((index + 1, format!("{line:?} is not `crate number`")))?;
        numbers.insert(name.to_string(), number);
    }
    Ok(numbers)
}

/// Unsafe blocks and impls, by the directory of their crate.
fn count(tree: &[TextFile]) -> BTreeMap<String, usize> {
    let roots: Vec<&Path> = tree
        .iter()
        .filter(|file| file.path.ends_with("Cargo.toml") && file.text.contains("[package]"))
        .filter_map(|file| file.path.parent())
        .collect();
    let mut numbers: BTreeMap<String, usize> = roots
        .iter()
        .map(|path| (path.display().to_string(), 0))
        .collect();
    for file in tree
        .iter()
        .filter(|file| file.is("rs") && !is_test(&file.path))
    {
        let home = roots.iter().filter(|path| file.path.starts_with(path));
        if let Some(home) = home.max_by_key(|path| path.components().count()) {
            *numbers.entry(home.display().to_string()).or_default() += in_text(&file.text);
        }
    }
    numbers
}

/// Test directories, and unit tests in a file of their own.
fn is_test(path: &Path) -> bool {
    let stem = path
        .file_stem()
        .and_then(|stem| stem.to_str())
        .unwrap_or("");
    let in_directory = path
        .components()
        .any(|part| part.as_os_str() == "tests" || part.as_os_str() == "benches");
    in_directory || stem == "tests" || stem.ends_with("_tests")
}

/// Counts `unsafe {` and `unsafe impl`. An `unsafe fn` makes a demand, and its callers vouch for it.
fn in_text(text: &str) -> usize {
    let code = source::product_code(text);
    let vouches = |after: &str| {
        let after = after.trim_start();
        after.starts_with('{')
            || source::words(after)
                .next()
                .is_some_and(|word| word == (0, "impl"))
    };
    source::words(&code)
        .filter(|(offset, word)| *word == "unsafe" && vouches(&code[offset + word.len()..]))
        .count()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{errors, sample};
    use super::*;

    const CODE: &str = "//! A.\nunsafe impl Send for A {}\nunsafe fn a() {\n    unsafe {\n        b();\n    }\n}\n\
                        // unsafe { }\n#[cfg(test)]\nmod tests {\n    fn c() { unsafe { d() } }\n}\n";

    fn tree(record: &str) -> Vec<TextFile> {
        vec![
            sample("Cargo.toml", "[workspace]\n"),
            sample("crates/a/Cargo.toml", "[package]\n"),
            sample("crates/a/src/lib.rs", CODE),
            sample(
                "crates/a/tests/all.rs",
                "//! T.\nfn a() { unsafe { b() } }\n",
            ),
            sample(RECORD, record),
        ]
    }

    #[test]
    fn blocks_and_impls_outside_tests_are_counted() {
        assert_eq!(in_text(CODE), 2);
        assert_eq!(count(&tree(""))["crates/a"], 2);
    }

    #[test]
    fn the_agreed_number_passes_and_any_other_fails() {
        let wrong = |record: &str| errors(|findings| check(&tree(record), findings));
        assert_eq!(wrong("# head\ncrates/a 2\n"), Vec::<String>::new());
        assert!(wrong("crates/a 1\n")[0].contains("agreed are 1"));
        assert!(wrong("crates/a 3\n")[0].contains("agreed are 3"));
        assert!(wrong("")[0].contains("agreed are 0"));
        assert!(wrong("crates/a 2\ncrates/b 0\n")[0].contains("crates/b"));
        assert!(wrong("crates/a two\n")[0].contains("not `crate number`"));
    }

    #[test]
    fn what_is_written_can_be_read() {
        let numbers = BTreeMap::from([("crates/a".to_string(), 2), ("xtask".to_string(), 0)]);
        assert_eq!(parse(&render(&numbers)).unwrap(), numbers);
    }
}
