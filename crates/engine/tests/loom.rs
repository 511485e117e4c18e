//! Every interleaving of the races in `races`, within a preemption bound.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p vswap-engine --release --test loom`

#![cfg(loom)]

#[macro_use]
mod races;

/// Forced switches in one run, and how many there are in long runs (`VSWAP_LONG=1`). Two take seconds, three about a
/// minute, and four would take most of an hour.
const PREEMPTIONS_MAX: (usize, usize) = (2, 3);

fn preemptions_max() -> usize {
    let is_long = std::env::var_os("VSWAP_LONG").is_some_and(|value| value == "1");
    if is_long {
        PREEMPTIONS_MAX.1
    } else {
        PREEMPTIONS_MAX.0
    }
}

fn model(race: fn()) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions_max());
    builder.max_branches = 20_000;
    // The model's first thread has a small stack, so a second thread runs the race.
    builder.check(move || races::spawn_deep(race).join().expect("no panic"));
}

each_race!(model);
