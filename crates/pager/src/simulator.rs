//! A simulator of the pager: the pager's own code, with models of the kernel, the clock and programs.
//!
//! In unit tests `kernel.rs` leads here instead of to `vswap-sys`. Locks and pauses let other actors run, and threads
//! of the pager are actors. A seed gives a plan (what the threads of a program do, `plan.rs`) and a schedule (who runs
//! when, `actors.rs`). The kernel follows Linux step by step (`memory.rs`, `uffd.rs`, `calls.rs`). Beside each page
//! table it keeps what a program without vswap would read, and compares every read with that. At the end everything is
//! read once more, and all processes end. No reference to an entry may be left then. The content lies in the real
//! engine.
//!
//! *Reached:* layout, events, regions, moves, mmap and guards as `notify` answers them, faults, swap-in, eviction,
//! aside, kin, forks, readers, the beginning and the end of spaces; an engine that is refused memory.
//!
//! *Not reached:* areas and what reads them; the governor, and faults that wait for memory; brk; MADV_FREE,
//! MADV_WIPEONFORK and other memory that is let go of; threads that end; exec; stopped processes; the sockets and the
//! seccomp filter; the agent's own code (`agent.rs` is a copy of its logic); and the order of memory accesses of
//! threads that really run at the same time.

pub mod actors;
mod agent;
mod calls;
mod lost;
pub mod doors;
mod memory;
mod plan;
mod program;
mod random;
pub mod run;
mod scarce;
mod shrink;
mod tests;
pub mod uffd;

/// A space for tests that need no process behind it.
pub fn bare_space(id: u64) -> std::sync::Arc<crate::space::Space> {
    use crate::layout::Layout;
    crate::space::Space::new(
        id,
        uffd::Userfaultfd::of(0),
        Layout::default(),
        std::sync::Arc::default(),
    )
}

/// The clock of a simulation. For threads that are not simulated it is the machine's clock.
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

/// The pager ends itself. A simulation that gets here has failed.
pub fn abort() -> ! {
    actors::fail("the pager has stopped itself")
}
