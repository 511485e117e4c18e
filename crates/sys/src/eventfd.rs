//! A counter that one thread raises and others poll. It stops threads that wait on descriptors.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, Timespec};
pub use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

/// An eventfd, close-on-exec and nonblocking.
#[derive(Debug)]
pub struct EventFd {
    fd: OwnedFd,
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl EventFd {
    /// A new one, not signalled.
    ///
    /// # Errors
    /// The errno of the call.
    pub fn new() -> Result<EventFd, Errno> {
        let fd = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(EventFd { fd })
    }

    /// Makes it readable until somebody clears it.
    ///
    /// # Errors
    /// The errno of the write; a counter at its end counts as signalled.
    pub fn signal(&self) -> Result<(), Errno> {
        match rustix::io::write(&self.fd, &1u64.to_ne_bytes()) {
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Takes the signal back; returns how many were given since the last time.
    ///
    /// # Errors
    /// The errno of the read.
    pub fn clear(&self) -> Result<u64, Errno> {
        let mut count = [0u8; 8];
        match rustix::io::read(&self.fd, &mut count) {
            Ok(_) => Ok(u64::from_ne_bytes(count)),
            Err(Errno::AGAIN) => Ok(0),
            Err(errno) => Err(errno),
        }
    }
}

/// poll(2) with a timeout (None = for ever). Returns 0 on timeout, or when a signal interrupts the wait.
///
/// # Errors
/// The errno of the call.
pub fn poll(fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> Result<usize, Errno> {
    let timeout = timeout.map(timespec);
    match rustix::event::poll(fds, timeout.as_ref()) {
        Err(Errno::INTR) => {
            for fd in fds {
                fd.clear_revents();
            }
            Ok(0)
        }
        other => other,
    }
}

/// A duration in the kernel's form. One that is too long becomes the longest.
pub(crate) fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::PollFlags;

    #[test]
    fn a_signal_stays_until_it_is_cleared() {
        let event = EventFd::new().unwrap();
        let ready = |event: &EventFd| {
            poll(
                &mut [PollFd::new(event, PollFlags::IN)],
                Some(Duration::ZERO),
            )
            .unwrap()
        };
        assert_eq!(ready(&event), 0);
        event.signal().unwrap();
        event.signal().unwrap();
        assert_eq!((ready(&event), ready(&event)), (1, 1));
        assert_eq!(event.clear().unwrap(), 2);
        assert_eq!((event.clear().unwrap(), ready(&event)), (0, 0));
    }
}
