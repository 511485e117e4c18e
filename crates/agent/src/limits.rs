//! Limits of the process, lifted for the moment in which the agent maps its memory.
//!
//! The kernel makes a forked child whatever RLIMIT_AS and RLIMIT_DATA say, also when they were set below what the
//! process has by then. Its agent has to map memory of its own, which they would refuse, and to make a file in memory,
//! which RLIMIT_FSIZE would refuse. No other thread runs meanwhile, neither in the child nor when a program starts.

use core::ptr;

use crate::kernel::{EFBIG, ENOMEM, Errno, call};

const RLIMIT_FSIZE: usize = 1;
const RLIMIT_DATA: usize = 2;
const RLIMIT_AS: usize = 9;
const UNLIMITED: u64 = u64::MAX;

/// A limit as the kernel has it: the soft one, and the hard one.
type Limit = [u64; 2];

/// Does what needs memory; if it may not have any, once more with the limits lifted as far as the kernel permits it.
pub fn make_room<T>(map: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
    let mapped = map();
    if !matches!(mapped, Err(ENOMEM | EFBIG)) {
        return mapped;
    }
    let lifted = [RLIMIT_AS, RLIMIT_DATA, RLIMIT_FSIZE].map(|resource| (resource, lift(resource)));
    let mapped = map();
    for (resource, before) in lifted {
        if let Some(before) = before {
            // It was this limit a moment ago, so it is permitted.
            let _ = set(resource, before);
        }
    }
    mapped
}

/// Lifts a limit. Returns what it was, if it is another now.
fn lift(resource: usize) -> Option<Limit> {
    let mut before: Limit = [0; 2];
    let place = ptr::from_mut(&mut before).addr();
    // SAFETY: writes to `before` alone.
    unsafe { call(call::PRLIMIT64, [0, resource, 0, place, 0, 0]) }.ok()?;
    let [_, hard] = before;
    // To raise the hard one is a privilege.
    set(resource, [UNLIMITED; 2])
        .or_else(|_| set(resource, [hard; 2]))
        .ok()
        .map(|()| before)
}

fn set(resource: usize, limit: Limit) -> Result<(), Errno> {
    let limit = ptr::from_ref(&limit).addr();
    // SAFETY: reads `limit` alone; the limit is the calling process's own.
    unsafe { call(call::PRLIMIT64, [0, resource, limit, 0, 0, 0]) }.map(|_| ())
}
