//! Parts that the workload and measuring programs share.
//!
//! Nothing here knows how swap works: a workload sees its own memory and a clock, a comparison
//! sees commands and what they print. That is what lets their figures judge the rest. The one program that does know
//! the engine, `vswap-engine-bench`, measures it by itself and brings what it needs along.

pub mod command;
pub mod content;
pub mod measure;
pub mod random;
pub mod region;
pub mod size;
pub mod spread;
