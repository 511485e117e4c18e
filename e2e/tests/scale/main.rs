//! Many processes, few descriptors and threads, and stopped processes. A run costs little for each process, gets by
//! with less of everything, and no process waits for another one that stands still.

use std::process::ExitCode;

use vswap_e2e::{Test, run_suite};

mod children;
mod group;
mod prefork;
mod shortage;
mod sleepers;
mod stopped;
mod watch;

const TESTS: &[Test] = &[
    Test::new("sixty_children", 240, children::sixty_children),
    Test::new("prefork", 120, prefork::shares_grow),
    Test::new("few_descriptors", 120, shortage::few_descriptors),
    Test::new("few_threads", 120, shortage::few_threads),
    Test::new("many_sleepers", 120, sleepers::many),
    Test::new("stopped_while_others_fork", 120, stopped::others_fork).long(),
];

fn main() -> ExitCode {
    run_suite(TESTS)
}
