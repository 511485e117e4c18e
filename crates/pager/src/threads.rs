//! Threads of the pager.

use std::thread::Builder;

use vswap_sys::cpu;

/// Stack of a pager thread: the fault path keeps its pages in buffers, not on the stack.
const STACK_BYTES: usize = 256 << 10;

/// What runs ahead of the program, where the user may ask for that: the program waits for it, or outgrows its limit.
const HURRY_NICE: i32 = -15;

/// Let the calling thread run ahead of the program, in turn with others.
pub fn hurry() {
    // A thread that never was in another class has nothing to leave.
    let _ = cpu::set_ordinary();
    // An ordinary user's threads have to wait their turn.
    let _ = cpu::set_nice(HURRY_NICE);
}

/// Let the calling thread run before everything else, at once when it wakes. For threads that sleep nearly all the
/// time.
pub fn hurry_most() {
    if cpu::set_real_time().is_err() {
        hurry();
    }
}

/// Start a named thread that nobody joins. Without threads the pager cannot serve faults, and a program whose
/// faults nobody serves hangs: so this ends the run instead (the agents then stop their processes).
pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) {
    let started = Builder::new()
        .name(name.to_owned())
        .stack_size(STACK_BYTES)
        .spawn(body);
    if let Err(error) = started {
        give_up(&format!("cannot start the thread {name}: {error}"));
    }
}

/// A thread that faults depend on cannot do its work: end the run, see [`spawn`].
pub fn give_up(why: &str) -> ! {
    eprintln!("vswap: {why}; stopping the run");
    std::process::abort();
}
