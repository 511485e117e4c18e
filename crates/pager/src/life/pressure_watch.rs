//! The thread that looks now and then at what the run loses to paging (`run/pressure.rs`), and at what the machine has
//! to spare, where the user left a choice (`--ram MIN..MAX`). It decides nothing: `policy/follow.rs` does. It also
//! looks at the store, which takes the longer the more is in there.

use std::sync::Arc;
use std::time::{Duration, Instant};

use vswap_sys::process::cpu;
use vswap_sys::process::pressure::Surroundings;
use vswap_sys::process::procfs;

use crate::base::threads;
use crate::life::run::Run;
use crate::policy::follow::{Follower, Reading};
use crate::run::limit::Limit;

/// Pause between two looks: some steps of a limit a second, and a look costs a few files of /proc.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What the run loses takes two files of /proc for each process, and looking at the store the lock of each cluster.
/// Both together take at most one part in this many of the time.
const COST_PART: u32 = 64;

/// Start the thread.
///
/// # Errors
/// There is no thread.
pub fn start(run: &Arc<Run>) -> std::io::Result<()> {
    let run = Arc::clone(run);
    threads::try_spawn("pressure", move || watch(&run))
}

fn watch(run: &Run) {
    let mut machine = Machine::around(run);
    let mut look_next = Instant::now();
    while !run.serving.limit.has_stopped() {
        std::thread::sleep(LOOK_EVERY);
        if Instant::now() >= look_next && !run.serving.parking.is_parked() {
            let began = cpu::thread_time();
            look(run);
            look_at_store(run);
            look_next = Instant::now() + cpu::thread_time().saturating_sub(began) * COST_PART;
        }
        machine.follow(&run.serving.limit);
    }
}

/// Look what the run loses to paging.
pub fn look(run: &Run) {
    let faults = run.serving.stats.faults.get();
    run.serving.pressure.look(faults, worked(run));
}

/// Look for areas that begin to fail, and count the run's slots in a shared store.
fn look_at_store(run: &Run) {
    run.serving.areas.report(&run.serving.engine);
    run.part.count_slots();
}

/// CPU time of all processes of the run so far, without their agents. What has ended is in the time of who waited for
/// it, and at last in that of the process that they all descend from.
fn worked(run: &Run) -> Duration {
    let spaces = run.listening.spaces.all();
    // The root of a run that was attached to is one of its processes.
    let root = run.config.root_pid;
    let is_counted = spaces.iter().any(|space| space.pid() == Some(root));
    let root = procfs::stat(root).ok().filter(|_| !is_counted);
    let mut ticks = root.map_or(0, |root| root.children_cpu_ticks);
    let strangers = run.listening.shares.stranger_pids();
    let pids = spaces.iter().filter_map(|space| space.pid());
    for stat in pids.chain(strangers).flat_map(procfs::stat) {
        ticks += stat.cpu_ticks + stat.children_cpu_ticks;
    }
    for process in spaces.iter().filter_map(|space| space.process.get()) {
        let tid = process.agent.tid().cast_unsigned();
        let agent = procfs::thread_stat(process.pid, tid);
        ticks = ticks.saturating_sub(agent.map_or(0, |agent| agent.cpu_ticks));
    }
    procfs::duration_of_ticks(ticks)
}

/// What is remembered of the machine.
struct Machine {
    surroundings: Surroundings,
    follower: Follower,
    seen: Instant,
    stalled_us: Option<u64>,
}

impl Machine {
    fn around(run: &Run) -> Machine {
        let mut surroundings = Surroundings::of(run.config.root_pid);
        if let Some(file) = &run.config.pressure_file {
            surroundings = surroundings.with_pressure(file.clone());
        }
        Machine {
            stalled_us: surroundings.stalled_us(),
            surroundings,
            follower: Follower::default(),
            seen: Instant::now(),
        }
    }

    /// Look, and have the run's limit follow. Nothing is done where there is no choice, or nothing is known.
    fn follow(&mut self, limit: &Limit) {
        let range = limit.bounds.range();
        let (stalled_us, elapsed) = (self.surroundings.stalled_us(), self.seen.elapsed());
        let before_us = std::mem::replace(&mut self.stalled_us, stalled_us);
        self.seen = Instant::now();
        let Some(memory) = self.surroundings.memory().filter(|_| !range.is_fixed()) else {
            return;
        };
        let share = |(before_us, now_us): (u64, u64)| {
            let waited = Duration::from_micros(now_us.saturating_sub(before_us));
            waited.as_secs_f64() / elapsed.as_secs_f64()
        };
        let reading = Reading {
            stalled: before_us.zip(stalled_us).map(share),
            available_bytes: memory.available_bytes,
            whole_bytes: memory.whole_bytes,
        };
        let wanted = limit.bounds.wanted_bytes();
        let used_bytes = limit.figures().total_bytes;
        let next = self.follower.next(&reading, range, wanted, used_bytes);
        if next != wanted {
            limit.bounds.follow(wanted, next);
            limit.look_now();
        }
    }
}
