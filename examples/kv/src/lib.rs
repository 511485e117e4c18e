//! An example of an arena: a server of keys and values that speaks redis's protocol. The values lie in an arena, so
//! there may be more of them than RAM.
//!
//! A connection is a thread. Keys lie in ordinary memory. A value that is out comes back in the thread that reads it,
//! and is copied into the reply, which is ordinary memory too: the kernel would not wait for a page that is out.

#![forbid(unsafe_code)]

pub mod client;
pub mod commands;
pub mod content;
pub mod server;
pub mod store;
pub mod wire;
