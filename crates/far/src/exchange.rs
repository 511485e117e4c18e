//! Requests to many nodes at once, until all of them are served or the time is over.
//!
//! A round sends everything first, one lane for each node, and then receives. What fails for a reason that passes (a
//! connection that breaks, a node that is full of somebody else's failover) goes into the next round, after a pause
//! that grows. Nodes in trouble come when the others have been served, each with its share of the time: one that is
//! silent holds up nobody else. All that is sent may be sent twice.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Cmd, ErrorKind, RedisError, ServerError, ServerErrorKind, Value, cmd};

use crate::event::Teller;
use crate::node::{Deadline, Lane, Node};
use crate::topology::{Place, Topology};
use crate::wire::{WireError, said};

/// The first pause before a request is tried again.
pub(crate) const PAUSE: Duration = Duration::from_millis(1);
/// The longest.
pub(crate) const PAUSE_MAX: Duration = Duration::from_millis(500);
/// Rounds that are nobody's business: a connection that was idle may have been closed, and hash slots may have moved.
pub(crate) const QUIET_ROUNDS: u32 = 2;
/// And so are these, if they do not take longer.
pub(crate) const QUIET: Duration = Duration::from_millis(100);

/// Commands for one key.
#[derive(Debug)]
pub(crate) struct Request {
    pub place: Place,
    pub commands: Vec<Cmd>,
    /// Whether all or none of them are to happen.
    pub atomic: bool,
}

/// Why a request was not served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Not within the time.
    NoAnswer,
    /// The store has no room.
    Full,
    /// The key holds something that was never put there.
    WrongType,
}

/// The answer to each command of a request.
pub(crate) type Served = Result<Vec<Value>, Failure>;

/// Sends requests.
pub(crate) struct Exchange {
    pub topology: Topology,
    pub teller: Teller,
    /// How long connecting or one answer may take.
    pub patience: Duration,
}

/// Where the next round sends a request.
#[derive(Clone)]
enum Way {
    /// To whoever has the key.
    Home,
    /// To the node that has got the key's hash slot, which the topology may not know yet.
    There(Arc<Node>),
    /// To the node that is getting the key's hash slot.
    Asking(Arc<Node>),
}

/// A node, and the numbers of the requests that go there.
type Group = (Arc<Node>, Vec<usize>);
/// Groups by the names of their nodes.
type Groups = BTreeMap<String, Group>;

struct Open {
    way: Way,
    served: Option<Served>,
}

impl Open {
    fn new(served: Option<Served>) -> Open {
        Open {
            way: Way::Home,
            served,
        }
    }
}

/// Requests that go to one node in one round.
struct Batch<'n> {
    node: &'n Arc<Node>,
    /// Numbers of the requests.
    of: Vec<usize>,
    lane: Option<Lane<'n>>,
    begun: Instant,
}

/// What one answer means for its request.
enum Verdict {
    Done(Served),
    Again {
        reason: String,
        way: Way,
        stale: bool,
    },
}

impl Exchange {
    /// Has all requests served, or as many as can be until the deadline. Whoever is not served then is told. Blocks.
    pub(crate) fn run(&self, requests: &[Request], deadline: Deadline) -> Vec<Served> {
        let open = requests.iter().map(|_| Open::new(None)).collect();
        self.rounds(requests, open, deadline, true)
    }

    /// The same for requests that have another way, so that failing is no news. A node that is in trouble is tried once
    /// in a while, and its requests fail at once in between. Blocks for `time` at most.
    pub(crate) fn run_briefly(&self, requests: &[Request], time: Duration) -> Vec<Served> {
        let mut tried: BTreeMap<String, bool> = BTreeMap::new();
        let mut is_tried = |request: &Request| {
            let Some(node) = self.topology.node_of(&request.place) else {
                return true;
            };
            let known = tried.entry(node.name.clone());
            *known.or_insert_with(|| node.may_try())
        };
        let open = |request| match is_tried(request) {
            true => Open::new(None),
            false => Open::new(Some(Err(Failure::NoAnswer))),
        };
        let open = requests.iter().map(open).collect();
        self.rounds(requests, open, Deadline::after(time), false)
    }

    fn rounds(
        &self,
        requests: &[Request],
        mut open: Vec<Open>,
        deadline: Deadline,
        is_last: bool,
    ) -> Vec<Served> {
        let begun = Instant::now();
        let mut pause = PAUSE;
        for round in 0.. {
            let troubles = self.round(requests, &mut open, deadline);
            if troubles.is_empty() && open.iter().all(|one| one.served.is_some()) {
                break;
            }
            for (node, reason) in &troubles {
                if round >= QUIET_ROUNDS || begun.elapsed() >= QUIET {
                    node.note_trouble(reason, &self.teller);
                }
            }
            if deadline.is_over() {
                if is_last {
                    self.give_up(requests, &open);
                }
                break;
            }
            std::thread::sleep(pause.min(deadline.left()));
            pause = (pause * 2).min(PAUSE_MAX);
            // Whoever could not tell it is the one that the next round meets anyway.
            let _ = self.topology.refresh(deadline);
        }
        open.into_iter()
            .map(|one| one.served.unwrap_or(Err(Failure::NoAnswer)))
            .collect()
    }

    /// Tells which nodes have not served requests whose time is over. It may have ended between two rounds. A node that
    /// is in no trouble had none of that time.
    fn give_up(&self, requests: &[Request], open: &[Open]) {
        let left = requests
            .iter()
            .zip(open)
            .filter(|(_, one)| one.served.is_none());
        for (request, one) in left {
            if let Some(node) = self.node_for(request, &one.way) {
                node.note_given_up(&self.teller);
            }
        }
    }

    /// Where a request goes. None if nobody serves its hash slot.
    fn node_for(&self, request: &Request, way: &Way) -> Option<Arc<Node>> {
        match way {
            Way::There(node) | Way::Asking(node) => Some(Arc::clone(node)),
            Way::Home => self.topology.node_of(&request.place),
        }
    }

    /// Sends each open request once. Returns which nodes could not serve one, and why.
    fn round(
        &self,
        requests: &[Request],
        open: &mut [Open],
        deadline: Deadline,
    ) -> Vec<(Arc<Node>, String)> {
        let mut troubles = Vec::new();
        let (groups, homeless) = self.grouped(requests, open);
        if homeless && let Some(node) = self.topology.nodes().into_iter().next() {
            troubles.push((node, "no node serves some hash slots".into()));
        }
        let is_troubled = |group: &&Group| group.0.is_troubled();
        let (troubled, well): (Vec<&Group>, Vec<&Group>) = groups.values().partition(is_troubled);
        troubles.extend(self.pass(&well, requests, open, deadline));
        for (index, group) in troubled.iter().enumerate() {
            let share = deadline.share(troubled.len() - index);
            troubles.extend(self.pass(&[group], requests, open, share));
        }
        troubles
    }

    /// Sends to these nodes, then receives.
    fn pass(
        &self,
        groups: &[&Group],
        requests: &[Request],
        open: &mut [Open],
        deadline: Deadline,
    ) -> Vec<(Arc<Node>, String)> {
        let mut troubles = Vec::new();
        let mut batches = Vec::with_capacity(groups.len());
        let mut failed = |node: &Arc<Node>, of: &[usize], open: &mut [Open], error: WireError| {
            // Where they were sent there may be nobody any more. At home they know.
            of.iter().for_each(|index| open[*index].way = Way::Home);
            troubles.push((Arc::clone(node), error.to_string()));
        };
        // In the order of the nodes' names: threads that hold some lanes and wait for others do not wait in a circle.
        for (node, of) in groups {
            // It is not to blame for what others took.
            if deadline.is_over() {
                break;
            }
            match self.send(node, of, requests, open, deadline) {
                Ok(batch) => batches.push(batch),
                Err(error) => failed(node, of, open, error),
            }
        }
        let mut refused = Vec::new();
        for mut batch in batches {
            match self.receive(&mut batch, requests, open) {
                Ok(None) => batch.node.note_answer(&self.teller),
                Ok(Some(reason)) => refused.push((Arc::clone(batch.node), reason)),
                Err(error) => failed(batch.node, &batch.of, open, error),
            }
        }
        troubles.append(&mut refused);
        troubles
    }

    /// Open requests by node, and whether there are some for which there is none before the topology has changed.
    fn grouped(&self, requests: &[Request], open: &[Open]) -> (Groups, bool) {
        let mut groups = Groups::new();
        let mut homeless = false;
        for (index, (request, one)) in requests.iter().zip(open).enumerate() {
            if one.served.is_some() {
                continue;
            }
            let Some(node) = self.node_for(request, &one.way) else {
                homeless = true;
                continue;
            };
            let group = groups
                .entry(node.name.clone())
                .or_insert_with(|| (node, Vec::new()));
            group.1.push(index);
        }
        (groups, homeless)
    }

    /// Has one node carry out commands, whatever keys it has. Blocks.
    ///
    /// # Errors
    /// [`WireError`].
    pub(crate) fn ask(
        &self,
        node: &Node,
        commands: &[Cmd],
        deadline: Deadline,
    ) -> Result<Vec<Value>, WireError> {
        let network = self.topology.network.as_ref();
        let mut lane = node.lane(network, self.patience, deadline)?;
        let commands: Vec<&Cmd> = commands.iter().collect();
        lane.with(|wire| {
            wire.send(&commands)?;
            commands.iter().map(|_| wire.receive()).collect()
        })
    }

    fn send<'n>(
        &self,
        node: &'n Arc<Node>,
        of: &[usize],
        requests: &[Request],
        open: &[Open],
        deadline: Deadline,
    ) -> Result<Batch<'n>, WireError> {
        let (multi, exec, asking) = (cmd("MULTI"), cmd("EXEC"), cmd("ASKING"));
        let mut commands: Vec<&Cmd> = Vec::new();
        for &index in of {
            let request = &requests[index];
            match open[index].way {
                Way::Asking(_) => {
                    commands.extend(request.commands.iter().flat_map(|one| [&asking, one]));
                }
                Way::Home | Way::There(_) if request.atomic => {
                    commands.push(&multi);
                    commands.extend(&request.commands);
                    commands.push(&exec);
                }
                Way::Home | Way::There(_) => commands.extend(&request.commands),
            }
        }
        let network = self.topology.network.as_ref();
        let mut lane = node.lane(network, self.patience, deadline)?;
        let begun = Instant::now();
        lane.with(|wire| wire.send(&commands))?;
        Ok(Batch {
            node,
            of: of.to_vec(),
            lane: Some(lane),
            begun,
        })
    }

    /// Returns why a request of the batch has to be sent again, if one has.
    fn receive(
        &self,
        batch: &mut Batch<'_>,
        requests: &[Request],
        open: &mut [Open],
    ) -> Result<Option<String>, WireError> {
        let mut trouble = None;
        let Some(mut lane) = batch.lane.take() else {
            return Ok(None);
        };
        for &index in &batch.of {
            let request = &requests[index];
            let one = &mut open[index];
            let answers = match one.way {
                Way::Asking(_) => 2 * request.commands.len(),
                Way::Home | Way::There(_) if request.atomic => request.commands.len() + 2,
                Way::Home | Way::There(_) => request.commands.len(),
            };
            let answers = lane.with(|wire| {
                (0..answers)
                    .map(|_| wire.receive())
                    .collect::<Result<Vec<_>, _>>()
            })?;
            match self.judge(answers, request, &one.way) {
                Verdict::Done(served) => one.served = Some(served),
                Verdict::Again { reason, way, stale } => {
                    one.way = way;
                    if !stale {
                        trouble = Some(reason);
                    }
                }
            }
        }
        batch.node.counts.latency.note(batch.begun.elapsed());
        Ok(trouble)
    }

    fn judge(&self, answers: Vec<Value>, request: &Request, way: &Way) -> Verdict {
        let error = answers.iter().find_map(|answer| match answer {
            Value::ServerError(error) => Some(error),
            Value::Array(inner) => inner.iter().find_map(|inner| match inner {
                Value::ServerError(error) => Some(error),
                _ => None,
            }),
            _ => None,
        });
        let Some(error) = error else {
            let answers = match way {
                Way::Asking(_) => answers.into_iter().skip(1).step_by(2).collect(),
                Way::Home | Way::There(_) if request.atomic => {
                    match answers.into_iter().next_back() {
                        Some(Value::Array(answers)) => answers,
                        _ => Vec::new(),
                    }
                }
                Way::Home | Way::There(_) => answers,
            };
            return Verdict::Done(Ok(answers));
        };
        match error.code() {
            "OOM" => return Verdict::Done(Err(Failure::Full)),
            "WRONGTYPE" => return Verdict::Done(Err(Failure::WrongType)),
            _ => {}
        }
        let way = match error.kind() {
            Some(ServerErrorKind::Ask) => self.redirected(error).map(Way::Asking),
            Some(ServerErrorKind::Moved) => self.redirected(error).map(Way::There),
            _ => None,
        };
        Verdict::Again {
            reason: said(error),
            stale: matches!(
                error.kind(),
                Some(ServerErrorKind::Moved | ServerErrorKind::Ask)
            ),
            way: way.unwrap_or(Way::Home),
        }
    }

    fn redirected(&self, error: &ServerError) -> Option<Arc<Node>> {
        let error = RedisError::from(error.clone());
        debug_assert!(matches!(error.kind(), ErrorKind::Server(_)));
        let (address, _) = error.redirect_node()?;
        Some(self.topology.node_at(&address.parse().ok()?))
    }
}
