//! The columns that runs and processes can be sorted by.

use std::cmp::Ordering;

use crate::verbs::top::listing::Line;
use crate::verbs::top::run::{Process, Run};

/// A column of the runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunColumn {
    Pid,
    Command,
    State,
    Resident,
    Swapped,
    Out,
    In,
    Lost,
}

/// A column of the processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessColumn {
    Pid,
    Name,
    Resident,
    Swapped,
    Faults,
}

impl RunColumn {
    pub fn name(self) -> &'static str {
        match self {
            RunColumn::Pid => "PID",
            RunColumn::Command => "COMMAND",
            RunColumn::State => "STATE",
            RunColumn::Resident => "RESIDENT",
            RunColumn::Swapped => "IN SWAP",
            RunColumn::Out => "OUT/s",
            RunColumn::In => "IN/s",
            RunColumn::Lost => "LOST",
        }
    }
}

impl ProcessColumn {
    pub fn name(self) -> &'static str {
        match self {
            ProcessColumn::Pid => "PID",
            ProcessColumn::Name => "NAME",
            ProcessColumn::Resident => "RESIDENT",
            ProcessColumn::Swapped => "IN SWAP",
            ProcessColumn::Faults => "FAULTS/s",
        }
    }
}

impl Line for Run {
    type Column = RunColumn;
    const COLUMNS: &'static [RunColumn] = &[
        RunColumn::Resident,
        RunColumn::Out,
        RunColumn::In,
        RunColumn::Lost,
        RunColumn::Swapped,
        RunColumn::State,
        RunColumn::Command,
        RunColumn::Pid,
    ];

    fn pid(&self) -> u32 {
        self.pid
    }

    fn words(&self) -> String {
        format!("{} {} {}", self.pid, self.command, self.state)
    }

    fn compare(&self, other: &Run, column: RunColumn) -> Ordering {
        let rate = |run: &Run, of: fn(&crate::watching::rates::Rates) -> f64| {
            run.rates.as_ref().map_or(-1.0, of)
        };
        match column {
            RunColumn::Pid => self.pid.cmp(&other.pid),
            RunColumn::Command => self.command.cmp(&other.command),
            RunColumn::State => self.state.cmp(&other.state),
            RunColumn::Resident => self.resident_bytes.cmp(&other.resident_bytes),
            RunColumn::Swapped => self.swapped_bytes.cmp(&other.swapped_bytes),
            RunColumn::Out => {
                rate(self, |rates| rates.out_bytes).total_cmp(&rate(other, |rates| rates.out_bytes))
            }
            RunColumn::In => {
                rate(self, |rates| rates.in_bytes).total_cmp(&rate(other, |rates| rates.in_bytes))
            }
            RunColumn::Lost => {
                rate(self, |rates| rates.stalled).total_cmp(&rate(other, |rates| rates.stalled))
            }
        }
    }

    fn is_descending(column: RunColumn) -> bool {
        !matches!(
            column,
            RunColumn::Pid | RunColumn::Command | RunColumn::State
        )
    }
}

impl Line for Process {
    type Column = ProcessColumn;
    const COLUMNS: &'static [ProcessColumn] = &[
        ProcessColumn::Resident,
        ProcessColumn::Swapped,
        ProcessColumn::Faults,
        ProcessColumn::Name,
        ProcessColumn::Pid,
    ];

    fn pid(&self) -> u32 {
        self.pid
    }

    fn words(&self) -> String {
        format!("{} {} {}", self.pid, self.name, self.state())
    }

    fn compare(&self, other: &Process, column: ProcessColumn) -> Ordering {
        let faults = |process: &Process| process.fault_rate.unwrap_or(-1.0);
        match column {
            ProcessColumn::Pid => self.pid.cmp(&other.pid),
            ProcessColumn::Name => self.name.cmp(&other.name),
            ProcessColumn::Resident => self.resident_bytes.cmp(&other.resident_bytes),
            ProcessColumn::Swapped => self.swapped_bytes.cmp(&other.swapped_bytes),
            ProcessColumn::Faults => faults(self).total_cmp(&faults(other)),
        }
    }

    fn is_descending(column: ProcessColumn) -> bool {
        !matches!(column, ProcessColumn::Pid | ProcessColumn::Name)
    }
}
