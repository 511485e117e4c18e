//! Two copies on stores of their own: one of them may go.

use std::time::Duration;

use vswap_engine::{Storage, StorageError};

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
fn rewrite(storage: &vswap_far::FarStorage, seeds: &[u64]) {
    storage.discard(1..2).unwrap();
    write(storage, 0, seeds).unwrap();
}
