//! The seccomp filter of vswap's own process, compiled from the lists in `calls.rs`.
//!
//! Two programs: one lets the listed calls through and fails all others, one ends the process at calls that are an
//! attack. The kernel runs both, the second one first, and obeys the stricter answer, of equal ones the second one's.
//! Of calls that both let through with any arguments it remembers that, and runs nothing.
//!
//! Unsafe is needed here because `seccompiler` installs without the flag that has refused calls logged.

use std::collections::BTreeMap;
use std::io;

use libc::c_long;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompFilter, SeccompRule, TargetArch, sock_filter,
};

use super::rule::Rule;
use super::{Reach, calls};
use crate::abi::call::{CLONE3, IOCTL};

/// What a call gets that is not on the list, as from a kernel that does not have it.
const REFUSAL: SeccompAction = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());

/// Why vswap runs without its filter.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// The lists make no program.
    #[error("it cannot be compiled: {0}")]
    Compile(#[from] BackendError),
    /// The kernel has no filters, or an outer one forbids more.
    #[error("the kernel refuses it: {0}")]
    Refused(#[source] io::Error),
    /// A thread has another filter.
    #[error("thread {0} has a filter of its own")]
    Thread(c_long),
}

/// Calls of any other are an attack: what their numbers mean nobody has looked at.
const MACHINE: TargetArch = if cfg!(target_arch = "x86_64") {
    TargetArch::x86_64
} else {
    TargetArch::aarch64
};

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn rules(
    plain: impl Iterator<Item = c_long>,
    with: Vec<(c_long, Vec<Rule>)>,
) -> Result<Rules, BackendError> {
    let mut all: Rules = plain.map(|call| (call, Vec::new())).collect();
    for (call, rules) in with {
        let rules = rules.into_iter().map(Rule::compiled);
        all.insert(call, rules.collect::<Result<_, _>>()?);
    }
    Ok(all)
}

fn program(
    rules: Rules,
    otherwise: SeccompAction,
    listed: SeccompAction,
) -> Result<BpfProgram, BackendError> {
    SeccompFilter::new(rules, otherwise, listed, MACHINE)?.try_into()
}

/// Lets through what is on the list.
fn allowing(reach: Reach) -> Result<BpfProgram, BackendError> {
    let rules = rules(calls::allowed(), calls::allowed_with(reach))?;
    program(rules, REFUSAL, SeccompAction::Allow)
}

/// Ends the process at an attack.
fn ending() -> Result<BpfProgram, BackendError> {
    let rules = rules(calls::fatal(), calls::fatal_with())?;
    let rest = program(rules, SeccompAction::Allow, SeccompAction::KillProcess)?;
    Ok(AT_ONCE.into_iter().chain(rest).collect())
}

/// What the second program begins with. The only call on the way of a fault whose arguments the first program looks at,
/// so that the kernel remembers nothing of it, passes before any other is looked for. And `clone3` fails here, without
/// a line in the log: the C library tries it once in every process.
const AT_ONCE: [sock_filter; 5] = [
    // The number of the call lies first in `seccomp_data`.
    step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
    step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, IOCTL),
    step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
    step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, CLONE3),
    step(
        libc::BPF_RET | libc::BPF_K,
        0,
        libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs(),
    ),
];

/// A step that goes on with the next one, or, if it compares and finds another number, `jf` steps further.
const fn step(code: u32, jf: u8, k: u32) -> sock_filter {
    // The largest code has 8 bits.
    let code = (code & 0xFF) as u16;
    sock_filter { code, jt: 0, jf, k }
}

/// Puts the filter on all threads of this process, for good. The process cannot gain rights by an exec any more.
///
/// # Errors
/// [`FilterError`]. A part of the filter may be there then.
pub fn install(reach: Reach) -> Result<(), FilterError> {
    let (first, second) = (allowing(reach)?, ending()?);
    rustix::thread::set_no_new_privs(true).map_err(|errno| FilterError::Refused(errno.into()))?;
    add(&first, libc::SECCOMP_FILTER_FLAG_LOG)?;
    // What it ends is logged in any case.
    add(&second, 0)
}

/// Adds a program to the filter of all threads. With the flag, what it fails is logged.
fn add(program: &BpfProgram, log: libc::c_ulong) -> Result<(), FilterError> {
    /// Kernel's `struct sock_fprog`.
    #[repr(C)]
    struct Program {
        steps: u16,
        filter: *const sock_filter,
    }
    let passed = Program {
        // A longer one is refused.
        steps: u16::try_from(program.len()).unwrap_or(0),
        filter: program.as_ptr(),
    };
    let flags = libc::SECCOMP_FILTER_FLAG_TSYNC | log;
    // SAFETY: the kernel copies the program, which outlives the call and has so many steps, and changes no memory.
    let done = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            &raw const passed,
        )
    };
    match done {
        0 => Ok(()),
        -1 => Err(FilterError::Refused(io::Error::last_os_error())),
        thread => Err(FilterError::Thread(thread)),
    }
}

#[cfg(test)]
#[path = "filter_tests.rs"]
mod tests;
