//! Builds the agent, which the binary carries inside itself.
//!
//! The agent is a library of another crate type with features of its own, so it is built by a nested cargo in a target
//! directory of its own: no lock is shared with the cargo that runs this script. Everything it needs is also needed by
//! the binary and is therefore fetched already, hence `--offline`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the outer cargo says of its own compilation, and which must not reach the nested one: wrappers (clippy's would
/// lint instead of build), flags (coverage or sanitizers do not belong into other people's programs), target choices.
const OUTER_ONLY: [&str; 7] = [
    "CARGO_BUILD_TARGET",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_TARGET_DIR",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTC_WRAPPER",
    "RUSTFLAGS",
    "CLIPPY_ARGS",
];

fn main() {
    let workspace = Path::new(&variable("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("crates/cli lies two levels below the workspace")
        .to_owned();
    let target_dir = PathBuf::from(variable("OUT_DIR")).join("agent");
    let target = variable("TARGET");
    for input in ["crates/agent", "crates/sys", "Cargo.toml", "Cargo.lock"] {
        println!(
            "cargo::rerun-if-changed={}",
            workspace.join(input).display()
        );
    }

    let mut cargo = Command::new(variable("CARGO"));
    cargo
        .current_dir(&workspace)
        .args([
            "build",
            "--quiet",
            "--locked",
            "--offline",
            "--release",
            "--package",
            "vswap-agent",
        ])
        .args(["--config", "profile.release.strip='debuginfo'"])
        .args(["--target", &target])
        .arg("--target-dir")
        .arg(&target_dir);
    if env::var_os("CARGO_FEATURE_BREAK_RULES").is_some() {
        cargo.args(["--features", "break-rules"]);
    }
    for name in OUTER_ONLY {
        cargo.env_remove(name);
    }
    let status = cargo.status().expect("cargo starts");
    assert!(
        status.success(),
        "the agent does not build ({status}): see the messages above"
    );

    let agent = target_dir.join(target).join("release/libvswap_agent.so");
    println!("cargo::rustc-env=VSWAP_AGENT={}", agent.display());
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name} for build scripts"))
}
