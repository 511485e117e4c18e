//! Limits that change while a program runs, and what a run says of the time that it loses to paging.

use std::process::ExitCode;

use vswap_e2e::run_suite;
use vswap_e2e::suite::Test;

mod arena;
mod ask;
mod follow;
mod group;
mod pool;
mod progress;
mod ram;
mod state;

const TESTS: &[Test] = &[
    Test::new("ram_up_and_down", 120, ram::up_and_down),
    Test::new("ram_out_of_reach", 120, ram::out_of_reach),
    Test::new("ram_refused", 60, ram::refused),
    Test::new("ram_follows_pressure", 120, follow::pressure).long(),
    Test::new("progress_in_no_room", 90, progress::in_no_room),
    Test::new("arenas_shared", 120, arena::shared),
    Test::new("pool_off_and_on", 120, pool::off_and_on),
    Test::new("group_limits", 120, group::limits),
    Test::new("state_full", 90, state::full),
    Test::new("state_stopped", 60, state::stopped),
    Test::new("thrashing", 120, state::thrashing).long(),
];

fn main() -> ExitCode {
    run_suite(TESTS)
}
