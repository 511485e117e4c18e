//! How a liar ends.

use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

use crate::liar::Liar;
use crate::process;

/// A liar that stops itself is killed soon after by whoever started it.
const LINGER: Duration = Duration::from_millis(200);

/// Ends, by one of the ways there are.
///
/// # Errors
/// A program could not be started in its place.
pub(crate) fn end(liar: &mut Liar) -> Result<bool, String> {
    let own = std::process::id() as i32;
    match liar.random.below(7) {
        0 => process::signal(own, libc::SIGKILL),
        1 => process::signal(own, libc::SIGSTOP),
        2 => process::signal(own, libc::SIGABRT),
        3 => {
            liar.log.note("becomes another program");
            let error = Command::new("/bin/true").exec();
            return Err(format!("cannot start a program: {error}"));
        }
        4 => std::thread::sleep(LINGER),
        5 => {
            // Everything is closed, and the process lives on.
            liar.kept.clear();
            liar.kept_fds.clear();
            std::thread::sleep(LINGER);
        }
        _ => {}
    }
    process::leave(0)
}
