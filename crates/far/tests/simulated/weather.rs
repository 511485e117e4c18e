//! Bad weather: what happens to a cluster while it is used. All of it is drawn from a seed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::simulated::{Change, Seeded, Simulated, State, Weather};

/// Machines that are away at one time.
const AWAY_MAX: usize = 4;
/// Hash slots that move at one time.
const MOVING_MAX: usize = 6;
/// Fields of a key that are altered at once.
const ALTERED: usize = 4;

/// What will happen.
enum Later {
    ComeBack(usize, usize, State),
    Promote(usize),
    StepMove(usize, bool),
    EndMove(usize, bool),
    Room,
    ClusterUp,
}

/// What has been begun and is not over.
struct Sky<'n> {
    net: &'n Simulated,
    random: Seeded,
    /// Whether it may take pages away.
    takes_pages: bool,
    later: Vec<(Instant, Later)>,
}

pub fn usual() -> Weather {
    Weather {
        reset: 60,
        late: 250,
        try_again: 10,
        slow: 400,
    }
}

/// Makes weather until it is told to stop. Then all machines are there, and nothing moves. Without `takes_pages`
/// nothing happens that a client could not sit out: machines are silent for a while, connections break, hash slots
/// move.
pub fn blow(net: &Simulated, seed: u64, takes_pages: bool, stop: &AtomicBool) {
    let mut sky = Sky {
        net,
        random: Seeded(seed),
        takes_pages,
        later: Vec::new(),
    };
    net.world().weather = usual();
    while !stop.load(Ordering::Relaxed) {
        let pause = sky
            .random
            .between(Duration::from_millis(5), Duration::from_millis(25));
        std::thread::sleep(pause);
        sky.go_on(Instant::now());
        sky.begin();
    }
    net.world().weather = Weather::default();
    while let Some((at, _)) = sky.later.iter().max_by_key(|(at, _)| *at) {
        let at = *at;
        sky.go_on(at);
    }
}

impl Sky<'_> {
    fn after(&mut self, least_ms: u64, most_ms: u64, what: Later) {
        let (least, most) = (
            Duration::from_millis(least_ms),
            Duration::from_millis(most_ms),
        );
        let at = Instant::now() + self.random.between(least, most);
        self.later.push((at, what));
    }

    /// Does what is due.
    fn go_on(&mut self, now: Instant) {
        let is_due = |(at, _): &mut (Instant, Later)| *at <= now;
        let mut due: Vec<_> = self.later.extract_if(.., is_due).collect();
        due.sort_by_key(|(at, _)| *at);
        for (_, what) in due {
            self.carry_out(&what);
        }
    }

    fn carry_out(&mut self, what: &Later) {
        let mut world = self.net.world();
        match *what {
            Later::ComeBack(shard, machine, state) => {
                world.come_back(crate::simulated::At { shard, machine }, state);
                drop(world);
                if state == State::Loading {
                    self.after(30, 150, Later::ComeBack(shard, machine, State::Up));
                }
            }
            Later::Promote(shard) => world.promote(shard),
            Later::Room => world.full = None,
            Later::ClusterUp => world.is_down = false,
            Later::StepMove(slot, back) => {
                let more = world.move_key(slot, false);
                drop(world);
                match more {
                    true => self.after(5, 60, Later::StepMove(slot, back)),
                    false => self.after(50, 300, Later::EndMove(slot, back)),
                }
            }
            Later::EndMove(slot, back) => world.end_move(slot, back),
        }
    }

    fn begin(&mut self) {
        match self.random.below(40) {
            0..4 => self.lose_a_machine(),
            4..16 => self.move_a_slot(),
            16..18 if self.takes_pages => self.alter(),
            18 if self.takes_pages => self.delete(),
            19 => {
                let shards = self.net.world().shards.len();
                self.net.world().full = Some(self.random.below(shards));
                self.after(20, 80, Later::Room);
            }
            20 => {
                self.net.world().is_down = true;
                self.after(5, 40, Later::ClusterUp);
            }
            _ => {}
        }
    }

    /// A master goes: its process ends or its network is silent. Its replica takes its place, or it comes back.
    fn lose_a_machine(&mut self) {
        let mut world = self.net.world();
        let shard = self.random.below(world.shards.len());
        let is_up = |machine: &crate::simulated::Machine| machine.state == State::Up;
        let machines = world.shards.iter().flat_map(|shard| &shard.machines);
        let away = machines.filter(|machine| !is_up(machine)).count();
        let is_pending =
            |(_, later): &(Instant, Later)| matches!(later, Later::Promote(of) if *of == shard);
        if away >= AWAY_MAX
            || !world.shards[shard].machines.iter().all(is_up)
            || self.later.iter().any(is_pending)
        {
            return;
        }
        let master = world.master(shard);
        let fate = if self.takes_pages {
            self.random.below(20)
        } else {
            19
        };
        let machine = world.machine_mut(master);
        let ends = fate < 10;
        if ends {
            machine.state = State::Refuses;
            machine.generation += 1;
        } else {
            machine.state = State::Silent;
        }
        if fate == 0 {
            // It has lost all it had, and its replica follows it.
            for machine in &mut world.shards[shard].machines {
                machine.data.keys.clear();
            }
        }
        drop(world);
        let state = if ends { State::Loading } else { State::Up };
        if fate == 0 || fate > 16 {
            self.after(50, 500, Later::ComeBack(shard, master.machine, state));
        } else {
            self.after(100, 350, Later::Promote(shard));
            self.after(400, 900, Later::ComeBack(shard, master.machine, state));
        }
    }

    /// A hash slot that has keys goes to another shard, or back when it is half gone.
    fn move_a_slot(&mut self) {
        let mut world = self.net.world();
        let keys = world.page_keys();
        if keys.is_empty() || world.moving.len() >= MOVING_MAX {
            return;
        }
        let (_, key) = &keys[self.random.below(keys.len())];
        let slot = crate::simulated::hash_slot(key);
        let to = self.random.below(world.shards.len());
        if world.moving.contains_key(&slot) || world.owner[slot] == to {
            return;
        }
        world.begin_move(slot, to);
        drop(world);
        let back = self.random.once_in(4);
        self.after(20, 200, Later::StepMove(slot, back));
    }

    /// A key of a page, with its shard.
    fn key(&mut self) -> Option<(usize, Vec<u8>)> {
        let keys = self.net.world().page_keys();
        (!keys.is_empty()).then(|| keys[self.random.below(keys.len())].clone())
    }

    /// Fields of a key hold other bytes, or those of yesterday, or those of other slots.
    fn alter(&mut self) {
        let Some((shard, name)) = self.key() else {
            return;
        };
        let mut world = self.net.world();
        let master = world.master(shard);
        let Some(key) = world.machine(master).data.keys.get(&name) else {
            return;
        };
        let mut fields: Vec<_> = key.fields.clone().into_iter().collect();
        fields.sort();
        for _ in 0..ALTERED {
            let (field, bytes) = &fields[self.random.below(fields.len())];
            let other = match self.random.below(3) {
                0 => world.archive.yesterday(&name, field),
                1 => Some(fields[self.random.below(fields.len())].1.clone()),
                _ => {
                    let mut flipped = bytes.to_vec();
                    let at = self.random.below(flipped.len());
                    flipped[at] ^= 1;
                    Some(flipped.into())
                }
            };
            if let Some(other) = other.filter(|other| other != bytes) {
                world.change_both(
                    shard,
                    &Change::Set(name.clone(), vec![(field.clone(), other)]),
                );
                world.counts.altered += 1;
            }
        }
    }

    fn delete(&mut self) {
        if let Some((shard, name)) = self.key() {
            let mut world = self.net.world();
            world.change_both(shard, &Change::Unlink(name));
            world.counts.deleted += 1;
        }
    }
}
