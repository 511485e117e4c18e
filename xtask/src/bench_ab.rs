//! Compares two commits: `cargo xtask bench-ab BASE [ARGUMENTS OF vswap bench]`.
//!
//! BASE is built in a git worktree below `target`. The worktree is removed at the end, but the build directory stays,
//! so the next build is shorter. Both programs then run in alternation with the same memory, as two sides of one `vswap
//! bench`. The tree's own vswap is measured as it is, including what is not committed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::checks::cargo;
use crate::command;

/// The default workloads: each kind of access, with one task and with two.
const WORKLOADS: [&str; 3] = ["fill-read-write", "zipf-0.99", "usemem-2"];
/// The most time for a build, and for all runs together.
const BUILD_LIMIT: Duration = Duration::from_secs(20 * 60);
const BENCH_LIMIT: Duration = Duration::from_secs(2 * 3600);

/// A worktree of git, removed on drop.
struct Worktree {
    root: PathBuf,
    path: PathBuf,
}

impl Worktree {
    fn new(root: &Path, commit: &str) -> Result<Self, String> {
        let worktree = Self {
            root: root.to_owned(),
            path: root.join("target/bench-ab/tree"),
        };
        // Removes a worktree that an earlier run could not remove.
        worktree.remove();
        let mut git = git(root, &["worktree", "add", "--detach"]);
        git.arg(&worktree.path).arg(commit);
        command::run(&mut git, BUILD_LIMIT)?;
        Ok(worktree)
    }

    fn remove(&self) {
        let mut git = git(&self.root, &["worktree", "remove", "--force"]);
        // It is fine if there is nothing to remove.
        let _ = git.arg(&self.path).output();
    }
}

impl Drop for Worktree {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Builds both and compares them. `Ok(false)`: a run failed.
///
/// # Errors
/// There is no such commit, or one of the two does not build.
pub fn run(root: &Path, arguments: &[String]) -> Result<bool, String> {
    let (base, rest) = arguments.split_first().ok_or_else(|| {
        "usage: cargo xtask bench-ab BASE [ARGUMENTS OF vswap bench], for example: cargo xtask bench-ab HEAD~1 zipf"
            .to_owned()
    })?;
    let commit = commit(root, base)?;
    let other = build_base(root, &commit)?;
    command::run(
        &mut cargo(root, &["build", "--release", "--package", "vswap"]),
        BUILD_LIMIT,
    )?;
    println!("vswap: this tree; other: {base}, {commit}");
    let mut bench = Command::new(root.join("target/release/vswap"));
    bench
        .current_dir(root)
        .args(bench_words(rest))
        .arg("--other")
        .arg(other);
    let (status, _) = command::run_to_end(&mut bench, BENCH_LIMIT)?;
    Ok(status.success())
}

/// The arguments for `vswap bench`: the given ones, or the default workloads. Sides of the kernel run only if asked
/// for.
fn bench_words(given: &[String]) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec!["bench".into()];
    if !given
        .iter()
        .any(|word| word == "--on" || word.starts_with("--on="))
    {
        words.extend(["--on".into(), "vswap".into()]);
    }
    if given.is_empty() {
        words.extend(WORKLOADS.map(OsString::from));
    }
    words.extend(given.iter().map(OsString::from));
    words
}

/// The full name of a commit.
fn commit(root: &Path, name: &str) -> Result<String, String> {
    let mut git = git(root, &["rev-parse", "--verify", "--quiet"]);
    let output = git
        .arg(format!("{name}^{{commit}}"))
        .output()
        .map_err(|error| format!("cannot start git: {error}"))?;
    if !output.status.success() {
        return Err(format!(
            "there is no commit {name}: expected a branch, tag or hash"
        ));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The program of another commit.
fn build_base(root: &Path, commit: &str) -> Result<PathBuf, String> {
    let worktree = Worktree::new(root, commit)?;
    let target = root.join("target/bench-ab/target");
    let mut build = cargo(
        &worktree.path,
        &["build", "--release", "--package", "vswap"],
    );
    build.env("CARGO_TARGET_DIR", &target);
    command::run(&mut build, BUILD_LIMIT)?;
    Ok(target.join("release/vswap"))
}

fn git(root: &Path, words: &[&str]) -> Command {
    let mut git = Command::new("git");
    git.current_dir(root).args(words);
    git
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(given: &[&str]) -> Vec<String> {
        let given: Vec<String> = given.iter().map(ToString::to_string).collect();
        let words = bench_words(&given).into_iter();
        words
            .map(|word| word.to_string_lossy().into_owned())
            .collect()
    }

    #[test]
    fn sides_of_the_kernel_run_when_they_are_asked_for() {
        assert_eq!(words(&["zipf"]), ["bench", "--on", "vswap", "zipf"]);
        assert_eq!(
            words(&["zipf", "--on=vswap,zram"]),
            ["bench", "zipf", "--on=vswap,zram"]
        );
        assert_eq!(words(&[]).len(), 3 + WORKLOADS.len());
    }

    #[test]
    fn a_commit_that_is_not_there_is_named() {
        let root = crate::workspace_root();
        assert!(run(&root, &[]).unwrap_err().contains("BASE"));
        let said = run(&root, &["no-such-commit".to_owned()]).unwrap_err();
        assert!(said.contains("no commit no-such-commit"), "{said}");
    }
}
