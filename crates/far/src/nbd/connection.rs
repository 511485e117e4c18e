//! One connection, on which requests of several threads are under way at once.
//!
//! There is no thread for it. Of those that wait one reads, and gives the others their replies; when it has its own,
//! the next one reads. Whoever sends holds the lock for sending until all of its requests are out, so that they travel
//! together. A connection that has failed stays so, and everybody who waits for it is told.

use std::collections::HashMap;
use std::io::IoSlice;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::nbd::protocol::{
    Command, Export, REPLY_BYTES, Refusal, broken, reply, request, shake_hands,
};
use crate::nbd::spec::NbdSpec;
use crate::nbd::stream::Stream;
use crate::node::Deadline;

/// What is asked of an export.
#[derive(Debug)]
pub(crate) struct Request {
    pub command: Command,
    pub offset: u64,
    pub length: u32,
    /// What is written. Empty for other commands.
    pub payload: Vec<u8>,
}

impl Request {
    /// Bytes that come with a reply that is no error.
    fn reply_bytes(&self) -> usize {
        match self.command {
            Command::Read => usize::try_from(self.length).unwrap_or(usize::MAX),
            _ => 0,
        }
    }
}

/// What was read, or the server's error.
pub(crate) type Answer = Result<Vec<u8>, u32>;

struct Waited {
    bytes: usize,
    answer: Option<Answer>,
}

#[derive(Default)]
struct State {
    /// Requests by handle.
    waited: HashMap<u64, Waited>,
    /// Whether somebody reads.
    reading: bool,
    broken: Option<String>,
}

/// A connection.
pub(crate) struct Connection {
    pub export: Export,
    stream: Stream,
    /// The next handle. Held while something is sent.
    sending: Mutex<u64>,
    state: Mutex<State>,
    told: Condvar,
}

impl Connection {
    /// Connects and asks for the export. Each wait for the server takes no longer than `soon`, and later ones, for
    /// replies, no longer than `patience`.
    ///
    /// # Errors
    /// [`Refusal`].
    pub(crate) fn open(
        spec: &NbdSpec,
        soon: Duration,
        patience: Duration,
    ) -> Result<Connection, Refusal> {
        let mut stream = Stream::connect(&spec.server, soon)?;
        let export = shake_hands(&mut stream, &spec.export)?;
        stream.set_patience(patience)?;
        Ok(Connection {
            export,
            stream,
            sending: Mutex::new(0),
            state: Mutex::default(),
            told: Condvar::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many requests are under way.
    pub(crate) fn under_way(&self) -> usize {
        self.lock().waited.len()
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.lock().broken.is_some()
    }

    /// Has requests carried out. Their answers are in the same order. Blocks until the deadline at most, and a little
    /// longer if the server has begun to answer.
    ///
    /// # Errors
    /// The connection has failed, and why. Any of the requests may have been carried out.
    pub(crate) fn run(
        &self,
        requests: &[Request],
        deadline: Deadline,
    ) -> Result<Vec<Answer>, String> {
        let handles = self.send(requests)?;
        self.receive(&handles, deadline)
    }

    fn send(&self, requests: &[Request]) -> Result<Vec<u64>, String> {
        let mut next = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        let handles: Vec<u64> = (*next..).take(requests.len()).collect();
        *next += requests.len() as u64;
        let heads: Vec<_> = handles
            .iter()
            .zip(requests)
            .map(|(handle, one)| request(one.command, *handle, one.offset, one.length))
            .collect();
        {
            // Before they are sent: the reply may be there before this thread is back.
            let mut state = self.lock();
            if let Some(reason) = &state.broken {
                return Err(reason.clone());
            }
            for (handle, one) in handles.iter().zip(requests) {
                let bytes = one.reply_bytes();
                state.waited.insert(
                    *handle,
                    Waited {
                        bytes,
                        answer: None,
                    },
                );
            }
        }
        let parts = heads.iter().zip(requests);
        let mut parts: Vec<IoSlice<'_>> = parts
            .flat_map(|(head, one)| [IoSlice::new(head), IoSlice::new(&one.payload)])
            .filter(|part| !part.is_empty())
            .collect();
        let sent = self.stream.send(&mut parts);
        drop(next);
        match sent {
            Ok(()) => Ok(handles),
            Err(error) => Err(self.fail(broken(&error))),
        }
    }

    fn receive(&self, handles: &[u64], deadline: Deadline) -> Result<Vec<Answer>, String> {
        let mut state = self.lock();
        loop {
            if let Some(reason) = &state.broken {
                return Err(reason.clone());
            }
            let is_there = |handle| {
                let waited = state.waited.get(handle);
                waited.is_none_or(|waited: &Waited| waited.answer.is_some())
            };
            if handles.iter().all(is_there) {
                let mut take = |handle| state.waited.remove(handle)?.answer;
                return handles
                    .iter()
                    .map(|handle| take(handle).ok_or_else(|| "a reply was lost".to_owned()))
                    .collect();
            }
            if deadline.is_over() {
                drop(state);
                return Err(self.fail("no answer in time".into()));
            }
            if state.reading {
                let waited = self.told.wait_timeout(state, deadline.left());
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            state.reading = true;
            drop(state);
            let received = self.receive_one();
            if let Err(reason) = received {
                return Err(self.fail(reason));
            }
            state = self.lock();
            state.reading = false;
            // The one whose reply it was, and one that reads on.
            self.told.notify_all();
        }
    }

    /// Reads one reply and keeps it for whoever waits for it.
    fn receive_one(&self) -> Result<(), String> {
        let mut head = [0; REPLY_BYTES];
        self.stream
            .fill(&mut head)
            .map_err(|error| broken(&error))?;
        let (error, handle) = reply(head).ok_or("it answers what is no reply")?;
        let bytes = match self.lock().waited.get(&handle) {
            Some(Waited {
                bytes,
                answer: None,
            }) => *bytes,
            _ => return Err("it answers what was not asked".into()),
        };
        let answer = match error {
            0 => {
                let mut read = vec![0; bytes];
                self.stream
                    .fill(&mut read)
                    .map_err(|error| broken(&error))?;
                Ok(read)
            }
            error => Err(error),
        };
        if let Some(waited) = self.lock().waited.get_mut(&handle) {
            waited.answer = Some(answer);
        }
        Ok(())
    }

    /// The connection is of no use any longer. Returns why, as it was said first.
    fn fail(&self, reason: String) -> String {
        let mut state = self.lock();
        let reason = state.broken.get_or_insert(reason).clone();
        state.waited.clear();
        drop(state);
        self.stream.close();
        self.told.notify_all();
        reason
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if !self.is_broken() {
            // The server need not find out by itself. It may have gone.
            let head = request(Command::Disconnect, 0, 0, 0);
            let _ = self.stream.send(&mut [IoSlice::new(&head)]);
        }
        self.stream.close();
    }
}
