//! Runs that are parked and woken: what is left of them meanwhile, and that every byte comes back.

use std::process::ExitCode;

use vswap_e2e::run_suite;
use vswap_e2e::suite::Test;

mod areas;
mod ends;
mod family;
mod idle;
mod program;
mod used;
mod victims;

const TESTS: &[Test] = &[
    Test::new("idle", 120, idle::test),
    Test::new("busy_threads_and_children", 240, family::test).long(),
    Test::new("stopped_before", 120, family::stopped_before),
    Test::new("without_area", 120, areas::without),
    Test::new("area_leaves_while_parked", 180, areas::one_leaves),
    Test::new("limit_lowered_while_parked", 120, areas::lower_limit),
    Test::new("continued_by_others", 120, ends::continued),
    Test::new("killed_while_parked", 120, ends::program_killed),
    Test::new("told_to_end_while_parked", 120, ends::told_to_end),
    Test::new("vswap_killed_while_parked", 120, ends::vswap_killed),
    Test::new("given_up", 120, ends::given_up),
    Test::new("idle_server_is_parked_and_woken", 120, used::server),
    Test::new("input_and_signals", 120, used::input_and_signals),
    Test::new("victims", 400, victims::test).long(),
];

fn main() -> ExitCode {
    run_suite(TESTS)
}
