//! A store of simulated servers: what a client of far memory is given instead of a network, to see what it does with a
//! hundred servers on one machine, and when they fail.
//!
//! Servers hold data and answer as Redis does, and time is the real one: the client waits in locks, sleeps and
//! time-outs, so what is simulated is what it waits for. What happens is drawn from a seed. The same seed gives the
//! same weather; how threads meet with it is for the system's scheduler to say.

mod archive;
mod commands;
mod data;
mod seeded;
mod wire;
mod world;

pub use data::Change;
pub use seeded::Seeded;
pub use wire::{Net, Simulated, Speeds};
pub use world::{At, Counts, Gate, Machine, State, Weather, hash_slot};
