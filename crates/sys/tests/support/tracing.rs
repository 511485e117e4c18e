//! Stopping a thread of another process.

use vswap_sys::inject::{Stopped, Tracee};

/// Traces the main thread of a process and has it stand still.
pub fn stop(pid: u32) -> Stopped {
    let mut tracee = Tracee::seize(pid).unwrap();
    for _ in 0..1000 {
        match tracee.stop().unwrap() {
            Ok(stopped) => return stopped,
            Err(running) => tracee = running,
        }
    }
    panic!("it does not stop");
}
