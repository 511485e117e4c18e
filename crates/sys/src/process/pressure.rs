//! Who waits for memory, as the kernel tells it (PSI), and how much of it is to be had: on the machine, or in the
//! control group whose limit comes first. Reads files, nothing else; the parsers are pure and never panic.

use std::path::{Path, PathBuf};

use crate::process::cgroup::{self, Limit};
use crate::process::procfs;

/// The pressure of the whole machine; not there where the kernel was built or started without (psi=0).
const MACHINE_PRESSURE: &str = "/proc/pressure/memory";

/// Where a process has its memory from.
#[derive(Debug)]
pub struct Surroundings {
    pressure: PathBuf,
    limit: Option<Limit>,
}

/// Memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// All of it.
    pub whole_bytes: u64,
    /// What could be had without swapping: free, or files that can be read again.
    pub available_bytes: u64,
}

impl Surroundings {
    /// Those of a process: its control group, if that or one around it has a limit, or else the machine.
    pub fn of(pid: u32) -> Surroundings {
        let limit = cgroup::limit_of(pid);
        let in_group = limit
            .as_ref()
            .map(|limit| beside(&limit.source, "memory.pressure"));
        // Version 1 has no such file.
        let pressure = in_group.filter(|path| path.exists());
        Surroundings {
            pressure: pressure.unwrap_or_else(|| MACHINE_PRESSURE.into()),
            limit,
        }
    }

    /// The same, but with this file for the kernel's pressure.
    #[must_use]
    pub fn with_pressure(self, pressure: PathBuf) -> Surroundings {
        Surroundings { pressure, ..self }
    }

    /// Microseconds so far in which somebody waited for memory; none where the kernel does not say.
    pub fn stalled_us(&self) -> Option<u64> {
        parse_some_total(&std::fs::read(&self.pressure).ok()?)
    }

    /// How much memory there is, and how much of it is to be had.
    pub fn memory(&self) -> Option<Memory> {
        let machine = procfs::meminfo().ok()?;
        let machine = Memory {
            whole_bytes: machine.total_bytes,
            available_bytes: machine.available_bytes,
        };
        let group = self.limit.as_ref().and_then(in_group);
        Some(group.map_or(machine, |group| Memory {
            whole_bytes: group.whole_bytes.min(machine.whole_bytes),
            available_bytes: group.available_bytes.min(machine.available_bytes),
        }))
    }
}

fn beside(file: &Path, name: &str) -> PathBuf {
    file.with_file_name(name)
}

fn in_group(limit: &Limit) -> Option<Memory> {
    let read = |name| std::fs::read(beside(&limit.source, name)).ok();
    let usage = read("memory.current").or_else(|| read("memory.usage_in_bytes"))?;
    let used_bytes = cgroup::parse_limit(&usage)?;
    let file_bytes = parse_file_bytes(&read("memory.stat").unwrap_or_default());
    Some(Memory {
        whole_bytes: limit.bytes,
        available_bytes: limit
            .bytes
            .saturating_sub(used_bytes.saturating_sub(file_bytes)),
    })
}

/// Microseconds in which somebody waited, from the text of a pressure file.
pub fn parse_some_total(text: &[u8]) -> Option<u64> {
    let text = core::str::from_utf8(text).ok()?;
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let total = some
        .split(' ')
        .find_map(|word| word.strip_prefix("total="))?;
    total.trim().parse().ok()
}

/// Bytes of files in memory from the text of memory.stat, of a group and all inside it: version 1 has lines for the
/// group alone, and others for all, which are as large at least.
pub fn parse_file_bytes(text: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(text);
    let value = |wanted: &str| {
        let of = |line: &str| line.strip_prefix(wanted)?.trim().parse::<u64>().ok();
        text.lines().find_map(of).unwrap_or(0)
    };
    let both = |prefix: &str| {
        value(&format!("{prefix}inactive_file "))
            .saturating_add(value(&format!("{prefix}active_file ")))
    };
    both("").max(both("total_"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_kernels_texts_are_read() {
        let text = b"some avg10=0.12 avg60=0.00 total=51024403\nfull avg10=0.00 total=9\n";
        assert_eq!(parse_some_total(text), Some(51_024_403));
        assert_eq!(parse_some_total(b"full avg10=0.00 total=9\n"), None);
        assert_eq!(parse_some_total(b"some avg10=0.00\n"), None);
        let version_2 = b"anon 5\nfile 9\ninactive_file 4096\nactive_file 8192\n";
        assert_eq!(parse_file_bytes(version_2), 12_288);
        let version_1 =
            b"inactive_file 1\nactive_file 2\ntotal_inactive_file 10\ntotal_active_file 20\n";
        assert_eq!(parse_file_bytes(version_1), 30);
        assert_eq!(parse_file_bytes(b""), 0);
    }

    #[test]
    fn this_process_has_memory_around_it() {
        let here = Surroundings::of(std::process::id());
        let memory = here.memory().expect("a Linux machine");
        assert!(memory.available_bytes > 0 && memory.available_bytes <= memory.whole_bytes);
        let elsewhere = here.with_pressure("/nonexistent".into());
        assert_eq!(elsewhere.stalled_us(), None);
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = (parse_some_total(&text), parse_file_bytes(&text));
        }
    }
}
