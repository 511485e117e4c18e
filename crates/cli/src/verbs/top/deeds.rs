//! What can be done to runs and processes: another limit, parking and waking, and an end. All but waking has been asked
//! about before.

use std::time::Duration;

use rustix::process::Signal;
use vswap_pager::Settings;
use vswap_pager::config::RamRange;
use vswap_sys::process::{PidFd, procfs};

use crate::args::ram::Ram;
use crate::args::size::Available;
use crate::control::{Connection, Request};
use crate::output::figures::bytes;
use crate::run_dir::{self, Living};
use crate::verbs::top::parking;

/// How long a run may take to answer. One that is stopped does not.
const PATIENCE: Duration = Duration::from_secs(2);

/// Something to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Deed {
    /// Give a run another limit.
    Limit { run: u32, ram: RamRange },
    /// Park a run.
    Park { run: u32 },
    /// Have a run go on.
    Wake { run: u32 },
    /// Send a signal to a process.
    Signal { target: Target, with: Ending },
}

/// A signal that ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Term,
    Kill,
}

/// A process. Its start says whether its number still means the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    pub pid: u32,
    start_ticks: Option<u64>,
}

impl Target {
    /// The process that has this id now.
    pub fn of(pid: u32) -> Target {
        let stat = procfs::stat(pid).ok();
        Target {
            pid,
            start_ticks: stat.map(|stat| stat.start_ticks),
        }
    }

    fn signal(self, signal: Signal) -> Result<(), String> {
        let has_ended = || format!("process {} has ended already", self.pid);
        // Opened first: what is looked at afterwards is the same process, or none.
        let process = PidFd::open(self.pid).map_err(|_| has_ended())?;
        if self.start_ticks.is_none() || Target::of(self.pid) != self {
            return Err(has_ended());
        }
        process
            .signal(signal)
            .map_err(|error| format!("process {} cannot be told: {error}", self.pid))
    }
}

impl Ending {
    pub fn name(self) -> &'static str {
        match self {
            Ending::Term => "SIGTERM",
            Ending::Kill => "SIGKILL",
        }
    }

    fn signal(self) -> Signal {
        match self {
            Ending::Term => Signal::TERM,
            Ending::Kill => Signal::KILL,
        }
    }
}

/// What a limit comes to that was typed as for --ram.
pub fn limit(text: &str) -> Result<RamRange, String> {
    let ram: Ram = text.parse()?;
    let available = Available::here().map_err(|error| error.to_string())?;
    ram.resolve(available).map_err(|error| error.to_string())
}

/// A limit for people.
pub fn shown(ram: RamRange) -> String {
    if ram.least_bytes == ram.most_bytes {
        bytes(ram.most_bytes)
    } else {
        format!("{} to {}", bytes(ram.least_bytes), bytes(ram.most_bytes))
    }
}

/// Does it, and says what has come of it. What takes long says meanwhile how far it is.
pub fn carry_out(deed: &Deed, say: &dyn Fn(String)) -> String {
    let done = match deed {
        Deed::Limit { run, ram } => living(*run).and_then(|run| set(&run, *ram)),
        Deed::Park { run } => living(*run).and_then(|run| parking::park(&run, say)),
        Deed::Wake { run } => living(*run).and_then(|run| parking::wake(&run)),
        Deed::Signal { target, with } => target
            .signal(with.signal())
            .map(|()| format!("process {} was sent {}", target.pid, with.name())),
    };
    done.unwrap_or_else(|why| why)
}

fn living(run: u32) -> Result<Living, String> {
    let living = run_dir::living().into_iter().find(|one| one.pid == run);
    living.ok_or_else(|| format!("run {run} has ended already"))
}

fn set(run: &Living, ram: RamRange) -> Result<String, String> {
    let pid = run.pid;
    let settings = Settings {
        ram: Some(ram),
        ..Settings::default()
    };
    let asked = Connection::open(&run.path)
        .and_then(|mut run| run.ask(&Request::Set(settings), Some(PATIENCE)));
    match asked {
        Ok(_) => Ok(format!("run {pid} may use {} now", shown(ram))),
        Err(error) => Err(format!("run {pid} keeps its limit: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_is_told_and_one_that_has_gone_is_not() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("sleep");
        let target = Target::of(child.id());
        let kill = Deed::Signal {
            target,
            with: Ending::Kill,
        };
        assert!(carry_out(&kill, &|_| {}).contains("was sent SIGKILL"));
        child.wait().expect("it ends");
        assert!(carry_out(&kill, &|_| {}).contains("has ended already"));
        let other = Target {
            pid: std::process::id(),
            start_ticks: Some(1),
        };
        assert!(
            other.signal(Signal::KILL).is_err(),
            "another process by now"
        );
    }

    #[test]
    fn limits_are_as_for_ram() {
        let ram = limit("64M..128M").expect("a range");
        assert_eq!(shown(ram), "64 MiB to 128 MiB");
        assert!(limit("1M").expect_err("too little").contains("16 MiB"));
        let run = u32::MAX;
        for gone in [
            Deed::Limit { run, ram },
            Deed::Park { run },
            Deed::Wake { run },
        ] {
            assert!(carry_out(&gone, &|_| {}).contains("has ended already"));
        }
    }
}
