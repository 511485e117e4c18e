//! What a test needs of the machine. If it is missing, the test is skipped with a reason.

use std::path::{Path, PathBuf};

use crate::{Failure, Outcome};

/// Where Debian packages put programs. `PATH` is not used: it may contain a wrapper or another build, and the tests are
/// about the packaged programs.
const PROGRAM_DIRS: [&str; 4] = [
    "/usr/bin",
    "/usr/sbin",
    "/bin",
    "/usr/lib/postgresql/15/bin",
];

/// Finds a program, or skips the test and says what provides the program.
pub fn require_program(name: &str, provided_by: &str) -> Outcome<PathBuf> {
    let found = PROGRAM_DIRS
        .iter()
        .map(|dir| Path::new(dir).join(name))
        .find(|path| path.is_file());
    found.ok_or_else(|| Failure::Skip(format!("no program {name}; install {provided_by}")))
}

/// The workloads of `bench/`, which verify every byte that they wrote.
pub fn workload_binary() -> Outcome<PathBuf> {
    built("vswap-workload", "vswap-bench")
}

/// What puts a network with latency before a server.
pub fn proxy_binary() -> Outcome<PathBuf> {
    built("latency-proxy", "vswap-bench")
}

/// The victims of `e2e/victims`, which verify every byte too.
pub fn victims_binary() -> Outcome<PathBuf> {
    built("vswap-victims", "vswap-victims")
}

fn built(program: &str, package: &str) -> Outcome<PathBuf> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release");
    let built = built.join(program);
    let help = format!("build it with `cargo build --release -p {package}`");
    std::fs::canonicalize(&built)
        .map_err(|error| Failure::wrong(format!("no {}: {error}; {help}", built.display())))
}

/// Skips the test if this file is missing.
pub fn require_file(path: &str, provided_by: &str) -> Outcome {
    if Path::new(path).exists() {
        return Ok(());
    }
    Err(Failure::Skip(format!(
        "no file {path}; install {provided_by}"
    )))
}

/// Skips the test unless it runs as root. Some tests change the user of a program.
pub fn require_root(why: &str) -> Outcome {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(Failure::Skip(format!("needs root: {why}")))
}

/// A user of this machine.
#[derive(Debug, Clone, Copy)]
pub struct User {
    /// User id.
    pub uid: u32,
    /// Id of the user's first group.
    pub gid: u32,
}

/// Finds a user, or skips the test and says what creates the user.
pub fn require_user(name: &str, made_by: &str) -> Outcome<User> {
    let text = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let ids = line.and_then(|line| {
        let mut fields = line.split(':').skip(1);
        Some(User {
            uid: fields.next()?.parse().ok()?,
            gid: fields.next()?.parse().ok()?,
        })
    });
    ids.ok_or_else(|| Failure::Skip(format!("no user {name}; install {made_by}")))
}
