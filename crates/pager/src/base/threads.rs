//! Threads of the pager.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Builder;
use std::time::{Duration, Instant};

use vswap_sys::process::cpu;

use crate::base::lock::{Mutex, Row};

/// Stack of a pager thread. It is small, because the fault path keeps its pages in buffers, not on the stack.
const STACK_BYTES: usize = 256 << 10;

/// Nice value of threads that run ahead of the program, if the user may ask for that. The program waits for them, or
/// outgrows its limit while they are late.
const HURRY_NICE: i32 = -15;

/// Pause before asking again for a thread that the kernel did not have.
const SPAWN_PACE: Duration = Duration::from_millis(10);

/// The user was told that there are no threads.
static SHORTAGE_SAID: AtomicBool = AtomicBool::new(false);

/// Keep the calling thread on a CPU. If that fails the thread is slower, not wrong.
pub fn stay_on(cpu: usize) {
    if !is_simulated() {
        let _ = cpu::set_affinity(&[cpu]);
    }
}

/// Does the calling thread belong to the simulator? Such threads have neither CPU nor priority.
fn is_simulated() -> bool {
    #[cfg(test)]
    return crate::simulator::actors::is_one();
    #[cfg(not(test))]
    false
}

/// Let the calling thread run ahead of the program, in turn with others.
pub fn hurry() {
    if is_simulated() {
        return;
    }
    // Fails only if the thread was never in another class.
    let _ = cpu::set_ordinary();
    // Fails for an ordinary user, whose threads wait their turn.
    let _ = cpu::set_nice(HURRY_NICE);
}

/// Let the calling thread run before everything else, at once when it wakes. For threads that sleep nearly all the
/// time.
pub fn hurry_most() {
    if is_simulated() || cpu::set_real_time().is_err() {
        hurry();
    }
}

/// The CPU that the calling thread runs on, as a hint. It may be another the next moment.
pub fn current_cpu() -> usize {
    if is_simulated() { 0 } else { cpu::current() }
}

/// Start a named thread that nobody joins, and wait until the kernel has a thread for it. Its work can be late, but
/// must not be left out. Others may wait for the caller meanwhile.
pub fn spawn_late(name: &str, body: impl FnOnce() + Send + 'static) {
    spawn_within(name, Duration::MAX, body);
}

/// The same, but the work is left out if there is no thread within `patience`. False then.
pub fn spawn_within(name: &str, patience: Duration, body: impl FnOnce() + Send + 'static) -> bool {
    let since = Instant::now();
    // A thread that fails to start takes its body with it, so the body is shared.
    let body = Arc::new(Mutex::new(Row::Innermost, "a thread's body", Some(body)));
    loop {
        let body = Arc::clone(&body);
        let started = try_spawn(name, move || {
            let body = body.lock().take();
            if let Some(body) = body {
                body();
            }
        });
        match started {
            Ok(()) => return true,
            Err(error) => say_shortage(&error),
        }
        if since.elapsed() >= patience {
            return false;
        }
        std::thread::sleep(SPAWN_PACE);
    }
}

fn say_shortage(error: &std::io::Error) {
    if !SHORTAGE_SAID.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            "no thread is to be had ({error}); the run goes on slowly until there is one \
             (see `ulimit -u`, and pids.max of the group)"
        );
    }
}

/// Start a named thread that hurries most, from its first moment if the caller does too, and that nobody joins.
///
/// # Errors
/// As [`try_spawn`].
pub fn try_spawn_hurried(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let spawn = || {
        try_spawn(name, move || {
            hurry_most();
            body();
        })
    };
    if is_simulated() {
        return spawn();
    }
    cpu::passing_class_on(spawn)
}

/// Start a named thread that nobody joins.
///
/// # Errors
/// The kernel has no thread (EAGAIN: RLIMIT_NPROC, the pids of a cgroup) or no memory for it.
pub fn try_spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    #[cfg(test)]
    if is_simulated() {
        crate::simulator::actors::spawn(name, body);
        return Ok(());
    }
    Builder::new()
        .name(name.to_owned())
        .stack_size(STACK_BYTES)
        .spawn(body)
        .map(drop)
}
