//! The way to an export: connections, made when they are needed, and requests that are sent until they are served.
//!
//! There are several connections only if the server says that all of them see the same content. A request that meets a
//! broken connection is sent again over a new one, after a pause that grows, until its time is over: all that is sent
//! may be sent twice. One thread at a time connects; those that have nothing else wait for it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::event::{Listener, Teller};
use crate::exchange::{PAUSE, PAUSE_MAX, QUIET, QUIET_ROUNDS};
use crate::nbd::connection::{Answer, Connection, Request};
use crate::nbd::protocol::{Export, GOES_DOWN, NO_MEMORY, Refusal};
use crate::nbd::spec::{NbdServer, NbdSpec};
use crate::node::{Deadline, Node};
use crate::spec::Address;
use crate::store::{FarError, Patience};

/// Connections to a server that permits several.
const CONNECTIONS: usize = 4;

#[derive(Default)]
struct Pool {
    open: Vec<Arc<Connection>>,
    connecting: bool,
    /// Why the last attempt to connect failed.
    failed: Option<String>,
}

/// The way to an export.
pub(crate) struct Link {
    spec: NbdSpec,
    /// What is counted, and whether the server is waited for. The lanes of a node are for another protocol.
    pub node: Node,
    /// What the server said of the export first.
    pub export: Export,
    teller: Teller,
    patience: Patience,
    connections: usize,
    pool: Mutex<Pool>,
    changed: Condvar,
}

impl Link {
    /// Connects for the first time, and only tries once. Blocks.
    ///
    /// # Errors
    /// [`FarError`].
    pub(crate) fn open(
        spec: &NbdSpec,
        patience: &Patience,
        listener: Option<Listener>,
    ) -> Result<Link, FarError> {
        let name = spec.server.to_string();
        let first =
            Connection::open(spec, patience.answer, patience.answer).map_err(|refusal| {
                let node = name.clone();
                match refusal {
                    Refusal::Broken(reason) => FarError::NoAnswer { node, reason },
                    Refusal::Unfit(what) => FarError::Unfit { node, what },
                }
            })?;
        let address = match &spec.server {
            NbdServer::Tcp(address) => address.clone(),
            NbdServer::Unix(_) => Address {
                host: name.clone(),
                port: 0,
            },
        };
        let export = first.export;
        Ok(Link {
            spec: spec.clone(),
            node: Node::new(name, address, 1),
            export,
            teller: Teller {
                bound: patience.bound,
                listener,
            },
            patience: patience.clone(),
            connections: if export.can_multi_conn {
                CONNECTIONS
            } else {
                1
            },
            pool: Mutex::new(Pool {
                open: vec![Arc::new(first)],
                ..Pool::default()
            }),
            changed: Condvar::new(),
        })
    }

    pub(crate) fn deadline(&self) -> Deadline {
        Deadline::after(self.patience.bound)
    }

    /// Has requests carried out. Their answers are in the same order. Blocks. None if the server did not serve all of
    /// them until the deadline; any of them may have been carried out then.
    pub(crate) fn run(&self, requests: &[Request], deadline: Deadline) -> Option<Vec<Answer>> {
        self.rounds(requests, deadline, true)
    }

    /// The same for requests that nobody depends on, and that have less time than others: if they fail, the server is
    /// not given up.
    pub(crate) fn run_briefly(
        &self,
        requests: &[Request],
        deadline: Deadline,
    ) -> Option<Vec<Answer>> {
        self.rounds(requests, deadline, false)
    }

    fn rounds(
        &self,
        requests: &[Request],
        deadline: Deadline,
        is_last: bool,
    ) -> Option<Vec<Answer>> {
        if requests.is_empty() {
            return Some(Vec::new());
        }
        let begun = Instant::now();
        let mut pause = PAUSE;
        for round in 0.. {
            let reason = match self.round(requests, deadline) {
                Ok(answers) => {
                    self.node.note_answer(&self.teller);
                    return Some(answers);
                }
                Err(reason) => reason,
            };
            if round >= QUIET_ROUNDS || begun.elapsed() >= QUIET {
                self.node.note_trouble(&reason, &self.teller);
            }
            if deadline.is_over() {
                break;
            }
            std::thread::sleep(pause.min(deadline.left()));
            pause = (pause * 2).min(PAUSE_MAX);
        }
        if is_last {
            self.node.note_given_up(&self.teller);
        }
        None
    }

    /// Sends all of them once.
    fn round(&self, requests: &[Request], deadline: Deadline) -> Result<Vec<Answer>, String> {
        let connection = self.connection(deadline)?;
        let begun = Instant::now();
        let answers = connection
            .run(requests, deadline)
            .inspect_err(|_| self.count_error())?;
        let passes = |answer: &Answer| matches!(answer, Err(GOES_DOWN | NO_MEMORY));
        if answers.iter().any(passes) {
            return Err("it goes down, or has no memory".into());
        }
        self.node.counts.latency.note(begun.elapsed());
        Ok(answers)
    }

    fn count_error(&self) {
        let errors = &self.node.counts.errors;
        errors.fetch_add(1, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection that has least to do, or a new one if all have something and there may be more.
    fn connection(&self, deadline: Deadline) -> Result<Arc<Connection>, String> {
        let mut pool = self.lock();
        loop {
            pool.open.retain(|one| !one.is_broken());
            let least = pool.open.iter().min_by_key(|one| one.under_way()).cloned();
            let may_connect = !pool.connecting && pool.open.len() < self.connections;
            match least {
                Some(one) if one.under_way() == 0 || !may_connect => return Ok(one),
                _ if may_connect => break,
                _ => {}
            }
            // Another thread connects. If it fails, so does whoever has waited for it.
            pool.failed = None;
            let waited = self.changed.wait_timeout(pool, deadline.left());
            pool = waited.unwrap_or_else(PoisonError::into_inner).0;
            if let Some(reason) = pool.failed.as_ref().filter(|_| pool.open.is_empty()) {
                return Err(reason.clone());
            }
            if deadline.is_over() {
                return Err("no connection in time".into());
            }
        }
        pool.connecting = true;
        drop(pool);
        let made = self.connect(deadline);
        let mut pool = self.lock();
        pool.connecting = false;
        let connection = match made {
            Ok(made) => {
                pool.open.push(Arc::clone(&made));
                Ok(made)
            }
            Err(reason) => {
                self.count_error();
                pool.failed = Some(reason.clone());
                // One more would have been better, but there are others.
                pool.open.first().cloned().ok_or(reason)
            }
        };
        drop(pool);
        self.changed.notify_all();
        connection
    }

    fn connect(&self, deadline: Deadline) -> Result<Arc<Connection>, String> {
        let patience = self.patience.answer;
        let soon = patience.min(deadline.left());
        let made =
            Connection::open(&self.spec, soon, patience).map_err(|refusal| match refusal {
                Refusal::Broken(reason) => reason,
                Refusal::Unfit(what) => format!("it {what}"),
            })?;
        let (now, before) = (made.export, self.export);
        if now.bytes < before.bytes || now.read_only || now.block_bytes > before.block_bytes {
            return Err("its export is smaller than it was, or cannot be written any more".into());
        }
        if now.payload_bytes_max < before.payload_bytes_max {
            return Err("it takes shorter requests than it did".into());
        }
        Ok(Arc::new(made))
    }
}
