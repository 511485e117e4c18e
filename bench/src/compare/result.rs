//! The measurements: workloads, what was left out and why, and the machine.

use std::fmt;

use super::samples::Samples;
use super::side::Side;

/// All results.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// The words of the command line, without the program.
    pub(super) arguments: Vec<String>,
    /// How often each side was to run.
    pub(super) rounds: usize,
    pub(super) machine: Machine,
    pub(super) workloads: Vec<WorkloadResult>,
    pub(super) left_out: Vec<LeftOut>,
}

/// One workload on all of its sides.
#[derive(Debug)]
pub(super) struct WorkloadResult {
    pub(super) name: String,
    pub(super) command: String,
    pub(super) ram_bytes: usize,
    pub(super) samples: Samples,
}

impl WorkloadResult {
    /// The memory limit of the kernel's group, worded for people.
    pub(super) fn limit(&self) -> String {
        format!("limit {} MiB", self.ram_bytes >> 20)
    }
}

/// A workload, or a side of one, that was not run.
#[derive(Debug, PartialEq)]
pub(super) struct LeftOut {
    pub(super) workload: String,
    pub(super) side: Option<Side>,
    pub(super) reason: String,
}

/// The machine that was measured on.
#[derive(Debug, Default)]
pub(super) struct Machine {
    pub(super) kernel: String,
    pub(super) processor: String,
    pub(super) processors: usize,
    pub(super) memory_mib: u64,
    /// Load average: the runnable processes over the last minute, when the first run began.
    pub(super) load_average: String,
}

impl Machine {
    pub(super) fn here() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name));
            let value = line.and_then(|line| line.split_once(':'));
            value.map_or_else(String::new, |(_, value)| value.trim().to_owned())
        };
        let memory_kib = field(&read("/proc/meminfo"), "MemTotal");
        let memory_kib = memory_kib
            .split(' ')
            .next()
            .and_then(|kib| kib.parse::<u64>().ok());
        let load = read("/proc/loadavg");
        Self {
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            processor: field(&read("/proc/cpuinfo"), "model name"),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mib: memory_kib.unwrap_or(0) / 1024,
            load_average: load.split(' ').next().unwrap_or_default().to_owned(),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Linux {}, {} x {}, {} MiB, load average {} at the start",
            self.kernel, self.processors, self.processor, self.memory_mib, self.load_average
        )
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.side {
            Some(side) => write!(f, "{}: without {side}: {}", self.workload, self.reason),
            None => write!(f, "{}: {}", self.workload, self.reason),
        }
    }
}

impl Report {
    pub(super) fn workload(&self, name: &str) -> Option<&WorkloadResult> {
        self.workloads.iter().find(|result| result.name == name)
    }

    /// Did no run fail?
    pub(super) fn is_complete(&self) -> bool {
        let mut results = self.workloads.iter();
        !results.any(|result| result.samples.has_failure())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::samples::tests::three_rounds;
    use super::*;

    /// Three rounds of one workload with this command, and another workload that was left out.
    pub(in crate::compare) fn one_run_one_left_out(command: &str) -> Report {
        Report {
            workloads: vec![WorkloadResult {
                name: "fill-read-write".to_owned(),
                command: command.to_owned(),
                ram_bytes: 1,
                samples: three_rounds(),
            }],
            left_out: vec![LeftOut {
                workload: "build".to_owned(),
                side: None,
                reason: "no compiler".to_owned(),
            }],
            ..Report::default()
        }
    }
}
