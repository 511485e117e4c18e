//! Workloads that verify what they wrote, and runs of them on vswap and on the kernel's swap side by side.
//!
//! Neither knows how vswap works: a workload sees its own memory and a clock, a comparison sees commands and what they
//! print. That is what lets their figures judge the rest. The one part that does know the engine, `engine_bench`,
//! measures it by itself; of the engine's own, the others use the header that a swap area begins with.

// Floors, lowest first: a module names those above it in this list, and none below (`cargo xtask tidy`).

mod colors;
pub mod size;
pub mod spread;
pub mod random;
pub mod resp;
pub mod measure;
pub mod region;
pub mod content;
pub mod engine_bench;
// What is run.
pub mod workload;
pub mod command;
// What it is run on, and beside.
pub mod kernel_swap;
pub mod compare;
