//! A cluster of three masters.

use std::process::Command;
use std::time::Duration;

use vswap_engine::StorageError;

use crate::support::{Server, check, free_port, open, options, write};

const SLOTS: u64 = 512 * 16;

fn cluster(nodes: usize) -> Option<Vec<Server>> {
    let mut servers = Vec::new();
    for _ in 0..nodes {
        let bus = free_port().to_string();
        let quick = ["--cluster-enabled", "yes", "--cluster-node-timeout", "1000"];
        let more = [&quick[..], &["--cluster-port", &bus]].concat();
        servers.push(Server::start(&more)?);
    }
    let made = Command::new("redis-cli")
        .args(["--cluster", "create"])
        .args(servers.iter().map(Server::at))
        .arg("--cluster-yes")
        .output()
        .expect("redis-cli");
    let said = [&made.stdout[..], &made.stderr[..]].concat();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&said));
    let begun = std::time::Instant::now();
    while begun.elapsed() < Duration::from_secs(20) {
        let is_ready = |server: &Server| {
            let info: String = redis::cmd("CLUSTER")
                .arg("INFO")
                .query(&mut server.client())
                .unwrap();
            info.contains("cluster_state:ok")
        };
        if servers.iter().all(is_ready) {
            return Some(servers);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("the cluster is not ready");
}

#[test]
fn clusters_spread_over_nodes_and_hash_slots_may_move() {
    let Some(servers) = cluster(3) else { return };
    let storage = open(&servers[1].url(), options(SLOTS));
    assert_eq!(storage.probe().kind, "cluster");
    assert_eq!(storage.probe().nodes.len(), 3);
    for slot in (0..SLOTS).step_by(512) {
        write(&storage, slot, &(slot..slot + 64).collect::<Vec<_>>()).unwrap();
    }
    let keys: Vec<usize> = servers.iter().map(|server| server.keys().len()).collect();
    assert_eq!(keys.iter().sum::<usize>(), 16);
    assert!(keys.iter().all(|keys| *keys > 0), "{keys:?}");
    let id = |server: &Server| -> String {
        redis::cmd("CLUSTER")
            .arg("MYID")
            .query(&mut server.client())
            .unwrap()
    };
    std::thread::scope(|scope| {
        let moving = scope.spawn(|| {
            let moved = Command::new("redis-cli")
                .args(["--cluster", "reshard", &servers[0].at()])
                .args(["--cluster-from", &id(&servers[0])])
                .args(["--cluster-to", &id(&servers[2])])
                .args(["--cluster-slots", "3000", "--cluster-yes"])
                .output()
                .expect("redis-cli");
            assert!(moved.status.success());
        });
        let mut round = 0;
        while !moving.is_finished() {
            round += 1;
            for slot in (0..SLOTS).step_by(512) {
                check(&storage, slot, &[slot]).unwrap();
                write(&storage, slot + 100, &[slot + round]).unwrap();
                check(&storage, slot + 100, &[slot + round]).unwrap();
            }
        }
    });
    for slot in (0..SLOTS).step_by(512) {
        check(&storage, slot, &(slot..slot + 64).collect::<Vec<_>>()).unwrap();
    }
    drop(storage);
    assert!(servers.iter().all(|server| server.keys().is_empty()));
}

#[test]
fn every_page_is_there_when_a_master_is_killed_and_there_are_two_copies() {
    let Some(servers) = cluster(3) else { return };
    for server in &servers {
        let mut set = redis::cmd("CONFIG");
        set.arg("SET")
            .arg("cluster-require-full-coverage")
            .arg("no");
        set.query::<()>(&mut server.client()).unwrap();
    }
    let mut two = options(SLOTS);
    two.copies = 2;
    two.patience.bound = Duration::from_secs(3);
    let storage = open(&servers[0].url(), two);
    let mut one = options(SLOTS);
    one.patience.bound = Duration::from_secs(2);
    let single = open(&servers[0].url(), one);
    for slot in (0..SLOTS).step_by(512) {
        let seeds: Vec<u64> = (slot..slot + 64).collect();
        write(&storage, slot, &seeds).unwrap();
        write(&single, slot, &seeds).unwrap();
    }
    servers[0].signal("KILL");
    for slot in (0..SLOTS).step_by(512) {
        check(&storage, slot, &(slot..slot + 64).collect::<Vec<_>>()).unwrap();
    }
    assert_eq!(storage.figures().lost_pages, 0);
    let outcomes: Vec<_> = (0..4)
        .map(|cluster| check(&single, cluster * 512, &[cluster * 512]))
        .collect();
    let timed_out = Err(StorageError::TimedOut);
    assert!(
        outcomes.iter().all(|one| one.is_ok() || *one == timed_out),
        "{outcomes:?}"
    );
}
