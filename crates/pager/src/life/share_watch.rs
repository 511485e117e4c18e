//! The thread that looks how much of processes' memory is their own, at a bounded cost.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use vswap_sys::process::cpu;

use crate::base::threads;
use crate::run::Run;
use crate::run::shares::is_sharing;

/// Looking takes at most about one part in this many of the thread's time.
const COST_PART: u32 = 16;
/// Pause between two rounds of reading counts, and of walking page tables, at the least.
const GLANCE_EVERY: Duration = Duration::from_millis(2);
const WALK_EVERY: Duration = Duration::from_millis(10);
/// How often processes without an agent are looked for: they are few, and looking walks /proc.
const STRANGERS_EVERY: Duration = Duration::from_millis(100);

/// Start the thread that looks.
///
/// # Errors
/// There is no thread.
pub fn start(core: &Arc<Run>) -> std::io::Result<()> {
    let core = Arc::clone(core);
    threads::try_spawn("shares", move || {
        threads::hurry();
        run(&core);
    })
}

fn run(core: &Run) {
    let (mut walk_next, mut strangers_next) = (Instant::now(), Instant::now() + STRANGERS_EVERY);
    while !core.limit.has_stopped() {
        let start = cpu::thread_time();
        let spaces = core.spaces.all();
        if Instant::now() >= strangers_next {
            core.shares
                .look_for_strangers(core.config.root_pid, &spaces);
            strangers_next = Instant::now() + STRANGERS_EVERY;
        }
        // Waking for nothing, five hundred times a second, would cost a program that fits a part of its time.
        if !spaces.iter().any(|space| is_sharing(space)) {
            let pause = strangers_next.saturating_duration_since(Instant::now());
            core.shares.wait_for_fork(pause);
            continue;
        }
        // Each is taken back, so not `any`.
        let changed = spaces
            .iter()
            .filter(|space| space.share_is_old.swap(false, Ordering::Relaxed))
            .count();
        if changed > 0 || Instant::now() >= walk_next {
            core.shares.walk(&spaces);
            let cost = cpu::thread_time().saturating_sub(start);
            walk_next = Instant::now() + (cost * COST_PART).max(WALK_EVERY);
            std::thread::sleep(GLANCE_EVERY);
            continue;
        }
        core.shares.glance(&spaces);
        let cost = cpu::thread_time().saturating_sub(start);
        std::thread::sleep((cost * COST_PART).clamp(GLANCE_EVERY, STRANGERS_EVERY));
    }
}
