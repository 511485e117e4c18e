//! What a run may leave on the machine: its directory, and files in shared memory.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::{Outcome, ensure};

/// The places where vswap makes a run's directory, for the users that tests run as.
fn places() -> Vec<PathBuf> {
    let mut places = vec![PathBuf::from("/tmp"), PathBuf::from("/dev/shm")];
    places.extend(std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from));
    let users = fs::read_dir("/run/user").into_iter().flatten().flatten();
    places.extend(users.map(|entry| entry.path()));
    places
}

/// Directories of the run of this vswap process, whoever its user is.
pub fn run_dirs(pid: u32) -> Vec<PathBuf> {
    let prefix = format!("run-{pid}-");
    let list = |dir: &Path| {
        fs::read_dir(dir)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
    };
    let name_begins = |path: &Path, with: &str| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with(with))
    };
    let outer = places()
        .into_iter()
        .flat_map(|place| list(&place).collect::<Vec<_>>());
    let outer: BTreeSet<PathBuf> = outer.filter(|path| name_begins(path, "vswap-")).collect();
    let inner = outer.iter().flat_map(|dir| list(dir));
    inner.filter(|path| name_begins(path, &prefix)).collect()
}

/// Checks that the run of this vswap process left no directory.
pub fn no_run_dir(pid: u32) -> Outcome {
    let left = run_dirs(pid);
    ensure!(left.is_empty(), "vswap {pid} left {left:?} behind");
    Ok(())
}
