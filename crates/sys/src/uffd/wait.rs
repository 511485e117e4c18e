//! Waiting for messages of many userfaultfds with several readers, so that each message wakes one reader.
//!
//! If readers polled the descriptors, every fault would wake all of them. On a machine with few CPUs the needless
//! wake-ups cost the program more than its fault does. So each reader has an epoll of its own, in which every
//! userfaultfd is exclusive. The kernel then wakes the first sleeping reader, in the order in which they began to wait
//! for that userfaultfd. One reader waits on a waiter; any thread may change what it waits for.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

use super::Userfaultfd;
use crate::eventfd::{EventFd, timespec};

/// The key of the stop descriptor in an epoll. No userfaultfd has this key.
const STOP: u64 = u64::MAX;

/// What `Waiter::wait` saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ready {
    /// Nothing: the time is over, or a signal came.
    Nothing,
    /// The userfaultfd with this key has messages (another reader may still take them first).
    Messages(u64),
    /// This userfaultfd cannot be polled: it is in blocking mode or before its handshake.
    Broken(u64),
    /// The stop descriptor was signalled.
    Stop,
}

/// One reader's place in the queues of the userfaultfds.
#[derive(Debug)]
pub struct Waiter {
    epoll: OwnedFd,
}

impl Waiter {
    /// A waiter that waits only for `stop`.
    ///
    /// # Errors
    /// The errno of making an epoll: no descriptor or no memory is left.
    pub fn new(stop: &EventFd) -> Result<Waiter, Errno> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, stop, EventData::new_u64(STOP), EventFlags::IN)?;
        Ok(Waiter { epoll })
    }

    /// Waits for this userfaultfd as well, at the end of its queue. If the waiter already waits for it, it keeps its
    /// place.
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

    /// Waits for this userfaultfd no longer. Must be called before the descriptor is closed: the kernel keeps the place
    /// as long as any process has the userfaultfd open.
    pub fn forget(&self, uffd: &Userfaultfd) {
        // It may have been forgotten already.
        let _ = epoll::delete(&self.epoll, uffd);
    }

    /// Goes to the end of this userfaultfd's queue: its next message wakes another reader, if any sleeps.
    ///
    /// # Errors
    /// As for `watch`; the waiter then gets none of its messages.
    pub fn step_back(&self, uffd: &Userfaultfd, key: u64) -> Result<(), Errno> {
        self.forget(uffd);
        self.watch(uffd, key)
    }

    /// Waits until one of the userfaultfds has messages, the stop descriptor is signalled, or `timeout` has passed
    /// (None = for ever). Userfaultfds that are ready take turns.
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
