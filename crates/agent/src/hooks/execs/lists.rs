//! `execl`, `execlp` and `execle`, whose arguments come one by one.
//!
//! Each calls the function that takes a list with the address of the first argument. The code makes a list of what lies
//! in registers and what lies on the stack.

// How that is done.
#[cfg_attr(target_arch = "x86_64", path = "lists/x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "lists/aarch64.rs")]
mod machine;

use core::arch::naked_asm;

use super::{execute_with_environment, execv, execvp};
use machine::with_list;

/// libc's `execl`, `int execl(path, argument, ..., NULL)`.
///
/// # Safety
/// As for exec(3).
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execl() {
    with_list!(execv)
}

/// libc's `execlp`, `int execlp(file, argument, ..., NULL)`.
///
/// # Safety
/// As for exec(3).
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execlp() {
    with_list!(execvp)
}

/// libc's `execle`, `int execle(path, argument, ..., NULL, environment)`.
///
/// # Safety
/// As for exec(3).
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execle() {
    with_list!(execute_with_environment)
}

#[cfg(test)]
#[path = "lists/tests.rs"]
mod tests;
