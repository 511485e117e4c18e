//! The client of far memory among simulated servers: a hundred of them in bad weather, and one trouble at a time.
//!
//! `VSWAP_FAR_SEED=N` repeats the weather of one seed.

#[path = "../../simulated/mod.rs"]
mod simulated;

mod mending;
mod pages;
mod scenarios;
mod storm;
mod weather;
