//! What runs leave behind that cannot delete it any more: found, shown and removed.
//!
//! A run whose registry key lives is alive, and nothing of it is touched. Most of what a crashed machine leaves goes by
//! itself when its lease is over; this finds what does not, and shows who is there.

use std::collections::BTreeMap;
use std::sync::Arc;

use redis::{Value, cmd};

use crate::exchange::{Exchange, Request};
use crate::keys::{AreaId, PREFIX, RUN_PREFIX};
use crate::node::{Deadline, Node};
use crate::spec::FarSpec;
use crate::store::{FarError, Patience, connect};
use crate::topology::{Kind, Place, text};
use crate::wire::said;

/// Keys that one step of a scan looks at.
const STEP: usize = 1000;
/// Keys that one request deletes.
const BATCH: usize = 256;

/// Whose keys were found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundArea {
    /// The run and its area.
    pub id: AreaId,
    /// How many keys it has.
    pub keys: u64,
    /// Who it is. None if it is not alive: then its keys are left over.
    pub alive: Option<AliveRun>,
}

/// What a run that is alive says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AliveRun {
    /// Name of its machine.
    pub host: String,
    /// Its process.
    pub pid: u32,
    /// When it last renewed its lease, in seconds since 1970.
    pub seen_s: u64,
    /// For how long it leases keys, in seconds.
    pub lease_s: u64,
}

/// What was found, and what was done about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GcReport {
    /// All areas that have keys.
    pub areas: Vec<FoundArea>,
    /// Keys that were deleted.
    pub removed: u64,
}

impl GcReport {
    /// Keys of areas that are not alive.
    #[must_use]
    pub fn left_over(&self) -> u64 {
        let dead = self.areas.iter().filter(|area| area.alive.is_none());
        dead.map(|area| area.keys).sum()
    }
}

/// Looks for keys of runs that are not alive, and deletes them if `remove` says so. Blocks.
///
/// # Errors
/// [`FarError`]: the store cannot be looked through.
pub fn gc(spec: &FarSpec, remove: bool, patience: &Patience) -> Result<GcReport, FarError> {
    let exchange = connect(spec, patience, 1, None)?;
    let mut report = GcReport {
        areas: Vec::new(),
        removed: 0,
    };
    let mut found: BTreeMap<AreaId, Vec<(Arc<Node>, u64)>> = BTreeMap::new();
    for node in exchange.topology.nodes() {
        let mut counts: BTreeMap<AreaId, u64> = BTreeMap::new();
        scan(&exchange, &node, &format!("{PREFIX}*"), |keys| {
            for id in keys.iter().filter_map(|key| AreaId::of_key(key)) {
                *counts.entry(id).or_default() += 1;
            }
            Ok(())
        })?;
        for (id, count) in counts {
            let on = found.entry(id).or_default();
            on.push((Arc::clone(&node), count));
        }
    }
    for (id, on) in found {
        let alive = alive(&exchange, spec, id)?;
        if remove && alive.is_none() {
            for (node, _) in &on {
                report.removed += delete(&exchange, node, id)?;
            }
        }
        report.areas.push(FoundArea {
            id,
            keys: on.iter().map(|(_, count)| count).sum(),
            alive,
        });
    }
    Ok(report)
}

/// Looks through the keys of one node in bounded steps.
fn scan(
    exchange: &Exchange,
    node: &Arc<Node>,
    pattern: &str,
    mut each: impl FnMut(&[Vec<u8>]) -> Result<(), FarError>,
) -> Result<(), FarError> {
    let mut cursor = b"0".to_vec();
    loop {
        let mut step = cmd("SCAN");
        step.arg(&cursor).arg("MATCH").arg(pattern);
        step.arg("COUNT").arg(STEP);
        let answers = exchange
            .ask(node, &[step], Deadline::after(exchange.patience))
            .map_err(|error| FarError::of(&node.name, error))?;
        let unfit = |what: String| FarError::Unfit {
            node: node.name.clone(),
            what,
        };
        let (next, keys) = match answers.into_iter().next() {
            Some(Value::Array(parts)) => match <[Value; 2]>::try_from(parts) {
                Ok([Value::BulkString(next), Value::Array(keys)]) => (next, keys),
                _ => return Err(unfit("does not answer SCAN with keys".into())),
            },
            Some(Value::ServerError(error)) => {
                return Err(unfit(format!("refuses scan: {}", said(&error))));
            }
            _ => return Err(unfit("does not answer SCAN with keys".into())),
        };
        let keys = keys.into_iter().filter_map(|key| match key {
            Value::BulkString(key) => Some(key),
            _ => None,
        });
        each(&keys.collect::<Vec<_>>())?;
        if next == b"0" {
            return Ok(());
        }
        cursor = next;
    }
}

/// What the registry says of an area, on any of the stores. None if its lease is over.
fn alive(exchange: &Exchange, spec: &FarSpec, id: AreaId) -> Result<Option<AliveRun>, FarError> {
    let place = Place::of(id.registry().into_bytes());
    let stores = match exchange.topology.kind {
        Kind::Stores => exchange.topology.nodes().len(),
        _ => 1,
    };
    let get = |copy| {
        let mut get = cmd("HGETALL");
        get.arg(&place.key);
        Request {
            place: Place {
                copy,
                ..place.clone()
            },
            commands: vec![get],
            atomic: false,
        }
    };
    let requests: Vec<Request> = (0..stores).map(get).collect();
    let served = exchange.run(&requests, Deadline::after(exchange.patience));
    for one in served {
        // Who is not known to be dead is alive.
        let answers = one.map_err(|_| FarError::NoAnswer {
            node: spec.to_string(),
            reason: format!("nobody says whether {id} is alive"),
        })?;
        if let Some(Value::Array(pairs)) = answers.first()
            && !pairs.is_empty()
        {
            return Ok(Some(read(pairs)));
        }
    }
    Ok(None)
}

fn read(pairs: &[Value]) -> AliveRun {
    let mut run = AliveRun::default();
    for pair in pairs.chunks_exact(2) {
        let (name, value) = (text(&pair[0]), text(&pair[1]).unwrap_or_default());
        match name {
            Some("host") => value.clone_into(&mut run.host),
            Some("pid") => run.pid = value.parse().unwrap_or(0),
            Some("seen") => run.seen_s = value.parse().unwrap_or(0),
            Some("lease_s") => run.lease_s = value.parse().unwrap_or(0),
            _ => {}
        }
    }
    run
}

/// Deletes the keys of an area on one node, but for its registry key, which is another's if it is there again.
fn delete(exchange: &Exchange, node: &Arc<Node>, id: AreaId) -> Result<u64, FarError> {
    let mut removed = 0;
    let pattern = format!("{PREFIX}{id}:*");
    scan(exchange, node, &pattern, |keys| {
        let is_data = |key: &&Vec<u8>| !key.starts_with(RUN_PREFIX.as_bytes());
        let keys: Vec<&Vec<u8>> = keys.iter().filter(is_data).collect();
        for keys in keys.chunks(BATCH) {
            // One key each: a cluster takes no command for keys of several hash slots.
            let unlink = |key: &&Vec<u8>| {
                let mut unlink = cmd("UNLINK");
                unlink.arg(key.as_slice());
                unlink
            };
            let commands: Vec<_> = keys.iter().map(unlink).collect();
            let answers = exchange
                .ask(node, &commands, Deadline::after(exchange.patience))
                .map_err(|error| FarError::of(&node.name, error))?;
            let gone = answers.iter().filter(|answer| **answer == Value::Int(1));
            removed += gone.count() as u64;
        }
        Ok(())
    })?;
    Ok(removed)
}
