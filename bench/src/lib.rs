//! Workloads that verify what they wrote, and runs of them on vswap and on the kernel's swap side by side.
//!
//! Neither part knows how vswap works. A workload sees its own memory and a clock. A comparison sees commands and their
//! output. So their figures can judge the rest. Only `engine_bench` knows the engine, and it measures the engine alone.
//! The other parts use one thing of the engine: the header of a swap area. A workload's memory can lie in an arena, and
//! then the workload uses it as any other.

// Floors, lowest first: a module names only modules above it in this list (`cargo xtask tidy`).

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
// What it is run on and compared with.
pub mod kernel_swap;
pub mod compare;
