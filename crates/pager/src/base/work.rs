//! What threads wait for: something to do, or the end of the run. The lock is innermost.

use std::sync::Condvar;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::base::lock::{Mutex, MutexGuard, Row};

/// Something to do, of type `T`, and whether there is an end of it.
#[derive(Debug)]
pub struct Work<T> {
    work: Mutex<T>,
    /// Signalled when there is something new, and at the end.
    changed: Condvar,
    has_ended: AtomicBool,
}

impl<T: Default> Work<T> {
    /// Nothing to do yet. `name` is what the lock is called when it is taken out of order.
    pub fn new(name: &'static str) -> Work<T> {
        Work {
            work: Mutex::new(Row::Innermost, name, T::default()),
            changed: Condvar::new(),
            has_ended: AtomicBool::new(false),
        }
    }
}

impl<T> Work<T> {
    /// Look at the work, or change it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.work.lock()
    }

    /// Wake one thread that waits.
    pub fn wake_one(&self) {
        self.changed.notify_one();
    }

    /// No thread shall wait any more.
    pub fn end(&self) {
        // With the lock held: a thread that has just looked must not go to sleep after this.
        let work = self.lock();
        self.has_ended.store(true, Ordering::Relaxed);
        drop(work);
        self.changed.notify_all();
    }

    /// Is this the end?
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    /// Wait while `is_idle`, or until the end.
    pub fn wait_while(&self, is_idle: impl Fn(&T) -> bool) -> MutexGuard<'_, T> {
        let mut work = self.lock();
        while is_idle(&work) && !self.has_ended() {
            work = work.wait(&self.changed);
        }
        work
    }

    /// Wait while `is_idle`, until the end, or for `patience`.
    pub fn wait_timeout_while(
        &self,
        patience: Duration,
        is_idle: impl Fn(&T) -> bool,
    ) -> MutexGuard<'_, T> {
        let is_idle = |work: &mut T| is_idle(work) && !self.has_ended();
        self.lock()
            .wait_timeout_while(&self.changed, patience, is_idle)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_thread_that_waits_gets_the_work_and_then_the_end() {
        let work: Arc<Work<Vec<u32>>> = Arc::new(Work::new("a test's work"));
        let taken = Arc::clone(&work);
        let taker = std::thread::spawn(move || {
            let mut all = Vec::new();
            loop {
                let mut there = taken.wait_while(Vec::is_empty);
                if there.is_empty() {
                    return all;
                }
                all.append(&mut there);
            }
        });
        for number in 0..100 {
            work.lock().push(number);
            work.wake_one();
        }
        work.end();
        assert_eq!(taker.join().unwrap(), (0..100).collect::<Vec<u32>>());
        assert!(work.has_ended());
    }

    #[test]
    fn patience_ends() {
        let work: Work<u32> = Work::new("a test's work");
        assert_eq!(
            *work.wait_timeout_while(Duration::from_millis(1), |n| *n == 0),
            0
        );
        *work.lock() = 7;
        assert_eq!(
            *work.wait_timeout_while(Duration::from_secs(600), |n| *n == 0),
            7
        );
    }
}
