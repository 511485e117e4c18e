//! Waiting for messages of many userfaultfds with several readers, of which each message wakes one.
//!
//! Readers that poll the descriptors are all woken by every fault: on a machine with few CPUs the needless ones cost
//! the program more than its fault does. Each reader has an epoll of its own in which every userfaultfd is exclusive,
//! so that the kernel wakes the first reader that sleeps, in the order in which they began to wait for that one.
//! One reader waits on a waiter; any thread may change what it waits for.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

use super::Userfaultfd;
use crate::eventfd::{EventFd, timespec};

/// What the stop descriptor is called in an epoll: no key of a userfaultfd.
const STOP: u64 = u64::MAX;

/// What `Waiter::wait` saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ready {
    /// Nothing: the time is over, or a signal came.
    Nothing,
    /// The userfaultfd with this key has messages (another reader may still take them first).
    Messages(u64),
    /// This one cannot be polled: it is in blocking mode or before its handshake.
    Broken(u64),
    /// The stop descriptor was signalled.
    Stop,
}

/// One reader's place in the lines of those who wait for userfaultfds.
#[derive(Debug)]
pub struct Waiter {
    epoll: OwnedFd,
}

impl Waiter {
    /// A waiter that waits for nothing but `stop`.
    ///
    /// # Errors
    /// The errno of making an epoll: no descriptor or no memory is left.
    pub fn new(stop: &EventFd) -> Result<Waiter, Errno> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, stop, EventData::new_u64(STOP), EventFlags::IN)?;
        Ok(Waiter { epoll })
    }

    /// Wait for this userfaultfd as well, at the end of its line. One that is waited for already stays where it is.
    ///
    /// # Errors
    /// The errno of epoll_ctl: no memory, or ENOSPC by /proc/sys/fs/epoll/max_user_watches.
    pub fn watch(&self, uffd: &Userfaultfd, key: u64) -> Result<(), Errno> {
        debug_assert!(key != STOP);
        let flags = EventFlags::IN | EventFlags::EXCLUSIVE;
        match epoll::add(&self.epoll, uffd, EventData::new_u64(key), flags) {
            Err(Errno::EXIST) => Ok(()),
            added => added,
        }
    }

    /// Wait for this one no longer. Has to come before its descriptor is closed: the kernel keeps the place as long as
    /// any process has the userfaultfd open.
    pub fn forget(&self, uffd: &Userfaultfd) {
        // It may have been forgotten already.
        let _ = epoll::delete(&self.epoll, uffd);
    }

    /// Go to the end of this one's line: its next message wakes somebody else, if anybody else sleeps.
    ///
    /// # Errors
    /// As for `watch`; the waiter hears of none of its messages then.
    pub fn step_back(&self, uffd: &Userfaultfd, key: u64) -> Result<(), Errno> {
        self.forget(uffd);
        self.watch(uffd, key)
    }

    /// Waits until one of the userfaultfds has messages, the stop descriptor is signalled, or `timeout` has passed
    /// (None = for ever). Those that are ready take turns.
    ///
    /// # Errors
    /// The errno of epoll_wait.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Ready, Errno> {
        let timeout = timeout.map(timespec);
        let mut events = [MaybeUninit::<Event>::uninit(); 1];
        let seen = match epoll::wait(&self.epoll, &mut events, timeout.as_ref()) {
            Ok((seen, _)) => seen,
            Err(Errno::INTR) => return Ok(Ready::Nothing),
            Err(errno) => return Err(errno),
        };
        let Some(event) = seen.first() else {
            return Ok(Ready::Nothing);
        };
        let (flags, data) = (event.flags, event.data);
        Ok(match data.u64() {
            STOP => Ready::Stop,
            key if flags.contains(EventFlags::ERR) => Ready::Broken(key),
            key => Ready::Messages(key),
        })
    }
}
