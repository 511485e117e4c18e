//! Waiting on a word that two processes share. No allocation, no errno, no thread-local storage.

use core::sync::atomic::AtomicU32;
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::futex;

use crate::eventfd::timespec;

/// Why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// Somebody woke the thread, or a signal came, or the kernel had no reason: look at the word again.
    LookAgain,
    /// The word did not hold the expected value.
    Changed,
    /// The time is over.
    TimedOut,
}

/// Sleeps while `word` holds `expected`, at most `timeout` (None = for ever).
///
/// # Errors
/// EFAULT when the word's memory cannot be read.
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Result<Woken, Errno> {
    let timeout = timeout.map(timespec);
    match futex::wait(word, futex::Flags::empty(), expected, timeout.as_ref()) {
        Ok(()) | Err(Errno::INTR) => Ok(Woken::LookAgain),
        Err(Errno::AGAIN) => Ok(Woken::Changed),
        Err(Errno::TIMEDOUT) => Ok(Woken::TimedOut),
        Err(errno) => Err(errno),
    }
}

/// Wakes up to `waiters` threads that sleep on `word`, in any process; returns how many.
///
/// # Errors
/// EFAULT when the word's memory cannot be read.
pub fn wake(word: &AtomicU32, waiters: u32) -> Result<usize, Errno> {
    futex::wake(word, futex::Flags::empty(), waiters)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::Ordering;

    #[test]
    fn waits_end_by_value_time_and_wake() {
        let word = AtomicU32::new(1);
        assert_eq!(wait(&word, 0, None), Ok(Woken::Changed));
        let short = Some(Duration::from_millis(1));
        assert_eq!(wait(&word, 1, short), Ok(Woken::TimedOut));
        assert_eq!(wake(&word, 1), Ok(0));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                while word.load(Ordering::Acquire) == 1 {
                    wait(&word, 1, Some(Duration::from_secs(10))).unwrap();
                }
            });
            word.store(2, Ordering::Release);
            while !waiter.is_finished() {
                wake(&word, u32::MAX >> 1).unwrap();
            }
        });
    }

    #[test]
    fn a_word_is_shared_between_mappings() {
        let (mine, file) = crate::memory::RingMap::create().unwrap();
        let theirs = crate::memory::RingMap::open(std::os::fd::AsFd::as_fd(&file)).unwrap();
        std::thread::scope(|scope| {
            let waiter =
                scope.spawn(|| wait(&theirs.complete_seq, 0, Some(Duration::from_secs(10))));
            // The two mappings have different addresses: only a shared futex finds the waiter.
            while wake(&mine.complete_seq, 1) == Ok(0) && !waiter.is_finished() {
                std::thread::yield_now();
            }
            assert_eq!(waiter.join().unwrap(), Ok(Woken::LookAgain));
        });
    }
}
