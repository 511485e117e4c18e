//! What an area on other machines tells of itself, for people.
//!
//! The engine knows such an area as a storage like any other. Whoever opens it gives a way to ask it along.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

/// What an area on other machines has done.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FarStatus {
    /// Pages that are there.
    pub pages: u64,
    /// Keys that hold them, without those of second copies.
    pub keys: u64,
    /// Reads of pages that were not there any more, in no copy and no backup.
    pub lost_pages: u64,
    /// Reads of pages that were somebody else's, or older ones.
    pub altered_pages: u64,
    /// Pages that were written to one server alone because the other one did not answer.
    pub single_copies: u64,
    /// Copies that were found missing and written again.
    pub repaired_pages: u64,
    /// Keys that were not there when their lease was renewed.
    pub keys_gone: u64,
    /// Pages that came from the backup.
    pub backup_reads: u64,
    /// Pages that the backup could not take.
    pub backup_failed: u64,
    /// Its servers: of a cluster the masters.
    pub servers: Vec<FarServer>,
}

/// What one server of such an area has done, since this process knows it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FarServer {
    /// Host and port, or the master's name.
    pub name: String,
    /// `answers`; `waits`: requests wait for it; `given up`: one has waited as long as it may, and since then none was
    /// served.
    pub state: &'static str,
    /// What it or the system said last, if it does not answer.
    pub reason: Option<String>,
    /// For how many seconds it has not answered.
    pub silent_seconds: Option<f64>,
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
    /// What half of the requests do not exceed, in microseconds. None before the first.
    pub latency_half_us: Option<f64>,
    /// What 99 of 100 requests do not exceed, in microseconds. None before the first.
    pub latency_p99_us: Option<f64>,
}

/// A way to ask such an area. It answers at once, without asking the servers; with None once the area is gone.
#[derive(Clone)]
pub struct AskFar(Arc<dyn Fn() -> Option<FarStatus> + Send + Sync>);

impl AskFar {
    /// A way to ask.
    pub fn new(ask: impl Fn() -> Option<FarStatus> + Send + Sync + 'static) -> AskFar {
        AskFar(Arc::new(ask))
    }

    /// Asks. The caller holds no innermost lock, since the area has locks of its own.
    pub fn ask(&self) -> Option<FarStatus> {
        (self.0)()
    }
}

impl fmt::Debug for AskFar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AskFar")
    }
}
