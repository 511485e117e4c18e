//! Areas in real servers, which the tests start on loopback and stop. Without `redis-server` or `nbdkit` they say so
//! and pass.

mod support;

mod blocks;
mod cluster;
mod copies;
mod failing;
mod leaving;
mod refusing;
mod storing;
mod ways;
