//! Swap-ins that have to wait for an area. A few threads read them, so that many reads are under way at once and the
//! readers of faults go on.
//!
//! When there is nothing to read, the first thread discards what has become free on the areas.
//!
//! A job is a fault with claimed pages. Nobody else touches them until the job is done. The threads start with the
//! first area. The queue's lock is innermost.

use std::sync::Arc;
use std::time::Duration;

use crate::base::threads;
use crate::fault::serving::Serving;
use crate::fault::{FaultServer, Outcome};
use crate::run::area_queue::{AreaQueue, AreaQueues, Job, Next};
use crate::run::buffers::Buffers;

/// Threads that read, and so the number of windows read at once. A disk gives twice as much with eight requests as with
/// two. Each thread has buffers of 256 KiB once it has read a long window.
const THREADS: usize = 8;

/// Pause when the kernel wants layout events to be read first (rule P6).
const RETRY_PACE: Duration = Duration::from_micros(50);

/// How often one idle thread tells areas what they need not keep: 32 MiB a second at most.
const DISCARD_EVERY: Duration = Duration::from_millis(500);
const DISCARD_CLUSTERS: usize = 8;

type Queue = fn(&AreaQueues) -> &AreaQueue;

/// Start the threads, once, before the first area is used, and those for other machines before the first area there.
/// The first thread of each kind must start, the others may fail to.
pub fn start(serving: &Arc<Serving>) {
    start_on(serving, "swap-in", |queues| &queues.near);
    if serving.areas.any_far() {
        start_on(serving, "swap-in-far", |queues| &queues.far);
    }
}

fn start_on(serving: &Arc<Serving>, name: &str, queue: Queue) {
    if !queue(&serving.area_queues).begin() {
        return;
    }
    let first = Arc::clone(serving);
    threads::spawn_late(&format!("{name}-0"), move || {
        run(&first, queue, DISCARD_EVERY);
    });
    for number in 1..THREADS {
        let serving = Arc::clone(serving);
        let name = format!("{name}-{number}");
        let _ = threads::try_spawn(&name, move || run(&serving, queue, Duration::MAX));
    }
}

/// Read until the run ends. Discard after `patience` without a read.
fn run(serving: &Arc<Serving>, queue: Queue, patience: Duration) {
    threads::hurry();
    let mut buffers = Buffers::new(&serving.engine, &serving.stats);
    loop {
        match queue(&serving.area_queues).next(patience) {
            Next::Job(job) => buffers = serve(serving, &job, buffers),
            Next::Nothing => drop(serving.engine.discard(DISCARD_CLUSTERS)),
            Next::End => return,
        }
    }
}

/// Read a job's pages and serve its fault.
fn serve(serving: &Arc<Serving>, job: &Job, buffers: Buffers) -> Buffers {
    let mut server = FaultServer::with(serving, &job.space, buffers);
    let (mut state, outcome) = server.fetch(&job.fault, &job.incoming, job.around);
    let is_wanted = outcome == Outcome::Again && !job.fault.ahead;
    if is_wanted {
        state.deferred.push(job.fault.clone());
        job.space.mailbox.ask(|wanted| wanted.deferred = true);
    }
    server.release(state);
    if is_wanted {
        std::thread::sleep(RETRY_PACE);
    }
    server.into_buffers()
}
