//! A system call of the program that the filter has stopped.

use std::sync::Arc;

use vswap_sys::seccomp::{Answer, Listener, Notification};

/// A system call that waits for its answer. If it is dropped without one, the kernel runs it as it is. That is right
/// for a call that arrives when its space ends: the space belonged to the image before an exec, the caller is the next
/// image.
#[derive(Debug)]
pub struct Call {
    listener: Arc<Listener>,
    /// The call and its caller.
    pub notification: Notification,
    answer: Answer,
}

impl Call {
    /// A call that nobody has looked at yet.
    pub fn new(listener: Arc<Listener>, notification: Notification) -> Call {
        Call {
            listener,
            notification,
            answer: Answer::Continue,
        }
    }

    /// Does the thread still wait for its answer? If it has died, its id may be another thread's by now. So what was
    /// found out by that id holds only if this is true afterwards.
    pub fn is_waiting(&self) -> bool {
        self.listener.id_valid(self.notification.id)
    }

    /// Let the thread go on with this answer.
    pub fn answer(mut self, answer: Answer) {
        self.answer = answer;
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        // The thread may have been killed while it waited. Then there is nobody to answer.
        let _ = self.listener.respond(self.notification.id, self.answer);
    }
}
