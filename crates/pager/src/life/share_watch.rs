//! The thread that measures how much of processes' memory is their own, at a bounded cost. It also tells arenas what
//! they may take.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use vswap_sys::process::{cpu, procfs};

use crate::base::threads;
use crate::events::listening::Listening;
use crate::life::last_thread;
use crate::run::arenas;
use crate::run::shares::{Shares, Stranger, is_sharing, look_for_strangers};
use crate::space::Space;

/// Looking takes at most about one part in this many of the thread's time.
const COST_PART: u32 = 16;
/// Least pause between two readings of counts, and between two walks of page tables.
const GLANCE_EVERY: Duration = Duration::from_millis(2);
const WALK_EVERY: Duration = Duration::from_millis(10);
/// How often to look for processes without an agent. They are few, and looking walks /proc.
const STRANGERS_EVERY: Duration = Duration::from_millis(100);
/// The same while the run waits because everything is full.
const STRANGERS_STALLED_EVERY: Duration = Duration::from_secs(1);
/// The same while it is parked: it starts no process.
const STRANGERS_PARKED_EVERY: Duration = Duration::from_secs(10);

/// How often to look for main threads that have ended.
const LEADERS_EVERY: Duration = Duration::from_secs(1);

/// How often to look even if no process seems to have come: a look may miss one while another ends.
const STRANGERS_ANYHOW_EVERY: Duration = Duration::from_secs(1);

/// Looks for processes without an agent. Walking /proc costs ten milliseconds with a thousand processes, so it is left
/// out while no process has been started and none has lost its agent, as by starting another program.
#[derive(Default)]
struct StrangersLook {
    births: procfs::Births,
    /// The spaces at the last walk, by their ids.
    spaces: Vec<u64>,
    walked: Option<Instant>,
}

impl StrangersLook {
    fn look(&mut self, shares: &Shares, root_pid: u32, spaces: &[Arc<Space>]) -> Vec<Stranger> {
        // First, so that whoever is started during the walk is noticed next time.
        let births = self.births.any();
        let is_due = self
            .walked
            .is_none_or(|walked| walked.elapsed() >= STRANGERS_ANYHOW_EVERY);
        let ids = spaces.iter().map(|space| space.id);
        if !births && !is_due && ids.clone().eq(self.spaces.iter().copied()) {
            return shares.known_strangers();
        }
        self.spaces = ids.collect();
        self.walked = Some(Instant::now());
        look_for_strangers(root_pid, spaces)
    }
}

/// Start the thread that looks.
///
/// # Errors
/// There is no thread.
pub fn start(listening: &Arc<Listening>, root_pid: u32) -> std::io::Result<()> {
    let listening = Arc::clone(listening);
    threads::try_spawn("shares", move || {
        threads::hurry();
        look(&listening, root_pid);
    })
}

fn strangers_pause(listening: &Listening) -> Duration {
    if listening.serving.parking.is_parked() {
        STRANGERS_PARKED_EVERY
    } else if listening.serving.limit.is_stalled() {
        STRANGERS_STALLED_EVERY
    } else {
        STRANGERS_EVERY
    }
}

fn look(listening: &Listening, root_pid: u32) {
    let shares = &listening.shares;
    let (mut walk_next, mut strangers_seen) = (Instant::now(), Instant::now());
    let mut strangers_look = StrangersLook::default();
    let mut strangers_cost = Duration::ZERO;
    let mut leaders_next = Instant::now() + LEADERS_EVERY;
    while !listening.serving.limit.has_stopped() {
        let start = cpu::thread_time();
        let spaces = listening.spaces.all();
        let strangers_pause = strangers_pause(listening).max(strangers_cost * COST_PART);
        let mut newcomers = None;
        if strangers_seen.elapsed() >= strangers_pause {
            let found = strangers_look.look(shares, root_pid, &spaces);
            newcomers = shares.note_strangers(found);
            arenas::grant(&listening.serving.limit, &spaces);
            strangers_cost = cpu::thread_time().saturating_sub(start);
            strangers_seen = Instant::now();
        }
        if Instant::now() >= leaders_next {
            // Here, because the governor may sleep for seconds.
            spaces.iter().for_each(last_thread::look);
            leaders_next = Instant::now() + LEADERS_EVERY;
        }
        // Waking five hundred times a second for nothing would cost a program that fits into memory some of its time.
        let is_parked = listening.serving.parking.is_parked();
        let is_quiet = is_parked || !spaces.iter().any(|space| is_sharing(space));
        if is_quiet && newcomers.is_none() {
            // Whoever ends one of them meanwhile waits for the last reference.
            drop(spaces);
            // At least so often, to see that a parked run goes on.
            let pause = strangers_pause.saturating_sub(strangers_seen.elapsed());
            let pause = pause.min(STRANGERS_STALLED_EVERY);
            shares.wait_for_fork(pause);
            continue;
        }
        // `count`, not `any`, because each mark has to be cleared.
        let changed = spaces
            .iter()
            .filter(|space| space.share_is_old.swap(false, Ordering::Relaxed))
            .count();
        if changed > 0 || newcomers.is_some() || Instant::now() >= walk_next {
            shares.walk(&spaces, newcomers);
            let cost = cpu::thread_time().saturating_sub(start);
            walk_next = Instant::now() + (cost * COST_PART).max(WALK_EVERY);
            std::thread::sleep(GLANCE_EVERY);
            continue;
        }
        shares.glance(&spaces);
        let cost = cpu::thread_time().saturating_sub(start);
        std::thread::sleep((cost * COST_PART).clamp(GLANCE_EVERY, STRANGERS_EVERY));
    }
}
