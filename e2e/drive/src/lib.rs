//! What chaos, the hostile agent, the victims and the end-to-end tests share: seeded numbers, the processes below a
//! driver, what each of their threads waits for, how long to wait for them, and where runs have their sockets. Nothing
//! of vswap: it must not check itself.

pub mod patience;
pub mod processes;
pub mod random;
pub mod runtime;
pub mod threads;
