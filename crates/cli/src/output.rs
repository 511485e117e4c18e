//! What people read: answers on standard output, notices on standard error, and how figures and tables look.

pub mod figures;
pub mod summary;
pub mod tables;
pub mod time;

use std::io::{self, Write};
use std::process::ExitCode;

use crate::failure::Failure;

/// Prints a line on standard error. If that is gone, there is nobody to tell.
pub fn notice(text: &str) {
    let _ = writeln!(io::stderr(), "vswap: {text}");
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
