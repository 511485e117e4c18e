//! The packages, each made of the files below the prefix by the usual tool for it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Dist, PACK_LIMIT, copy, printed, said};
use crate::command;

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The tools that are no part of cargo, in the versions that were tried. `.ci/run` installs the same.
const DEB: (&str, &str) = ("cargo-deb", "3.8.0");
const RPM: (&str, &str) = ("cargo-generate-rpm", "0.21.1");

/// Packs the files so that everybody who packs them gets the same bytes.
///
/// # Errors
/// tar or gzip failed.
pub fn tarball(dist: &Dist) -> Result<PathBuf, String> {
    let name = format!("vswap-{VERSION}-x86_64-linux");
    let path = dist.out.join(format!("{name}.tar.gz"));
    let mut tar = Command::new("tar");
    tar.current_dir(dist.prefix())
        .args([
            "--create",
            "--format=ustar",
            "--sort=name",
            "--numeric-owner",
        ])
        .args(["--owner=0", "--group=0", "--mode=u=rwX,go=rX"])
        .arg(format!("--mtime=@{}", dist.epoch))
        .arg(format!("--transform=s,^\\.,{name},"))
        .args(["--use-compress-program", "gzip -9 --no-name", "--file"])
        .arg(&path)
        .arg(".");
    command::run(&mut tar, PACK_LIMIT)?;
    Ok(path)
}

/// The other packages. Returns what could not be made because a tool is missing, and how to install it.
///
/// # Errors
/// A tool that is there failed.
pub fn others(dist: &Dist) -> Result<Vec<String>, String> {
    let mut missing = Vec::new();
    for ((tool, version), words) in [
        (
            DEB,
            &[
                "deb",
                "--package",
                "vswap",
                "--no-build",
                "--no-strip",
                "--quiet",
            ][..],
        ),
        (RPM, &["generate-rpm", "--package", "crates/cli"]),
    ] {
        if has(tool) {
            let mut pack = dist.command("cargo");
            pack.args(words).arg("--output").arg(&dist.out);
            command::run(&mut pack, PACK_LIMIT)?;
        } else {
            missing.push(format!(
                "no {tool} here; to have it: cargo install --locked {tool}@{version}"
            ));
        }
    }
    wheel(dist)?;
    Ok(missing)
}

fn has(tool: &str) -> bool {
    let asked = Command::new(tool)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    asked.is_ok()
}

/// The wheel for pip, in a copy of `python`, because the binary and the licences must lie beside its sources.
fn wheel(dist: &Dist) -> Result<(), String> {
    let place = dist.out.join("wheel");
    let python = dist.root.join("python");
    for file in files_below(&python)? {
        copy(&python.join(&file), &place.join(&file))?;
    }
    copy(&dist.prefix().join("bin/vswap"), &place.join("bin/vswap"))?;
    for name in ["LICENSE-MIT", "LICENSE-APACHE", "LICENSES-OF-OTHERS"] {
        let from = dist.prefix().join("share/doc/vswap").join(name);
        copy(&from, &place.join(name))?;
    }
    let mut pip = dist.command("python3");
    pip.args(["-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir"])
        .arg(&dist.out)
        .arg(&place)
        .env("VSWAP_VERSION", VERSION)
        .env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
    command::run(&mut pip, PACK_LIMIT)?;
    fs::remove_dir_all(&place).map_err(|error| said(&place, &error))
}

/// Files below a directory, relative to it, without what Python leaves behind.
fn files_below(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    let mut pending = vec![directory.to_owned()];
    while let Some(next) = pending.pop() {
        for entry in fs::read_dir(&next).map_err(|error| said(&next, &error))? {
            let path = entry.map_err(|error| said(&next, &error))?.path();
            if path.ends_with("__pycache__") {
                continue;
            }
            if path.is_dir() {
                pending.push(path);
            } else if let Ok(relative) = path.strip_prefix(directory) {
                files.push(relative.to_owned());
            }
        }
    }
    Ok(files)
}

/// Writes SHA256SUMS and shows it.
///
/// # Errors
/// The packages cannot be read.
pub fn list(dist: &Dist) -> Result<(), String> {
    let entries = fs::read_dir(&dist.out).map_err(|error| said(&dist.out, &error))?;
    let mut names: Vec<_> = entries
        .flatten()
        .filter(|entry| entry.path().is_file())
        .map(|entry| entry.file_name())
        .collect();
    names.sort();
    let sums = printed(Command::new("sha256sum").current_dir(&dist.out).args(names))?;
    let path = dist.out.join("SHA256SUMS");
    fs::write(&path, &sums).map_err(|error| said(&path, &error))?;
    print!("{}:\n{}", path.display(), String::from_utf8_lossy(&sums));
    Ok(())
}
