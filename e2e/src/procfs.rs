//! Reads /proc: who descends from whom, and how much memory they have.
//!
//! Nothing here trusts vswap: its own figures are checked against these.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::time::{Duration, Instant};

/// A process that is no descendant of ours is not looked at again for this time. Pids are not reused within it.
const STRANGER_FOR: Duration = Duration::from_millis(300);

/// What one look at `/proc/PID/stat` says.
#[derive(Debug, Clone, Copy)]
pub struct Stat {
    /// Its parent.
    pub parent: u32,
    /// State letter: `Z` is a zombie, `X` dead.
    pub state: u8,
    /// Clock ticks from boot to its start. Together with the pid, a name that is never reused.
    pub start_ticks: u64,
}

/// Reads `/proc/PID/stat`. `None` if the process is gone.
pub fn stat(pid: u32) -> Option<Stat> {
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The command name is in parentheses and may contain any byte, including parentheses.
    let after_name = text.iter().rposition(|&byte| byte == b')')? + 2;
    let rest = std::str::from_utf8(text.get(after_name..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let parent = fields.next()?.parse().ok()?;
    let start_ticks = fields.nth(17)?.parse().ok()?;
    Some(Stat {
        parent,
        state,
        start_ticks,
    })
}

/// Does the process exist, and is it no zombie?
pub fn is_alive(pid: u32) -> bool {
    stat(pid).is_some_and(|stat| stat.state != b'Z' && stat.state != b'X')
}

/// Name of a process's main thread.
pub fn name(pid: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(text.trim_end().to_owned())
}

/// Is it the guardian, which outlives a vswap that is killed? It is a child of vswap and no process of the program.
pub fn is_guardian(pid: u32) -> bool {
    name(pid).is_some_and(|name| name == "vswap-guard")
}

/// Command line of a process for messages, or just its pid.
pub fn describe(pid: u32) -> String {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let text = String::from_utf8_lossy(&words).replace('\0', " ");
    let short: String = text.trim().chars().take(90).collect();
    format!("{pid} ({short})")
}

fn pids() -> Vec<u32> {
    let Ok(dir) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    dir.flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// Follows the descendants of one process. Cheap enough for a look every 20 ms.
#[derive(Debug, Default)]
pub struct Tree {
    strangers: HashSet<u32>,
    strangers_since: Option<Instant>,
}

impl Tree {
    /// Living and dead descendants of `root`, without `root` itself.
    pub fn descendants(&mut self, root: u32) -> Vec<u32> {
        if self
            .strangers_since
            .is_none_or(|since| since.elapsed() > STRANGER_FOR)
        {
            self.strangers.clear();
            self.strangers_since = Some(Instant::now());
        }
        let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
        let mut seen = Vec::new();
        for pid in pids() {
            if self.strangers.contains(&pid) {
                continue;
            }
            if let Some(stat) = stat(pid) {
                children.entry(stat.parent).or_default().push(pid);
                seen.push(pid);
            }
        }
        let mut found = children.remove(&root).unwrap_or_default();
        let mut next = 0;
        while next < found.len() {
            let more = children.remove(&found[next]).unwrap_or_default();
            found.extend(more);
            next += 1;
        }
        let ours: HashSet<u32> = found.iter().copied().chain([root]).collect();
        self.strangers
            .extend(seen.into_iter().filter(|pid| !ours.contains(pid)));
        found
    }
}

/// Current living descendants of `root`.
pub fn living_descendants(root: u32) -> Vec<u32> {
    let found = Tree::default().descendants(root);
    found.into_iter().filter(|&pid| is_alive(pid)).collect()
}

/// One figure of a file in `/proc/PID`, in bytes. `None` if the process is gone or has no memory left.
fn field_bytes(file: &str, key: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    let kib: u64 = line
        .trim_start_matches(':')
        .trim()
        .strip_suffix(" kB")?
        .trim()
        .parse()
        .ok()?;
    Some(kib * 1024)
}

/// One counter of `/proc/PID/status`, in bytes. Unlike the rollup it is quick to read, however much memory the process
/// has, and does not wait for the process's mappings.
fn counter_bytes(pid: u32, key: &str) -> Option<u64> {
    field_bytes(&format!("/proc/{pid}/status"), key)
}

/// Resident anonymous memory of a process, with its share of what it shares. The kernel walks all of the process's
/// memory.
pub fn anon_share_bytes(pid: u32) -> u64 {
    field_bytes(&format!("/proc/{pid}/smaps_rollup"), "Pss_Anon").unwrap_or(0)
}

/// Resident anonymous memory of a process, whether shared or not.
pub fn anon_bytes(pid: u32) -> u64 {
    counter_bytes(pid, "RssAnon").unwrap_or(0)
}

/// All resident memory of a process.
pub fn rss_bytes(pid: u32) -> u64 {
    counter_bytes(pid, "VmRSS").unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_itself() {
        let own = std::process::id();
        let stat = stat(own).expect("a running process has a stat file");
        assert_eq!(stat.parent, std::os::unix::process::parent_id());
        assert!(stat.start_ticks > 0);
        assert!(is_alive(own));
        assert!(anon_share_bytes(own) > 0);
        assert!(anon_bytes(own) > 0);
        assert!(rss_bytes(own) >= anon_bytes(own));
    }

    #[test]
    fn sees_children_come_and_go() {
        let own = std::process::id();
        let mut child = std::process::Command::new("/bin/sleep")
            .arg("60")
            .spawn()
            .expect("sleep starts");
        assert!(living_descendants(own).contains(&child.id()));
        child.kill().expect("a child can be killed");
        child.wait().expect("a killed child can be waited for");
        assert!(!living_descendants(own).contains(&child.id()));
        assert!(!is_alive(child.id()));
    }
}
