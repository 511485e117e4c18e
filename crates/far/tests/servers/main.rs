//! Areas in real servers, which the tests start on loopback and stop. Without `redis-server` or `nbdkit` they say so
//! and pass.

#[expect(dead_code, reason = "simulated servers use all of it")]
#[path = "../../simulated/seeded.rs"]
mod seeded;
mod support;

mod blocks;
mod cluster;
mod copies;
mod failing;
mod leaving;
mod refusing;
mod storing;
mod ways;
