//! Waiting for one of many descriptors. It costs what there are events, not what there are descriptors.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData};
use rustix::io::Errno;

use crate::eventfd::timespec;

/// How many events are taken at a time.
const BATCH: usize = 64;

/// What is waited for of a descriptor. That it hangs up or fails is told of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum For {
    /// Something can be read.
    Reading,
    /// The same, once: it has to be asked for again.
    ReadingOnce,
    /// The other end has closed. Told once.
    HangingUpOnce,
}

impl For {
    fn flags(self) -> epoll::EventFlags {
        match self {
            For::Reading => epoll::EventFlags::IN,
            For::ReadingOnce => epoll::EventFlags::IN | epoll::EventFlags::ONESHOT,
            For::HangingUpOnce => epoll::EventFlags::ONESHOT,
        }
    }
}

/// Descriptors that are waited for, each under a key. A descriptor leaves when it is closed for good. Any thread may
/// ask for more while one waits.
#[derive(Debug)]
pub struct Epoll {
    fd: OwnedFd,
}

impl Epoll {
    /// One that waits for nothing.
    ///
    /// # Errors
    /// The errno of making it: no descriptor or no memory is left.
    pub fn new() -> Result<Epoll, Errno> {
        let fd = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Epoll { fd })
    }

    /// Waits for `what` of a descriptor from now on, whatever was waited for of it before.
    ///
    /// # Errors
    /// The errno of epoll_ctl: no memory, or ENOSPC by /proc/sys/fs/epoll/max_user_watches.
    pub fn wait_for(&self, descriptor: impl AsFd, key: u64, what: For) -> Result<(), Errno> {
        let (key, flags) = (EventData::new_u64(key), what.flags());
        match epoll::add(&self.fd, &descriptor, key, flags) {
            Err(Errno::EXIST) => epoll::modify(&self.fd, descriptor, key, flags),
            added => added,
        }
    }

    /// The keys of descriptors of which something is told. Waits for the first, at most for `timeout`. None come after
    /// a signal.
    ///
    /// # Errors
    /// The errno of epoll_wait.
    pub fn wait(&self, timeout: Duration) -> Result<Vec<u64>, Errno> {
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); BATCH];
        match epoll::wait(&self.fd, &mut events, Some(&timespec(timeout))) {
            Ok((seen, _)) => Ok(seen.iter().map(|event| { event.data }.u64()).collect()),
            Err(Errno::INTR) => Ok(Vec::new()),
            Err(errno) => Err(errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eventfd::EventFd;
    use crate::sock::{Stream, Wait};

    const SOON: Duration = Duration::from_secs(10);

    #[test]
    fn each_descriptor_tells_what_was_asked_for() {
        let epoll = Epoll::new().unwrap();
        let event = EventFd::new().unwrap();
        epoll.wait_for(&event, 1, For::Reading).unwrap();
        assert_eq!(epoll.wait(Duration::ZERO).unwrap(), []);
        event.signal().unwrap();
        assert_eq!(epoll.wait(SOON).unwrap(), [1]);
        assert_eq!(epoll.wait(SOON).unwrap(), [1], "it is still to be read");
        event.clear().unwrap();
        let (mine, theirs) = Stream::pair().unwrap();
        epoll.wait_for(mine.as_fd(), 2, For::ReadingOnce).unwrap();
        theirs.send(&7_u8, &[], Wait::No).unwrap();
        assert_eq!(epoll.wait(SOON).unwrap(), [2]);
        assert_eq!(epoll.wait(Duration::ZERO).unwrap(), [], "told once");
        epoll.wait_for(mine.as_fd(), 3, For::HangingUpOnce).unwrap();
        assert_eq!(epoll.wait(Duration::ZERO).unwrap(), []);
        drop(theirs);
        assert_eq!(epoll.wait(SOON).unwrap(), [3]);
        assert_eq!(epoll.wait(Duration::ZERO).unwrap(), [], "told once");
    }
}
