//! The lanes of a disk: made when they are needed, lent to one call each.
//!
//! One mutex, held while a list is popped or pushed; a lane is made outside of it. The lane used last is lent first:
//! its buffer is warm, and a quiet disk never has more lanes than calls at once.

use std::fs::File;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::lane::{Lane, Way};

/// Most lanes of a disk, and so most requests at once. With 32 threads that read single pages, 32 lanes gave 1.4 times
/// what 8 gave (`examples/disk_speed.rs`, virtio disk); each takes up to 256 KiB once there are so many calls at once.
pub const LANES_MAX: usize = 32;

pub(super) struct Lanes {
    way: Way,
    state: Mutex<State>,
    returned: Condvar,
}

#[derive(Default)]
struct State {
    free: Vec<Lane>,
    /// How many there are, those that are lent included.
    made: usize,
    /// How many calls wait for one.
    waiting: usize,
}

impl Lanes {
    pub(super) fn new(way: Way) -> Lanes {
        Lanes {
            way,
            state: Mutex::default(),
            returned: Condvar::new(),
        }
    }

    /// How new lanes go.
    pub(super) fn way(&self) -> Way {
        self.way
    }

    /// Lends a lane of `file` to `work`; waits while all there may be are lent.
    pub(super) fn with<T>(&self, file: &File, work: impl FnOnce(&mut Lane) -> T) -> T {
        let mut lane = self.take(file);
        let done = work(&mut lane);
        let mut state = self.lock();
        state.free.push(lane);
        // A call into the kernel, even where nobody waits.
        if state.waiting > 0 {
            self.returned.notify_one();
        }
        done
    }

    fn take(&self, file: &File) -> Lane {
        let mut state = self.lock();
        loop {
            if let Some(lane) = state.free.pop() {
                return lane;
            }
            if state.made < LANES_MAX {
                state.made += 1;
                drop(state);
                return Lane::new(file, self.way);
            }
            state.waiting += 1;
            state = self
                .returned
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
