//! What the agent's thread holds: four descriptors and the agent's memory. Below it is how the descriptors come about.
//!
//! The descriptors are those of the thread's own table. They are written down in the state, so that another thread can
//! go on with them (`hooks/alone.rs`). Unsafe is needed here because the agent has no wrapper for poll and read.

pub mod socket;
pub mod pair;

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::base::kernel::{self, Descriptor, call};
use crate::raw;
use crate::state::STATE;
use crate::state::reservation::Reservation;

/// What the agent's thread holds.
#[derive(Debug)]
pub struct Session {
    /// Userfaultfd of the program's memory and staging A.
    pub main: Descriptor,
    /// Userfaultfd of staging B, without events.
    pub staging: Descriptor,
    /// Connection to the pager.
    pub socket: Descriptor,
    /// An eventfd. A program thread rings it to ask this thread to leave (`hooks/alone.rs`).
    pub bell: Descriptor,
    /// The agent's memory.
    pub reservation: Reservation,
}

impl Session {
    /// Writes down the descriptors for a thread that takes over.
    pub fn remember(&self) {
        let descriptors = [self.main, self.staging, self.socket, self.bell];
        for (word, descriptor) in STATE.descriptors.iter().zip(descriptors) {
            word.store(descriptor, Ordering::SeqCst);
        }
    }

    /// The session that was written down.
    pub fn remembered(reservation: Reservation) -> Session {
        let [main, staging, socket, bell] = &STATE.descriptors;
        let load = |word: &AtomicUsize| word.load(Ordering::SeqCst);
        Session {
            main: load(main),
            staging: load(staging),
            socket: load(socket),
            bell: load(bell),
            reservation,
        }
    }

    /// Waits until there is something to hear. True if it is the bell.
    pub fn is_asked_to_leave(&self) -> bool {
        const POLLIN: u64 = 1;
        // Two `pollfd`, a word each: descriptor, what is waited for, what there is.
        let mut both = [self.socket, self.bell]
            .map(|descriptor| (descriptor as u64 & u64::from(u32::MAX)) | POLLIN << 32);
        // SAFETY: the kernel writes both records, which are on this stack. There is no time-out.
        unsafe { kernel::poll(both.as_mut_ptr().addr(), 2, true) };
        let [_, bell] = both;
        bell >> 48 & POLLIN != 0
    }

    /// Resets the bell.
    pub fn silence(&self) {
        let mut rung = 0_u64;
        // SAFETY: the kernel writes a word on this stack. Does not wait: the eventfd is non-blocking.
        unsafe {
            raw::syscall3(
                call::READ,
                self.bell,
                (&raw mut rung).addr(),
                size_of::<u64>(),
            )
        };
    }
}
