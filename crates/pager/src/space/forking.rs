//! The thread of a space whose fork is being followed, and its call if it makes that again.
//!
//! A signal that comes before the fork has begun makes the kernel begin the call anew. If another thread of the process
//! takes the signal meanwhile, the forking thread does so without a stop that its tracer would see. Its call then stops
//! in the filter once more. It must not wait in the queue of calls, because whoever answers that waits for this fork.

use crate::base::lock::{Mutex, Row};
use crate::space::call::Call;

/// At most one thread of a space at a time. The lock is innermost.
#[derive(Debug)]
pub struct Forking(Mutex<Option<Thread>>);

#[derive(Debug)]
struct Thread {
    tid: u32,
    again: Option<Call>,
}

impl Default for Forking {
    fn default() -> Forking {
        Forking(Mutex::new(Row::Innermost, "the forking thread", None))
    }
}

impl Forking {
    /// From now on a call of thread `tid` that forks is the same fork again.
    pub fn begin(&self, tid: u32) {
        *self.0.lock() = Some(Thread { tid, again: None });
    }

    /// The fork is over. Returns a call that nobody has taken: it is another one.
    pub fn end(&self) -> Option<Call> {
        self.0.lock().take().and_then(|thread| thread.again)
    }

    /// The call, if the thread has made it again.
    pub fn again(&self) -> Option<Call> {
        self.0.lock().as_mut()?.again.take()
    }

    /// Gives a call that forks to whoever follows the fork of its thread. Returns it if nobody does.
    pub fn give(&self, call: Call) -> Option<Call> {
        match self.0.lock().as_mut() {
            Some(thread) if thread.tid == call.notification.tid => {
                thread.again = Some(call);
                None
            }
            _ => Some(call),
        }
    }
}
