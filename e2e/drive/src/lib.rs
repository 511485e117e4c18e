//! What chaos, the hostile agent, the victims and the end-to-end tests share: seeded numbers, the processes below a
//! driver, and what each of their threads waits for. Nothing of vswap: it must not check itself.

pub mod processes;
pub mod random;
pub mod threads;
