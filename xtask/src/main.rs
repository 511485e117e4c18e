//! The one door to every check: `cargo xtask VERB`.
//!
//! A verb is a list of steps. Each step prints its name and its time. The first failing step ends the run and names the
//! command that repeats it. A table comes last. Continuous integration runs `cargo xtask ci` and nothing else, so what
//! passes there passes here. This program builds, runs and reads. It writes files of the tree only when told to:
//! `unsafe-counts.txt`, the table in `docs/containers.md`, and what `results` measures, in `docs/results` and the table
//! of targets. Besides, `bench-ab` makes git create a worktree below `target`, `suites` builds other people's programs
//! there, `advise-check` and `least-ram` write there, and `dist` makes the packages there.

#![forbid(unsafe_code)]

mod aarch64;
mod advise_check;
mod bench_ab;
mod book;
mod chaos;
mod checks;
mod command;
mod dist;
mod drive;
mod environments;
mod fuzz;
mod hostile;
mod least_ram;
mod nightly;
mod policy;
mod programs;
mod results;
mod rules;
mod soak;
mod source;
mod step;
mod suites;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use step::{Stage, Step};

/// What each verb does, in the order of the help text.
const VERBS: &[(&str, &str)] = &[
    (
        "ci",
        "every check of this list from fmt to victims, chaos and hostile",
    ),
    ("fmt", "formatting of all Rust code"),
    (
        "tidy",
        "rules on text, links, chapters, unsafe counts and the arrows between crates",
    ),
    ("clippy", "lints, on all targets, warnings are errors"),
    ("doc", "build of the documentation, warnings are errors"),
    ("msrv", "vswap builds with the oldest Rust that it promises"),
    (
        "deny",
        "licences, sources, doubles and known holes of the crates that vswap is linked with",
    ),
    (
        "aarch64",
        "what there is for aarch64 builds, and its unit tests pass by qemu-user",
    ),
    ("test", "unit tests of every crate, with debug assertions"),
    (
        "property",
        "property tests of the engine against naive models, optimised, more cases",
    ),
    (
        "loom",
        "every order of a few threads' steps in the engine's lock-free parts",
    ),
    (
        "shuttle",
        "many random schedules of larger cases in the engine",
    ),
    (
        "miri",
        "the engine's tests under an interpreter that finds undefined behaviour",
    ),
    (
        "tsan",
        "the engine's threads under ThreadSanitizer, with tiny clusters",
    ),
    (
        "fuzz",
        "the fuzzers, ten seconds each; --seconds N [TARGET] for longer or for one",
    ),
    (
        "e2e",
        "real programs and programs built to break vswap, in less RAM than they need",
    ),
    (
        "e2e-command",
        "what the command does and says, and the commands of the book",
    ),
    (
        "victims",
        "programs that verify their memory, a few seconds each, while everything is evicted",
    ),
    (
        "rules",
        "each rule of the pager left out in turn: the victim that guards it must notice",
    ),
    ("deps", "the arrows between crates alone (part of tidy)"),
    (
        "soak",
        "victims and stress-ng under constant eviction; --minutes N, 10 unless told; then what is too long for ci",
    ),
    (
        "checkers",
        "loom and miri with more of everything than in ci",
    ),
    (
        "long",
        "real programs that take too long for ci, where it has shorter ones of their kind",
    ),
    (
        "chaos",
        "generated programs natively and under vswap, compared: chaos [--minutes N] [--seed S] [--native] ...",
    ),
    (
        "hostile",
        "programs that lie to vswap beside honest ones: hostile [--minutes N] [--seed S] [--daemon] ...",
    ),
    (
        "suites",
        "other people's tests natively and under vswap, compared: suites [NAME...] [--list] ...",
    ),
    (
        "bench-ab",
        "vswap of this tree beside that of another commit: bench-ab BASE [ARGUMENTS OF vswap bench]",
    ),
    (
        "results",
        "measure the pages of docs/results: results [NAME...] [--list] [--render] [--quick]",
    ),
    (
        "advise-check",
        "advice of vswap advise against real runs: advise-check [PROGRAM...] [--list] [--rounds N] ...",
    ),
    (
        "least-ram",
        "the least --ram with which programs end in twice their time: least-ram [PROGRAM...] [--codecs A,B] ...",
    ),
    (
        "environments",
        "vswap in containers, sandboxes and as other users: environments [--write] [NAME...]",
    ),
    ("book", "the book, in target/book; needs mdbook"),
    (
        "dist",
        "packages for users, in target/dist; --again builds the tarball twice and compares",
    ),
    (
        "unsafe-counts",
        "print the unsafe blocks per crate; --write records them",
    ),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let root = workspace_root();
    match run(&root, &arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(usage) => {
            eprintln!("{usage}");
            ExitCode::from(2)
        }
    }
}

/// Runs the verb. `Ok(false)`: a check failed. `Err`: the command line made no sense.
fn run(root: &Path, arguments: &[String]) -> Result<bool, String> {
    let Some((verb, rest)) = arguments.split_first() else {
        return Err(help());
    };
    if matches!(verb.as_str(), "help" | "--help" | "-h") {
        println!("{}", help());
        return Ok(true);
    }
    let no_options = |stages: Vec<Stage>| match rest.first() {
        None => Ok(stages),
        Some(extra) => Err(format!("xtask {verb} takes no option, but got {extra:?}")),
    };
    let in_order = |steps: Vec<Step>| vec![vec![steps]];
    let stages = match verb.as_str() {
        "ci" => no_options(checks::ci())?,
        "soak" => {
            let mut steps = soak::steps(soak::minutes(rest)?);
            steps.extend(checks::long_steps());
            in_order(steps)
        }
        "fuzz" => in_order(vec![fuzz::step(fuzz::search(rest)?)]),
        "chaos" => in_order(vec![chaos::step(rest)]),
        "hostile" => in_order(vec![hostile::step(rest)]),
        "suites" => return suites::run(root, rest),
        "dist" => return dist::run(root, rest),
        "bench-ab" => return bench_ab::run(root, rest),
        "results" => return results::run(root, rest),
        "advise-check" => return advise_check::run(root, rest),
        "least-ram" => return least_ram::run(root, rest),
        "environments" => return environments::run(root, rest),
        "unsafe-counts" => return tidy::unsafe_count::show(root, rest),
        name => match checks::by_name(name) {
            Some(step) => no_options(in_order(vec![step]))?,
            None => return Err(format!("xtask knows no verb {name:?}\n\n{}", help())),
        },
    };
    Ok(step::run_all(root, &stages))
}

fn help() -> String {
    let mut text = String::from("usage: cargo xtask VERB\n\n");
    for (verb, what) in VERBS {
        text.push_str(&format!("  {verb:<14} {what}\n"));
    }
    text
}

/// The directory of the workspace: the parent of this crate's.
fn workspace_root() -> PathBuf {
    // The variable at run time comes first: a built copy may have been moved along with the tree.
    let here = std::env::var_os("CARGO_MANIFEST_DIR");
    let mut root = here.map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    root.pop();
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_verb_is_known() {
        for (verb, _) in VERBS {
            let known = matches!(
                *verb,
                "ci" | "soak"
                    | "fuzz"
                    | "chaos"
                    | "hostile"
                    | "suites"
                    | "bench-ab"
                    | "dist"
                    | "results"
                    | "advise-check"
                    | "least-ram"
                    | "environments"
                    | "unsafe-counts"
            );
            assert!(
                known || checks::by_name(verb).is_some(),
                "{verb} is listed and not known"
            );
        }
    }

    #[test]
    fn unknown_verbs_and_stray_options_are_refused() {
        let root = workspace_root();
        let words = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert!(
            run(&root, &words(&["no-such-verb"]))
                .unwrap_err()
                .contains("no-such-verb")
        );
        assert!(
            run(&root, &words(&["fmt", "--fast"]))
                .unwrap_err()
                .contains("--fast")
        );
        assert!(run(&root, &[]).unwrap_err().contains("usage"));
    }
}
