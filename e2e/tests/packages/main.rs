//! What users install: the tarball in a bare root, the units under systemd, the packages of distributions, and the
//! wheel for Python.
//!
//! The packages are those of `cargo xtask dist`, in `target/dist` or where `VSWAP_DIST` says.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};

use vswap_e2e::failure::During;
use vswap_e2e::suite::Test;
use vswap_e2e::{Failure, Outcome, ensure, run_suite};

mod bare_root;
mod contents;
mod systemd;
mod wheel;

const TESTS: &[Test] = &[
    Test::new("tarball_in_a_bare_root", 120, bare_root::new_user),
    Test::new("picture_in_a_bare_root", 120, bare_root::picture),
    Test::new("parked_in_a_bare_root", 120, bare_root::parks),
    Test::new("mistakes_in_a_bare_root", 120, bare_root::mistakes),
    Test::new("tarball_with_glibc", 60, bare_root::with_glibc),
    Test::new("units", 60, contents::units),
    Test::new("unit_lives", 120, systemd::unit_lives),
    Test::new("deb", 60, contents::deb),
    Test::new("rpm", 60, contents::rpm),
    Test::new("wheel", 240, wheel::module),
    Test::new("wheel_in_ipython", 240, wheel::magic),
];

fn main() -> ExitCode {
    run_suite(TESTS)
}

fn dist() -> PathBuf {
    let made = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/dist");
    std::env::var_os("VSWAP_DIST").map_or_else(made, PathBuf::from)
}

/// The package whose name ends so.
fn package(ending: &str) -> Outcome<PathBuf> {
    let listed = fs::read_dir(dist()).into_iter().flatten().flatten();
    let mut names = listed.map(|entry| entry.path());
    let found = names.find(|path| path.to_string_lossy().ends_with(ending));
    found.ok_or_else(|| {
        let place = dist().display().to_string();
        Failure::Skip(format!(
            "no package {ending} in {place}; make it with `cargo xtask dist`"
        ))
    })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn output(command: &mut Command) -> Outcome<Output> {
    command.output().during(|| format!("run {command:?}"))
}

/// What the command prints, which must succeed.
fn printed(command: &mut Command) -> Outcome<String> {
    let output = output(command)?;
    let (out, said) = (text(&output.stdout), text(&output.stderr));
    ensure!(
        output.status.success(),
        "{command:?}: {}: {out}{said}",
        output.status
    );
    Ok(out)
}

/// Unpacks the tarball and returns the directory in it, which is laid out like /usr/local.
fn unpacked(into: &Path) -> Outcome<PathBuf> {
    let tarball = package("-x86_64-linux.tar.gz")?;
    let mut tar = Command::new("tar");
    printed(
        tar.arg("-xzf")
            .arg(tarball)
            .args(["--strip-components=1", "-C"])
            .arg(into),
    )?;
    Ok(into.to_owned())
}
