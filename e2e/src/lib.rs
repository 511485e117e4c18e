//! What the end-to-end tests share: running a program natively and under `vswap run`, watching from outside how much
//! memory the run takes, and cleaning up when a test ends, however it ends.
//!
//! The suites are under `tests/`. Tests run one at a time, in the main thread, because a test measures memory and time
//! of whole process trees. Every descendant of the test process that is left when a test ends is that test's own, and
//! is killed.
//!
//! Environment: `VSWAP_BIN` names the binary (else `target/release/vswap` of this workspace), `VSWAP_E2E_NATIVE=1` runs
//! the programs without vswap, `VSWAP_E2E_NO_SKIP=1` turns every skip into a failure.

pub mod compile;
pub mod context;
pub mod device;
pub mod ended;
pub mod failure;
pub mod group;
pub mod host_swap;
pub mod job;
pub mod launch;
pub mod limit;
pub mod need;
pub mod procfs;
pub mod records;
pub mod sampler;
pub mod schema;
pub mod scrape;
pub mod suite;
pub mod traces;
pub mod victim;

pub use context::Context;
pub use ended::Ended;
pub use failure::{Failure, Outcome};
pub use job::Job;
pub use launch::{Launcher, Running};
pub use need::{require_program, require_root, workload_binary};
pub use suite::{Test, run_suite};

/// Bytes in a MiB.
pub const MIB: u64 = 1 << 20;
