//! A cluster of 100 masters with a replica each, threads that use it, and everything that may happen to it at once.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::pages::{SPAN, Seen, Worker, check, near, open, options, write};
use crate::simulated::{Counts, Simulated};
use crate::weather;

/// Masters.
const SHARDS: usize = 100;
/// Threads that use the area.
const THREADS: u64 = 4;
/// Clusters of slots of each thread.
const CLUSTERS: u64 = 50;
/// Writes, reads and discards of each thread.
const ROUNDS: usize = 250;
/// Pages that may have come back between two looks at them.
const AGAIN_MAX: u64 = 20;

/// The seeds that are tried, or the one that is asked for.
fn seeds(usual: &[u64]) -> Vec<u64> {
    match std::env::var("VSWAP_FAR_SEED") {
        Ok(seed) => vec![seed.parse().expect("VSWAP_FAR_SEED is a number")],
        Err(_) => usual.to_vec(),
    }
}

/// Uses an area with so many copies in bad weather. Returns what was seen, and what has happened.
fn storm(seed: u64, copies: usize, takes_pages: bool) -> (Seen, Counts) {
    let net = Simulated::new(SHARDS, true, seed, near());
    let mut options = options(THREADS * CLUSTERS * SPAN, copies);
    // Longer than it takes, also on a busy machine. That leases are renewed is a scenario of its own.
    options.lease = Duration::from_secs(60);
    let storage = open(&net, options);
    assert_eq!(storage.probe().nodes.len(), SHARDS);
    let seen = Mutex::new(Seen::default());
    let stop = AtomicBool::new(false);
    let worker = |thread: u64| {
        let clusters = thread * CLUSTERS..(thread + 1) * CLUSTERS;
        let seed = seed.wrapping_mul(31).wrapping_add(thread);
        Worker::new(&storage, &net, &seen, clusters, seed)
    };
    std::thread::scope(|scope| {
        let weather = scope.spawn(|| weather::blow(&net, seed, takes_pages, &stop));
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn(move || {
                    let mut worker = worker(thread);
                    worker.work(ROUNDS);
                    worker
                })
            })
            .collect();
        let workers: Vec<_> = threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect();
        stop.store(true, Ordering::Relaxed);
        weather.join().expect("no panic");
        for mut worker in workers {
            scope.spawn(move || worker.read_all());
        }
    });
    for cluster in 0..THREADS * CLUSTERS {
        let seeds: Vec<u64> = (cluster..cluster + 8).collect();
        write(&storage, cluster * SPAN + 300, &seeds).expect("fair weather");
        check(&storage, cluster * SPAN + 300, &seeds).expect("fair weather");
        let there = net.world().copies_of(cluster, 307);
        assert_eq!(there, copies, "copies of a page of cluster {cluster}");
    }
    let leased = net.world().all_leased();
    assert!(leased, "a key has no lease");
    drop(storage);
    let counts = net.world().counts;
    (seen.into_inner().expect("no panic"), counts)
}

/// One run after the other, each with its seed.
fn survive(default_seeds: &[u64], copies: usize, takes_pages: bool) {
    let runs: Vec<_> = seeds(default_seeds)
        .into_iter()
        .map(|seed| survived(seed, copies, takes_pages))
        .collect();
    // How threads meet with the weather is chance, so what must have happened is counted over all runs.
    let sum =
        |of: fn(&Seen, &Counts) -> u64| runs.iter().map(|(seen, counts)| of(seen, counts)).sum();
    let losses: [(&str, u64); 4] = [
        ("pages refused", sum(|seen, _| seen.refused)),
        ("promoted", sum(|_, counts| counts.promoted)),
        ("altered", sum(|_, counts| counts.altered)),
        ("deleted", sum(|_, counts| counts.deleted)),
    ];
    for (what, many) in losses {
        // A page of two copies is lost where both happen to be hit.
        let is_sure = copies == 1 || what != "pages refused";
        match takes_pages {
            true => assert!(many > 0 || !is_sure, "fair weather: no {what}"),
            false => assert_eq!(many, 0, "{what}"),
        }
    }
    let least: [(&str, u64, u64); 10] = [
        ("pages written", sum(|seen, _| seen.written), 8_000),
        ("pages compared", sum(|seen, _| seen.compared), 8_000),
        ("moves", sum(|_, counts| counts.moves), 5),
        ("moves given up", sum(|_, counts| counts.moves_given_up), 1),
        ("MOVED", sum(|_, counts| counts.moved), 1),
        ("ASK", sum(|_, counts| counts.ask), 1),
        (
            "served after ASKING",
            sum(|_, counts| counts.asking_served),
            1,
        ),
        ("resets", sum(|_, counts| counts.resets), 5),
        ("unanswered", sum(|_, counts| counts.unanswered), 1),
        ("late", sum(|_, counts| counts.late), 1),
    ];
    for (what, many, least) in least {
        assert!(many >= least, "fair weather: {many} {what}");
    }
}

/// One run, in which nothing may have gone wrong. Returns what was seen, and what has happened.
fn survived(seed: u64, copies: usize, takes_pages: bool) -> (Seen, Counts) {
    let begun = Instant::now();
    let (seen, counts) = storm(seed, copies, takes_pages);
    let took = begun.elapsed();
    let replay =
        format!("VSWAP_FAR_SEED={seed} cargo test -p vswap-far --test simulated a_cluster_of_100");
    println!(
        "seed {seed}, {copies} copies, {took:?}: {} written, {} compared, {} refused, {} again, {} full; {counts:?}",
        seen.written, seen.compared, seen.refused, seen.again, seen.full
    );
    assert!(seen.wrong.is_empty(), "{replay}\n{}", seen.wrong.join("\n"));
    assert!(
        seen.again <= AGAIN_MAX,
        "{replay}\n{} pages came back",
        seen.again
    );
    assert_eq!(
        counts.expired, 0,
        "{replay}\npages whose lease was not renewed"
    );
    (seen, counts)
}

#[test]
fn a_cluster_of_100_nodes_in_bad_weather_gives_what_was_written_or_an_error() {
    survive(&[1, 2], 1, true);
}

#[test]
fn a_cluster_of_100_nodes_in_bad_weather_gives_every_page_that_has_a_copy_left() {
    survive(&[3, 4], 2, true);
}

#[test]
fn a_cluster_of_100_nodes_in_weather_that_takes_no_page_gives_every_page() {
    survive(&[5, 6], 1, false);
}
