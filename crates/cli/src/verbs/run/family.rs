//! Which processes belong to a run.
//!
//! All that descend from `vswap run` belong to it: vswap is the reaper of those whose parents end. A program that was
//! attached to has other ancestors, and so have its children when it ends. So whoever was once seen to belong to it
//! stays known, and with it all that descend from it; and so is whoever the pager knows.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use vswap_sys::process::procfs::{self, Births, Stat};

/// The processes of a run.
#[derive(Debug)]
pub enum Family {
    /// Those that descend from this process.
    Own,
    /// A process that was there before, and those that descend from it: when each was started, by process id.
    Attached(Mutex<HashMap<u32, u64>>),
}

impl Family {
    /// A process that was there before, and its descendants. None if it has ended.
    pub fn attached(pid: u32) -> Option<Family> {
        let known = HashMap::from([(pid, started(pid)?)]);
        Some(Family::Attached(Mutex::new(known)))
    }

    /// Processes that belong to it as well, though nobody may have seen whom they descend from: their parents ended
    /// too soon.
    pub fn add(&self, pids: &[u32]) {
        if let Family::Attached(known) = self {
            let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
            for pid in pids.iter().copied() {
                if let (false, Some(start)) = (known.contains_key(&pid), started(pid)) {
                    known.insert(pid, start);
                }
            }
        }
    }

    /// Those that live, whether managed or not.
    pub fn living(&self) -> Vec<u32> {
        match self {
            Family::Own => procfs::descendants(std::process::id()).unwrap_or_default(),
            Family::Attached(known) => look(known, |pids| {
                procfs::descendants_of(pids).unwrap_or_default()
            }),
        }
    }

    /// The same for next to nothing. While a process ends, others may be missing.
    pub fn listed(&self) -> Vec<u32> {
        match self {
            Family::Own => {
                procfs::descendants_listed(std::process::id()).unwrap_or_else(|_| self.living())
            }
            Family::Attached(known) => look(known, |pids| {
                let listed: Result<Vec<Vec<u32>>, _> = pids
                    .iter()
                    .copied()
                    .map(procfs::descendants_listed)
                    .collect();
                listed.map_or_else(
                    |_| procfs::descendants_of(pids).unwrap_or_default(),
                    |lists| lists.concat(),
                )
            }),
        }
    }
}

/// How old a list of processes may be while none is started: a look may miss one while another ends.
const LISTED_FOR: Duration = Duration::from_secs(1);

/// The processes of a run for whoever looks at them again and again. Listing a thousand takes milliseconds, so it is
/// left out while no process is started.
#[derive(Debug, Default)]
pub struct Listing {
    births: Births,
    pids: HashSet<u32>,
    since: Option<Instant>,
}

impl Listing {
    /// Those that live, as [`Family::listed`], and perhaps some that have ended.
    pub fn look(&mut self, family: &Family) -> &HashSet<u32> {
        // First, so that whoever is started meanwhile is noticed next time.
        let births = self.births.any();
        let is_new = |since: Instant| since.elapsed() < LISTED_FOR;
        // Of one that was attached to the pager may get to know others, whenever they were started.
        let is_own = matches!(family, Family::Own);
        if births || !is_own || !self.since.is_some_and(is_new) {
            self.pids = family.listed().into_iter().collect();
            self.since = Some(Instant::now());
        }
        &self.pids
    }
}

/// When a process was started. None if it has ended.
fn started(pid: u32) -> Option<u64> {
    let stat = procfs::stat(pid).ok().filter(lives);
    stat.map(|stat| stat.start_ticks)
}

/// A process lives on when its main thread has ended and others have not.
fn lives(stat: &Stat) -> bool {
    stat.alive() || stat.threads > 1
}

/// Looks for those that descend from whom is known, and knows them from then on.
fn look(known: &Mutex<HashMap<u32, u64>>, descend: impl Fn(&[u32]) -> Vec<u32>) -> Vec<u32> {
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    known.retain(|pid, start| started(*pid) == Some(*start));
    let roots: Vec<u32> = known.keys().copied().collect();
    for pid in descend(&roots) {
        if let Some(start) = started(pid) {
            known.insert(pid, start);
        }
    }
    let mut living: Vec<u32> = known.keys().copied().collect();
    living.sort_unstable();
    living
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_new_child_is_in_the_list_at_once() {
        let mut listing = Listing::default();
        listing.look(&Family::Own);
        let mut child = Command::new("sleep").arg("60").spawn().expect("a child");
        assert!(listing.look(&Family::Own).contains(&child.id()));
        child.kill().and_then(|()| child.wait()).expect("its end");
        std::thread::sleep(LISTED_FOR);
        assert!(!listing.look(&Family::Own).contains(&child.id()));
    }

    #[test]
    fn children_stay_known_when_their_parent_has_ended() {
        // The shell starts a process and ends when it is told to.
        let mut shell = Command::new("sh")
            .args(["-c", "sleep 60 & echo $!; read line"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut child = String::new();
        let output = shell.stdout.take().expect("its output");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut child)
            .expect("a line");
        let child: u32 = child.trim().parse().expect("a process id");
        let family = Family::attached(shell.id()).expect("it lives");
        let mut both = vec![shell.id(), child];
        both.sort_unstable();
        assert_eq!(family.listed(), both);
        assert_eq!(family.living(), both);
        family.add(&[shell.id(), u32::MAX]);
        drop(shell.stdin.take());
        shell.wait().expect("it ends");
        assert_eq!(family.listed(), [child]);
        assert_eq!(family.living(), [child]);
        vswap_sys::process::kill(child).expect("it can be killed");
        while !family.living().is_empty() {
            std::thread::yield_now();
        }
        assert!(Family::attached(u32::MAX).is_none());
    }
}
