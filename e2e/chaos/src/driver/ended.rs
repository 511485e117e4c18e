//! How a process ended, in words.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

/// The status in words.
pub fn words(status: Option<ExitStatus>) -> String {
    status.map_or_else(
        || "killed by the watchdog".to_owned(),
        |status| match status.signal() {
            Some(signal) => format!("signal {signal}"),
            None => format!("status {}", status.code().unwrap_or(-1)),
        },
    )
}
