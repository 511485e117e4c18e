//! The processes of a tree, and their memory according to `/proc`.

use std::fs;

/// Makes `kcmp` compare the address spaces of two processes.
const KCMP_VM: i32 = 1;
/// How many pages a counter in `status` may lag behind on each CPU. The kernel adds them up in batches of 32, or of
/// twice the number of CPUs if that is more.
const COUNTER_BATCH_MIN: usize = 32;
const PAGE_BYTES: usize = 4096;

/// A root process and its descendants.
pub(crate) struct Tree {
    root: u32,
    root_is_vswap: bool,
    /// Do orphans of the tree become children of this process?
    orphans_here: bool,
    /// Bytes by which a counter in `status` may be too small.
    lag_bytes: usize,
    pids: Vec<u32>,
}

impl Tree {
    pub(crate) fn new(root: u32, root_is_vswap: bool, orphans_here: bool) -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let lag_bytes = cpus * COUNTER_BATCH_MIN.max(2 * cpus) * PAGE_BYTES;
        Self {
            root,
            root_is_vswap,
            orphans_here,
            lag_bytes,
            pids: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.pids.len()
    }

    /// Finds the processes. False if the root is gone or a zombie.
    pub(crate) fn look(&mut self) -> bool {
        self.pids.clear();
        let mut found = Vec::new();
        if self.orphans_here {
            children(std::process::id(), |child| found.push((child, None)));
        } else {
            found.push((self.root, None));
        }
        while let Some((pid, parent)) = found.pop() {
            // A child of vfork has its parent's memory, not memory of its own.
            if !parent.is_some_and(|parent| same_memory(pid, parent)) {
                self.pids.push(pid);
            }
            children(pid, |child| found.push((child, Some(pid))));
        }
        if !self.root_is_vswap {
            // A command becomes vswap when it executes vswap, which may be after the first look.
            let program = fs::read_link(format!("/proc/{}/exe", self.root));
            self.root_is_vswap =
                program.is_ok_and(|path| path.file_name().is_some_and(|name| name == "vswap"));
        }
        alive(self.root)
    }

    /// A bound that the tree's memory cannot exceed. It is cheap to find.
    pub(crate) fn upper_bound_bytes(&self) -> usize {
        let bytes = |pid: &u32| {
            let name = if self.is_vswap(*pid) {
                "VmRSS:"
            } else {
                "RssAnon:"
            };
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            field_bytes(&status, name) + self.lag_bytes
        };
        self.pids.iter().map(bytes).sum()
    }

    /// The tree's memory, and how much of it is vswap's own process.
    pub(crate) fn exact_bytes(&self) -> (usize, usize) {
        let (mut total, mut vswap) = (0, 0);
        for &pid in &self.pids {
            // A process that has ended meanwhile has no memory.
            let rollup =
                fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
            if self.is_vswap(pid) {
                vswap = field_bytes(&rollup, "Rss:");
                total += vswap;
            } else {
                total += field_bytes(&rollup, "Pss_Anon:");
            }
        }
        (total, vswap)
    }

    fn is_vswap(&self, pid: u32) -> bool {
        self.root_is_vswap && pid == self.root
    }
}

fn alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The state follows the name. The name is in parentheses and may contain any character.
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// Calls `found` for every child of every thread of `pid`.
fn children(pid: u32, mut found: impl FnMut(u32)) {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return;
    };
    for thread in threads.flatten() {
        let list = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        list.split_whitespace()
            .filter_map(|pid| pid.parse().ok())
            .for_each(&mut found);
    }
}

fn same_memory(pid: u32, parent: u32) -> bool {
    // SAFETY: compares two processes and touches no memory of this one. No safe wrapper exists for `kcmp`.
    unsafe { libc::syscall(libc::SYS_kcmp, pid, parent, KCMP_VM, 0, 0) == 0 }
}

/// The amount in a line such as `Rss:   12 kB`, in bytes; 0 if there is no such line.
fn field_bytes(text: &str, name: &str) -> usize {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let amount = line.and_then(|rest| rest.split_whitespace().next()?.parse::<usize>().ok());
    amount.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_fields_in_bytes() {
        let text = "Rss:                8 kB\nPss_Anon:          16 kB\n";
        assert_eq!(field_bytes(text, "Rss:"), 8192);
        assert_eq!(field_bytes(text, "Pss_Anon:"), 16384);
        assert_eq!(field_bytes(text, "Swap:"), 0);
    }

    #[test]
    fn sees_this_process_and_its_memory() {
        let mut tree = Tree::new(std::process::id(), false, false);
        assert!(tree.look());
        let (before, _) = tree.exact_bytes();
        let held = std::hint::black_box(vec![1u8; 32 << 20]);
        let (after, vswap) = tree.exact_bytes();
        assert!(after - before >= 31 << 20, "{before} then {after}");
        assert!(tree.upper_bound_bytes() >= after);
        assert_eq!(vswap, 0);
        drop(held);
    }
}
