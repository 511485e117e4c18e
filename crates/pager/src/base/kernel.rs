//! What the pager asks the kernel of a program's memory, and the time.
//!
//! In a build that is a product this is `vswap-sys` by other names and nothing else. In a build of this crate's unit
//! tests the same names lead to the simulator's address spaces (`simulator.rs`), so that what runs there is the pager
//! itself, not a copy. Only what differs in the two builds is here.

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
