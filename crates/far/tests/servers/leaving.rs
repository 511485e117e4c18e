//! What is left in a store, and when it goes.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use vswap_far::{FarStorage, Patience, gc};

use crate::support::{Server, all_keys, check, open, options, spec, write};

/// Has the test `leaves_keys` of a child process leave keys at this store.
const CHILD: &str = "VSWAP_FAR_TEST_CHILD";
const LEASE: Duration = Duration::from_secs(2);

fn short_lease(url: &str) -> FarStorage {
    let mut options = options(2048);
    options.lease = LEASE;
    open(url, options)
}

#[test]
fn keys_stay_while_they_are_renewed_and_go_with_the_area() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let storage = short_lease(&server.url());
    for slot in [0, 512, 1024] {
        write(&storage, slot, &[slot]).unwrap();
    }
    let mut client = server.client();
    for key in all_keys(&mut client) {
        let left: i64 = redis::cmd("PTTL").arg(&key).query(&mut client).unwrap();
        assert!(left > 0 && left <= 2000, "{left}");
    }
    std::thread::sleep(2 * LEASE);
    for slot in [0, 512, 1024] {
        check(&storage, slot, &[slot]).unwrap();
    }
    assert_eq!(all_keys(&mut client).len(), 4);
    drop(storage);
    assert_eq!(all_keys(&mut client), Vec::<Vec<u8>>::new());
}

/// Not a test of its own: what the child process does.
#[test]
fn leaves_keys() {
    let Ok(url) = std::env::var(CHILD) else {
        return;
    };
    let storage = short_lease(&url);
    write(&storage, 0, &[1]).unwrap();
    println!("written");
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn what_a_killed_process_leaves_goes_with_its_lease() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "leaving::leaves_keys", "--nocapture"])
        .env(CHILD, server.url())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut client = server.client();
    let begun = Instant::now();
    while all_keys(&mut client).len() < 2 && begun.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(20));
    }
    // It is alive: nothing of it is touched.
    let report = gc(&spec(&server.url()), true, &Patience::default()).unwrap();
    assert_eq!((report.removed, report.left_over()), (0, 0));
    let alive = report.areas[0].alive.as_ref().unwrap();
    assert_eq!((alive.pid, alive.lease_s), (child.id(), 2));
    assert!(!alive.host.is_empty());
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(all_keys(&mut client).len(), 2);
    std::thread::sleep(LEASE + Duration::from_millis(300));
    assert_eq!(all_keys(&mut client), Vec::<Vec<u8>>::new());
}

#[test]
fn what_is_left_over_is_shown_first_and_then_removed() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let living = open(&server.url(), options(512));
    write(&living, 0, &[1]).unwrap();
    let mut client = server.client();
    let dead = vswap_far::RunId::random().unwrap();
    for cluster in 0..700 {
        let mut set = redis::cmd("HSET");
        let key = format!("vswap:{dead}:3:{cluster:x}.0");
        let _: () = set.arg(key).arg("a").arg("b").query(&mut client).unwrap();
    }
    for other in ["vswap:mine", "other:1"] {
        let _: () = redis::cmd("SET")
            .arg(other)
            .arg(1)
            .query(&mut client)
            .unwrap();
    }
    let spec = spec(&server.url());
    let shown = gc(&spec, false, &Patience::default()).unwrap();
    assert_eq!((shown.left_over(), shown.removed), (700, 0));
    let found = shown.areas.iter().find(|area| area.id.run == dead).unwrap();
    assert_eq!((found.id.area, found.keys, &found.alive), (3, 700, &None));
    let removed = gc(&spec, true, &Patience::default()).unwrap();
    assert_eq!(removed.removed, 700);
    let again = gc(&spec, true, &Patience::default()).unwrap();
    assert_eq!((again.left_over(), again.removed), (0, 0));
    assert!(again.areas.iter().any(|area| area.id.run == living.run()));
    check(&living, 0, &[1]).unwrap();
    let others: u32 = redis::cmd("EXISTS")
        .arg(&["vswap:mine", "other:1"])
        .query(&mut client)
        .unwrap();
    assert_eq!(others, 2);
}
