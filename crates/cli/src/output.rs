//! What people read: answers on standard output, notices on standard error, and how figures and tables look.

pub mod figures;
pub mod log;
pub mod progress;
pub mod summary;
pub mod tables;
pub mod time;

use std::io::{self, Write};
use std::process::ExitCode;

use crate::failure::Failure;

/// Which of docs/schemas describes the JSON that is printed. A field that goes away, or means something else, makes a
/// new number; one that is added does not (docs/versions.md).
pub const SCHEMA: u32 = 1;

/// What goes as it should, and is worth a line.
pub fn notice(text: &str) {
    tracing::info!(target: "vswap", "{text}");
}

/// What goes otherwise than the user may expect.
pub fn warning(text: &str) {
    tracing::warn!(target: "vswap", "{text}");
}

/// What ends a command, a run or a process.
pub fn error(text: &str) {
    tracing::error!(target: "vswap", "{text}");
}

/// Prints the answer of a subcommand on standard output.
pub fn print(text: &str) -> Result<ExitCode, Failure> {
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        // The reader, perhaps `head`, has had enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(error) => Err(Failure::own(format!(
            "cannot write to standard output: {error}"
        ))),
    }
}
