//! Faults that wait for an area, with their pages claimed. The lock is innermost.
//!
//! Those that wait for another machine have a queue and threads of their own: should that machine not answer, all its
//! threads wait for it, and what lies on a disk still comes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::base::work::Work;
use crate::space::fault::Fault;
use crate::space::incoming::Incoming;
use crate::space::{Space, State};

/// Where a page is, the nearest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lies {
    /// In a frame, in the pool, or all zeros.
    Memory,
    /// In an area of this machine.
    Area,
    /// In an area on other machines.
    Far,
}

/// The queues of a run.
#[derive(Debug, Default)]
pub struct AreaQueues {
    /// For areas of this machine.
    pub near: AreaQueue,
    /// For areas on other machines.
    pub far: AreaQueue,
}

impl AreaQueues {
    /// Which queue is for pages of which the farthest lies there. None if all are in memory.
    pub fn of(&self, farthest: Lies) -> Option<&AreaQueue> {
        match farthest {
            Lies::Memory => None,
            Lies::Area => Some(&self.near),
            Lies::Far => Some(&self.far),
        }
    }

    /// End the threads.
    pub fn stop(&self) {
        self.near.stop();
        self.far.stop();
    }
}

/// A fault whose pages are claimed and have to be read.
#[derive(Debug)]
pub struct Job {
    /// The space of the fault.
    pub space: Arc<Space>,
    /// The fault.
    pub fault: Fault,
    /// Its pages.
    pub incoming: Vec<Incoming>,
    /// Size of the window around a lone page, in pages.
    pub around: u64,
}

/// What a thread does next.
pub enum Next {
    /// Read these pages.
    Job(Job),
    /// There was nothing to read for a while.
    Nothing,
    /// The run ends.
    End,
}

/// Faults that wait for an area.
#[derive(Debug)]
pub struct AreaQueue {
    queue: Work<VecDeque<Job>>,
    started: AtomicBool,
}

impl Default for AreaQueue {
    fn default() -> AreaQueue {
        AreaQueue {
            queue: Work::new("the queue of reads"),
            started: AtomicBool::new(false),
        }
    }
}

impl AreaQueue {
    /// Queue a fault of a space, with `_state` locked.
    pub fn push(
        &self,
        _state: &State,
        space: &Arc<Space>,
        fault: Fault,
        incoming: Vec<Incoming>,
        around: u64,
    ) {
        let space = Arc::clone(space);
        self.queue.lock().push_back(Job {
            space,
            fault,
            incoming,
            around,
        });
        self.queue.wake_one();
    }

    /// Called before the threads are started. False if they were started before.
    pub fn begin(&self) -> bool {
        !self.started.swap(true, Ordering::AcqRel)
    }

    fn stop(&self) {
        self.queue.end();
    }

    /// Wait for a job, at most for `patience`.
    pub fn next(&self, patience: Duration) -> Next {
        let mut queue = self.queue.wait_timeout_while(patience, VecDeque::is_empty);
        match queue.pop_front() {
            Some(job) => Next::Job(job),
            None if self.queue.has_ended() => Next::End,
            None => Next::Nothing,
        }
    }
}
