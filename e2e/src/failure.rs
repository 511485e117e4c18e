//! How a test ends when it does not pass.

use std::io;

/// Why a test did not pass.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Something was not as it must be. The text says what was seen and what was expected.
    #[error("{0}")]
    Wrong(String),
    /// More memory was taken than allowed, or nobody can tell. Both are seen at a resolution of milliseconds, which a
    /// busy machine may not give.
    #[error("{0}")]
    Limit(String),
    /// The test cannot run here. The text says what is missing and how to get it.
    #[error("SKIP: {0}")]
    Skip(String),
    /// The test itself met a system error.
    #[error("{what}: {source}")]
    System {
        /// What was being done, and to what.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
}

/// Result of a test and of everything that a test calls.
pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// A failure with this text.
    pub fn wrong(text: impl Into<String>) -> Failure {
        Failure::Wrong(text.into())
    }
}

/// Adds what was being done to an error of the system.
pub trait During<T> {
    /// Turns an error into a [`Failure`] that begins with `what()`.
    fn during(self, what: impl FnOnce() -> String) -> Outcome<T>;
}

impl<T> During<T> for io::Result<T> {
    fn during(self, what: impl FnOnce() -> String) -> Outcome<T> {
        self.map_err(|source| Failure::System {
            what: what(),
            source,
        })
    }
}

impl<T> During<T> for rustix::io::Result<T> {
    fn during(self, what: impl FnOnce() -> String) -> Outcome<T> {
        self.map_err(|errno| Failure::System {
            what: what(),
            source: errno.into(),
        })
    }
}

/// Ends the test with this text unless the condition holds.
#[macro_export]
macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err($crate::Failure::Wrong(format!($($text)+)));
        }
    };
}
