//! One daemon for several runs: limits hold, deaths leave nothing behind, and other users are kept out.
//!
//! Each daemon has its own runtime directory, so that only the runs of its test join it.

use std::process::ExitCode;

use vswap_e2e::run_suite;
use vswap_e2e::suite::Test;

mod arena;
mod daemon;
mod deaths;
mod metrics;
mod parked;
mod refusals;
mod report;
mod secrets;
mod settings;
mod shares;
mod tiers;
mod users;

const TESTS: &[Test] = &[
    Test::new("three_runs", 240, shares::three_runs),
    Test::new("without_areas", 120, shares::without_areas),
    Test::new("group_of_two_runs", 90, shares::group_of_two_runs),
    Test::new(
        "swapoff_under_two_runs",
        120,
        shares::swapoff_under_two_runs,
    ),
    Test::new(
        "nothing_of_another_run",
        180,
        secrets::nothing_of_another_run,
    ),
    Test::new("limits_of_one_run", 240, settings::limits_of_one_run),
    Test::new("arena_in_a_run", 120, arena::follows_the_limit_of_its_run),
    Test::new("tier_limits", 120, tiers::limits),
    Test::new("metrics_of_daemon_and_run", 120, metrics::daemon_and_run),
    Test::new(
        "report_of_run_in_daemon",
        120,
        report::of_a_run_in_the_daemon,
    ),
    Test::new("parked_beside_another", 180, parked::beside_another),
    Test::new("run_killed", 120, deaths::run_killed),
    Test::new("daemon_killed", 120, deaths::daemon_killed),
    Test::new("daemon_told_to_end", 120, deaths::daemon_told_to_end),
    Test::new("without_the_capability", 60, users::without_the_capability),
    Test::new("one_daemon", 60, refusals::one_daemon),
    Test::new("options_of_the_daemon", 60, refusals::options_of_the_daemon),
    Test::new("embedded", 60, refusals::embedded),
    Test::new("other_users", 90, users::other_users),
    Test::new("other_users_try_all", 90, users::other_users_try_all),
    Test::new("other_users_flood", 90, users::other_users_flood),
];

fn main() -> ExitCode {
    run_suite(TESTS)
}
