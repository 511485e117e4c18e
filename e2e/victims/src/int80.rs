//! The calls of 32-bit programs (`int 0x80`), made by a 64-bit program.

use std::io::Error;

use crate::run::Child;
use crate::wrong::{Checked, Wrong};

// Numbers of 32-bit calls.
pub(crate) const EXIT: u32 = 1;
pub(crate) const FORK: u32 = 2;
const GETPID: u32 = 20;
pub(crate) const MUNMAP: u32 = 91;
pub(crate) const CLONE: u32 = 120;
pub(crate) const MPROTECT: u32 = 125;
pub(crate) const MREMAP: u32 = 163;
pub(crate) const MMAP2: u32 = 192;
pub(crate) const MADVISE: u32 = 219;
pub(crate) const PROCESS_MADVISE: u32 = 440;

/// Makes a 32-bit call, which must succeed. The kernel sees the low half of each argument.
///
/// # Safety
/// As for the call itself.
pub(crate) unsafe fn call32(number: u32, arguments: [usize; 6]) -> Checked<usize> {
    // SAFETY: the caller vouches for the call.
    match unsafe { may_call32(number, arguments)? } {
        Some(result) => Ok(result),
        None => Err(failed(libc::ENOSYS)),
    }
}

/// As [`call32`]. `None`: the call does not exist here (ENOSYS).
///
/// # Safety
/// As for the call itself.
pub(crate) unsafe fn may_call32(number: u32, arguments: [usize; 6]) -> Checked<Option<usize>> {
    let mut result = u64::from(number);
    // SAFETY: the caller vouches for the call. Both registers that the compiler keeps for itself are as before at the
    // end, and what the kernel may clear is named. The red zone is not used: the stack is part of the block.
    unsafe {
        std::arch::asm!(
            "push rbp",
            "push rbx",
            "mov rbp, [r12 + 40]",
            "mov rbx, [r12]",
            "int 0x80",
            "pop rbx",
            "pop rbp",
            inout("rax") result,
            in("r12") arguments.as_ptr(),
            in("rcx") arguments[1],
            in("rdx") arguments[2],
            in("rsi") arguments[3],
            in("rdi") arguments[4],
            out("r8") _,
            out("r9") _,
            out("r10") _,
            out("r11") _,
        );
    }
    // An error is the negative of its number, in 32 or 64 bits.
    let low = u32::try_from(result & u64::from(u32::MAX)).unwrap_or(0);
    match -low.cast_signed() {
        libc::ENOSYS => Ok(None),
        error @ 1..=4095 => Err(failed(error)),
        _ => Ok(Some(low as usize)),
    }
}

fn failed(errno: i32) -> Wrong {
    Wrong::Call {
        what: "int 0x80",
        error: Error::from_raw_os_error(errno),
    }
}

/// Without these calls in the kernel a child dies of a signal, or gets an error.
pub(crate) fn permitted() -> Checked {
    let child = Child::fork(|| {
        // SAFETY: asks for a number.
        let pid = unsafe { call32(GETPID, [0; 6]) };
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe {
            libc::_exit(i32::from(
                pid.ok() != usize::try_from(std::process::id()).ok(),
            ))
        }
    })?;
    match child.wait_status()? {
        0 => Ok(()),
        _ => Err(Wrong::Unavailable {
            what: "int 0x80",
            error: Error::from_raw_os_error(libc::ENOSYS),
        }),
    }
}
