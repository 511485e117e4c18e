//! What the fuzzers do with their bytes: one plain function for each target, which panics if something is wrong.
//!
//! libFuzzer calls them from `fuzz/fuzz_targets`. `tests/smoke.rs` calls them on stable Rust with the corpus and some
//! mutations of it. A target must accept any bytes, keep nothing between calls, and end.

mod bytes;
#[allow(dead_code, reason = "shared with the command, which uses the rest")]
#[path = "../../../crates/cli/src/control.rs"]
mod control;
mod engine;
mod header;
#[allow(dead_code, reason = "shared with the command, which uses the rest")]
#[path = "../../../crates/cli/src/join.rs"]
mod join;
mod layout;
mod messages;
#[allow(dead_code, reason = "shared with the engine's test")]
#[path = "../../../crates/engine/tests/model.rs"]
mod model;
mod words;

pub use engine::engine;
pub use header::header;
pub use layout::layout;
pub use messages::messages;
pub use words::words;

/// A target: its name, which is also the name of its corpus, and its body.
pub type Target = (&'static str, fn(&[u8]));

/// Every target.
pub const TARGETS: [Target; 5] = [
    ("header", header),
    ("messages", messages),
    ("words", words),
    ("layout", layout),
    ("engine", engine),
];
