//! What is told as it happens: that a node is waited for, that it answers again, that it was given up.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Something that whoever runs programs on a store wants to know. Each is told once, not at every request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FarEvent {
    /// Requests wait for a node.
    Waits {
        /// The node's name.
        node: String,
        /// What it or the system said.
        reason: String,
        /// How long a request waits at most.
        bound: Duration,
    },
    /// A node that was waited for answers again.
    Answers {
        /// The node's name.
        node: String,
        /// How long it was waited for.
        waited: Duration,
    },
    /// A request has waited as long as it may, and failed.
    GaveUp {
        /// The node's name.
        node: String,
        /// What it or the system said last.
        reason: String,
    },
}

impl fmt::Display for FarEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FarEvent::Waits {
                node,
                reason,
                bound,
            } => {
                let bound = bound.as_secs_f32();
                write!(f, "waits for {node}, at most {bound} s: {reason}")
            }
            FarEvent::Answers { node, waited } => {
                write!(
                    f,
                    "{node} answers again after {:.1} s",
                    waited.as_secs_f32()
                )
            }
            FarEvent::GaveUp { node, reason } => write!(f, "{node} was given up: {reason}"),
        }
    }
}

/// Who is told. Called from the threads that wait; must not block for long.
pub type Listener = Arc<dyn Fn(&FarEvent) + Send + Sync>;

/// Tells a listener and the log.
#[derive(Clone)]
pub(crate) struct Teller {
    pub bound: Duration,
    pub listener: Option<Listener>,
}

impl Teller {
    pub(crate) fn tell(&self, event: &FarEvent) {
        match event {
            FarEvent::Answers { .. } => tracing::info!("{event}"),
            _ => tracing::warn!("{event}"),
        }
        if let Some(listener) = &self.listener {
            listener(event);
        }
    }
}
