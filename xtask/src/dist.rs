//! What users install: `cargo xtask dist [--again]`, into `target/dist`.
//!
//! One static binary goes into all packages: it runs with any libc, and with none. The packages hold the same files,
//! which are laid out first (`files`), so that a tarball can be unpacked into `/usr/local`. Nothing in them depends on
//! the clock, the directory or the order of a listing: `--again` builds a copy of the tree elsewhere and compares.

mod binary;
mod files;
mod licences;
mod packages;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::command;

/// The most time for anything but the compiler.
const PACK_LIMIT: Duration = Duration::from_secs(5 * 60);

/// Where things are, and what they are named after.
#[derive(Debug)]
struct Dist {
    /// The tree that is built.
    root: PathBuf,
    /// Where the packages go to.
    out: PathBuf,
    /// The time of all files, in seconds since 1970.
    epoch: String,
}

impl Dist {
    fn new(root: &Path, out: PathBuf, epoch: &str) -> Result<Dist, String> {
        // Packages of another version would stay beside the new ones.
        let _ = std::fs::remove_dir_all(&out);
        std::fs::create_dir_all(&out).map_err(|error| said(&out, &error))?;
        Ok(Dist {
            root: root.to_owned(),
            out,
            epoch: epoch.to_owned(),
        })
    }

    /// The files as they are installed below a prefix.
    fn prefix(&self) -> PathBuf {
        self.out.join("prefix")
    }

    /// A command with the time of all files.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(&self.root)
            .env("SOURCE_DATE_EPOCH", &self.epoch);
        command
    }

    /// Builds the binary, lays the files out, and packs them. Returns the binary and the tarball.
    fn tarball(&self) -> Result<[PathBuf; 2], String> {
        let binary = binary::build(&self.root)?;
        files::lay_out(self, &binary)?;
        Ok([binary, packages::tarball(self)?])
    }
}

/// Makes all packages, or with `--again` the tarball twice.
///
/// # Errors
/// The command line made no sense, or something could not be made.
pub fn run(root: &Path, arguments: &[String]) -> Result<bool, String> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let made = match words[..] {
        [] => all(root),
        ["--again"] => again(root),
        _ => {
            return Err(format!(
                "usage: cargo xtask dist [--again], but got {words:?}"
            ));
        }
    };
    // A package that cannot be made is a failed check, not a wrong command line.
    if let Err(reason) = &made {
        println!("FAILED dist: {reason}");
    }
    Ok(made.is_ok())
}

fn all(root: &Path) -> Result<(), String> {
    let dist = Dist::new(root, root.join("target/dist"), &epoch(root)?)?;
    dist.tarball()?;
    let missing = packages::others(&dist)?;
    packages::list(&dist)?;
    for what in missing {
        println!("not made: {what}");
    }
    Ok(())
}

/// Builds here and in a copy of the tree, and compares bytes.
fn again(root: &Path) -> Result<(), String> {
    let epoch = epoch(root)?;
    // The packages in target/dist stay as they are.
    let here = Dist::new(root, root.join("target/dist-again"), &epoch)?.tarball()?;
    let place = std::env::temp_dir().join(format!("vswap-dist-{}", std::process::id()));
    let there = copy_tree(root, &place)
        .and_then(|()| Dist::new(&place, place.join("target/dist"), &epoch)?.tarball());
    let compared = there.and_then(|there| {
        here.iter()
            .zip(&there)
            .try_for_each(|(one, other)| same(one, other))
    });
    let _ = std::fs::remove_dir_all(&place);
    compared
}

fn same(one: &Path, other: &Path) -> Result<(), String> {
    let read = |path: &Path| std::fs::read(path).map_err(|error| said(path, &error));
    let (left, right) = (read(one)?, read(other)?);
    if left == right {
        println!("{}: the same {} bytes in both", one.display(), left.len());
        return Ok(());
    }
    let first = left.iter().zip(&right).take_while(|(a, b)| a == b).count();
    Err(format!(
        "{} is not reproducible: {} and {} bytes, the first difference at byte {first}",
        one.display(),
        left.len(),
        right.len()
    ))
}

/// What git knows or would add, as it is now.
fn copy_tree(root: &Path, to: &Path) -> Result<(), String> {
    let listed = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(root)
        .output()
        .map_err(|error| format!("cannot start git: {error}"))?;
    for name in String::from_utf8_lossy(&listed.stdout).split_terminator('\0') {
        let (from, to) = (root.join(name), to.join(name));
        // A file that was removed and not committed is still listed.
        if from.exists() {
            copy(&from, &to)?;
        }
    }
    Ok(())
}

/// Copies a file, with its permissions, and makes the directories above it.
fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let above = to.parent().unwrap_or(to);
    std::fs::create_dir_all(above).map_err(|error| said(above, &error))?;
    std::fs::copy(from, to).map_err(|error| said(from, &error))?;
    Ok(())
}

/// The time of the last commit, unless the environment names another.
fn epoch(root: &Path) -> Result<String, String> {
    if let Ok(given) = std::env::var("SOURCE_DATE_EPOCH") {
        return Ok(given);
    }
    let log = Command::new("git")
        .args(["log", "-1", "--format=%ct"])
        .current_dir(root)
        .output()
        .map_err(|error| format!("cannot start git: {error}"))?;
    let time = String::from_utf8_lossy(&log.stdout).trim().to_owned();
    if time.is_empty() {
        return Err(
            "git knows no commit: set SOURCE_DATE_EPOCH to the time of the packages".into(),
        );
    }
    Ok(time)
}

fn said(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

/// Runs a command, which must succeed, and returns what it printed.
fn printed(command: &mut Command) -> Result<Vec<u8>, String> {
    let shown = command::shell_words(command);
    let output = command
        .output()
        .map_err(|error| format!("cannot start `{shown}`: {error}"))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("`{shown}` ended with {}: {said}", output.status))
}
