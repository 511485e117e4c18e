//! Arrows between crates: each crate depends only on the workspace's crates that it may depend on.
//!
//! ARCHITECTURE.md draws the same table. Dependencies of tests may be any crate from outside, but no crate of the
//! workspace that the crate itself may not use: a test would then know more than the code.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::Finding;

/// What a crate may depend on.
struct Rule {
    /// The package's name.
    name: &'static str,
    /// The packages of the workspace that it may use.
    may_use: &'static [&'static str],
    /// False for crates that may reach the kernel only through `vswap-sys`.
    may_call_kernel: bool,
}

/// Every package of the workspace has a line here, and a new one gets one.
const RULES: &[Rule] = &[
    Rule {
        name: "vswap-engine",
        may_use: &[],
        may_call_kernel: false,
    },
    Rule {
        name: "vswap-sys",
        may_use: &[],
        may_call_kernel: true,
    },
    Rule {
        name: "vswap-areas",
        may_use: &["vswap-engine", "vswap-sys", "vswap-far"],
        may_call_kernel: false,
    },
    Rule {
        name: "vswap-pager",
        may_use: &["vswap-engine", "vswap-sys", "vswap-areas"],
        may_call_kernel: false,
    },
    Rule {
        name: "vswap-far",
        // Sockets of the standard library, by way of its client, are all that it calls itself. A page for its key comes
        // from vswap-sys.
        may_use: &["vswap-engine", "vswap-sys"],
        may_call_kernel: false,
    },
    Rule {
        name: "vswap-arena",
        may_use: &["vswap-engine", "vswap-sys", "vswap-areas"],
        may_call_kernel: false,
    },
    Rule {
        name: "vswap-capi",
        may_use: &["vswap-arena"],
        // For the program's own calls, which it passes on with the program's addresses as they are.
        may_call_kernel: true,
    },
    Rule {
        name: "vswap-python",
        may_use: &["vswap-arena"],
        // As above, and for small arrays.
        may_call_kernel: true,
    },
    Rule {
        name: "vswap-agent",
        may_use: &["vswap-sys"],
        may_call_kernel: false,
    },
    Rule {
        name: "vswap",
        may_use: &[
            "vswap-pager",
            "vswap-engine",
            "vswap-areas",
            "vswap-far",
            "vswap-sys",
            "vswap-bench",
        ],
        // For its own files, terminal and child. Everything about programs' memory goes through vswap-sys.
        may_call_kernel: true,
    },
    Rule {
        name: "vswap-bench",
        // For `engine_bench`, which measures the engine on memory of vswap-sys, for the header of an area, and for
        // workloads whose memory lies in an arena.
        may_use: &["vswap-engine", "vswap-sys", "vswap-arena"],
        may_call_kernel: true,
    },
    Rule {
        name: "vswap-policy",
        // For what decides which pages are kept.
        may_use: &["vswap-pager"],
        may_call_kernel: false,
    },
    Rule {
        name: "vswap-drive",
        may_use: &[],
        may_call_kernel: true,
    },
    Rule {
        name: "vswap-victims",
        may_use: &["vswap-drive"],
        may_call_kernel: true,
    },
    Rule {
        name: "vswap-chaos",
        // Its programs have memory in an arena too.
        may_use: &["vswap-arena", "vswap-drive"],
        may_call_kernel: true,
    },
    Rule {
        name: "vswap-hostile",
        // It speaks as an agent does.
        may_use: &["vswap-sys", "vswap-drive"],
        may_call_kernel: true,
    },
    Rule {
        name: "vswap-e2e",
        // For the redis client in the former.
        may_use: &["vswap-bench", "vswap-drive"],
        may_call_kernel: true,
    },
    Rule {
        name: "vswap-kv",
        // An example of the arena: it has what any program outside of the workspace has.
        may_use: &["vswap-arena"],
        may_call_kernel: false,
    },
    Rule {
        name: "vswap-fuzz-targets",
        may_use: &["vswap-engine", "vswap-sys", "vswap-pager"],
        // It writes to sockets and pipes as an agent or the kernel would.
        may_call_kernel: true,
    },
    Rule {
        name: "xtask",
        may_use: &[],
        may_call_kernel: false,
    },
];

/// Crates that are doors to the kernel.
const KERNEL_DOORS: &[&str] = &[
    "libc",
    "rustix",
    "nix",
    "linux-raw-sys",
    "syscalls",
    "io-uring",
    "userfaultfd",
];

/// One dependency, as cargo reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Arrow {
    from: String,
    to: String,
    for_tests: bool,
    manifest: PathBuf,
}

/// Asks cargo for the arrows and checks them. Returns the number of packages.
///
/// # Errors
/// cargo cannot tell, for instance because a manifest is broken.
pub fn check_into(root: &Path, findings: &mut Vec<Finding>) -> Result<usize, String> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()))
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root)
        .output()
        .map_err(|error| format!("cannot start cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(format!(
            "cargo metadata: {}",
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    let metadata = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("cargo metadata gave no JSON: {error}"))?;
    let (packages, arrows) = read(&metadata, root);
    check(&packages, &arrows, findings);
    Ok(packages.len())
}

/// Packages with their manifests, and all their dependencies.
fn read(metadata: &Value, root: &Path) -> (Vec<(String, PathBuf)>, Vec<Arrow>) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut packages = Vec::new();
    let mut arrows = Vec::new();
    for package in list(&metadata["packages"]) {
        let from = text(&package["name"]);
        let manifest = PathBuf::from(text(&package["manifest_path"]));
        let manifest = manifest
            .strip_prefix(root)
            .unwrap_or(&manifest)
            .to_path_buf();
        for dependency in list(&package["dependencies"]) {
            arrows.push(Arrow {
                from: from.clone(),
                to: text(&dependency["name"]),
                for_tests: dependency["kind"] == "dev",
                manifest: manifest.clone(),
            });
        }
        packages.push((from, manifest));
    }
    (packages, arrows)
}

fn check(packages: &[(String, PathBuf)], arrows: &[Arrow], findings: &mut Vec<Finding>) {
    let rule = |name: &str| RULES.iter().find(|rule| rule.name == name);
    for (name, manifest) in packages {
        if rule(name).is_none() {
            let what =
                format!("{name} has no line in xtask/src/tidy/deps.rs that says what it may use");
            findings.push(Finding::error(manifest, 0, what));
        }
    }
    for Arrow {
        from,
        to,
        for_tests,
        manifest,
    } in arrows
    {
        let Some(rule) = rule(from) else { continue };
        let is_ours = packages.iter().any(|(name, _)| name == to);
        if is_ours && !rule.may_use.contains(&to.as_str()) {
            let allowed = if rule.may_use.is_empty() {
                "none".into()
            } else {
                rule.may_use.join(", ")
            };
            let what =
                format!("{from} may not depend on {to}; of the workspace it may use: {allowed}");
            findings.push(Finding::error(manifest, 0, what));
        }
        if !rule.may_call_kernel && !for_tests && KERNEL_DOORS.contains(&to.as_str()) {
            let what =
                format!("{from} may not depend on {to}: vswap-sys is the only door to the kernel");
            findings.push(Finding::error(manifest, 0, what));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::errors;
    use super::*;

    fn wrong(arrows: &[(&str, &str, &str)]) -> Vec<String> {
        let dependencies = |from: &str| -> Vec<Value> {
            let mine = arrows.iter().filter(|(name, _, _)| *name == from);
            mine.map(|(_, to, kind)| serde_json::json!({"name": to, "kind": kind}))
                .collect()
        };
        let names = RULES.iter().map(|rule| rule.name).chain(["stranger"]);
        let present =
            names.filter(|name| *name != "stranger" || arrows.iter().any(|a| a.0 == *name));
        let packages: Vec<Value> = present
            .map(|name| {
                let manifest = format!("/r/{name}/Cargo.toml");
                serde_json::json!({
                    "name": name, "manifest_path": manifest, "dependencies": dependencies(name)
                })
            })
            .collect();
        let metadata = serde_json::json!({ "packages": packages });
        let (packages, arrows) = read(&metadata, Path::new("/r"));
        errors(|findings| check(&packages, &arrows, findings))
    }

    #[test]
    fn arrows_that_are_drawn_pass() {
        let good = [
            ("vswap-pager", "vswap-engine", ""),
            ("vswap-pager", "vswap-sys", ""),
            ("vswap-agent", "vswap-sys", ""),
            ("vswap", "vswap-pager", ""),
            ("vswap", "vswap-bench", ""),
            ("vswap-bench", "vswap-engine", ""),
            ("vswap-sys", "rustix", ""),
            ("vswap-engine", "proptest", "dev"),
            ("vswap-engine", "libc", "dev"),
        ];
        assert_eq!(wrong(&good), Vec::<String>::new());
    }

    #[test]
    fn arrows_against_the_drawing_are_found() {
        assert!(wrong(&[("vswap-engine", "vswap-sys", "")])[0].contains("may use: none"));
        assert!(wrong(&[("vswap-engine", "vswap-sys", "dev")])[0].contains("may not depend"));
        assert!(wrong(&[("vswap-sys", "vswap-engine", "")])[0].contains("may not depend"));
        assert!(wrong(&[("vswap-agent", "vswap-pager", "")])[0].contains("may not depend"));
        assert!(wrong(&[("vswap-engine", "libc", "")])[0].contains("only door"));
        assert!(wrong(&[("vswap-pager", "rustix", "build")])[0].contains("only door"));
        assert!(wrong(&[("stranger", "serde", "")])[0].contains("no line"));
    }
}
