//! Which node has which key.
//!
//! Servers that are on their own share the keys by rendezvous hashing: each key ranks all servers, its copies go to the
//! first of them, and no key moves because of another server. A cluster says itself which node has which hash slot.
//! Behind Sentinels there is one node, whose address they know.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, HashMap};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use redis::{Value, cmd};

use crate::node::{Deadline, Node};
use crate::spec::Address;
use crate::wire::{Network, Role, WireError, said};

/// Hash slots of a cluster.
const HASH_SLOTS: usize = 16384;
/// A hash slot that no node serves.
const NOBODY: u16 = u16::MAX;
/// Who asks for the topology again sooner than this is told the last one.
const FRESH: Duration = Duration::from_millis(50);
/// How long one node may take to tell the topology, before the next is asked.
const PATIENCE: Duration = Duration::from_secs(1);

/// What kind of store it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Servers that know nothing of one another.
    Stores,
    Cluster,
    /// With the name of the master.
    Sentinel(String),
}

/// A key, and what decides where it lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// The name of the key.
    pub key: Vec<u8>,
    /// The name of the first copy's key, by which servers on their own are ranked.
    pub family: u64,
    /// Which copy it is, from 0.
    pub copy: usize,
}

impl Place {
    /// The place of a key without copies.
    pub(crate) fn of(key: Vec<u8>) -> Place {
        let family = hash_of(&key);
        Place {
            key,
            family,
            copy: 0,
        }
    }
}

pub(crate) fn hash_of(what: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

struct Map {
    nodes: Vec<Arc<Node>>,
    /// For each hash slot the number of its node. Of a cluster alone.
    slots: Option<Box<[u16]>>,
}

/// How the topology was asked for last.
#[derive(Default)]
struct Asked {
    /// When somebody told it.
    told: Option<Instant>,
    /// Whether a thread is asking.
    is_busy: bool,
    /// Who did not tell it. They are asked last.
    mute: BTreeSet<Address>,
}

/// The nodes, and which has what. Changes when the store does.
pub(crate) struct Topology {
    pub network: Arc<dyn Network>,
    pub kind: Kind,
    seeds: Vec<Address>,
    lanes_max: usize,
    map: RwLock<Arc<Map>>,
    asked: Mutex<Asked>,
    /// A thread has asked.
    answered: Condvar,
}

impl Topology {
    /// A topology as it is now. Asks the store. Blocks.
    ///
    /// # Errors
    /// Nobody could tell it.
    pub(crate) fn new(
        network: Arc<dyn Network>,
        kind: Kind,
        seeds: &[Address],
        lanes_max: usize,
        deadline: Deadline,
    ) -> Result<Topology, WireError> {
        let stores = match kind {
            Kind::Stores => seeds,
            _ => &[],
        };
        let node = |at: &Address| Arc::new(Node::new(at.to_string(), at.clone(), lanes_max));
        let map = Map {
            nodes: stores.iter().map(node).collect(),
            slots: None,
        };
        let topology = Topology {
            network,
            kind,
            seeds: seeds.to_vec(),
            lanes_max,
            map: RwLock::new(Arc::new(map)),
            asked: Mutex::default(),
            answered: Condvar::new(),
        };
        topology.refresh(deadline)?;
        Ok(topology)
    }

    fn map(&self) -> Arc<Map> {
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&map)
    }

    /// All masters.
    pub(crate) fn nodes(&self) -> Vec<Arc<Node>> {
        self.map().nodes.clone()
    }

    /// The node that has the key. None if at the moment nobody has.
    pub(crate) fn node_of(&self, place: &Place) -> Option<Arc<Node>> {
        let map = self.map();
        match (&self.kind, &map.slots) {
            (Kind::Stores, _) => ranked(&map.nodes, place),
            (_, Some(slots)) => {
                let node = slots[usize::from(hash_slot(&place.key))];
                map.nodes.get(usize::from(node)).cloned()
            }
            (_, None) => map.nodes.first().cloned(),
        }
    }

    /// The node at this address, also if it is new.
    pub(crate) fn node_at(&self, address: &Address) -> Arc<Node> {
        let map = self.map();
        let known = map.nodes.iter().find(|node| node.address() == *address);
        known.cloned().unwrap_or_else(|| self.new_node(address))
    }

    fn new_node(&self, address: &Address) -> Arc<Node> {
        let node = Node::new(address.to_string(), address.clone(), self.lanes_max);
        Arc::new(node)
    }

    fn asked(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the store again which node has what. If somebody has just asked, that must do. One thread asks at a time;
    /// others wait for it until their deadline. Blocks.
    ///
    /// # Errors
    /// Nobody could tell; the topology is as it was.
    pub(crate) fn refresh(&self, deadline: Deadline) -> Result<(), WireError> {
        if self.kind == Kind::Stores {
            return Ok(());
        }
        let mut asked = self.asked();
        loop {
            if asked.told.is_some_and(|at| at.elapsed() < FRESH) {
                return Ok(());
            }
            if !asked.is_busy {
                break;
            }
            let left = deadline.left();
            if left.is_zero() {
                return Err(WireError::Broken(
                    "nobody has told in time who has what".into(),
                ));
            }
            let waited = self.answered.wait_timeout(asked, left);
            asked = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        asked.is_busy = true;
        drop(asked);
        let map = match &self.kind {
            Kind::Sentinel(master) => self.ask_sentinels(master, deadline),
            _ => self.ask_cluster(deadline),
        };
        let mut asked = self.asked();
        asked.is_busy = false;
        if map.is_ok() {
            asked.told = Some(Instant::now());
        }
        let done = map.map(|map| {
            *self.map.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(map);
        });
        drop(asked);
        self.answered.notify_all();
        done
    }

    /// Asks one server after the other until one answers with what `read` understands. Those that did not the last time
    /// come last.
    fn ask<T>(
        &self,
        servers: &[Address],
        role: Role,
        question: &redis::Cmd,
        deadline: Deadline,
        read: impl Fn(&Address, &Value) -> Option<T>,
    ) -> Result<T, WireError> {
        let mut last = WireError::Broken("there is no server to ask".into());
        let (last_ones, first): (Vec<_>, Vec<_>) = {
            let asked = self.asked();
            servers.iter().partition(|one| asked.mute.contains(*one))
        };
        for server in first.into_iter().chain(last_ones) {
            if deadline.is_over() {
                break;
            }
            // Half of what is left: the next one may answer.
            let patience = PATIENCE.min(deadline.left() / 2);
            let answer = self
                .network
                .connect(server, role, patience)
                .and_then(|mut wire| {
                    wire.set_patience(patience)?;
                    wire.send(&[question])?;
                    wire.receive()
                });
            last = match answer {
                Ok(answer) => match read(server, &answer) {
                    Some(told) => {
                        self.asked().mute.remove(server);
                        return Ok(told);
                    }
                    None => WireError::Broken(format!("{server} says {}", shown(&answer))),
                },
                Err(WireError::LoginRefused(what)) => {
                    WireError::LoginRefused(format!("{server}: {what}"))
                }
                Err(WireError::Broken(what)) => WireError::Broken(format!("{server}: {what}")),
            };
            self.asked().mute.insert(server.clone());
        }
        Err(last)
    }

    fn ask_sentinels(&self, master: &str, deadline: Deadline) -> Result<Map, WireError> {
        let mut question = cmd("SENTINEL");
        question.arg("get-master-addr-by-name").arg(master);
        let read = |_: &Address, answer: &Value| match answer {
            Value::Array(parts) => match parts.as_slice() {
                [host, port] => address(text(host)?, text(port)?.parse().ok()?),
                _ => None,
            },
            _ => None,
        };
        let at = self.ask(&self.seeds, Role::Sentinel, &question, deadline, read)?;
        let known = self.map().nodes.first().cloned();
        let node = known
            .unwrap_or_else(|| Arc::new(Node::new(master.to_owned(), at.clone(), self.lanes_max)));
        node.move_to(at);
        Ok(Map {
            nodes: vec![node],
            slots: None,
        })
    }

    fn ask_cluster(&self, deadline: Deadline) -> Result<Map, WireError> {
        let mut question = cmd("CLUSTER");
        question.arg("SLOTS");
        let known = self.map();
        // Those that have answered last come first.
        let (bad, good): (Vec<_>, Vec<_>) = known.nodes.iter().partition(|node| node.is_troubled());
        let mut servers: Vec<Address> = good.iter().map(|node| node.address()).collect();
        servers.extend(self.seeds.iter().cloned());
        servers.extend(bad.iter().map(|node| node.address()));
        let ranges = self.ask(&servers, Role::Store, &question, deadline, read_ranges)?;
        let mut nodes: Vec<Arc<Node>> = Vec::new();
        // There may be as many ranges as hash slots, and many nodes.
        let mut known: HashMap<Address, usize> = HashMap::new();
        let mut slots = vec![NOBODY; HASH_SLOTS].into_boxed_slice();
        for range in ranges {
            let index = *known.entry(range.at).or_insert_with_key(|at| {
                nodes.push(self.node_at(at));
                nodes.len() - 1
            });
            let part = slots.get_mut(range.first..=range.last);
            part.unwrap_or_default()
                .fill(u16::try_from(index).unwrap_or(NOBODY));
        }
        Ok(Map {
            nodes,
            slots: Some(slots),
        })
    }
}

/// The node that ranks as high for the key as it is a copy.
fn ranked(nodes: &[Arc<Node>], place: &Place) -> Option<Arc<Node>> {
    if let [one] = nodes {
        return Some(Arc::clone(one));
    }
    let weight = |node: &Arc<Node>| hash_of((place.family, &node.name));
    let mut by_weight: Vec<_> = nodes.iter().collect();
    by_weight.sort_by_cached_key(|node| std::cmp::Reverse(weight(node)));
    by_weight
        .get(place.copy % nodes.len().max(1))
        .map(|node| Arc::clone(node))
}

/// The hash slot of a key without braces.
fn hash_slot(key: &[u8]) -> u16 {
    crc16::State::<crc16::XMODEM>::calculate(key) % 16384
}

struct SlotRange {
    first: usize,
    last: usize,
    at: Address,
}

/// Reads the answer to CLUSTER SLOTS. A node without a host is the one that was asked.
fn read_ranges(asked: &Address, answer: &Value) -> Option<Vec<SlotRange>> {
    let Value::Array(ranges) = answer else {
        return None;
    };
    let number = |value: &Value| match value {
        Value::Int(number) => usize::try_from(*number).ok().filter(|at| *at < HASH_SLOTS),
        _ => None,
    };
    let mut read = Vec::with_capacity(ranges.len());
    for range in ranges {
        let Value::Array(parts) = range else {
            return None;
        };
        let [first, last, Value::Array(master), ..] = parts.as_slice() else {
            return None;
        };
        let [host, Value::Int(port), ..] = master.as_slice() else {
            return None;
        };
        let host = text(host).filter(|host| !host.is_empty() && *host != "?");
        read.push(SlotRange {
            first: number(first)?,
            last: number(last)?,
            at: address(host.unwrap_or(&asked.host), u16::try_from(*port).ok()?)?,
        });
    }
    Some(read).filter(|ranges| !ranges.is_empty())
}

fn address(host: &str, port: u16) -> Option<Address> {
    (port > 0).then(|| Address {
        host: host.to_owned(),
        port,
    })
}

/// What a server has answered, if it is text.
pub(crate) fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        Value::VerbatimString { text, .. } => Some(text),
        _ => None,
    }
}

/// An answer that nobody expects, for people.
fn shown(answer: &Value) -> String {
    match answer {
        Value::ServerError(error) => said(error),
        Value::Nil => "that there is no such thing".into(),
        _ => "something unexpected".into(),
    }
}
