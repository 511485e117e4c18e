//! The book: every command of its chapters is run, and prints what the chapter says.
//!
//! A chapter is a page in `docs`. Its blocks marked `console` are one session of a shell, from the first block to the
//! last. What a command prints is compared with the lines below it, in which `[..]` stands for a part of a line and a
//! line of three dots for any lines. The commands of the other pages are not run; their verbs and options must exist.

use std::process::ExitCode;

use vswap_e2e::run_suite;
use vswap_e2e::suite::Test;

mod blocks;
mod chapters;
mod mentions;
mod session;

/// The chapters take some seconds each. Their bounds are for machines on which much else runs.
const TESTS: &[Test] = &[
    Test::new("first_run", 300, |context| {
        chapters::run(context, "first-run.md")
    }),
    Test::new("tiers", 300, |context| chapters::run(context, "tiers.md")),
    Test::new("operations", 300, |context| {
        chapters::run(context, "operations.md")
    }),
    Test::new("messages", 300, |context| {
        chapters::run(context, "messages.md")
    }),
    Test::new("no_chapter_is_left_out", 30, |_| {
        let names: Vec<&str> = TESTS.iter().map(|test| test.name).collect();
        chapters::all_are_run(&names)
    }),
    Test::new(
        "verbs_and_options_exist",
        120,
        mentions::verbs_and_options_exist,
    ),
];

fn main() -> ExitCode {
    run_suite(TESTS)
}
