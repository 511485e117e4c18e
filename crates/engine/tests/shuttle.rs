//! Random interleavings of the races in `races`, deeper than loom goes.
//!
//! `RUSTFLAGS="--cfg shuttle" cargo test -p vswap-engine --release --test shuttle`

#![cfg(shuttle)]

#[macro_use]
mod races;

use shuttle::scheduler::{PctScheduler, RandomScheduler};

/// Schedules for each race, with each of two schedulers.
const SCHEDULES: usize = 4000;
/// Points at which the priority scheduler forces a switch: as many as loom has in its long runs.
const DEPTH: usize = 3;

fn check(race: fn()) {
    let config = || {
        let mut config = shuttle::Config::new();
        // An engine under construction is larger than a thread's usual stack.
        config.stack_size = 0x4_0000;
        config
    };
    shuttle::Runner::new(RandomScheduler::new(SCHEDULES), config()).run(race);
    shuttle::Runner::new(PctScheduler::new(DEPTH, SCHEDULES), config()).run(race);
}

each_race!(check);
each_large_race!(check);
