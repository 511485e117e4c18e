//! One trouble at a time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use vswap_engine::{Storage, StorageError};
use vswap_far::FarStorage;

use crate::pages::{SPAN, check, near, open, options, write};
use crate::simulated::{At, Change, Simulated, State, hash_slot};

/// A cluster of so many masters, with pages on it.
fn cluster(shards: usize, copies: usize) -> (Arc<Simulated>, FarStorage) {
    let net = Simulated::new(shards, true, 7, near());
    let storage = open(&net, options(64 * SPAN, copies));
    (net, storage)
}

fn seeds(cluster: u64) -> Vec<u64> {
    (cluster * 100..cluster * 100 + 32).collect()
}

fn write_all(storage: &FarStorage, clusters: u64) {
    for cluster in 0..clusters {
        write(storage, cluster * SPAN, &seeds(cluster)).expect("written");
    }
}

/// The keys of a cluster of slots with their shards, that of the first copy first.
fn keys_of(net: &Simulated, cluster: u64) -> Vec<(usize, Vec<u8>)> {
    let part = format!(":{cluster:x}.");
    let mut keys = net.world().page_keys();
    keys.retain(|(_, key)| String::from_utf8_lossy(key).contains(&part));
    keys.sort_by_key(|(_, key)| key.len());
    keys
}

fn end_process(net: &Simulated, at: At) {
    let mut world = net.world();
    let machine = world.machine_mut(at);
    machine.state = State::Refuses;
    machine.generation += 1;
}

/// Ends all connections to a machine, and answers nobody who makes a new one.
fn fall_silent(net: &Simulated, at: At) {
    let mut world = net.world();
    let machine = world.machine_mut(at);
    machine.state = State::Silent;
    machine.generation += 1;
}

fn master(net: &Simulated, shard: usize) -> At {
    net.world().master(shard)
}

/// A hash slot of a page begins to move to the next shard. Returns the slot and where it goes.
fn begin_move(net: &Simulated, cluster: u64) -> (usize, usize) {
    let (shard, key) = keys_of(net, cluster).swap_remove(0);
    let mut world = net.world();
    let to = (shard + 1) % world.shards.len();
    let slot = hash_slot(&key);
    world.begin_move(slot, to);
    (slot, to)
}

#[test]
fn what_was_altered_or_is_older_is_an_error_and_nothing_else() {
    let (net, storage) = cluster(4, 1);
    write_all(&storage, 1);
    let old = keys_of(&net, 0).swap_remove(0);
    let yesterday = net.world().machine(master_at(old.0)).data.keys[&old.1].clone();
    write(&storage, 0, &[1, 2, 3, 4]).unwrap();
    let mut world = net.world();
    let mut today = world.machine(master_at(old.0)).data.keys[&old.1].clone();
    let of = |name: &Vec<u8>| u16::from_be_bytes([name[0], name[1]]);
    let newest: Vec<Vec<u8>> = today
        .fields
        .keys()
        .filter(|name| of(name) < 4)
        .cloned()
        .collect();
    assert_eq!(newest.len(), 4);
    for name in newest {
        let older = yesterday
            .fields
            .iter()
            .find(|(old, _)| of(old) == of(&name))
            .unwrap()
            .1
            .clone();
        match of(&name) {
            // What the slot held before.
            0 => today.fields.insert(name, older),
            // What another slot holds.
            1 => today.fields.insert(
                name,
                yesterday
                    .fields
                    .iter()
                    .find(|(old, _)| of(old) == 9)
                    .unwrap()
                    .1
                    .clone(),
            ),
            2 => today.fields.insert(name, vec![0; 50].into()),
            _ => today.fields.remove(&name),
        };
    }
    world.change_both(old.0, &Change::Put(old.1, today));
    drop(world);
    for slot in 0..3 {
        assert_eq!(
            check(&storage, slot, &[slot + 1]),
            Err(StorageError::Altered),
            "{slot}"
        );
    }
    assert_eq!(check(&storage, 3, &[4]), Err(StorageError::Lost));
    check(&storage, 4, &seeds(0)[4..]).unwrap();
    let figures = storage.figures();
    assert_eq!((figures.altered_pages, figures.lost_pages), (3, 1));
}

fn master_at(shard: usize) -> At {
    At { shard, machine: 0 }
}

#[test]
fn two_copies_lie_on_two_nodes_and_one_is_enough() {
    let (net, storage) = cluster(10, 2);
    write_all(&storage, 20);
    for cluster in 0..20 {
        let keys = keys_of(&net, cluster);
        assert_eq!(keys.len(), 2);
        assert_ne!(keys[0].0, keys[1].0);
    }
    end_process(&net, master_at(3));
    write_all(&storage, 20);
    for cluster in 0..20 {
        check(&storage, cluster * SPAN, &seeds(cluster)).unwrap();
    }
    assert_eq!(storage.figures().lost_pages, 0);
}

#[test]
fn a_slot_on_its_way_is_read_and_written_where_its_keys_are() {
    let (net, storage) = cluster(5, 1);
    write_all(&storage, 6);
    let begun = Instant::now();
    let moves: Vec<_> = (0..6).map(|cluster| begin_move(&net, cluster)).collect();
    // The keys of every other one are there already.
    for (slot, _) in moves.iter().step_by(2) {
        assert!(net.world().move_key(*slot, false));
    }
    for cluster in 0..6 {
        check(&storage, cluster * SPAN, &seeds(cluster)).unwrap();
        write(&storage, cluster * SPAN + 1, &[cluster]).unwrap();
        check(&storage, cluster * SPAN + 1, &[cluster]).unwrap();
    }
    assert!(begun.elapsed() < Duration::from_secs(10));
    let counts = net.world().counts;
    assert!(counts.ask > 0 && counts.asking_served > 0, "{counts:?}");
    for (slot, _) in moves {
        net.world().end_move(slot, false);
    }
    for cluster in 0..6 {
        check(&storage, cluster * SPAN + 1, &[cluster]).unwrap();
    }
    assert!(net.world().counts.moved > 0);
    assert!(net.world().all_leased());
}

#[test]
fn a_copy_is_waited_for_when_the_other_one_is_lost() {
    let (net, storage) = cluster(6, 2);
    write_all(&storage, 1);
    let [first, second] = keys_of(&net, 0).try_into().expect("two copies");
    net.world().change_both(first.0, &Change::Unlink(first.1));
    end_process(&net, master_at(second.0));
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| check(&storage, 0, &seeds(0)));
        std::thread::sleep(Duration::from_millis(2500));
        net.world().come_back(master_at(second.0), State::Up);
        assert_eq!(reading.join().expect("the right bytes"), Ok(()));
    });
}

#[test]
fn a_request_comes_home_when_whoever_was_to_serve_it_is_gone() {
    let (net, storage) = cluster(5, 1);
    write_all(&storage, 2);
    let (slot, to) = begin_move(&net, 1);
    net.world().move_key(slot, false);
    end_process(&net, master(&net, to));
    std::thread::scope(|scope| {
        let begun = Instant::now();
        let reading = scope.spawn(|| check(&storage, SPAN, &seeds(1)));
        std::thread::sleep(Duration::from_millis(300));
        net.world().end_move(slot, true);
        assert_eq!(reading.join().expect("the right bytes"), Ok(()));
        assert!(
            begun.elapsed() < Duration::from_secs(8),
            "{:?}",
            begun.elapsed()
        );
    });
}

#[test]
fn leases_are_renewed_where_servers_answer_while_others_are_silent() {
    std::thread::scope(|scope| {
        scope.spawn(|| leases_are_renewed(true));
        scope.spawn(|| leases_are_renewed(false));
    });
}

fn leases_are_renewed(is_cluster: bool) {
    // So far away that a request whose time is over does not get its answer by chance.
    let mut far = near();
    far.round_trip = Duration::from_millis(4);
    let net = Simulated::new(8, is_cluster, 7, far);
    let mut options = options(64 * SPAN, 1);
    options.lease = Duration::from_secs(8);
    options.patience.answer = Duration::from_secs(5);
    let storage = open(&net, options);
    write_all(&storage, 64);
    // The first ones by name: whoever waits for them has no time left for the others.
    let silent = [master(&net, 0), master(&net, 1)];
    for at in silent {
        fall_silent(&net, at);
    }
    let is_answered = |cluster: &u64| keys_of(&net, *cluster).iter().all(|(shard, _)| *shard > 1);
    let answered: Vec<u64> = (0..64).filter(is_answered).collect();
    assert!(answered.len() > 30 && answered.len() < 64);
    std::thread::sleep(Duration::from_secs(13));
    for cluster in answered {
        check(&storage, cluster * SPAN, &seeds(cluster)).unwrap();
    }
    for at in silent {
        net.world().come_back(at, State::Up);
    }
}

#[test]
fn who_has_what_is_asked_of_those_who_answer() {
    let (net, storage) = cluster(8, 1);
    write_all(&storage, 64);
    (0..3).for_each(|shard| fall_silent(&net, master_at(shard)));
    let is_answered = |cluster: &u64| keys_of(&net, *cluster)[0].0 >= 4;
    let moving: Vec<u64> = (0..64).filter(is_answered).take(4).collect();
    let mut took = Vec::new();
    for cluster in moving {
        let (slot, key) = keys_of(&net, cluster).swap_remove(0);
        let from = slot;
        let slot = hash_slot(&key);
        net.world()
            .begin_move(slot, if from == 7 { 4 } else { from + 1 });
        net.world().end_move(slot, false);
        let begun = Instant::now();
        check(&storage, cluster * SPAN, &seeds(cluster)).unwrap();
        took.push(begun.elapsed());
        std::thread::sleep(Duration::from_millis(100));
    }
    // The first one finds out that nobody answers there.
    let slow = took[1..].iter().max().expect("some");
    assert!(*slow < Duration::from_millis(1500), "{took:?}");
    (0..3).for_each(|shard| net.world().come_back(master_at(shard), State::Up));
}

#[test]
fn a_write_that_fails_in_part_leaves_nothing() {
    let (net, storage) = cluster(5, 1);
    write_all(&storage, 2);
    let [first, second] = [0, 1].map(|cluster| keys_of(&net, cluster)[0].0);
    assert_ne!(first, second);
    net.world().full = Some(second);
    // Over the border of both.
    let all: Vec<u64> = (0..32).collect();
    assert_eq!(write(&storage, SPAN - 16, &all), Err(StorageError::Full));
    net.world().full = None;
    for slot in [SPAN - 16, SPAN - 1, SPAN, SPAN + 15] {
        assert_eq!(
            check(&storage, slot, &[0]),
            Err(StorageError::Lost),
            "{slot}"
        );
    }
    check(&storage, SPAN + 16, &seeds(1)[16..]).unwrap();
    assert_eq!(storage.figures().pages, 32 + 16);
}

#[test]
fn servers_that_know_nothing_of_one_another_are_a_store_too() {
    let net = Simulated::new(5, false, 7, near());
    let storage = open(&net, options(64 * SPAN, 2));
    assert_eq!(storage.probe().kind, "stores");
    write_all(&storage, 30);
    end_process(&net, master_at(2));
    for cluster in 0..30 {
        assert!(net.world().survives(cluster, 3));
        check(&storage, cluster * SPAN, &seeds(cluster)).unwrap();
    }
    net.world().come_back(master_at(2), State::Up);
    storage.discard(0..SPAN).unwrap();
    assert_eq!(check(&storage, 0, &[0]), Err(StorageError::Lost));
}
