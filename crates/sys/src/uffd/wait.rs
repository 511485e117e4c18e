//! Waiting for messages of a userfaultfd with several readers, of which each message wakes one.
//!
//! Readers that poll the descriptor are all woken by every fault: on a machine with few CPUs the needless ones cost
//! the program more than its fault does. Each reader has an epoll of its own in which the userfaultfd is exclusive, so
//! that the kernel wakes the first reader that sleeps, in the order in which they began to wait. One waiter belongs to
//! one thread.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

use super::Userfaultfd;
use crate::eventfd::{EventFd, timespec};

const MESSAGES: u64 = 0;
const STOP: u64 = 1;

/// What `Waiter::wait` saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ready {
    /// There are messages (another reader may still take them first).
    pub messages: bool,
    /// The event descriptor was signalled.
    pub signalled: bool,
    /// The userfaultfd cannot be polled: it is in blocking mode or before its handshake.
    pub broken: bool,
}

/// One reader's place in the line of those who wait.
#[derive(Debug)]
pub struct Waiter<'a> {
    epoll: OwnedFd,
    uffd: &'a Userfaultfd,
}

impl<'a> Waiter<'a> {
    /// A place at the end of the line. `stop` wakes all readers.
    ///
    /// # Errors
    /// The errno of making an epoll: no descriptor or no memory is left.
    pub fn new(uffd: &'a Userfaultfd, stop: &EventFd) -> Result<Waiter<'a>, Errno> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, stop, EventData::new_u64(STOP), EventFlags::IN)?;
        let waiter = Waiter { epoll, uffd };
        waiter.queue()?;
        Ok(waiter)
    }

    /// Goes to the end of the line: the next message wakes somebody else, if anybody else sleeps.
    ///
    /// # Errors
    /// The errno of epoll_ctl; the waiter hears of no message then.
    pub fn step_back(&self) -> Result<(), Errno> {
        epoll::delete(&self.epoll, self.uffd)?;
        self.queue()
    }

    fn queue(&self) -> Result<(), Errno> {
        let flags = EventFlags::IN | EventFlags::EXCLUSIVE;
        epoll::add(&self.epoll, self.uffd, EventData::new_u64(MESSAGES), flags)
    }

    /// Waits until there are messages, the stop descriptor is signalled, or `timeout` has passed (None = for ever).
    /// Does not clear the signal. Returns early with nothing set when a signal interrupts it.
    ///
    /// # Errors
    /// The errno of epoll_wait.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Ready, Errno> {
        let timeout = timeout.map(timespec);
        let mut events = [MaybeUninit::<Event>::uninit(); 2];
        let mut ready = Ready::default();
        let seen = match epoll::wait(&self.epoll, &mut events, timeout.as_ref()) {
            Ok((seen, _)) => seen,
            Err(Errno::INTR) => return Ok(ready),
            Err(errno) => return Err(errno),
        };
        for event in seen {
            let (flags, data) = (event.flags, event.data);
            match data.u64() {
                STOP => ready.signalled = true,
                _ => {
                    ready.messages |= flags.contains(EventFlags::IN);
                    ready.broken |= flags.contains(EventFlags::ERR);
                }
            }
        }
        Ok(ready)
    }
}
