//! Runs of every order and single slots, in areas that fill up, with one thread or several.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::*;
use crate::area::testing::{assert_sound, free, used};
use crate::base::pages::HeapPages;
use crate::cluster::Extent;
use crate::words::entry::AreaId;

const CLUSTER: u64 = SLOTS_PER_CLUSTER as u64;

fn area(slots: u64, bad: &[u64], cpus: usize) -> Area {
    let id = AreaId::physical(0).expect("a number");
    let extent = Extent::new(slots, bad.into());
    Area::new(id, extent, cpus, Arc::new(HeapPages::new())).expect("memory")
}

fn single(area: &Area, cpu: usize) -> Result<Entry, AllocError> {
    area.allocate(cpu, Order::SLOT, &[used()], None)
}

/// Takes a whole run.
fn run(area: &Area, cpu: usize, order: Order) -> Result<Entry, AllocError> {
    area.allocate(cpu, order, &vec![used(); order.slots()], None)
}

fn free_run(area: &Area, first: Entry, slots: usize) {
    (0..slots).for_each(|at| free(area, first.behind(at)));
}

fn cluster_of(entry: Entry) -> u32 {
    entry.position().0
}

#[test]
fn runs_are_aligned_and_apart_from_other_orders() {
    let area = area(CLUSTER * 16, &[], 1);
    let mut taken = vec![single(&area, 0).expect("room")];
    for order in Order::runs() {
        let first = run(&area, 0, order).expect("room");
        assert_eq!(first.position().1 % order.slots(), 0, "{order:?}");
        assert!(
            taken
                .iter()
                .all(|&other| cluster_of(other) != cluster_of(first))
        );
        taken.push(first);
        if order.slots() < SLOTS_PER_CLUSTER {
            let next = run(&area, 0, order).expect("room");
            assert_eq!(next, first.behind(order.slots()), "the next one follows");
            free_run(&area, next, order.slots());
        }
    }
    let in_use: usize = Order::all().map(Order::slots).sum();
    assert_eq!(assert_sound(&area), in_use as u64);
    for (order, first) in Order::all().zip(taken) {
        free_run(&area, first, order.slots());
    }
    assert_eq!(assert_sound(&area), 0);
}

#[test]
fn a_run_is_free_again_when_all_its_slots_are() {
    for order in Order::runs() {
        let area = area(CLUSTER, &[], 1);
        let count = SLOTS_PER_CLUSTER / order.slots();
        let all: Vec<Entry> = (0..count)
            .map(|_| run(&area, 0, order).expect("room"))
            .collect();
        assert!(run(&area, 0, order).is_err());
        // The end of one run and the start of the next do not make a run.
        if let [first, second, ..] = all[..] {
            let half = order.slots() / 2;
            free_run(&area, first.behind(half), half);
            free_run(&area, second, half);
            assert!(run(&area, 0, order).is_err(), "{order:?}");
            free_run(&area, second.behind(half), half);
            assert_eq!(run(&area, 0, order), Ok(second));
        }
        assert_sound(&area);
    }
}

#[test]
fn a_tail_is_left_free_and_found_by_single_slots() {
    for order in Order::runs().filter(|order| order.slots() > 2) {
        let area = area(CLUSTER, &[], 1);
        let words = vec![used(); order.slots() - 1];
        let mut taken = 0;
        while let Ok(first) = area.allocate(0, order, &words, None) {
            assert_eq!(first.position().1 % order.slots(), 0);
            taken += words.len() as u64;
        }
        assert_eq!(assert_sound(&area), taken);
        while let Ok(entry) = single(&area, 0) {
            assert_eq!(entry.position().1 % order.slots(), words.len());
            taken += 1;
        }
        assert_eq!((assert_sound(&area), taken), (CLUSTER, CLUSTER));
    }
}

#[test]
fn single_slots_are_refused_only_when_none_is_left() {
    let area = area(CLUSTER * 12 + 1, &[CLUSTER + 1], 2);
    for order in Order::all() {
        run(&area, 0, order).expect("room");
    }
    // Another CPU gets fewer of these, but what it gets must not be lost.
    let others = Order::runs().filter_map(|order| run(&area, 1, order).ok());
    assert!(others.count() > 0);
    let capacity = CLUSTER * 12;
    let mut left = capacity - assert_sound(&area);
    while single(&area, 1).is_ok() {
        left -= 1;
    }
    assert_eq!(left, 0);
    assert_eq!(assert_sound(&area), capacity);
    assert_eq!(area.rejected(), 1);
}

#[test]
fn stealing_begins_with_the_smallest_runs_and_where_none_is_free() {
    let (small, large) = (Order::from_raw(1), Order::from_raw(2));
    let area = area(CLUSTER * 3, &[], 1);
    let fill = |order: Order| {
        let count = SLOTS_PER_CLUSTER / order.slots();
        (0..count)
            .map(|_| run(&area, 0, order).expect("room"))
            .collect::<Vec<_>>()
    };
    let (with_run, without, larger) = (fill(small), fill(small), fill(large));
    free(&area, larger[0]);
    free_run(&area, with_run[0], 2);
    free(&area, without[0]);
    let order = [without[0], with_run[0], with_run[0].behind(1), larger[0]];
    for expected in order {
        assert_eq!(single(&area, 0), Ok(expected));
        assert_sound(&area);
    }
    assert_eq!(single(&area, 0), Err(AllocError::Full));
    // A cluster that single slots were stolen from keeps its order, so a run freed in it is a run again.
    free_run(&area, with_run[0], 2);
    assert_eq!(run(&area, 0, small), Ok(with_run[0]));
}

#[test]
fn an_empty_cluster_is_there_for_every_order() {
    let area = area(CLUSTER, &[], 1);
    for order in Order::runs().chain(Order::runs().rev()) {
        let first = run(&area, 0, order).expect("the only cluster is empty");
        free_run(&area, first, order.slots());
        assert_eq!(assert_sound(&area), 0);
    }
    // No other cluster is left, so single slots now come from the one that runs are taken from.
    let small = Order::from_raw(1);
    let first = run(&area, 0, small).expect("the only cluster is empty");
    let beside = single(&area, 0).expect("room");
    assert_eq!(cluster_of(beside), cluster_of(first));
    assert_sound(&area);
}

#[test]
fn a_cluster_with_bad_slots_serves_no_runs() {
    let area = area(CLUSTER * 2 - 1, &[0], 1);
    for order in Order::runs() {
        assert_eq!(run(&area, 0, order), Err(AllocError::Full));
    }
    let mut taken = 0;
    while single(&area, 0).is_ok() {
        taken += 1;
    }
    assert_eq!((taken, assert_sound(&area)), (CLUSTER * 2 - 2, taken));
}

/// What threads have done to an area. Counted before and after each step.
#[derive(Default)]
struct Done {
    taking: AtomicU64,
    taken: AtomicU64,
    freeing: AtomicU64,
    freed: AtomicU64,
}

fn add(counter: &AtomicU64, slots: usize) {
    counter.fetch_add(slots as u64, Ordering::SeqCst);
}

/// Takes and frees runs of random orders, which fills the area now and then. Frees all at the end.
fn churn(area: &Area, done: &Done, cpu: usize) {
    const STEPS: usize = if cfg!(miri) { 20 } else { 20_000 };
    let mut state = 0x9e37_79b9_7f4a_7c15 + cpu;
    let mut runs: Vec<(Entry, usize)> = Vec::new();
    for _ in 0..STEPS {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let random = state >> 33;
        if random % 5 < 3 || runs.is_empty() {
            // Mostly single slots, and some runs with a tail.
            let order = Order::all().nth((random / 8).trailing_zeros() as usize);
            let order = order.unwrap_or(Order::SLOT);
            let slots = order.slots() - usize::from(random % 2 == 1 && order.slots() > 2);
            add(&done.taking, slots);
            if let Ok(first) = area.allocate(cpu, order, &vec![used(); slots], None) {
                add(&done.taken, slots);
                runs.push((first, slots));
                continue;
            }
            // Nothing was taken, which counts as taken and freed at once. In this order, so that neither bound is
            // missed.
            add(&done.freeing, slots);
            add(&done.freed, slots);
            add(&done.taken, slots);
        }
        if !runs.is_empty() {
            let (first, slots) = runs.swap_remove(random % runs.len());
            add(&done.freeing, slots);
            free_run(area, first, slots);
            add(&done.freed, slots);
        }
    }
    for (first, slots) in runs {
        add(&done.freeing, slots);
        free_run(area, first, slots);
        add(&done.freed, slots);
    }
}

#[test]
fn counters_are_exact_when_quiet_and_bounded_by_what_was_done_meanwhile() {
    const CPUS: usize = 3;
    const ROUNDS: usize = if cfg!(miri) { 1 } else { 3 };
    let area = area(CLUSTER * 6 + 2, &[0, 1, CLUSTER * 4], CPUS - 1);
    let capacity = CLUSTER * 6 - 1;
    let done = Done::default();
    let load = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
    for _ in 0..ROUNDS {
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..CPUS)
                .map(|cpu| {
                    let (area, done) = (&area, &done);
                    scope.spawn(move || churn(area, done, cpu))
                })
                .collect();
            while workers.iter().any(|worker| !worker.is_finished()) {
                let (freed, taken) = (load(&done.freed), load(&done.taken));
                let read = area.stats().slots_used;
                let (taking, freeing) = (load(&done.taking), load(&done.freeing));
                assert!(
                    read <= (taking - freed).min(capacity),
                    "{read} of {taking} - {freed}"
                );
                assert!(read + freeing >= taken, "{read} of {taken} - {freeing}");
            }
        });
        // Each thread has freed what it took. Now fill the area to the last slot and compare again.
        assert_eq!(assert_sound(&area), 0);
        let all: Vec<Entry> = std::iter::from_fn(|| single(&area, 0).ok()).collect();
        assert_eq!(
            (all.len() as u64, assert_sound(&area)),
            (capacity, capacity)
        );
        all.into_iter().for_each(|entry| free(&area, entry));
    }
}
