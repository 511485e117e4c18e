//! Work that may never end, waited for with patience.
//!
//! Whoever reads or writes memory of a program may wait for a page that the program's own userfaultfd watches and that
//! nobody gives it. No signal ends that wait, short of SIGKILL. So a thread that others depend on has such work done by
//! another thread, which it can give up. A thread that was given up ends when the program and all that share its
//! userfaultfd have ended. The others are kept, because new ones are not always to be had.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

use rustix::thread::gettid;

use crate::looks;

/// Threads that may be given up at a time. With so many, programs do this on purpose, and more work is refused.
const GIVEN_UP_MAX: usize = 64;
/// How long work may take that goes on, or would if it got a processor. That it does not is no fault of the program's.
const BUSY_PATIENCE: Duration = Duration::from_secs(10);
/// How often a thread is looked at, and in which pace, before it is said to wait.
const LOOKS: u32 = 5;
const LOOK_PACE: Duration = Duration::from_millis(1);
/// How often whoever needs a thread looks for one.
const WORKER_PACE: Duration = Duration::from_millis(1);

static AT_WORK: AtomicUsize = AtomicUsize::new(0);
/// Threads that wait for work. Each ends when its sender is dropped.
static IDLE: Mutex<Vec<Sender<Job>>> = Mutex::new(Vec::new());

type Job = Box<dyn FnOnce() + Send>;

/// One more thread is at work, until this is dropped.
struct AtWork;

impl AtWork {
    fn begin() -> Option<AtWork> {
        // Only a bound, which threads at the same moment may pass a little.
        let may_begin = AT_WORK.load(Ordering::Relaxed) < GIVEN_UP_MAX;
        may_begin.then(|| {
            AT_WORK.fetch_add(1, Ordering::Relaxed);
            AtWork
        })
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        AT_WORK.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Have a thread at hand for times at which the system has no more.
///
/// # Errors
/// There is no thread (EAGAIN).
pub fn prepare() -> std::io::Result<()> {
    let mut idle = idle();
    if idle.is_empty() {
        idle.push(new_worker()?);
    }
    Ok(())
}

/// Do `work`. None if its thread waits for something for longer than `patience`, if no thread is to be had for as long,
/// or if too much other work never ended.
pub fn within<T: Send + 'static>(
    patience: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let at_work = AtWork::begin()?;
    let worker = worker_within(patience)?;
    let (sender, done) = mpsc::channel();
    let tid = Arc::new(AtomicU32::new(NOT_BEGUN));
    let began = Arc::clone(&tid);
    let job = Box::new(move || {
        began.store(
            gettid().as_raw_nonzero().get().unsigned_abs(),
            Ordering::Relaxed,
        );
        let result = work();
        drop(at_work);
        // Nobody may wait for it any more.
        let _ = sender.send(result);
    });
    worker.send(job).ok()?;
    let since = Instant::now();
    let result = loop {
        match done.recv_timeout(patience) {
            Ok(result) => break result,
            Err(RecvTimeoutError::Timeout)
                if since.elapsed() < BUSY_PATIENCE
                    && !keeps_waiting(tid.load(Ordering::Relaxed)) => {}
            Err(_) => return None,
        }
    };
    idle().push(worker);
    Some(result)
}

const NOT_BEGUN: u32 = 0;

/// Does this thread wait for something other than a processor, whenever it is looked at? Once alone says little: work
/// that goes on also waits for a moment, for a lock of the kernel's or a page of its own code.
fn keeps_waiting(tid: u32) -> bool {
    (0..LOOKS).all(|look| {
        if look > 0 {
            std::thread::sleep(LOOK_PACE);
        }
        is_waiting(tid)
    })
}

fn is_waiting(tid: u32) -> bool {
    let path = format!("/proc/self/task/{tid}/stat");
    let runs = |stat: String| {
        stat.rsplit_once(')')
            .is_some_and(|(_, rest)| rest.starts_with(" R"))
    };
    tid != NOT_BEGUN && !looks::read_text(&path).is_ok_and(runs)
}

fn idle() -> MutexGuard<'static, Vec<Sender<Job>>> {
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn worker_within(patience: Duration) -> Option<Sender<Job>> {
    let since = Instant::now();
    loop {
        let idle_one = idle().pop();
        if let Some(worker) = idle_one.or_else(|| new_worker().ok()) {
            return Some(worker);
        }
        if since.elapsed() >= patience {
            return None;
        }
        std::thread::sleep(WORKER_PACE);
    }
}

fn new_worker() -> std::io::Result<Sender<Job>> {
    let (sender, jobs) = mpsc::channel::<Job>();
    let work = move || jobs.into_iter().for_each(|job| job());
    Builder::new().name("patience".to_owned()).spawn(work)?;
    Ok(sender)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_does_not_end_is_given_up() {
        let patience = Duration::from_secs(60);
        prepare().unwrap();
        let id = || std::thread::current().id();
        let first = within(patience, id);
        assert_eq!(within(patience, id), first, "it is kept");
        let (release, held) = mpsc::channel::<()>();
        let stuck = within(Duration::from_millis(5), move || held.recv().is_ok());
        assert_eq!(stuck, None);
        let next = within(patience, id);
        assert!(next.is_some() && next != first, "another thread does it");
        drop(release);
    }

    #[test]
    fn work_that_goes_on_is_not_given_up() {
        let busy = within(Duration::from_millis(5), || {
            let since = Instant::now();
            while since.elapsed() < Duration::from_millis(100) {}
            7
        });
        assert_eq!(busy, Some(7));
    }
}
