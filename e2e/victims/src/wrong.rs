//! What a victim finds wrong: mainly content, but also calls that should have succeeded.

use std::{fmt, io};

use crate::victim::all::Failure;

/// Why a victim ends with a failure.
#[derive(Debug)]
pub(crate) enum Wrong {
    /// Memory differs from what was written to it.
    Content {
        what: &'static str,
        address: usize,
        page: usize,
        word: usize,
        expected: u64,
        found: u64,
    },
    /// A system call failed without a reason.
    Call {
        what: &'static str,
        error: io::Error,
    },
    /// A result differs from what it must be.
    Result {
        what: &'static str,
        expected: i64,
        found: i64,
    },
    /// A child failed. Its own message says why.
    Child { status: i32 },
    /// Victims that `all` has run have failed.
    Victims(Vec<Failure>),
    /// The machine does not permit what the victim tests.
    Unavailable {
        what: &'static str,
        error: io::Error,
    },
}

impl Wrong {
    /// The error of the last C library call on this thread.
    pub(crate) fn last(what: &'static str) -> Self {
        Self::Call {
            what,
            error: io::Error::last_os_error(),
        }
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Content {
                what,
                address,
                page,
                word,
                expected,
                found,
            } => write!(
                f,
                "{what}: wrong content at {address:#x} (page {page}, word {word}): \
                 expected {expected:#018x}, found {found:#018x}"
            ),
            Self::Call { what, error } => write!(f, "{what} failed: {error}"),
            Self::Result {
                what,
                expected,
                found,
            } => {
                write!(f, "{what}: expected {expected}, found {found}")
            }
            Self::Child { status } => write!(f, "a child ended with wait status {status:#x}"),
            Self::Victims(failures) => {
                write!(f, "{} victims failed", failures.len())?;
                failures
                    .iter()
                    .try_for_each(|failure| write!(f, "\n{failure}"))
            }
            Self::Unavailable { what, error } => write!(f, "{what} is not available: {error}"),
        }
    }
}

/// The result of checks and victims.
pub(crate) type Checked<T = ()> = Result<T, Wrong>;

/// Turns the result of a C library call that is negative on failure into a `Checked`.
pub(crate) fn call(what: &'static str, result: i32) -> Checked<i32> {
    if result < 0 {
        Err(Wrong::last(what))
    } else {
        Ok(result)
    }
}

/// As [`call`], for calls that return a size. Also fails if the size is not `expected`.
pub(crate) fn call_len(what: &'static str, result: isize, expected: usize) -> Checked {
    match usize::try_from(result) {
        Err(_) => Err(Wrong::last(what)),
        Ok(len) => same(what, expected, len),
    }
}

/// Fails if a result is not what it must be.
pub(crate) fn same<T: PartialEq + TryInto<i64>>(
    what: &'static str,
    expected: T,
    found: T,
) -> Checked {
    if expected == found {
        return Ok(());
    }
    let shown = |value: T| value.try_into().unwrap_or(i64::MAX);
    Err(Wrong::Result {
        what,
        expected: shown(expected),
        found: shown(found),
    })
}
