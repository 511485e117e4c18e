//! The client of far memory among simulated servers, one trouble at a time.

#[allow(dead_code, reason = "for what is not simulated yet")]
#[path = "../../simulated/mod.rs"]
mod simulated;

#[allow(dead_code, reason = "for what is not simulated yet")]
mod pages;
mod scenarios;
