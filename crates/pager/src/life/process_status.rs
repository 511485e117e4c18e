//! What a run tells of each of its processes. Costs a few reads of `/proc` for each; locks are tried, and waited for
//! a little in all.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use vswap_sys::process::procfs::{self, Stat};

use crate::life::run::Run;
use crate::space::Space;

/// Most processes that a run tells of one by one, the largest first: enough for a person to read, and an answer that
/// stays small.
const PROCESSES_MAX: usize = 256;

/// How long the spaces of a run may be waited for in all: their locks are held for microseconds.
const LOCK_PATIENCE: Duration = Duration::from_millis(5);

/// Figures of one process at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessStatus {
    /// Its process id.
    pub pid: u32,
    /// The name of its main thread.
    pub name: String,
    /// It has an agent.
    pub managed: bool,
    /// It is stopped.
    pub stopped: bool,
    /// Its resident anonymous memory. None without an agent.
    pub resident_bytes: Option<u64>,
    /// Its pages in swap. None without an agent, or if somebody was busy with them.
    pub swapped_pages: Option<u64>,
    /// Faults served since its program began.
    pub faults: u64,
}

/// The living processes of a run.
#[derive(Debug)]
pub struct Living(Vec<ProcessStatus>);

impl Living {
    /// Look at all of them.
    pub fn of(run: &Run) -> Living {
        let mut found = BTreeMap::new();
        let until = Instant::now() + LOCK_PATIENCE;
        for space in run.listening.spaces.all() {
            // The newest space of a process comes last.
            if let Some(stat) = space.pid().and_then(living) {
                found.insert(stat.pid, managed(&space, stat, until));
            }
        }
        for stat in run
            .listening
            .shares
            .stranger_pids()
            .into_iter()
            .filter_map(living)
        {
            found
                .entry(stat.pid)
                .or_insert_with(|| ProcessStatus::of(stat));
        }
        Living(found.into_values().collect())
    }

    /// Are there any, and are all of them stopped?
    pub fn are_stopped(&self) -> bool {
        !self.0.is_empty() && self.0.iter().all(|process| process.stopped)
    }

    /// The largest, by what they have in memory and in swap.
    pub fn largest(self) -> Vec<ProcessStatus> {
        let mut all = self.0;
        all.sort_by_key(|process| (std::cmp::Reverse(process.bytes()), process.pid));
        all.truncate(PROCESSES_MAX);
        all
    }
}

impl ProcessStatus {
    fn of(stat: Stat) -> ProcessStatus {
        ProcessStatus {
            pid: stat.pid,
            stopped: stat.stopped(),
            name: stat.comm,
            ..ProcessStatus::default()
        }
    }

    fn bytes(&self) -> u64 {
        let swapped = self.swapped_pages.unwrap_or_default();
        self.resident_bytes.unwrap_or_default() + swapped * crate::base::page_run::PAGE_BYTES
    }
}

fn living(pid: u32) -> Option<Stat> {
    procfs::stat(pid).ok().filter(Stat::alive)
}

/// Pages that are out, if the space's lock is free before `until`.
fn swapped(space: &Space, until: Instant) -> Option<u64> {
    let state = space.lock_by_chance(until)?;
    Some(state.layout.words.swapped())
}

fn managed(space: &Space, stat: Stat, until: Instant) -> ProcessStatus {
    ProcessStatus {
        managed: true,
        resident_bytes: Some(space.resident_bytes()),
        swapped_pages: swapped(space, until),
        faults: space.faults_served.load(Ordering::Relaxed),
        ..ProcessStatus::of(stat)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, resident_bytes: u64, stopped: bool) -> ProcessStatus {
        ProcessStatus {
            pid,
            resident_bytes: Some(resident_bytes),
            stopped,
            ..ProcessStatus::default()
        }
    }

    #[test]
    fn the_largest_come_first_and_a_bounded_number_of_them() {
        let small = (1..1000).map(|pid| process(pid, 1, true));
        let living = Living(small.chain([process(1000, 2, true)]).collect());
        assert!(living.are_stopped());
        let listed = living.largest();
        assert_eq!(listed.len(), PROCESSES_MAX);
        let pids: Vec<u32> = listed.iter().take(3).map(|process| process.pid).collect();
        assert_eq!(pids, [1000, 1, 2]);
    }

    #[test]
    fn a_run_is_stopped_when_all_of_it_is() {
        assert!(!Living(Vec::new()).are_stopped());
        assert!(!Living(vec![process(1, 0, true), process(2, 0, false)]).are_stopped());
    }
}
