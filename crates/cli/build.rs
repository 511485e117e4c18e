//! Builds the agent, which the binary carries inside itself.
//!
//! The agent is a library of another crate type with its own features, so a nested cargo builds it. That cargo has its
//! own target directory and so does not wait for a lock of the cargo that runs this script. It runs with `--offline`:
//! the binary needs every dependency of the agent too, so all of them are fetched already.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the outer cargo says about its own compilation and must not reach the nested one: wrappers (clippy's would lint
/// instead of build), flags (coverage and sanitizers do not belong into other people's programs), target choices.
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
    // The agent is the same from every directory: without this the names of its functions are not.
    let remap = format!("--remap-path-prefix={}=/vswap", workspace.display());
    cargo.env("CARGO_ENCODED_RUSTFLAGS", remap);
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
