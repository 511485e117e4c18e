//! What the pager asks the kernel about a program's memory, and the time.
//!
//! In a product build these are the modules of `vswap-sys`, nothing else. In this crate's unit tests the same names
//! lead to the simulator's address spaces (`simulator.rs`). So the tests run the pager itself, not a copy. Only what
//! differs between the two builds is here.

#[cfg(not(test))]
pub use vswap_sys::{futex, memory::maps, memory::pagemap, memory::procmap, process, uffd};

#[cfg(test)]
pub use crate::simulator::{
    doors::{futex, maps, pagemap, process, procmap},
    uffd,
};

#[cfg(test)]
pub use crate::simulator::abort;
#[cfg(not(test))]
pub use std::process::abort;

/// The clock, and waiting for it.
#[cfg(not(test))]
pub mod clock {
    use std::time::{Duration, Instant};

    /// This moment.
    #[inline]
    pub fn now() -> Instant {
        Instant::now()
    }

    /// Pause the calling thread.
    pub fn sleep(pause: Duration) {
        std::thread::sleep(pause);
    }
}

#[cfg(test)]
pub use crate::simulator::clock;
