//! A simulator of the pager: its own code, with a kernel, a clock and programs that are models.
//!
//! In unit tests `kernel.rs` leads here instead of to `vswap-sys`, locks and pauses let other actors run, and threads
//! of the pager are actors. A seed gives a plan (what threads of a program do, `plan.rs`) and a schedule (who runs
//! when, `actors.rs`). The kernel follows Linux step by step (`memory.rs`, `uffd.rs`, `calls.rs`), and keeps beside
//! each page table what a program without vswap would read: every read is compared with it. At the end all is read
//! once more, everybody ends, and no entry may be referred to any more. Content lies in the engine itself.
//!
//! *Reached:* layout, events, regions, moves, mmap and guards as `notify` answers them, faults, swap-in, eviction,
//! aside, kin, forks, readers, the beginning and the end of spaces. *Not reached:* areas and what reads them, the
//! governor and faults that wait for memory, brk, MADV_FREE, MADV_WIPEONFORK and other memory that is let go of,
//! threads that end, exec, stopped processes, the sockets and the seccomp filter, the agent's own code (`agent.rs` is a
//! copy of its logic), and the order of memory accesses of threads that really run at the same time.

pub mod actors;
mod agent;
mod calls;
pub mod doors;
mod memory;
mod plan;
mod program;
mod random;
mod run;
mod shrink;
mod tests;
pub mod uffd;

/// The clock of a simulation; that of the machine for threads that are not simulated.
pub mod clock {
    use std::sync::OnceLock;
    use std::time::{Duration, Instant};

    use super::actors;

    static BEGINNING: OnceLock<Instant> = OnceLock::new();

    pub fn now() -> Instant {
        if actors::is_one() {
            *BEGINNING.get_or_init(Instant::now) + Duration::from_micros(actors::now_us())
        } else {
            Instant::now()
        }
    }

    pub fn sleep(pause: Duration) {
        if actors::is_one() {
            let pause_us = u64::try_from(pause.as_micros()).unwrap_or(u64::MAX);
            actors::wait_until_or(|| false, pause_us.max(1));
        } else {
            std::thread::sleep(pause);
        }
    }
}

/// The pager ends itself: it must not come to that.
pub fn abort() -> ! {
    actors::fail("the pager has stopped itself")
}
