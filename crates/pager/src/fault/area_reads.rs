//! Swap-ins that have to wait for an area: a few threads read, so that many reads are under way at once and the
//! readers of faults go on.
//!
//! When there is nothing to read, the first of them discards what has become free on the areas.
//!
//! A job is a fault whose pages are claimed: nobody else touches them until it is done. The threads are started with
//! the first area. The queue's lock is innermost.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar};
use std::time::Duration;

use crate::base::lock::{Mutex, MutexGuard, Row};
use crate::base::threads;
use crate::fault::{FaultServer, Outcome};
use crate::run::buffers::Buffers;
use crate::run::core::Core;
use crate::space::Space;
use crate::space::fault::Fault;
use crate::space::incoming::Incoming;

/// Threads that read, and so windows that are read at once: a disk gives twice as much with eight requests as with two,
/// and each thread has buffers of 256 KiB once it has read a long window.
const THREADS: usize = 8;

/// Pause when the kernel wants layout events read first (rule P6).
const RETRY_PACE: Duration = Duration::from_micros(50);

/// One thread, when nobody waits for it, tells areas this often what they need not keep: 32 MiB a second at most.
const DISCARD_EVERY: Duration = Duration::from_millis(500);
const DISCARD_CLUSTERS: usize = 8;

/// A fault whose pages are claimed and to be read.
#[derive(Debug)]
struct Job {
    space: Arc<Space>,
    fault: Fault,
    incoming: Vec<Incoming>,
    /// Pages of the window around a lone one.
    around: u64,
}

/// What a thread does next.
enum Next {
    Job(Job),
    Nothing,
    End,
}

/// Faults that wait for an area.
#[derive(Debug)]
pub struct AreaReads {
    queue: Mutex<VecDeque<Job>>,
    filled: Condvar,
    stop: AtomicBool,
    started: AtomicBool,
}

impl Default for AreaReads {
    fn default() -> AreaReads {
        AreaReads {
            queue: Mutex::new(Row::Innermost, "the queue of reads", VecDeque::new()),
            filled: Condvar::new(),
            stop: AtomicBool::new(false),
            started: AtomicBool::new(false),
        }
    }
}

impl AreaReads {
    /// Queue a fault. Called with the space lock held.
    pub fn push(&self, space: &Arc<Space>, fault: Fault, incoming: Vec<Incoming>, around: u64) {
        let space = Arc::clone(space);
        self.lock().push_back(Job {
            space,
            fault,
            incoming,
            around,
        });
        self.filled.notify_one();
    }

    /// End the threads.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.filled.notify_all();
    }

    /// Wait for a job, `patience` at most.
    fn next(&self, patience: Duration) -> Next {
        let stops = || self.stop.load(Ordering::Relaxed);
        let idle = |queue: &mut VecDeque<Job>| queue.is_empty() && !stops();
        let mut queue = self.lock().wait_timeout_while(&self.filled, patience, idle);
        match queue.pop_front() {
            Some(job) => Next::Job(job),
            None if stops() => Next::End,
            None => Next::Nothing,
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Job>> {
        self.queue.lock()
    }
}

/// Start the threads, once. Before the first area is used. There has to be one; the others as far as there are any.
pub fn start(core: &Arc<Core>) {
    if core.area_reads.started.swap(true, Ordering::AcqRel) {
        return;
    }
    let first = Arc::clone(core);
    threads::spawn_late("swap-in-0", move || run(&first, DISCARD_EVERY));
    for number in 1..THREADS {
        let core = Arc::clone(core);
        let name = format!("swap-in-{number}");
        let _ = threads::try_spawn(&name, move || run(&core, Duration::MAX));
    }
}

/// Read until the run ends. Discards when there has been nothing to read for `patience`.
fn run(core: &Arc<Core>, patience: Duration) {
    threads::hurry();
    let mut buffers = Buffers::new(core);
    loop {
        match core.area_reads.next(patience) {
            Next::Job(job) => buffers = serve(core, &job, buffers),
            Next::Nothing => drop(core.engine.discard(DISCARD_CLUSTERS)),
            Next::End => return,
        }
    }
}

/// Read a job's pages and serve its fault.
fn serve(core: &Arc<Core>, job: &Job, buffers: Buffers) -> Buffers {
    let mut server = FaultServer::with(core, &job.space, buffers);
    let (mut state, outcome) = server.fetch(&job.fault, &job.incoming, job.around);
    let is_wanted = outcome == Outcome::Again && !job.fault.ahead;
    if is_wanted {
        state.deferred.push(job.fault);
        job.space.mailbox.ask(|wanted| wanted.deferred = true);
    }
    server.release(state);
    if is_wanted {
        std::thread::sleep(RETRY_PACE);
    }
    server.into_buffers()
}
