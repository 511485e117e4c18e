//! One server with its lanes: the connections to it. As many requests are under way at once as it has lanes.
//!
//! Connections are made when they are first needed. One that fails takes those along that lie idle, because a server
//! that was started anew has closed them all.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::event::{FarEvent, Teller};
use crate::latency::Latency;
use crate::spec::Address;
use crate::wire::{Network, Role, Wire, WireError};

/// How long a node in trouble is left alone by requests that have another way.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// When something has to be done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline(Instant);

impl Deadline {
    pub(crate) fn after(time: Duration) -> Deadline {
        Deadline(Instant::now() + time)
    }

    pub(crate) fn left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    pub(crate) fn is_over(self) -> bool {
        self.left().is_zero()
    }

    /// Not sooner than after this time.
    pub(crate) fn at_least(self, time: Duration) -> Deadline {
        Deadline(self.0.max(Instant::now() + time))
    }

    /// The end of what each of so many may take, one after the other.
    pub(crate) fn share(self, of: usize) -> Deadline {
        let of = u32::try_from(of.max(1)).unwrap_or(u32::MAX);
        Deadline::after(self.left() / of)
    }
}

/// What a node has done, since it is known.
#[derive(Debug)]
pub(crate) struct Counts {
    pub pages_in: AtomicU64,
    pub pages_out: AtomicU64,
    pub bytes_in: AtomicU64,
    pub bytes_out: AtomicU64,
    pub errors: AtomicU64,
    pub retries: AtomicU64,
    pub latency: Latency,
}

struct Lanes {
    idle: Vec<Box<dyn Wire>>,
    busy: usize,
    address: Address,
    trouble: Option<Trouble>,
}

/// Since when a node is waited for, and why.
#[derive(Debug, Clone)]
pub(crate) struct Trouble {
    pub since: Instant,
    pub reason: String,
    /// Whether a request has waited as long as it may.
    pub given_up: bool,
    /// When it was last tried by those that have another way.
    pub tried: Instant,
}

/// A server.
pub(crate) struct Node {
    pub name: String,
    pub counts: Counts,
    lanes: Mutex<Lanes>,
    freed: Condvar,
    lanes_max: usize,
    /// Whether `trouble` is some.
    troubled: AtomicBool,
}

impl Node {
    pub(crate) fn new(name: String, address: Address, lanes_max: usize) -> Node {
        let none = || AtomicU64::new(0);
        Node {
            name,
            counts: Counts {
                pages_in: none(),
                pages_out: none(),
                bytes_in: none(),
                bytes_out: none(),
                errors: none(),
                retries: none(),
                latency: Latency::new(),
            },
            lanes: Mutex::new(Lanes {
                idle: Vec::new(),
                busy: 0,
                address,
                trouble: None,
            }),
            freed: Condvar::new(),
            lanes_max: lanes_max.max(1),
            troubled: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count_error(&self) {
        self.counts.errors.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn address(&self) -> Address {
        self.lock().address.clone()
    }

    /// From now on the node is there: another machine has taken its place.
    pub(crate) fn move_to(&self, address: Address) {
        let mut lanes = self.lock();
        if lanes.address != address {
            lanes.idle.clear();
            lanes.address = address;
        }
    }

    /// Takes a lane. Waits for one, and connects, no longer than until the deadline; one connection or one answer takes
    /// no longer than `patience`.
    ///
    /// # Errors
    /// [`WireError`].
    pub(crate) fn lane(
        &self,
        network: &dyn Network,
        patience: Duration,
        deadline: Deadline,
    ) -> Result<Lane<'_>, WireError> {
        let mut lanes = self.lock();
        while lanes.busy >= self.lanes_max {
            let left = deadline.left();
            if left.is_zero() {
                let what = format!("all {} connections are in use", self.lanes_max);
                return Err(WireError::Broken(what));
            }
            let waited = self.freed.wait_timeout(lanes, left);
            lanes = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        lanes.busy += 1;
        let idle = lanes.idle.pop();
        let address = lanes.address.clone();
        drop(lanes);
        let mut lane = Lane {
            node: self,
            address,
            wire: None,
        };
        let patience = patience.min(deadline.left());
        let mut wire = match idle {
            Some(wire) => wire,
            None => {
                // Who is not there must not take the time of those that are asked next.
                let half = patience.min(deadline.left() / 2);
                let made = network.connect(&lane.address, Role::Store, half);
                made.inspect_err(|_| self.count_error())?
            }
        };
        wire.set_patience(patience)?;
        lane.wire = Some(wire);
        Ok(lane)
    }

    /// Notes that a request failed for this reason and is tried again. Tells it if it is news.
    pub(crate) fn note_trouble(&self, reason: &str, teller: &Teller) {
        self.counts.retries.fetch_add(1, Ordering::Relaxed);
        let mut lanes = self.lock();
        let is_news = lanes.trouble.is_none();
        let trouble = lanes.trouble.get_or_insert_with(|| Trouble {
            since: Instant::now(),
            reason: String::new(),
            given_up: false,
            tried: Instant::now(),
        });
        reason.clone_into(&mut trouble.reason);
        // From its end: a try may take longer than the time to the next.
        trouble.tried = Instant::now();
        self.troubled.store(true, Ordering::Relaxed);
        drop(lanes);
        if is_news {
            teller.tell(&FarEvent::Waits {
                node: self.name.clone(),
                reason: reason.to_owned(),
                bound: teller.bound,
            });
        }
    }

    /// Notes that a request has failed for good. Tells it if it is news.
    pub(crate) fn note_given_up(&self, teller: &Teller) {
        let mut lanes = self.lock();
        let Some(trouble) = lanes.trouble.as_mut().filter(|trouble| !trouble.given_up) else {
            return;
        };
        trouble.given_up = true;
        let reason = trouble.reason.clone();
        drop(lanes);
        let node = self.name.clone();
        teller.tell(&FarEvent::GaveUp { node, reason });
    }

    /// Whether a request that has another way is to try it: always, or once in a while if it is in trouble.
    pub(crate) fn may_try(&self) -> bool {
        if !self.is_troubled() {
            return true;
        }
        let mut lanes = self.lock();
        let Some(trouble) = lanes.trouble.as_mut() else {
            return true;
        };
        let is_due = trouble.tried.elapsed() >= TRY_AGAIN;
        if is_due {
            trouble.tried = Instant::now();
        }
        is_due
    }

    /// Whether nobody waits for it any longer as long as it may.
    pub(crate) fn is_given_up(&self) -> bool {
        self.is_troubled() && self.trouble().is_some_and(|trouble| trouble.given_up)
    }

    /// Notes that a request was served.
    pub(crate) fn note_answer(&self, teller: &Teller) {
        if !self.is_troubled() {
            return;
        }
        let trouble = {
            let mut lanes = self.lock();
            self.troubled.store(false, Ordering::Relaxed);
            lanes.trouble.take()
        };
        if let Some(trouble) = trouble {
            teller.tell(&FarEvent::Answers {
                node: self.name.clone(),
                waited: trouble.since.elapsed(),
            });
        }
    }

    /// Whether the last request to it failed.
    pub(crate) fn is_troubled(&self) -> bool {
        self.troubled.load(Ordering::Relaxed)
    }

    pub(crate) fn trouble(&self) -> Option<Trouble> {
        self.lock().trouble.clone()
    }
}

/// A connection that one request has for itself.
pub(crate) struct Lane<'n> {
    node: &'n Node,
    address: Address,
    /// None once it has failed.
    wire: Option<Box<dyn Wire>>,
}

impl Lane<'_> {
    /// Does something with the connection. If that fails, the connection is closed, and so are those that lie idle.
    pub(crate) fn with<T>(
        &mut self,
        what: impl FnOnce(&mut dyn Wire) -> Result<T, WireError>,
    ) -> Result<T, WireError> {
        let Some(wire) = &mut self.wire else {
            return Err(WireError::Broken("the connection is closed".into()));
        };
        let done = what(wire.as_mut());
        if done.is_err() {
            self.wire = None;
            self.node.count_error();
            let idle = std::mem::take(&mut self.node.lock().idle);
            drop(idle);
        }
        done
    }
}

impl Drop for Lane<'_> {
    fn drop(&mut self) {
        let mut lanes = self.node.lock();
        lanes.busy -= 1;
        if let Some(wire) = self.wire.take()
            && lanes.address == self.address
        {
            lanes.idle.push(wire);
        }
        drop(lanes);
        self.node.freed.notify_one();
    }
}
