//! The module as Python has it: `test_vswap_arena.py` and the example of the book, run by a Python with numpy.
//!
//! The module is built by cargo once more, from here: it can be linked with no test in Rust.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Pythons that may have numpy: the first in the path, and the system's.
const PYTHONS: [&str; 2] = ["python3", "/usr/bin/python3"];
/// What such a Python says yes to.
const SUITS: &str = "import sys, numpy; assert sys.version_info >= (3, 11)";

/// None if there is no Python to test with, which continuous integration does not let pass.
fn python() -> Option<Command> {
    let suits = |name: &&str| {
        let output = Command::new(name).args(["-c", SUITS]).output();
        output.is_ok_and(|output| output.status.success())
    };
    let found = PYTHONS.into_iter().find(suits);
    if found.is_none() {
        let why = "no Python of 3.11 or newer with numpy: install python3-numpy";
        assert!(std::env::var_os("CI").is_none(), "{why}");
        println!("skipped: {why}");
    }
    let mut command = Command::new(found?);
    command.env("PYTHONPATH", package());
    Some(command)
}

fn said(output: &Output) -> String {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    format!(
        "{}\n{}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    )
}

#[track_caller]
fn run(command: &mut Command) {
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{command:?}: {}", said(&output));
}

/// The directory that has the package, laid out once as a wheel does.
fn package() -> &'static Path {
    static LAID_OUT: OnceLock<PathBuf> = OnceLock::new();
    LAID_OUT.get_or_init(|| {
        let own = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let target = own.parent().expect("a target directory");
        run(Command::new(env!("CARGO"))
            .args(["build", "--package", "vswap-python"])
            .env("CARGO_TARGET_DIR", target));
        let package = own.join("python");
        let inner = package.join("vswap_arena");
        std::fs::create_dir_all(&inner).expect("a directory");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/vswap_arena");
        let python = source.join("__init__.py");
        std::fs::copy(python, inner.join("__init__.py")).expect("a copy");
        let library = target.join("debug/lib_vswap_arena.so");
        // A new file: a Python of an earlier test may have the old one mapped.
        let place = inner.join("_vswap_arena.abi3.so");
        let _ = std::fs::remove_file(&place);
        std::fs::copy(library, place).expect("a copy");
        package
    })
}

#[test]
fn the_module_does_what_its_tests_say() {
    let Some(mut python) = python() else { return };
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/test_vswap_arena.py");
    run(python.arg(tests));
}

#[test]
fn the_example_of_the_book_runs() {
    let Some(mut python) = python() else { return };
    let book = include_str!("../../../docs/library.md");
    let (_, from) = book.split_once("\n## From Python\n").expect("the chapter");
    let (_, from) = from.split_once("```python\n").expect("an example");
    let (example, _) = from.split_once("```").expect("its end");
    run(python.args(["-c", example]));
}
