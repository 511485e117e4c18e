//! The servers of a simulated store, which of them has which hash slot, and what becomes of them.
//!
//! A shard is a master and its replica, which follows a little behind. What the master had not passed on when its
//! replica is promoted is lost.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use vswap_far::Address;

use crate::simulated::archive::{Archive, family};
use crate::simulated::data::{Change, Data, Key};
use crate::simulated::seeded::Seeded;

/// Hash slots of a cluster.
pub const HASH_SLOTS: usize = 16384;
/// The port of all servers.
const PORT: u16 = 6379;
/// Replicas follow by up to this much.
const REPLICA_LAG: Duration = Duration::from_millis(100);
/// Servers learn of changes of the cluster within this time.
const GOSSIP: Duration = Duration::from_millis(200);
/// How often leases are looked at.
const SWEEP: Duration = Duration::from_millis(50);

/// One server: the number of its shard, and which of the two machines it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct At {
    pub shard: usize,
    pub machine: usize,
}

/// How a server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Up,
    /// It reads its data, and serves nothing but questions about itself.
    Loading,
    /// Its machine drops all packets. What is sent is carried out when it is back.
    Silent,
    /// The process has ended.
    Refuses,
}

/// A server.
pub struct Machine {
    pub address: Address,
    pub state: State,
    /// Changes when the process ends: its connections are of no use then.
    pub generation: u64,
    pub data: Data,
    /// How far away it is: half a round trip.
    pub distance: Duration,
    /// When it has done all that it was given.
    pub free_at: Instant,
    /// How late it learns which server has what.
    gossip: Duration,
    /// What it has not yet heard from its master.
    pending: VecDeque<(Instant, Change)>,
}

/// A master and its replica.
pub struct Shard {
    pub machines: [Machine; 2],
    pub master: usize,
}

/// Ranges of hash slots with the server that has them.
pub type View = Vec<(usize, usize, At)>;

/// What happened, so that a test knows that it was no fair weather.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub connections: u64,
    pub requests: u64,
    /// From the client, with what stands around them.
    pub bytes_in: u64,
    /// To it.
    pub bytes_out: u64,
    pub commands: u64,
    pub moved: u64,
    pub ask: u64,
    pub asking_served: u64,
    pub try_again: u64,
    pub cluster_down: u64,
    pub loading: u64,
    pub full: u64,
    pub resets: u64,
    pub unanswered: u64,
    pub late: u64,
    pub promoted: u64,
    pub moves: u64,
    pub moves_given_up: u64,
    pub altered: u64,
    pub deleted: u64,
    /// Pages whose key had no lease any more, though nobody had deleted them.
    pub expired: u64,
}

/// How often requests meet with something: once in so many. 0 is never.
#[derive(Debug, Clone, Copy, Default)]
pub struct Weather {
    /// The connection breaks before, during or after the request, or in the midst of its answers.
    pub reset: usize,
    /// The request is carried out much later, and nobody hears of it.
    pub late: usize,
    /// A slot that moves says TRYAGAIN.
    pub try_again: usize,
    /// An answer takes long.
    pub slow: usize,
}

/// Holds up a request that writes pages, so that a test can do something before it is carried out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Gate {
    #[default]
    Open,
    /// The next one to this server will wait.
    Closed(At),
    /// One waits, until this is set to open. Others pass.
    Held,
    /// The one that has waited was carried out.
    Passed,
}

/// Commands that a server has and has not carried out.
pub struct Late {
    /// None: when the machine is back.
    pub due: Option<Instant>,
    pub at: At,
    pub generation: u64,
    pub commands: Vec<Vec<Vec<u8>>>,
}

/// All of it.
pub struct World {
    pub shards: Vec<Shard>,
    pub is_cluster: bool,
    /// Which shard has a hash slot.
    pub owner: Vec<usize>,
    /// Where a hash slot goes.
    pub moving: HashMap<usize, usize>,
    pub weather: Weather,
    pub gate: Gate,
    /// Whether the cluster has not enough masters.
    pub is_down: bool,
    /// Whether this shard has no room.
    pub full: Option<usize>,
    pub counts: Counts,
    /// Everything is taken and forgotten at once.
    pub keeps_nothing: bool,
    pub random: Seeded,
    pub archive: Archive,
    pub late: Vec<Late>,
    at: HashMap<Address, At>,
    views: VecDeque<(Instant, Arc<View>)>,
    swept: Instant,
}

impl World {
    pub fn new(shards: usize, is_cluster: bool, mut random: Seeded, round_trip: Duration) -> World {
        let now = Instant::now();
        let mut at = HashMap::new();
        let mut machine = |shard: usize, machine: usize| {
            let address = Address {
                host: format!("10.0.{shard}.{machine}"),
                port: PORT,
            };
            at.insert(address.clone(), At { shard, machine });
            Machine {
                address,
                state: State::Up,
                generation: 0,
                data: Data::default(),
                distance: round_trip / 2 + random.between(Duration::ZERO, round_trip / 8),
                free_at: now,
                gossip: random.between(Duration::ZERO, GOSSIP),
                pending: VecDeque::new(),
            }
        };
        let shard = |number| Shard {
            machines: [machine(number, 0), machine(number, 1)],
            master: 0,
        };
        let mut world = World {
            shards: (0..shards).map(shard).collect(),
            is_cluster,
            owner: (0..HASH_SLOTS)
                .map(|slot| slot * shards / HASH_SLOTS)
                .collect(),
            moving: HashMap::new(),
            weather: Weather::default(),
            gate: Gate::default(),
            is_down: false,
            full: None,
            counts: Counts::default(),
            keeps_nothing: false,
            random,
            archive: Archive::default(),
            late: Vec::new(),
            at,
            views: VecDeque::new(),
            swept: now,
        };
        world.note_view();
        world
    }

    pub fn find(&self, address: &Address) -> Option<At> {
        self.at.get(address).copied()
    }

    pub fn machine(&self, at: At) -> &Machine {
        &self.shards[at.shard].machines[at.machine]
    }

    pub fn machine_mut(&mut self, at: At) -> &mut Machine {
        &mut self.shards[at.shard].machines[at.machine]
    }

    pub fn master(&self, shard: usize) -> At {
        let machine = self.shards[shard].master;
        At { shard, machine }
    }

    pub fn is_master(&self, at: At) -> bool {
        self.master(at.shard) == at
    }

    /// Which server has what, from now on.
    fn note_view(&mut self) {
        let mut view = View::new();
        for (slot, shard) in self.owner.iter().enumerate() {
            let at = self.master(*shard);
            match view.last_mut() {
                Some((_, last, of)) if *of == at => *last = slot,
                _ => view.push((slot, slot, at)),
            }
        }
        let now = Instant::now();
        self.views.push_back((now, Arc::new(view)));
        while self
            .views
            .get(1)
            .is_some_and(|(since, _)| now - *since > GOSSIP)
        {
            self.views.pop_front();
        }
    }

    /// Which server has what, as this one has heard.
    pub fn view(&self, at: At) -> Arc<View> {
        let now = Instant::now();
        let gossip = self.machine(at).gossip;
        let heard = |(since, _): &&(Instant, Arc<View>)| now - *since >= gossip;
        let newest = self.views.iter().rev().find(heard);
        let (_, view) = newest
            .or(self.views.front())
            .expect("there always is a view");
        Arc::clone(view)
    }

    /// Changes what a master holds, and in a while its replica. Returns what the change says.
    pub fn change(&mut self, at: At, change: Change) -> usize {
        if self.keeps_nothing {
            return 1;
        }
        let now = Instant::now();
        let lag = self.random.between(Duration::ZERO, REPLICA_LAG);
        let shard = &mut self.shards[at.shard];
        let done = shard.machines[at.machine].data.apply(&change);
        let replica = &mut shard.machines[1 - at.machine];
        replica.hear(now);
        // In order, so never sooner than what came before.
        let due = replica.pending.back().map_or(now, |(due, _)| *due);
        replica.pending.push_back((due.max(now + lag), change));
        done
    }

    /// The same on both at once: what the test does must not come back.
    pub fn change_both(&mut self, shard: usize, change: &Change) {
        for machine in &mut self.shards[shard].machines {
            while let Some((_, earlier)) = machine.pending.pop_front() {
                machine.data.apply(&earlier);
            }
            machine.data.apply(change);
        }
    }

    /// The replica of a shard is its master from now on. What it has not heard is lost.
    pub fn promote(&mut self, shard: usize) {
        let shard = &mut self.shards[shard];
        let replica = &mut shard.machines[1 - shard.master];
        replica.hear(Instant::now());
        replica.pending.clear();
        shard.master = 1 - shard.master;
        self.counts.promoted += 1;
        self.note_view();
    }

    /// A machine is back. One that is no master any more takes over what the master has.
    pub fn come_back(&mut self, at: At, state: State) {
        let is_master = self.is_master(at);
        let master = self.machine(self.master(at.shard)).data.clone();
        let machine = self.machine_mut(at);
        machine.state = state;
        if !is_master {
            machine.data = master;
            machine.pending.clear();
        }
    }

    /// A hash slot begins to move.
    pub fn begin_move(&mut self, slot: usize, to: usize) {
        self.moving.insert(slot, to);
    }

    /// Moves one key of the slot to where the slot goes, or back if it is to stay. False if there is none left.
    pub fn move_key(&mut self, slot: usize, back: bool) -> bool {
        let Some(to) = self.moving.get(&slot).copied() else {
            return false;
        };
        let (from, to) = match back {
            false => (self.owner[slot], to),
            true => (to, self.owner[slot]),
        };
        let is_of_slot = |key: &&Vec<u8>| hash_slot(key) == slot;
        let from = self.master(from);
        let name = self
            .machine(from)
            .data
            .keys
            .keys()
            .find(is_of_slot)
            .cloned();
        let Some(name) = name else { return false };
        let key = self.machine(from).data.keys[&name].clone();
        self.change(self.master(to), Change::Put(name.clone(), key));
        self.change(from, Change::Unlink(name));
        true
    }

    /// The hash slot is where it was going, or stays where it is. All its keys are there.
    pub fn end_move(&mut self, slot: usize, back: bool) {
        while self.move_key(slot, back) {}
        if let Some(to) = self.moving.remove(&slot) {
            if back {
                self.counts.moves_given_up += 1;
            } else {
                self.owner[slot] = to;
                self.counts.moves += 1;
                self.note_view();
            }
        }
    }

    /// Keys of pages that masters hold, with their shard.
    pub fn page_keys(&self) -> Vec<(usize, Vec<u8>)> {
        let of_shard = |(number, shard): (usize, &Shard)| {
            let keys = shard.machines[shard.master].data.keys.keys();
            let of_pages = keys.filter(|key| family(key).is_some());
            of_pages
                .map(|key| (number, key.clone()))
                .collect::<Vec<_>>()
        };
        let mut keys: Vec<_> = self.shards.iter().enumerate().flat_map(of_shard).collect();
        keys.sort();
        keys
    }

    /// How many keys have this slot of a cluster of slots as it was written last, where a client finds them.
    pub fn copies_of(&self, cluster: u64, at: u16) -> usize {
        let end = format!(":{cluster:x}");
        let of_shard = |(number, shard): (usize, &Shard)| {
            let has = |(name, key): &(&Vec<u8>, &Key)| {
                family(name).is_some_and(|name| name.ends_with(end.as_bytes()))
                    && self.archive.has_current(name, key, at)
                    && self.is_found(number, name)
            };
            let keys = &shard.machines[shard.master].data.keys;
            keys.iter().filter(has).count()
        };
        self.shards.iter().enumerate().map(of_shard).sum()
    }

    /// Whether a client that looks for the key comes to this shard. One that was promoted may have keys again that had
    /// moved away.
    fn is_found(&self, shard: usize, key: &[u8]) -> bool {
        if !self.is_cluster {
            return true;
        }
        let slot = hash_slot(key);
        let owner = self.owner[slot];
        let is_there = || !self.machine(self.master(owner)).data.keys.contains_key(key);
        shard == owner || (self.moving.get(&slot) == Some(&shard) && is_there())
    }

    /// Whether at least one of them has.
    pub fn survives(&self, cluster: u64, at: u16) -> bool {
        self.copies_of(cluster, at) > 0
    }

    /// Whether no key on a master lives for ever.
    pub fn all_leased(&self) -> bool {
        let mut masters = self.shards.iter();
        masters.all(|shard| {
            let mut keys = shard.machines[shard.master].data.keys.values();
            keys.all(|key| key.expires.is_some())
        })
    }

    /// Leases end.
    pub fn sweep(&mut self, now: Instant) {
        if now - self.swept < SWEEP {
            return;
        }
        self.swept = now;
        for shard in &mut self.shards {
            let master = shard.master;
            for (number, machine) in shard.machines.iter_mut().enumerate() {
                for (name, key) in machine.data.sweep(now) {
                    let is_current = |(field, bytes): (&Vec<u8>, &Arc<[u8]>)| {
                        self.archive.is_current(&name, field, bytes)
                    };
                    if number == master && key.fields.iter().any(is_current) {
                        self.counts.expired += 1;
                    }
                }
            }
        }
    }
}

impl Machine {
    /// A replica hears what has come to it.
    fn hear(&mut self, now: Instant) {
        while let Some((due, change)) = self.pending.pop_front() {
            if due > now {
                self.pending.push_front((due, change));
                break;
            }
            self.data.apply(&change);
        }
    }
}

/// The hash slot of a key: of what is in its first braces, if that is something.
pub fn hash_slot(key: &[u8]) -> usize {
    let open = key.iter().position(|byte| *byte == b'{');
    let tag = open.and_then(|open| {
        let rest = &key[open + 1..];
        let close = rest.iter().position(|byte| *byte == b'}')?;
        (close > 0).then(|| &rest[..close])
    });
    usize::from(crc16::State::<crc16::XMODEM>::calculate(tag.unwrap_or(key))) % HASH_SLOTS
}
