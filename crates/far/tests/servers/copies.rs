//! Two copies on stores of their own: one of them may go.

use std::time::{Duration, Instant};

use vswap_engine::{Storage, StorageError};
use vswap_far::{FarOptions, FarStorage};

use crate::support::{Server, check, open, options, write};

const SLOTS: u64 = 512 * 12;

#[test]
fn every_page_is_there_when_one_of_three_stores_has_gone() {
    let servers: Option<Vec<Server>> = (0..3).map(|_| Server::start(&[])).collect();
    let Some(servers) = servers else { return };
    let at: Vec<String> = servers.iter().map(Server::at).collect();
    let url = format!("valkey://{}", at.join(","));
    let mut options = options(SLOTS);
    options.copies = 2;
    options.patience.bound = Duration::from_secs(2);
    let storage = open(&url, options);
    for slot in (0..SLOTS).step_by(64) {
        write(&storage, slot, &(slot..slot + 64).collect::<Vec<_>>()).unwrap();
    }
    let keys: Vec<usize> = servers.iter().map(|server| server.keys().len()).collect();
    assert_eq!(keys.iter().sum::<usize>(), 24);
    assert!(keys.iter().all(|keys| (2..=12).contains(keys)), "{keys:?}");
    servers[0].signal("KILL");
    for slot in (0..SLOTS).step_by(512) {
        check(&storage, slot, &(slot..slot + 64).collect::<Vec<_>>()).unwrap();
        write(&storage, slot, &[slot + 7]).unwrap();
        check(&storage, slot, &[slot + 7, slot + 1]).unwrap();
    }
    let figures = storage.figures();
    assert_eq!((figures.lost_pages, figures.altered_pages), (0, 0));
    assert!(figures.single_copies > 0);
}

#[test]
fn a_copy_that_was_lost_is_written_again_and_two_lost_ones_are_lost() {
    let servers: Option<Vec<Server>> = (0..2).map(|_| Server::start(&[])).collect();
    let Some(servers) = servers else { return };
    let url = format!("valkey://{},{}", servers[0].at(), servers[1].at());
    let mut options = options(512);
    options.copies = 2;
    let storage = open(&url, options);
    let seeds: Vec<u64> = (0..64).collect();
    write(&storage, 0, &seeds).unwrap();
    for server in &servers {
        let flushed = redis::cmd("FLUSHALL").query::<()>(&mut server.client());
        flushed.unwrap();
        check(&storage, 0, &seeds).unwrap();
        // The copy that was read first may be the one that was left; then there is nothing to repair.
        std::thread::sleep(Duration::from_millis(600));
        check(&storage, 0, &seeds).unwrap();
        let repaired = storage.figures().repaired_pages;
        if repaired == 0 {
            rewrite(&storage, &seeds);
        }
    }
    assert_eq!(storage.figures().repaired_pages, 64);
    for server in &servers {
        redis::cmd("FLUSHALL")
            .query::<()>(&mut server.client())
            .unwrap();
    }
    assert_eq!(check(&storage, 0, &[0]), Err(StorageError::Lost));
}

/// Writes everything anew, so that both copies are there.
fn rewrite(storage: &FarStorage, seeds: &[u64]) {
    storage.discard(1..2).unwrap();
    write(storage, 0, seeds).unwrap();
}

/// Waits until so many pages have been written again.
fn until_repaired(storage: &FarStorage, pages: u64) {
    let begun = Instant::now();
    while storage.figures().repaired_pages < pages {
        let figures = storage.figures();
        assert!(begun.elapsed() < Duration::from_secs(60), "{figures:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Two stores with two copies of pages of the seeds that their slots have.
fn two_stores(slots: u64) -> Option<([Server; 2], FarStorage)> {
    two_stores_with(slots, |_| {})
}

fn two_stores_with(
    slots: u64,
    set: impl FnOnce(&mut FarOptions),
) -> Option<([Server; 2], FarStorage)> {
    let servers = [Server::start(&[])?, Server::start(&[])?];
    let url = format!("valkey://{},{}", servers[0].at(), servers[1].at());
    let mut options = options(slots);
    options.copies = 2;
    options.patience.bound = Duration::from_secs(2);
    set(&mut options);
    let storage = open(&url, options);
    for slot in (0..slots).step_by(64) {
        write(&storage, slot, &(slot..slot + 64).collect::<Vec<_>>()).unwrap();
    }
    Some((servers, storage))
}

fn empty(server: &Server) {
    let flushed = redis::cmd("FLUSHALL").query::<()>(&mut server.client());
    flushed.unwrap();
}

/// One page is read that is missing. All others come back to the store by themselves, also those of a key that was
/// written to since.
#[test]
fn a_store_that_has_lost_everything_gets_all_of_it_again() {
    let Some((servers, storage)) = two_stores(SLOTS) else {
        return;
    };
    empty(&servers[0]);
    for slot in (0..SLOTS).step_by(1024) {
        write(&storage, slot, &[slot]).unwrap();
    }
    let keys = |server: &Server| server.keys().len();
    let mut slots = (1..SLOTS).step_by(512);
    while storage.figures().repaired_pages == 0 {
        let slot = slots.next().expect("a key whose first copy was there");
        check(&storage, slot, &[slot]).unwrap();
        std::thread::sleep(Duration::from_millis(500));
    }
    until_repaired(&storage, SLOTS - SLOTS / 1024);
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!((keys(&servers[0]), keys(&servers[1])), (12, 12));
    empty(&servers[1]);
    for slot in (0..SLOTS).step_by(64) {
        check(&storage, slot, &(slot..slot + 64).collect::<Vec<_>>()).unwrap();
    }
    assert_eq!(storage.figures().lost_pages, 0);
    storage.discard(0..SLOTS).unwrap();
    assert_eq!(storage.figures().keys, 0);
}

/// Nothing is read meanwhile.
#[test]
fn a_copy_that_could_not_be_written_is_written_when_its_store_answers_again() {
    let Some(([first, second], storage)) = two_stores(512) else {
        return;
    };
    let port = first.port;
    drop(first);
    let seeds: Vec<u64> = (1000..1064).collect();
    write(&storage, 64, &seeds).unwrap();
    assert_eq!(storage.figures().single_copies, 64);
    let first = Server::start_at(port, &[]).flatten().expect("its own port");
    until_repaired(&storage, 512);
    assert_eq!(first.keys().len(), 1);
    empty(&second);
    check(&storage, 64, &seeds).unwrap();
    check(&storage, 0, &(0..64).collect::<Vec<_>>()).unwrap();
}

/// Nobody reads or writes meanwhile: the renewal of leases finds that the key is not there.
#[test]
fn a_key_whose_lease_cannot_be_renewed_is_written_again_without_what_is_altered() {
    let lease = |options: &mut FarOptions| options.lease = Duration::from_secs(2);
    let Some(([first, second], storage)) = two_stores_with(512, lease) else {
        return;
    };
    let only_key = |server: &Server| server.keys().pop().expect("a key");
    let mut client = second.client();
    let key = only_key(&second);
    let fields = redis::cmd("HKEYS").arg(&key).query(&mut client);
    let fields: Vec<Vec<u8>> = fields.expect("a hash");
    let alter = redis::cmd("HSET")
        .arg(&key)
        .arg(&fields[100])
        .arg("other bytes")
        .query::<()>(&mut client);
    alter.expect("altered");
    empty(&first);
    until_repaired(&storage, 511);
    // Longer than all of the next renewal takes.
    std::thread::sleep(Duration::from_secs(2));
    let key = only_key(&first);
    let has = |field: &Vec<u8>| {
        let mut exists = redis::cmd("HEXISTS");
        let found = exists
            .arg(&key)
            .arg(field)
            .query::<bool>(&mut first.client());
        found.expect("a hash")
    };
    let lacks: Vec<usize> = (0..512).filter(|&at| !has(&fields[at])).collect();
    assert_eq!(lacks, [100]);
    empty(&second);
    let slots = (0..512).map(|slot| check(&storage, slot, &[slot]));
    let (good, bad): (Vec<_>, Vec<_>) = slots.partition(Result::is_ok);
    assert_eq!((good.len(), bad), (511, vec![Err(StorageError::Lost)]));
}
