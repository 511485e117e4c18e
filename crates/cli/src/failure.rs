//! What vswap prints, and with which status it exits, when it cannot do what it was asked.

use std::fmt;

/// Exit status for vswap's own errors, as in `env` and `timeout`.
pub const OWN_ERROR: u8 = 125;
/// Exit status of a command that has begun what it was asked, and has not come to the end of it.
pub const NOT_YET: u8 = 1;
/// Exit status for a program that was found but cannot be started or cannot take the agent.
pub const CANNOT_EXECUTE: u8 = 126;
/// Exit status for a program that was not found.
pub const NOT_FOUND: u8 = 127;

/// An error for the user: what was wrong, what was expected, what to do.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    /// The status that vswap exits with.
    pub exit_status: u8,
    message: String,
}

impl Failure {
    /// One of vswap's own errors.
    pub fn own(message: impl Into<String>) -> Failure {
        Failure {
            exit_status: OWN_ERROR,
            message: message.into(),
        }
    }

    /// One of vswap's own errors, in the words of `error`.
    pub fn of(error: impl fmt::Display) -> Failure {
        Failure::own(error.to_string())
    }

    /// What was asked for has been begun, and takes longer than it was waited for.
    pub fn not_yet(message: impl Into<String>) -> Failure {
        Failure {
            exit_status: NOT_YET,
            message: message.into(),
        }
    }

    /// The program exists but cannot be run under vswap.
    pub fn cannot_execute(message: impl Into<String>) -> Failure {
        Failure {
            exit_status: CANNOT_EXECUTE,
            message: message.into(),
        }
    }

    /// The program does not exist.
    pub fn not_found(message: impl Into<String>) -> Failure {
        Failure {
            exit_status: NOT_FOUND,
            message: message.into(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}
