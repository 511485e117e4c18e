//! Random bytes that nobody can guess.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// Fills `bytes`. Waits while the kernel has no random bytes yet, early at boot.
///
/// # Errors
/// ENOSYS from a seccomp filter that does not know the call.
pub fn fill(bytes: &mut [u8]) -> io::Result<()> {
    let mut made = 0;
    while made < bytes.len() {
        made +=
            rustix::io::retry_on_intr(|| getrandom(&mut bytes[made..], GetRandomFlags::empty()))?;
    }
    Ok(())
}

/// One word that is not 0.
///
/// # Errors
/// As for `fill`.
pub fn word() -> io::Result<u64> {
    let mut bytes = [0; 8];
    fill(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes) | 1)
}
