//! What the server waits for: calls at its doors, hellos, and the ends of agents.

use std::os::fd::AsFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use vswap_sys::epoll::{Epoll, For};
use vswap_sys::eventfd::EventFd;
use vswap_sys::sock::Stream;

use crate::base::lock::{Mutex, Row};
use crate::space::Space;

/// A key is one of these kinds and a number.
const KIND_SHIFT: u32 = 62;
const HUNG_UP: u64 = 0;
const SPOKE: u64 = 1;
const CALLED: u64 = 2;
const STOP: u64 = 3;

/// What has happened. Those that come first are dealt with first: a process that runs another program hangs up before
/// it says hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// The server is to end.
    Stop,
    /// The agent of the space with this id has closed its connection.
    HungUp(u64),
    /// The caller of this number has said something, or has closed its connection.
    Spoke(u64),
    /// Somebody calls at the door of this number.
    Called(u64),
}

/// All descriptors that the server waits for. The lock is innermost.
#[derive(Debug)]
pub struct Connections {
    epoll: Epoll,
    /// An epoll forgets what is closed everywhere: without this the server would never hear that it is to end, if it
    /// gets no processor between the signal and the end of the run.
    _stop: Arc<EventFd>,
    /// Agents for which the kernel had no memory.
    unwatched: Mutex<Vec<Weak<Space>>>,
}

impl Connections {
    /// Waits for `stop` alone.
    ///
    /// # Errors
    /// There is no descriptor.
    pub fn new(stop: Arc<EventFd>) -> std::io::Result<Connections> {
        let epoll = Epoll::new()?;
        epoll.wait_for(&*stop, key(STOP, 0), For::Reading)?;
        Ok(Connections {
            epoll,
            _stop: stop,
            unwatched: Mutex::new(Row::Innermost, "agents not watched", Vec::new()),
        })
    }

    /// Waits for calls at a door too.
    ///
    /// # Errors
    /// There is no memory.
    pub fn open(&self, door: impl AsFd, number: u64) -> std::io::Result<()> {
        Ok(self
            .epoll
            .wait_for(door, key(CALLED, number), For::Reading)?)
    }

    /// Waits for the first message of a caller too. It is told of once.
    ///
    /// # Errors
    /// There is no memory.
    pub fn await_hello(&self, connection: &Stream, number: u64) -> std::io::Result<()> {
        let key = key(SPOKE, number);
        Ok(self.epoll.wait_for(connection, key, For::ReadingOnce)?)
    }

    /// Waits for the end of a space's agent too. It is told of at most twice. The connection closes when the process
    /// runs another program. It may stay open when the process ends, because the other end may be in flight somewhere,
    /// so the process itself is watched as well.
    pub fn watch(&self, space: &Arc<Space>) {
        let Some(process) = space.process.get() else {
            return;
        };
        let key = key(HUNG_UP, space.id);
        let watched = self
            .epoll
            .wait_for(process.agent.socket(), key, For::HangingUpOnce)
            .and_then(|()| self.epoll.wait_for(&process.pidfd, key, For::ReadingOnce));
        if watched.is_err() {
            self.unwatched.lock().push(Arc::downgrade(space));
        }
    }

    /// Tries once more to watch those for which there was no memory.
    pub fn retry(&self) {
        let unwatched = std::mem::take(&mut *self.unwatched.lock());
        let spaces = unwatched.iter().filter_map(Weak::upgrade);
        spaces.for_each(|space| self.watch(&space));
    }

    /// Waits until something happens, at most for `patience`.
    pub fn wait(&self, patience: Duration) -> Vec<Event> {
        let mut events = match self.epoll.wait(patience) {
            Ok(keys) => keys.into_iter().map(event).collect(),
            // No descriptor here is of a kind that fails.
            Err(_) => Vec::new(),
        };
        events.sort_unstable();
        events
    }
}

fn key(kind: u64, number: u64) -> u64 {
    kind << KIND_SHIFT | number
}

fn event(key: u64) -> Event {
    let number = key & ((1 << KIND_SHIFT) - 1);
    match key >> KIND_SHIFT {
        HUNG_UP => Event::HungUp(number),
        SPOKE => Event::Spoke(number),
        CALLED => Event::Called(number),
        _ => Event::Stop,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vswap_sys::sock::Wait;

    #[test]
    fn the_end_comes_first_and_a_hello_before_a_call() {
        let stop = Arc::new(EventFd::new().expect("a descriptor"));
        let connections = Connections::new(Arc::clone(&stop)).expect("a descriptor");
        let door = EventFd::new().expect("a descriptor");
        let (mine, theirs) = Stream::pair().expect("a pair");
        connections.open(&door, 1).expect("memory");
        connections.await_hello(&mine, 5).expect("memory");
        assert_eq!(connections.wait(Duration::ZERO), []);
        for signalled in [&door, &*stop] {
            signalled.signal().expect("it is not full");
        }
        theirs.send(&1_u8, &[], Wait::No).expect("room");
        let seen = connections.wait(Duration::from_secs(10));
        assert_eq!(seen, [Event::Stop, Event::Spoke(5), Event::Called(1)]);
    }

    #[test]
    fn the_end_is_heard_though_whoever_ends_it_has_gone() {
        let stop = Arc::new(EventFd::new().expect("a descriptor"));
        let connections = Connections::new(Arc::clone(&stop)).expect("a descriptor");
        stop.signal().expect("it is not full");
        drop(stop);
        assert_eq!(connections.wait(Duration::from_secs(10)), [Event::Stop]);
    }
}
