//! Servers that do not answer: for a while, or any more.

use std::sync::Arc;
use std::time::{Duration, Instant};

use vswap_engine::{Storage, StorageError};

use crate::support::{Server, Told, check, open, options, write};

#[test]
fn a_server_that_stands_still_is_waited_for_and_nothing_is_lost() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let told = Arc::new(Told::default());
    let mut options = options(1024);
    let listener = Arc::clone(&told);
    options.listener = Some(Arc::new(move |event| {
        listener.0.lock().unwrap().push(event.to_string());
    }));
    let storage = open(&server.url(), options);
    write(&storage, 0, &[1, 2]).unwrap();
    server.signal("STOP");
    let begun = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| write(&storage, 2, &[3, 4]).unwrap());
        scope.spawn(|| check(&storage, 0, &[1, 2]).unwrap());
        scope.spawn(|| write(&storage, 600, &[5]).unwrap());
        std::thread::sleep(Duration::from_secs(3));
        server.signal("CONT");
    });
    assert!(begun.elapsed() < Duration::from_secs(15));
    check(&storage, 0, &[1, 2, 3, 4]).unwrap();
    check(&storage, 600, &[5]).unwrap();
    let told = told.all();
    let waits = told
        .iter()
        .filter(|line| line.starts_with("waits for"))
        .count();
    assert_eq!(waits, 1, "{told:?}");
    assert!(told[0].contains(&server.at()), "{told:?}");
    assert!(
        told.iter().any(|line| line.contains("answers again")),
        "{told:?}"
    );
}

#[test]
fn a_server_that_has_gone_is_given_up_within_the_bound() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let told = Arc::new(Told::default());
    let mut options = options(1024);
    options.patience.bound = Duration::from_secs(2);
    let listener = Arc::clone(&told);
    options.listener = Some(Arc::new(move |event| {
        listener.0.lock().unwrap().push(event.to_string());
    }));
    let storage = open(&server.url(), options);
    write(&storage, 0, &[1]).unwrap();
    server.signal("KILL");
    let begun = Instant::now();
    assert_eq!(write(&storage, 1, &[2]), Err(StorageError::TimedOut));
    assert_eq!(check(&storage, 0, &[1]), Err(StorageError::TimedOut));
    assert_eq!(storage.discard(0..1), Err(StorageError::TimedOut));
    let took = begun.elapsed();
    assert!(
        took > Duration::from_secs(5) && took < Duration::from_secs(9),
        "{took:?}"
    );
    let told = told.all();
    let given_up = told.iter().filter(|line| line.contains("was given up"));
    assert_eq!(given_up.count(), 1, "{told:?}");
    let begun = Instant::now();
    drop(storage);
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_server_that_was_started_anew_is_found_again_and_its_content_is_lost() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let storage = open(&server.url(), options(1024));
    write(&storage, 0, &[1]).unwrap();
    let port = server.port;
    let url = server.at();
    drop(server);
    let again = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(1));
        Server::start_at(port, &[]).flatten()
    });
    write(&storage, 1, &[2]).unwrap();
    check(&storage, 1, &[2]).unwrap();
    assert_eq!(check(&storage, 0, &[1]), Err(StorageError::Lost));
    assert_eq!(storage.figures().nodes[0].name, url);
    drop(storage);
    drop(again.join());
}
