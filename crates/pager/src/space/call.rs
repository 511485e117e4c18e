//! A system call of the program that the filter has stopped.

use std::sync::Arc;

use vswap_sys::seccomp::{Answer, Listener, Notification};

/// A system call that waits for its answer. Dropped without one it runs as it is: a space that ends while a call is on
/// its way to it belonged to the image before an exec, and the caller is the next image.
#[derive(Debug)]
pub struct Call {
    listener: Arc<Listener>,
    /// What is called, by whom.
    pub notification: Notification,
    answer: Answer,
}

impl Call {
    /// A call of which nothing is known yet.
    pub fn new(listener: Arc<Listener>, notification: Notification) -> Call {
        Call {
            listener,
            notification,
            answer: Answer::Continue,
        }
    }

    /// Let the thread go on with this answer.
    pub fn answer(mut self, answer: Answer) {
        self.answer = answer;
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        // The thread may have been killed while it waited; then there is nobody to answer.
        let _ = self.listener.respond(self.notification.id, self.answer);
    }
}
