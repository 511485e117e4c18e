//! The static binary, the same from every directory.
//!
//! It is linked with the static libraries of glibc, not of musl: the allocator stays the one that everything was
//! measured with, and the C compiler of the machine is enough. What a static glibc cannot do, look up users and hosts
//! by plugins, load libraries and locales, vswap does not do. The agent inside stays a library: its build (`build.rs`
//! of cli) takes none of these flags.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::printed;
use crate::checks::{cargo, own_target};
use crate::command;

/// Named, so that the flags do not reach build scripts.
pub const TARGET: &str = "x86_64-unknown-linux-gnu";
const BUILD_LIMIT: Duration = Duration::from_secs(20 * 60);
/// Builds it.
///
/// # Errors
/// It does not build, or needs anything of the machine that it will run on.
pub fn build(root: &Path) -> Result<PathBuf, String> {
    let target = own_target(root, "dist-build");
    let mut build = cargo(
        root,
        &["build", "--release", "--locked", "--package", "vswap"],
    );
    build
        .args(["--target", TARGET, "--target-dir"])
        .arg(&target)
        // Names of functions stay, for whoever reports a crash.
        .args(["--config", "profile.release.strip='debuginfo'"])
        .env("CARGO_ENCODED_RUSTFLAGS", flags(root)?)
        .env("CFLAGS", c_flags()?);
    command::run(&mut build, BUILD_LIMIT)?;
    let binary = Path::new(&target).join(TARGET).join("release/vswap");
    must_need_nothing(&binary)?;
    Ok(binary)
}

/// Static, and with names for directories that are the same everywhere.
fn flags(root: &Path) -> Result<String, String> {
    let cargo = cargo_home()?;
    let flags = [
        "-Ctarget-feature=+crt-static".to_owned(),
        format!("--remap-path-prefix={}=/vswap", root.display()),
        format!("--remap-path-prefix={}=/cargo", cargo.display()),
    ];
    // The separator that cargo expects, so that a directory may have spaces.
    Ok(flags.join("\x1f"))
}

/// The same for the compression libraries.
fn c_flags() -> Result<String, String> {
    Ok(format!(
        "-ffile-prefix-map={}=/cargo",
        cargo_home()?.display()
    ))
}

fn cargo_home() -> Result<PathBuf, String> {
    let home = |name: &str| std::env::var_os(name).map(PathBuf::from);
    home("CARGO_HOME")
        .or_else(|| home("HOME").map(|home| home.join(".cargo")))
        .ok_or_else(|| "neither CARGO_HOME nor HOME is set: where does cargo keep crates?".into())
}

/// Neither a library nor a loader.
fn must_need_nothing(binary: &Path) -> Result<(), String> {
    let listed = printed(
        Command::new("readelf")
            .args(["--wide", "--dynamic", "--segments"])
            .arg(binary),
    )?;
    let listed = String::from_utf8_lossy(&listed);
    if let Some(line) = listed
        .lines()
        .find(|line| line.contains("(NEEDED)") || line.contains("INTERP"))
    {
        return Err(format!(
            "{} is not static: {}",
            binary.display(),
            line.trim()
        ));
    }
    println!("{}: static", binary.display());
    Ok(())
}
