//! The memory limit of this process's control group, versions 1 and 2.
//!
//! A limit anywhere between the own group and the visible root binds, so the smallest one counts. The parsers are pure
//! and never panic. In a container the mount often shows only the container's own group; then the walk ends there.

use std::path::{Path, PathBuf};

use crate::process::procfs::{path_of, unescape};

/// From this value on a limit means "no limit" (version 1 writes the largest long, rounded to pages).
const UNLIMITED_BYTES: u64 = 1 << 62;

/// Version of a control group hierarchy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// memory.limit_in_bytes.
    V1,
    /// memory.max.
    V2,
}

impl Version {
    fn limit_file(self) -> &'static str {
        match self {
            Version::V1 => "memory.limit_in_bytes",
            Version::V2 => "memory.max",
        }
    }
}

/// A hierarchy that may limit memory, as mounted here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    /// Its version.
    pub version: Version,
    /// Where it is mounted.
    pub mount: PathBuf,
    /// Directory of the own group, `mount` or below.
    pub group: PathBuf,
}

/// A limit and where it is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    /// The limit.
    pub bytes: u64,
    /// The file that says so.
    pub source: PathBuf,
}

/// The memory hierarchies of this process; empty if /proc shows none.
pub fn hierarchies() -> Vec<Hierarchy> {
    hierarchies_of("self")
}

fn hierarchies_of(process: &str) -> Vec<Hierarchy> {
    let read = |path: &str| std::fs::read(path).unwrap_or_default();
    let own = read(&format!("/proc/{process}/cgroup"));
    parse(&own, &read("/proc/self/mountinfo"))
}

/// The smallest memory limit that binds this process. None if there is none.
pub fn limit() -> Option<Limit> {
    smallest(&hierarchies(), &|path| std::fs::read(path).ok())
}

/// The smallest memory limit that binds another process, as far as its groups can be seen from here.
pub fn limit_of(pid: u32) -> Option<Limit> {
    let hierarchies = hierarchies_of(&pid.to_string());
    smallest(&hierarchies, &|path| std::fs::read(path).ok())
}

/// Memory hierarchies from the texts of /proc/self/cgroup and /proc/self/mountinfo.
pub fn parse(cgroup: &[u8], mountinfo: &[u8]) -> Vec<Hierarchy> {
    let mut found = Vec::new();
    for line in mountinfo.split(|&byte| byte == b'\n') {
        let Some((version, root, mount)) = memory_mount(line) else {
            continue;
        };
        let Some(own) = own_group(cgroup, version) else {
            continue;
        };
        // A path outside of what is mounted belongs to a group namespace: the mount is then the own group.
        let below = own
            .strip_prefix(&root)
            .map(Path::to_owned)
            .unwrap_or_default();
        let group = if below.as_os_str().is_empty() {
            mount.clone()
        } else {
            mount.join(below)
        };
        found.push(Hierarchy {
            version,
            mount,
            group,
        });
    }
    found
}

/// (version, root within the hierarchy, mount point) if a mountinfo line is a memory hierarchy.
fn memory_mount(line: &[u8]) -> Option<(Version, PathBuf, PathBuf)> {
    let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let dash = fields.iter().position(|&field| field == b"-")?;
    let version = match *fields.get(dash + 1)? {
        b"cgroup2" => Version::V2,
        b"cgroup" if has_word(fields.get(dash + 3)?, b"memory") => Version::V1,
        _ => return None,
    };
    Some((version, unescape(fields.get(3)?), unescape(fields.get(4)?)))
}

fn has_word(list: &[u8], word: &[u8]) -> bool {
    list.split(|&byte| byte == b',').any(|one| one == word)
}

/// Path of the own group in the hierarchy of `version`.
fn own_group(cgroup: &[u8], version: Version) -> Option<PathBuf> {
    cgroup.split(|&byte| byte == b'\n').find_map(|line| {
        let mut parts = line.splitn(3, |&byte| byte == b':');
        let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let wanted = match version {
            Version::V2 => number == b"0" && controllers.is_empty(),
            Version::V1 => has_word(controllers, b"memory"),
        };
        wanted.then(|| path_of(path.to_vec()))
    })
}

/// The smallest limit on the way from each group up to its mount.
fn smallest(hierarchies: &[Hierarchy], read: &dyn Fn(&Path) -> Option<Vec<u8>>) -> Option<Limit> {
    let mut limits = Vec::new();
    for hierarchy in hierarchies {
        for directory in hierarchy.group.ancestors() {
            let source = directory.join(hierarchy.version.limit_file());
            if let Some(bytes) = read(&source).as_deref().and_then(parse_limit) {
                limits.push(Limit { bytes, source });
            }
            if directory == hierarchy.mount {
                break;
            }
        }
    }
    limits.into_iter().min_by_key(|limit| limit.bytes)
}

/// A limit from the text of its file; None for no limit.
pub fn parse_limit(text: &[u8]) -> Option<u64> {
    let bytes: u64 = core::str::from_utf8(text.trim_ascii()).ok()?.parse().ok()?;
    (bytes < UNLIMITED_BYTES).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn limit_with(hierarchies: &[Hierarchy], files: &[(&str, &str)]) -> Option<(u64, String)> {
        let read = |path: &Path| {
            let file = files.iter().find(|(name, _)| Path::new(name) == path)?;
            Some(file.1.as_bytes().to_vec())
        };
        let limit = smallest(hierarchies, &read)?;
        Some((limit.bytes, limit.source.to_string_lossy().into_owned()))
    }

    #[test]
    fn a_parent_of_version_2_may_bind() {
        let all = parse(
            b"0::/user.slice/job\n",
            b"30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n",
        );
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].group, Path::new("/sys/fs/cgroup/user.slice/job"));
        let files = [
            ("/sys/fs/cgroup/user.slice/job/memory.max", "max\n"),
            ("/sys/fs/cgroup/user.slice/memory.max", "536870912\n"),
        ];
        let source = "/sys/fs/cgroup/user.slice/memory.max".to_owned();
        assert_eq!(limit_with(&all, &files), Some((512 << 20, source)));
        assert_eq!(limit_with(&all, &files[..1]), None);
    }

    #[test]
    fn version_1_in_a_container_sees_its_group_as_the_mount() {
        let all = parse(
            b"5:cpu,memory:/docker/abc\n0::/docker/abc\n",
            b"40 31 0:32 /docker/abc /sys/fs/cgroup/mem\\040ory ro - cgroup cgroup rw,memory,cpu\n\
              41 31 0:33 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n",
        );
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].version, Version::V1);
        assert_eq!(all[0].group, Path::new("/sys/fs/cgroup/mem ory"));
        let name = "/sys/fs/cgroup/mem ory/memory.limit_in_bytes";
        assert_eq!(
            limit_with(&all, &[(name, "1048576\n")]),
            Some((1 << 20, name.to_owned()))
        );
        assert_eq!(limit_with(&all, &[(name, "9223372036854771712\n")]), None);
    }

    #[test]
    fn a_group_outside_of_the_mount_is_the_mount() {
        let all = parse(
            b"0::/elsewhere\n",
            b"1 2 0:3 /here /mnt rw - cgroup2 none rw\n",
        );
        assert_eq!(all[0].group, Path::new("/mnt"));
    }

    #[test]
    fn the_own_limit_is_no_larger_than_the_machine_or_absent() {
        if let Some(limit) = limit() {
            assert!(limit.bytes > 0 && limit.source.exists());
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(
            cgroup in proptest::collection::vec(any::<u8>(), 0..100),
            mounts in "[0-9 /\\\\a-z\n-]{0,80}( - cgroup2? x (rw,)?memory)?"
        ) {
            let all = parse(&cgroup, mounts.as_bytes());
            let _ = smallest(&all, &|_| Some(cgroup.clone()));
            let _ = parse(b"0::/\n1:memory:/x\n", &cgroup);
            let _ = parse_limit(&cgroup);
        }
    }
}
