//! Limits of the process, lifted for the moment in which the agent maps its memory.
//!
//! The kernel makes a forked child whatever RLIMIT_AS and RLIMIT_DATA say, even if they were set below what the process
//! has by then. The child's agent has to map memory of its own, which these limits would refuse. It also has to make a
//! file in memory, which RLIMIT_FSIZE would refuse. No other thread runs meanwhile: not in a new child, and not when a
//! program starts.

use core::ptr;

use crate::base::kernel::{EFBIG, ENOMEM, Errno, call};

const RLIMIT_FSIZE: usize = 1;
const RLIMIT_DATA: usize = 2;
const RLIMIT_AS: usize = 9;
const UNLIMITED: u64 = u64::MAX;

/// A limit as the kernel has it: the soft one, and the hard one.
type Limit = [u64; 2];

/// Calls `map`. If the limits refuse that, lifts them as far as the kernel permits and calls it once more.
pub fn make_room<T>(map: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
    let mapped = map();
    if !matches!(mapped, Err(ENOMEM | EFBIG)) {
        return mapped;
    }
    let lifted = [RLIMIT_AS, RLIMIT_DATA, RLIMIT_FSIZE].map(|resource| (resource, lift(resource)));
    let mapped = map();
    for (resource, before) in lifted {
        if let Some(before) = before {
            // The limit had this value a moment ago, so the kernel permits it.
            let _ = set(resource, before);
        }
    }
    mapped
}

/// Lifts a limit. Returns the old limit if it has changed.
fn lift(resource: usize) -> Option<Limit> {
    let mut before: Limit = [0; 2];
    let place = ptr::from_mut(&mut before).addr();
    // SAFETY: the kernel writes two words to `before`. Unsafe because the agent has no wrapper for prlimit.
    unsafe { call(call::PRLIMIT64, [0, resource, 0, place, 0, 0]) }.ok()?;
    let [_, hard] = before;
    // Raising the hard limit needs a privilege.
    set(resource, [UNLIMITED; 2])
        .or_else(|_| set(resource, [hard; 2]))
        .ok()
        .map(|()| before)
}

fn set(resource: usize, limit: Limit) -> Result<(), Errno> {
    let limit = ptr::from_ref(&limit).addr();
    // SAFETY: the kernel reads two words from `limit`, and changes a limit of the calling process only.
    unsafe { call(call::PRLIMIT64, [0, resource, limit, 0, 0, 0]) }.map(|_| ())
}
