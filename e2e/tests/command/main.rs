//! The command: what it passes through untouched, what it says, what it refuses, and what it does when memory is full.

use std::process::ExitCode;

use vswap_e2e::run_suite;
use vswap_e2e::suite::Test;

mod advise;
mod advise_joined;
mod confined;
mod examples;
mod exits;
mod full;
mod metrics;
mod never_full;
mod passes_through;
mod refuses;
mod report;
mod says;
mod schemas;
mod scripts;
mod signals;

const TESTS: &[Test] = &[
    Test::new("exit_statuses", 120, passes_through::exit_statuses),
    Test::new("exits_thread_by_thread", 120, exits::thread_by_thread),
    Test::new("streams", 120, passes_through::streams),
    Test::new(
        "streams_through_swap",
        90,
        passes_through::streams_through_swap,
    ),
    Test::new("arguments", 60, passes_through::arguments),
    Test::new("environment", 60, passes_through::environment),
    Test::new("surroundings", 120, passes_through::surroundings),
    Test::new("terminal", 60, passes_through::terminal),
    Test::new("signals", 120, signals::reach_the_program),
    Test::new(
        "signals_during_trapped_calls",
        120,
        signals::interrupt_no_call_of_memory,
    ),
    Test::new(
        "children_end_as_natively",
        120,
        signals::children_end_as_natively,
    ),
    Test::new("stop_and_continue", 120, signals::stop_and_continue),
    Test::new("confined", 60, confined::all_threads),
    Test::new("summary", 120, says::summary),
    Test::new("summary_line", 120, says::summary_line),
    Test::new("status", 120, says::status),
    Test::new("schemas", 120, schemas::json),
    Test::new("schema_of_advice", 60, schemas::advice),
    Test::new("doctor", 60, says::doctor),
    Test::new("advise", 120, advise::keeps_every_byte),
    Test::new("advise_of_nothing", 60, advise::of_nothing),
    Test::new("advise_joined", 240, advise_joined::keeps_every_byte).long(),
    Test::new("advise_joined_refuses", 120, advise_joined::refuses),
    Test::new("completions_of_bash", 60, scripts::completions_of_bash),
    Test::new(
        "completions_of_other_shells",
        60,
        scripts::completions_of_other_shells,
    ),
    Test::new("man_pages", 60, scripts::man_pages),
    Test::new("setuid_program", 60, refuses::setuid_program),
    Test::new("no_program", 60, refuses::no_program),
    Test::new("wrong_arguments", 60, refuses::wrong_arguments),
    Test::new("run_in_a_run", 60, refuses::run_in_a_run),
    Test::new(
        "user_without_permission",
        30,
        refuses::user_without_permission,
    ),
    Test::new("example_entry_point", 120, examples::entry_point),
    Test::new("example_far", 300, examples::far_memory),
    Test::new("example_far_refuses", 120, examples::far_memory_refuses),
    Test::new("example_units", 60, examples::units),
    Test::new("example_yaml", 60, examples::yaml),
    Test::new("metrics", 120, metrics::of_a_run),
    Test::new("example_metrics", 60, metrics::examples_are_right),
    Test::new("report", 120, report::of_a_run),
    Test::new("report_in_a_browser", 180, report::in_a_browser),
    Test::new("report_of_tiers", 120, report::of_tiers),
    Test::new("report_of_ends", 60, report::of_ends),
    Test::new("report_not_written", 60, report::not_written),
    Test::new("full_then_terminated", 180, full::terminated),
    Test::new("full_then_killed", 180, full::killed),
    Test::new("full_then_freed", 180, full::freed),
    Test::new("full_goes_on", 120, never_full::goes_on),
    Test::new("full_on_full_kill", 120, never_full::killed),
    Test::new("full_on_full_fail", 120, never_full::failed),
    Test::new("full_given_room", 120, never_full::given_room),
    Test::new("full_told_to_end", 120, never_full::told_to_end),
    Test::new("full_told_twice", 120, never_full::told_twice),
    Test::new("full_disk_leaves_room", 120, never_full::leaves_others_room),
    Test::new("full_nowhere", 60, never_full::nowhere),
];

fn main() -> ExitCode {
    run_suite(TESTS)
}
