//! The processes that a run had, as far as looks at it have found them, with the most that each of them had.

use std::collections::BTreeMap;

use vswap_pager::ProcessStatus;

use crate::output::figures::PAGE_BYTES;

/// Most processes that are kept. When there are twice as many, the smaller half is forgotten.
const PROCESSES_MAX: usize = 64;

/// A process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    pub pid: u32,
    /// Its name when it was last seen. Any program can give itself any name.
    pub name: String,
    pub managed: bool,
    /// The most that it had in memory.
    pub resident_bytes: u64,
    /// The most that it had in swap.
    pub swapped_bytes: u64,
    pub faults: u64,
}

/// All of them.
#[derive(Debug, Clone, Default)]
pub struct Processes {
    seen: BTreeMap<u32, Seen>,
    forgotten: u64,
}

impl Processes {
    /// Takes in a look at those that live.
    pub fn note(&mut self, living: &[ProcessStatus]) {
        for process in living {
            let seen = self.seen.entry(process.pid).or_default();
            seen.pid = process.pid;
            seen.name.clone_from(&process.name);
            seen.managed |= process.managed;
            let resident = process.resident_bytes.unwrap_or_default();
            let swapped = process.swapped_pages.unwrap_or_default();
            seen.resident_bytes = seen.resident_bytes.max(resident);
            seen.swapped_bytes = seen.swapped_bytes.max(swapped.saturating_mul(PAGE_BYTES));
            seen.faults = seen.faults.max(process.faults);
        }
        if self.seen.len() > 2 * PROCESSES_MAX {
            let stay: Vec<Seen> = self.largest().into_iter().cloned().collect();
            self.forgotten += (self.seen.len() - stay.len()) as u64;
            self.seen = stay.into_iter().map(|seen| (seen.pid, seen)).collect();
        }
    }

    /// The largest of them, by what they had in memory and in swap.
    pub fn largest(&self) -> Vec<&Seen> {
        let mut all: Vec<&Seen> = self.seen.values().collect();
        let bytes = |seen: &Seen| seen.resident_bytes.saturating_add(seen.swapped_bytes);
        all.sort_by_key(|seen| (std::cmp::Reverse(bytes(seen)), seen.pid));
        all.truncate(PROCESSES_MAX);
        all
    }

    /// How many more there were. One that comes and goes between two looks is not among them.
    pub fn others(&self) -> u64 {
        self.forgotten + self.seen.len().saturating_sub(PROCESSES_MAX) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, resident_bytes: u64) -> ProcessStatus {
        ProcessStatus {
            pid,
            name: format!("p{pid}"),
            resident_bytes: Some(resident_bytes),
            swapped_pages: Some(u64::from(pid)),
            ..ProcessStatus::default()
        }
    }

    #[test]
    fn the_most_of_each_is_kept_with_its_last_name() {
        let mut processes = Processes::default();
        processes.note(&[process(7, 100), process(8, 5000)]);
        let renamed = ProcessStatus {
            name: "new".to_owned(),
            swapped_pages: Some(2),
            ..process(7, 50)
        };
        processes.note(&[renamed]);
        let largest = processes.largest();
        assert_eq!((largest[0].pid, largest[1].pid), (8, 7));
        assert_eq!(largest[1].name, "new");
        assert_eq!(largest[1].resident_bytes, 100);
        assert_eq!(largest[1].swapped_bytes, 7 * 4096);
    }

    #[test]
    fn however_many_there_are_the_largest_stay_and_the_others_are_counted() {
        let mut processes = Processes::default();
        for pid in 1..=1000 {
            processes.note(&[process(pid, 0)]);
            assert!(processes.seen.len() <= 2 * PROCESSES_MAX);
        }
        let largest = processes.largest();
        assert_eq!(largest.len(), PROCESSES_MAX);
        assert_eq!(largest[0].pid, 1000);
        assert_eq!(processes.others(), 1000 - PROCESSES_MAX as u64);
    }
}
