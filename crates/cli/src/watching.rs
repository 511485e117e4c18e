//! Looking at the living runs again and again: what they say, and how fast their figures change.

pub mod rates;
pub mod reports;
