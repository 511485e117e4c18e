//! What an area has done, for status, which shows it as it is serialised here.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::area::Area;
use crate::node::Node;

/// How a node is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum NodeState {
    /// The last request to it was served.
    Answers,
    /// Requests wait for it.
    Waits {
        /// For how long.
        #[serde(rename = "silent_seconds", serialize_with = "seconds")]
        since: Duration,
        /// What it or the system says.
        reason: String,
    },
    /// A request has waited as long as it may. None has been served since.
    #[serde(rename = "given up")]
    GivenUp {
        /// Since when it does not serve requests.
        #[serde(rename = "silent_seconds", serialize_with = "seconds")]
        since: Duration,
        /// What it or the system says.
        reason: String,
    },
}

/// What one node has done, since this process knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeFigures {
    /// Host and port, or the master's name.
    pub name: String,
    /// How it is.
    #[serde(flatten)]
    pub state: NodeState,
    /// Pages that came from it.
    pub pages_in: u64,
    /// Pages that went to it.
    pub pages_out: u64,
    /// Bytes of packed pages that came from it.
    pub bytes_in: u64,
    /// Bytes of packed pages that went to it.
    pub bytes_out: u64,
    /// Connections that were not made or have failed.
    pub errors: u64,
    /// Requests that had to be sent again.
    pub retries: u64,
    /// How long a request takes, on a sliding average. None before the first.
    #[serde(rename = "latency_us", serialize_with = "microseconds")]
    pub latency: Option<Duration>,
    /// What half of the requests do not exceed.
    #[serde(rename = "latency_half_us", serialize_with = "microseconds")]
    pub latency_half: Option<Duration>,
    /// What 99 of 100 requests do not exceed.
    #[serde(rename = "latency_p99_us", serialize_with = "microseconds")]
    pub latency_p99: Option<Duration>,
}

/// What an area has done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FarFigures {
    /// Its masters.
    #[serde(rename = "servers")]
    pub nodes: Vec<NodeFigures>,
    /// Pages that are in the store.
    pub pages: u64,
    /// Keys that hold them, without those of second copies.
    pub keys: u64,
    /// Reads of pages that were not there any more, in no copy and no backup.
    pub lost_pages: u64,
    /// Reads of pages that were somebody else's, or older ones.
    pub altered_pages: u64,
    /// Pages that were written to one node alone because the other one did not answer.
    pub single_copies: u64,
    /// Copies that were found missing and written again.
    pub repaired_pages: u64,
    /// Keys that were not there when their lease was renewed.
    pub keys_gone: u64,
    /// Pages that came from the backup.
    pub backup_reads: u64,
    /// Pages that the backup could not take.
    pub backup_failed: u64,
}

fn seconds<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(time.as_secs_f64())
}

fn microseconds<S: Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs_f64() * 1e6).serialize(to)
}

/// What has such figures.
pub(crate) trait HasFigures: Send + Sync {
    fn figures(&self) -> FarFigures;
}

/// A look at an area that does not keep it.
#[derive(Clone)]
pub struct FarWatch(Weak<dyn HasFigures>);

impl FarWatch {
    pub(crate) fn new<T: HasFigures + 'static>(area: &Arc<T>) -> FarWatch {
        let area = Arc::downgrade(area);
        FarWatch(area)
    }

    /// What it has done. None once it is gone. Asks no server.
    #[must_use]
    pub fn figures(&self) -> Option<FarFigures> {
        Some(self.0.upgrade()?.figures())
    }
}

impl fmt::Debug for FarWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FarWatch")
    }
}

impl HasFigures for Area {
    fn figures(&self) -> FarFigures {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let nodes = self.exchange.topology.nodes();
        FarFigures {
            nodes: nodes.iter().map(|node| of_node(node)).collect(),
            pages: self.slots.pages(),
            keys: self.slots.keys(),
            lost_pages: of(&self.counts.lost),
            altered_pages: of(&self.counts.altered),
            single_copies: of(&self.counts.single),
            repaired_pages: of(&self.counts.repaired),
            keys_gone: of(&self.counts.keys_gone),
            backup_reads: of(&self.counts.from_backup),
            backup_failed: of(&self.counts.backup_failed),
        }
    }
}

pub(crate) fn of_node(node: &Node) -> NodeFigures {
    let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let state = match node.trouble() {
        None => NodeState::Answers,
        Some(trouble) => {
            let (since, reason) = (trouble.since.elapsed(), trouble.reason);
            match trouble.given_up {
                false => NodeState::Waits { since, reason },
                true => NodeState::GivenUp { since, reason },
            }
        }
    };
    let counts = &node.counts;
    NodeFigures {
        name: node.name.clone(),
        state,
        pages_in: of(&counts.pages_in),
        pages_out: of(&counts.pages_out),
        bytes_in: of(&counts.bytes_in),
        bytes_out: of(&counts.bytes_out),
        errors: of(&counts.errors),
        retries: of(&counts.retries),
        latency: counts.latency.average(),
        latency_half: counts.latency.quantile(500),
        latency_p99: counts.latency.quantile(990),
    }
}
