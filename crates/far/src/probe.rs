//! Whether a store is fit to hold swapped pages: asked before it does.
//!
//! Refused is a store that would lose pages (one that evicts, a replica), that cannot take any (full, or not permitted)
//! or that is too old. What is only worth knowing is a warning.

use std::sync::Arc;

use redis::{Cmd, Value, cmd};
use vswap_engine::PAGE_BYTES;

use crate::event::Listener;
use crate::exchange::Exchange;
use crate::info::Info;
use crate::keys::{AreaId, RunId};
use crate::node::{Deadline, Node};
use crate::spec::FarSpec;
use crate::store::{FarError, Patience, connect};
use crate::topology::{Kind, Place, text};
use crate::wire::said;

/// The oldest version that has everything: ACL came with it.
const OLDEST: u64 = 6;
/// Keys that are tried until one of them lies on a certain node.
const TRIES: u32 = 1 << 20;
/// How long a key of the probe lives if it cannot be deleted, in milliseconds.
const PROBE_MS: u64 = 60_000;
/// What the probe writes.
const CONTENT: &[u8] = b"vswap probe";

/// What is asked of a store.
#[derive(Debug, Clone, Copy)]
pub struct Demand {
    /// Pages that it is to hold.
    pub slots: u64,
    /// On how many nodes each is kept.
    pub copies: usize,
}

/// One server that is fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbedNode {
    /// Host and port.
    pub name: String,
    /// What it is and its version, as `redis 7.0.15`.
    pub version: String,
    /// The memory that it may use in bytes. None without a limit.
    pub memory_max: Option<u64>,
    /// What it uses of that.
    pub memory_used: u64,
}

/// A store that is fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// `cluster`, `sentinel` or `stores`.
    pub kind: &'static str,
    /// Its masters.
    pub nodes: Vec<ProbedNode>,
    /// What whoever uses it should know.
    pub warnings: Vec<String>,
}

/// Connects to a store and asks whether it is fit. Writes one key on each master and deletes it again. Blocks.
///
/// # Errors
/// [`FarError`] says what is wrong and what mends it.
pub fn probe(spec: &FarSpec, demand: Demand, patience: &Patience) -> Result<Probe, FarError> {
    let nobody: Option<Listener> = None;
    let exchange = connect(spec, patience, 1, nobody)?;
    let run = RunId::random().ok_or(FarError::NoKey)?;
    probed(&exchange, spec, demand, AreaId { run, area: 0 })
}

/// Asks through connections that are there.
pub(crate) fn probed(
    exchange: &Exchange,
    spec: &FarSpec,
    demand: Demand,
    id: AreaId,
) -> Result<Probe, FarError> {
    let nodes = exchange.topology.nodes();
    let kind = &exchange.topology.kind;
    if demand.copies > nodes.len() {
        let (copies, nodes) = (demand.copies, nodes.len());
        return Err(FarError::Unfit {
            node: spec.to_string(),
            what: format!(
                "cannot keep {copies} copies: they need as many masters, and it has {nodes}"
            ),
        });
    }
    let mut probe = Probe {
        kind: match kind {
            Kind::Stores => "stores",
            Kind::Cluster => "cluster",
            Kind::Sentinel(_) => "sentinel",
        },
        nodes: Vec::new(),
        warnings: Vec::new(),
    };
    for node in &nodes {
        let deadline = Deadline::after(exchange.patience);
        let answer = exchange.ask(node, &[cmd("INFO")], deadline);
        let answers = answer.map_err(|error| FarError::of(&node.name, error))?;
        let [answer] = answers.as_slice() else {
            continue;
        };
        if let Value::ServerError(error) = answer {
            return Err(refused(node, error, "info", &acl_line(spec, kind)));
        }
        let info = Info::read(answer).unwrap_or_default();
        let checked = check(node, &info, &mut probe.warnings)?;
        note_snapshots(exchange, node, &info, &mut probe.warnings, deadline);
        probe.nodes.push(checked);
        try_commands(exchange, node, id, &acl_line(spec, kind), deadline)?;
    }
    note_room(&mut probe, demand);
    Ok(probe)
}

/// The command that makes a user who may do what is needed and no more.
fn acl_line(spec: &FarSpec, kind: &Kind) -> String {
    let user = spec.user.as_deref().unwrap_or("vswap");
    let cluster = match kind {
        Kind::Cluster => " +cluster|slots +asking",
        _ => "",
    };
    let select = if spec.db != 0 { " +select" } else { "" };
    format!(
        "ACL SETUSER {user} reset on >PASSWORD ~vswap:* +info +hset +hmget +hdel +hgetall +pexpire +unlink +exists \
         +scan +multi +exec{cluster}{select}"
    )
}

fn refused(node: &Node, error: &redis::ServerError, commands: &str, mend: &str) -> FarError {
    let node = node.name.clone();
    match error.code() {
        _ if is_denied(error) => FarError::NotPermitted {
            node,
            commands: commands.to_owned(),
            mend: mend.to_owned(),
        },
        "NOAUTH" => FarError::LoginRefused {
            node,
            reason: said(error),
        },
        "OOM" => FarError::Unfit {
            node,
            what: "is full: it has used all of its maxmemory".into(),
        },
        _ => FarError::Unfit {
            node,
            what: format!("refuses {commands}: {}", said(error)),
        },
    }
}

/// Whether the user may not do it. What EXEC says it says as the reason why it did nothing.
fn is_denied(error: &redis::ServerError) -> bool {
    error.code() == "NOPERM" || error.details().is_some_and(|text| text.contains("NOPERM"))
}

fn check(node: &Node, info: &Info, warnings: &mut Vec<String>) -> Result<ProbedNode, FarError> {
    let name = &node.name;
    let unfit = |what: String| {
        Err(FarError::Unfit {
            node: name.clone(),
            what,
        })
    };
    let (product, version) = match info.text("valkey_version") {
        "" => ("redis", info.text("redis_version")),
        version => ("valkey", version),
    };
    let major: u64 = version
        .split('.')
        .next()
        .and_then(|major| major.parse().ok())
        .unwrap_or(0);
    if major < OLDEST {
        return unfit(format!(
            "is {product} {version}; needed is {OLDEST}.0 or later"
        ));
    }
    if info.text("role") != "master" {
        let (host, port) = (info.text("master_host"), info.text("master_port"));
        return unfit(format!("is a replica: name its master {host}:{port}"));
    }
    let max = info.number("maxmemory");
    let policy = info.text("maxmemory_policy");
    if max > 0 && policy != "noeviction" {
        return unfit(format!(
            "throws content away when it is full (maxmemory-policy {policy}); to mend it: CONFIG SET maxmemory-policy \
             noeviction"
        ));
    }
    if max == 0 {
        warnings.push(format!(
            "{name} has no limit of memory (maxmemory 0): when its machine has none left, it may be killed"
        ));
    }
    if info.is_set("aof_enabled") {
        warnings.push(format!(
            "{name} keeps an append-only file: swapped pages go to its disk too, encrypted"
        ));
    }
    Ok(ProbedNode {
        name: name.clone(),
        version: format!("{product} {version}"),
        memory_max: (max > 0).then_some(max),
        memory_used: info.number("used_memory"),
    })
}

/// Whether the server saves snapshots. A user who may not ask is told only of those that it has saved.
fn note_snapshots(
    exchange: &Exchange,
    node: &Node,
    info: &Info,
    warnings: &mut Vec<String>,
    deadline: Deadline,
) {
    let mut get = cmd("CONFIG");
    get.arg("GET").arg("save");
    let answers = exchange.ask(node, &[get], deadline).unwrap_or_default();
    let is_set = match answers.first() {
        Some(Value::Array(pair)) => pair
            .get(1)
            .and_then(text)
            .is_some_and(|save| !save.is_empty()),
        _ => info.number("rdb_saves") > 0,
    };
    if is_set {
        warnings.push(format!(
            "{} saves snapshots: swapped pages go to its disk too, encrypted",
            node.name
        ));
    }
}

/// Writes a key, reads it and deletes it, by the commands that will be used.
fn try_commands(
    exchange: &Exchange,
    node: &Arc<Node>,
    id: AreaId,
    mend: &str,
    deadline: Deadline,
) -> Result<(), FarError> {
    let is_there = |key: &String| {
        let place = Place::of(key.clone().into_bytes());
        match exchange.topology.kind {
            // Each of them takes every key.
            Kind::Stores => true,
            _ => exchange
                .topology
                .node_of(&place)
                .is_some_and(|owner| owner.name == node.name),
        }
    };
    let Some(key) = (0..TRIES).map(|number| id.probe(number)).find(is_there) else {
        // A master without hash slots.
        return Ok(());
    };
    let key = key.as_str();
    let command = |name: &str, arguments: &[&[u8]]| -> Cmd {
        let mut command = cmd(name);
        command.arg(key).arg(arguments);
        command
    };
    let milliseconds = PROBE_MS.to_string();
    let mut commands = vec![
        ("multi", cmd("MULTI")),
        ("exec", cmd("EXEC")),
        ("hset", command("HSET", &[b"a", CONTENT])),
        ("pexpire", command("PEXPIRE", &[milliseconds.as_bytes()])),
        ("hmget", command("HMGET", &[b"a", b"b"])),
        ("hgetall", command("HGETALL", &[])),
        ("hdel", command("HDEL", &[b"a"])),
        ("exists", command("EXISTS", &[])),
        ("unlink", command("UNLINK", &[])),
    ];
    let mut scan = cmd("SCAN");
    scan.arg(0).arg("MATCH").arg(key).arg("COUNT").arg(1);
    commands.push(("scan", scan));
    let (names, commands): (Vec<_>, Vec<_>) = commands.into_iter().unzip();
    let answers = exchange
        .ask(node, &commands, deadline)
        .map_err(|error| FarError::of(&node.name, error))?;
    let errors = names
        .iter()
        .zip(&answers)
        .filter_map(|(name, answer)| match answer {
            Value::ServerError(error) => Some((*name, error)),
            _ => None,
        });
    let errors: Vec<_> = errors.collect();
    if let Some((first, error)) = errors.first() {
        let denied = errors.iter().filter(|(_, error)| is_denied(error));
        let denied: Vec<&str> = denied.map(|(name, _)| *name).collect();
        let what = if denied.is_empty() {
            (*first).to_owned()
        } else {
            denied.join(", ")
        };
        return Err(refused(node, error, &what, mend));
    }
    let expected = Value::Array(vec![Value::BulkString(CONTENT.to_vec()), Value::Nil]);
    if answers.get(4) != Some(&expected) {
        return Err(FarError::Unfit {
            node: node.name.clone(),
            what: "does not give back what was written to it".into(),
        });
    }
    Ok(())
}

fn note_room(probe: &mut Probe, demand: Demand) {
    let limits: Option<Vec<u64>> = probe
        .nodes
        .iter()
        .map(|node| Some(node.memory_max?.saturating_sub(node.memory_used)))
        .collect();
    // Without a limit on each of them nobody can tell.
    let Some(free) = limits.map(|free| free.iter().sum::<u64>()) else {
        return;
    };
    let wanted = demand
        .slots
        .saturating_mul(PAGE_BYTES as u64)
        .saturating_mul(demand.copies as u64);
    if free < wanted {
        let mib = |bytes: u64| bytes >> 20;
        probe.warnings.push(format!(
            "the store has {} MiB free for an area of {} MiB: enough only for content that compresses",
            mib(free),
            mib(wanted)
        ));
    }
}
