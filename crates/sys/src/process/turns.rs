//! Turns on a processor for threads of a program that the caller waits for.
//!
//! Beside threads of a high priority an ordinary thread may be ready to run and get no processor for a tenth of a
//! second. Who waits for it to get past some point gives it a turn: for that moment it is in the real-time class.

use rustix::io::Errno;
use rustix::process::{Pid, getpriority_process};

use super::cpu;

/// The class in which a thread has its turn.
const CLASS: i32 = libc::SCHED_RR;
/// Its priority, and that of the caller, who must be able to end the turn.
const PRIORITY: i32 = 1;
const PRIORITY_OF_CALLER: i32 = 2;

/// The calling thread gives turns, and runs before those who have one. When this is dropped it is back in the
/// real-time class of [`cpu::set_real_time`].
#[derive(Debug)]
pub struct Turns(());

impl Turns {
    /// Begins giving turns.
    ///
    /// # Errors
    /// EPERM if the caller is not in the real-time class, or may not have the priority for this.
    pub fn begin() -> Result<Turns, Errno> {
        if cpu::class_of(0)? & !libc::SCHED_RESET_ON_FORK != CLASS {
            return Err(Errno::PERM);
        }
        cpu::set_class(0, CLASS | libc::SCHED_RESET_ON_FORK, PRIORITY_OF_CALLER)?;
        Ok(Turns(()))
    }

    /// Gives thread `tid` its turn, until what is returned is dropped. None if it does not get one: it is not an
    /// ordinary thread of the ordinary niceness, has gone, or is not the caller's to change. What a thread starts
    /// during its turn is then as if the thread had had none.
    pub fn give(&self, tid: u32) -> Option<Turn> {
        let pid = Pid::from_raw(tid.cast_signed())?;
        let is_ordinary = cpu::class_of(tid) == Ok(libc::SCHED_OTHER);
        // The kernel resets a new thread to exactly this niceness.
        if !is_ordinary || getpriority_process(Some(pid)) != Ok(0) {
            return None;
        }
        cpu::set_class(tid, CLASS | libc::SCHED_RESET_ON_FORK, PRIORITY).ok()?;
        Some(Turn { tid })
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        let _ = cpu::set_real_time();
    }
}

/// The turn of one thread. It ends when this is dropped.
#[derive(Debug)]
pub struct Turn {
    tid: u32,
}

impl Drop for Turn {
    fn drop(&mut self) {
        // The program itself may have put the thread into another class meanwhile. Its niceness is left as it is.
        if cpu::class_of(self.tid) == Ok(CLASS | libc::SCHED_RESET_ON_FORK) {
            let _ = cpu::set_class(self.tid, libc::SCHED_OTHER, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    /// A thread that ends when the sender is dropped.
    fn a_thread() -> (u32, std::sync::mpsc::Sender<()>) {
        let (to_end, end) = channel();
        let (tell, told) = channel();
        std::thread::spawn(move || {
            let tid = rustix::thread::gettid().as_raw_nonzero().get();
            tell.send(tid.cast_unsigned()).unwrap();
            let _ = end.recv();
        });
        (told.recv().unwrap(), to_end)
    }

    #[test]
    fn a_turn_ends_as_it_began() {
        if cpu::set_real_time().is_err() {
            eprintln!("this user may not use the real-time class");
            return;
        }
        let (tid, to_end) = a_thread();
        let own = Turns::begin().unwrap();
        let turn = own.give(tid).unwrap();
        let class = CLASS | libc::SCHED_RESET_ON_FORK;
        assert_eq!(cpu::class_of(tid), Ok(class));
        assert!(own.give(tid).is_none(), "it has its turn");
        drop(turn);
        assert_eq!(cpu::class_of(tid), Ok(libc::SCHED_OTHER));
        // What the thread asked for during its turn stays.
        let turn = own.give(tid).unwrap();
        cpu::set_class(tid, libc::SCHED_BATCH, 0).unwrap();
        drop(turn);
        assert_eq!(cpu::class_of(tid), Ok(libc::SCHED_BATCH));
        assert!(own.give(tid).is_none(), "it is no ordinary thread");
        drop((to_end, own));
        cpu::set_ordinary().unwrap();
        assert!(Turns::begin().is_err(), "it could not end a turn in time");
    }
}
