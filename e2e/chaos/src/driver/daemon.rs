//! A daemon whose store the runs of all rounds share. After each round the driver checks what the daemon still holds.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use vswap_drive::processes;

const POLL: Duration = Duration::from_millis(20);
/// The daemon must give back within this time what a run has held.
const PATIENCE: Duration = Duration::from_secs(20);
/// How many descriptors may come and go, such as a connection that is being closed or a lane that was opened late.
const SPARE_DESCRIPTORS: usize = 8;
/// How much freed memory an allocator may keep.
const SPARE_KIB: u64 = 64 << 10;
/// Rounds before descriptors and memory are compared. Pools, lanes and threads are made when they are first needed.
const ROUNDS_TO_SETTLE: u32 = 3;
/// The daemon's figures that must be 0 when no run is left.
const EMPTY: [&str; 5] = [
    "swapped_pages",
    "zero_pages",
    "compressed_pages",
    "physical_pages",
    "payload_bytes",
];

/// The daemon.
#[derive(Debug)]
pub(crate) struct Daemon {
    child: Child,
    vswap: PathBuf,
    run_dir: PathBuf,
    rounds: u32,
    /// Descriptors and KiB of memory after the first rounds.
    settled: Option<(usize, u64)>,
}

impl Daemon {
    /// Starts the daemon and waits until it answers.
    ///
    /// # Errors
    /// It does not start.
    pub(crate) fn start(vswap: &Path, place: &Path, run_dir: &Path) -> Result<Self, String> {
        fs::create_dir_all(run_dir).map_err(|error| format!("cannot make a directory: {error}"))?;
        let child = Command::new(vswap)
            .args(["daemon", "--quiet", "--swap"])
            .arg(format!("{}:2G", place.display()))
            .env("XDG_RUNTIME_DIR", run_dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("cannot start the daemon: {error}"))?;
        processes::spare(child.id());
        let daemon = Self {
            child,
            vswap: vswap.to_owned(),
            run_dir: run_dir.to_owned(),
            rounds: 0,
            settled: None,
        };
        let until = Instant::now() + PATIENCE;
        while daemon.figures().is_none() {
            if Instant::now() > until {
                return Err(format!("the daemon does not answer within {PATIENCE:?}"));
            }
            thread::sleep(POLL);
        }
        Ok(daemon)
    }

    /// The daemon's own figures.
    fn figures(&self) -> Option<Value> {
        let mut command = Command::new(&self.vswap);
        command.args(["status", "--json"]).stdin(Stdio::null());
        let output = command
            .env("XDG_RUNTIME_DIR", &self.run_dir)
            .output()
            .ok()?;
        let all: Vec<Value> = serde_json::from_slice(&output.stdout).ok()?;
        all.into_iter().find(|one| one["pid"] == self.child.id())
    }

    /// Called after a round. Returns what the daemon still holds, if anything.
    pub(crate) fn leak(&mut self) -> Option<String> {
        self.rounds += 1;
        let until = Instant::now() + PATIENCE;
        loop {
            let figures = self.figures();
            let held = figures.map_or(Some("the daemon does not answer".to_owned()), |figures| {
                let full = |name: &&&str| figures[**name].as_u64() != Some(0);
                let named: Vec<String> = EMPTY
                    .iter()
                    .filter(full)
                    .map(|name| format!("{name} {}", figures[*name]))
                    .collect();
                let runs = figures["runs"].as_array().map_or(0, Vec::len);
                let idle = named.is_empty() && runs == 0;
                (!idle).then(|| format!("the daemon has {runs} runs and {}", named.join(", ")))
            });
            match held.or_else(|| self.grown()) {
                None => return None,
                Some(what) if Instant::now() > until => return Some(what),
                Some(_) => thread::sleep(POLL),
            }
        }
    }

    /// Descriptors and memory beyond those after the first rounds.
    fn grown(&mut self) -> Option<String> {
        let pid = self.child.id();
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().next());
        let kib = number.and_then(|number| number.parse().ok()).unwrap_or(0);
        if self.rounds <= ROUNDS_TO_SETTLE {
            self.settled = Some((descriptors, kib));
        }
        let (few, little) = self.settled.unwrap_or((descriptors, kib));
        let more = descriptors > few + SPARE_DESCRIPTORS || kib > little + SPARE_KIB;
        more.then(|| {
            format!(
                "the daemon has {descriptors} descriptors and {kib} KiB, {few} and {little} before"
            )
        })
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }
}
