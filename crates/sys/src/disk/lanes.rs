//! The lanes of a disk: made when they are needed, each lent to one call.
//!
//! There is one mutex, held only while a list is popped or pushed; lanes are made outside of it. The lane used last is
//! lent first: its buffer is warm, and a quiet disk never has more lanes than calls at once.

use std::fs::File;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::lane::{Lane, Way};

/// Most lanes of a disk, and so most calls at once. With 32 threads that read single pages, 32 lanes gave 1.4 times
/// what 8 gave (`examples/disk_speed.rs`, virtio disk). Each lane takes up to 256 KiB once there are so many calls at
/// once.
pub const LANES_MAX: usize = 32;

pub(super) struct Lanes {
    way: Way,
    state: Mutex<State>,
    returned: Condvar,
}

#[derive(Default)]
struct State {
    free: Vec<Lane>,
    /// Number of lanes, those that are lent included.
    made: usize,
    /// Number of calls that wait for a lane.
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

    /// Which way new lanes go.
    pub(super) fn way(&self) -> Way {
        self.way
    }

    /// Lends a lane of `file` to `work`. Waits while all permitted lanes are lent.
    pub(super) fn with<T>(&self, file: &File, work: impl FnOnce(&mut Lane) -> T) -> T {
        let mut lane = self.take(file);
        let done = work(&mut lane);
        let mut state = self.lock();
        state.free.push(lane);
        // Notifying is a call into the kernel, even if nobody waits.
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
