//! A group with a memory limit, of version 1 or 2 of control groups, whichever has the memory controller.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::host::{Host, read, read_number, write};
use super::{own_name, warn};

/// How often removal is tried, and the pause in between. The kernel takes a moment to see that a group is empty.
const REMOVE_TRIES: u32 = 100;
const REMOVE_PAUSE: Duration = Duration::from_millis(20);

/// The names of one version's files.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Version {
    limit: &'static str,
    peak: &'static str,
    charges_zswap: bool,
}

const V1: Version = Version {
    limit: "memory.limit_in_bytes",
    peak: "memory.max_usage_in_bytes",
    charges_zswap: false,
};
const V2: Version = Version {
    limit: "memory.max",
    peak: "memory.peak",
    charges_zswap: true,
};

/// A group, removed on drop.
#[derive(Debug)]
pub(super) struct MemoryGroup {
    path: PathBuf,
    version: Version,
}

impl MemoryGroup {
    pub(super) fn new(host: &Host, limit_bytes: usize) -> Result<Self, String> {
        let (parent, version) = parent(host)?;
        let path = own_name(&parent, "");
        std::fs::create_dir(&path)
            .map_err(|error| format!("cannot make the group {}: {error}", path.display()))?;
        let group = Self { path, version };
        write(&group.path.join(version.limit), &limit_bytes.to_string())?;
        Ok(group)
    }

    /// Makes `command` move itself into the group before it becomes its program.
    pub(super) fn contain(&self, command: &mut Command) -> Result<(), String> {
        let path = self.path.join("cgroup.procs");
        let open = OpenOptions::new().write(true).open(&path);
        let mut procs = open.map_err(|error| format!("cannot open {}: {error}", path.display()))?;
        // SAFETY: the closure makes one system call, on a descriptor that lives as long as the closure. Only
        // `pre_exec`, which is unsafe, runs code in the child.
        unsafe {
            // 0 means the process that writes.
            command.pre_exec(move || procs.write_all(b"0"));
        }
        Ok(())
    }

    pub(super) fn peak_bytes(&self) -> Result<u64, String> {
        read_number(&self.path.join(self.version.peak))
    }

    pub(super) const fn charges_zswap(&self) -> bool {
        self.version.charges_zswap
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let mut result = Ok(());
        for _ in 0..REMOVE_TRIES {
            result = std::fs::remove_dir(&self.path);
            if result.is_ok() {
                return;
            }
            std::thread::sleep(REMOVE_PAUSE);
        }
        if let Err(error) = result {
            let path = self.path.display();
            warn(
                "a control group is left",
                &error,
                &format!("rmdir {}", path),
            );
        }
    }
}

/// A group in which one with a limit can be made.
fn parent(host: &Host) -> Result<(PathBuf, Version), String> {
    let v1 = host.path("sys/fs/cgroup/memory");
    if v1.join(V1.limit).exists() {
        return Ok((v1, V1));
    }
    let v2 = host.path("sys/fs/cgroup");
    let controllers = read(&v2.join("cgroup.controllers")).unwrap_or_default();
    if !controllers.split_whitespace().any(|name| name == "memory") {
        return Err(format!(
            "there is no memory controller in {}, so nothing limits the kernel's side",
            v2.display()
        ));
    }
    give_children_memory(&v2)?;
    Ok((v2, V2))
}

/// In version 2 groups have the controllers that their parent gives them. A given controller is not taken back: others
/// may have made groups there since and would lose it.
fn give_children_memory(parent: &Path) -> Result<(), String> {
    let path = parent.join("cgroup.subtree_control");
    let given = read(&path)?;
    if given.split_whitespace().any(|name| name == "memory") {
        return Ok(());
    }
    write(&path, "+memory")
}

#[cfg(test)]
mod tests {
    use super::super::host::tests::Fake;
    use super::*;

    #[test]
    fn the_version_that_has_the_controller_is_used() {
        let v1 = Fake::new("v1", &[("sys/fs/cgroup/memory/memory.limit_in_bytes", "9")]);
        assert_eq!(parent(&v1.host()).unwrap().1, V1);
        let v2 = Fake::new(
            "v2",
            &[
                ("sys/fs/cgroup/cgroup.controllers", "cpu memory pids\n"),
                ("sys/fs/cgroup/cgroup.subtree_control", "cpu\n"),
            ],
        );
        assert_eq!(parent(&v2.host()).unwrap().1, V2);
        // A file of the kernel would act on the word. A plain file keeps what was behind it.
        let given = v2.text("sys/fs/cgroup/cgroup.subtree_control");
        assert!(given.starts_with("+memory"), "{given}");
        let none = Fake::new("v0", &[("sys/fs/cgroup/cgroup.controllers", "cpu\n")]);
        assert!(
            parent(&none.host())
                .unwrap_err()
                .contains("no memory controller")
        );
    }
}
