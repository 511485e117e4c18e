//! Real programs from Debian packages. Each gets a third or less of the RAM that it needs, and its results are checked.

use std::process::ExitCode;

use vswap_e2e::{Test, run_suite};

mod attach;
mod attached;
mod ballast;
mod bubblewrap;
mod cpython;
mod differs;
mod filtered;
mod gcc;
mod guest;
mod host_swap;
mod java;
mod make;
mod memtester;
mod node;
mod of_32_bits;
mod parked;
mod pipeline;
mod plain_user;
mod postgres;
mod privileges;
mod redis;
mod replaces;
mod rings;
mod sanitizers;
mod sort;
mod stress_ng;

const TESTS: &[Test] = &[
    Test::new("redis", 240, redis::test),
    Test::new("redis_large", 480, redis::large).long(),
    Test::new("cpython_dicts_and_lists", 240, cpython::dicts_and_lists).long(),
    Test::new("cpython_numpy", 240, cpython::numpy),
    Test::new("cpython_multiprocessing", 240, cpython::multiprocessing),
    Test::new("cpython_kin", 240, cpython::kin_read_what_they_share).long(),
    Test::new("cpython_kin_once", 240, cpython::kin_store_once),
    Test::new("sort", 240, sort::test),
    Test::new("gcc", 300, gcc::test),
    Test::new("java", 240, java::test),
    Test::new("node", 240, node::test).long(),
    Test::new("postgres", 300, postgres::test).long(),
    Test::new("stress_ng_all_methods", 240, stress_ng::all_methods),
    Test::new("stress_ng_in_a_third", 240, stress_ng::in_a_third).long(),
    Test::new("memtester_in_a_third", 240, memtester::increment_in_a_third).long(),
    Test::new("memtester_most_tests", 240, memtester::most_tests),
    Test::new("pipeline", 240, pipeline::test).long(),
    Test::new("make", 240, make::test),
    Test::new(
        "gcc_address_sanitizer",
        240,
        sanitizers::gcc_address_sanitizer,
    ),
    Test::new("gcc_thread_sanitizer", 240, sanitizers::thread),
    Test::new("bubblewrap", 300, bubblewrap::test),
    Test::new("program_with_a_filter", 120, filtered::test),
    Test::new("program_of_32_bits", 120, of_32_bits::test),
    Test::new("program_that_gives_up_root", 120, privileges::test),
    Test::new("exec_beside_the_filter", 120, replaces::test),
    Test::new("forks_beside_rings", 120, rings::test),
    Test::new("plain_user_redis", 480, plain_user::redis).long(),
    Test::new("plain_user_python", 480, plain_user::python).long(),
    Test::new("plain_user_make", 240, plain_user::make),
    Test::new("plain_user_static_forks", 180, plain_user::static_forks).long(),
    Test::new("plain_user_not_followed", 120, plain_user::not_followed),
    Test::new("plain_user_not_dumpable", 120, plain_user::not_dumpable),
    Test::new("plain_user_rings", 120, plain_user::rings).long(),
    Test::new("seen_from_outside", 120, differs::seen_from_outside),
    Test::new("futexes_in_swap", 120, differs::futexes_in_swap),
    Test::new("moved_names", 120, differs::moved_names),
    Test::new("given_pages", 120, differs::given_pages),
    Test::new("own_moves", 120, differs::own_moves),
    Test::new("core_dump", 120, differs::core_dump),
    Test::new("guest_memory", 120, guest::test),
    Test::new("host_swap", 120, host_swap::asked_for),
    Test::new("host_swap_of_a_full_group", 180, host_swap::short_of_memory).long(),
    Test::new("parked_redis", 480, parked::redis),
    Test::new("parked_and_detached", 480, parked::attached),
    Test::new("attach_python", 180, attach::python),
    Test::new("attach_redis", 480, redis::attached_while_it_runs),
    Test::new("attach_static_c", 120, attach::while_it_runs),
    Test::new(
        "attach_left_while_it_forks",
        120,
        attach::left_while_it_forks,
    )
    .long(),
    Test::new("attach_refusals", 120, attach::refusals),
    Test::new("attach_orphans", 120, attach::orphans),
    Test::new("attach_killed", 120, attach::killed),
    Test::new("attach_stopped", 120, attach::stopped),
    Test::new("attach_without_room", 120, attach::without_room),
    Test::new("detach_of_a_run", 120, attach::of_a_run),
    Test::new("attached_static_c", 120, attached::static_c),
    Test::new(
        "attached_static_c_with_children",
        120,
        attached::static_c_with_children,
    ),
    Test::new("attached_slow_loader", 120, attached::slow_loader),
    Test::new("attached_early_children", 120, attached::early_children),
    Test::new("attached_forks", 180, attached::forks).long(),
    Test::new("attached_untraced_forks", 120, attached::untraced_forks),
    Test::new("attached_static_c_spawns", 120, attached::static_c_spawns),
    Test::new("attached_static_go", 240, attached::static_go),
    Test::new("attached_other_c_library", 240, attached::other_c_library),
    Test::new(
        "attached_empty_environment",
        240,
        attached::empty_environment,
    ),
    Test::new("attached_given_up_root", 240, attached::given_up_root),
    Test::new("attached_own_file_systems", 240, attached::own_file_systems),
    Test::new("attached_sleepers", 60, attached::sleepers),
    Test::new("attached_traced", 120, attached::traced),
    Test::new("attached_with_a_filter", 60, attached::with_a_filter),
    Test::new("attached_in_a_container", 60, attached::in_a_container),
    Test::new(
        "attached_musl_fills_at_once",
        60,
        attached::musl_fills_at_once,
    ),
];

fn main() -> ExitCode {
    run_suite(TESTS)
}
