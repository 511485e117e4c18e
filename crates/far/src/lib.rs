//! x
#![allow(missing_docs)]
mod spec;
mod cipher;
mod slots;
mod wire;
pub use spec::*;
pub use wire::*;
