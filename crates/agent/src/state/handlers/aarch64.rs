//! Stand-ins on aarch64, and what becomes there of calls that were cut short.
//!
//! Which call it was is known: its number stays in x8. But the register of its first argument holds the result, and the
//! kernel keeps the argument to itself. So a call is made again only where that argument does not matter. The others
//! return an error that they have natively as well, and for which programs are prepared: brk leaves the break where it
//! is. Not covered: rt_sigaction, set_tid_address, seccomp and ptrace, which return EINTR. Around the calls that make
//! and end threads C libraries block all signals.

use core::arch::{global_asm, naked_asm};
use core::ptr;

use super::{STAND_INS, mend as mend_and_find};
use crate::abi::call;
use crate::base::kernel::{self, EAGAIN, EINTR, ENOMEM, Errno, MARK, is_readable};

global_asm!(
    ".pushsection .text.vswap_stand_ins, \"ax\", @progbits",
    ".p2align 4",
    ".globl vswap_stand_ins",
    ".hidden vswap_stand_ins",
    "vswap_stand_ins:",
    ".rept {count}",
    ".p2align 4",
    // `bti c`: the kernel enters as a call by address does.
    "hint #34",
    "adr x16, .",
    "b {enter}",
    ".endr",
    ".popsection",
    count = const STAND_INS,
    enter = sym enter,
);
/// How far the place that a stand-in loads is behind its beginning.
const ADR_OFFSET: usize = 4;

/// Bytes of the frame of `enter`.
const FRAME_BYTES: usize = 48;
/// Where the `ucontext_t` lies from the stack pointer on with which the kernel enters a handler: behind a `siginfo_t`.
/// It is there for every handler, but its address is in x2 only for handlers with SA_SIGINFO.
const CONTEXT: usize = 128;

/// All stand-ins go on here, with their place in x16.
#[unsafe(naked)]
extern "C" fn enter() {
    naked_asm!(
        "stp x29, x30, [sp, #-{frame}]!",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "str x2, [sp, #32]",
        "sub x0, x16, #{adr}",
        "add x1, sp, #{context}",
        "bl {mend}",
        "mov x16, x0",
        "ldp x0, x1, [sp, #16]",
        "ldr x2, [sp, #32]",
        "ldp x29, x30, [sp], #{frame}",
        "br x16",
        adr = const ADR_OFFSET,
        frame = const FRAME_BYTES,
        context = const FRAME_BYTES + CONTEXT,
        mend = sym mend_and_find,
    )
}

/// Offsets in the `ucontext_t` that the kernel gives a handler, in bytes.
const X0: usize = 184;
const X3: usize = X0 + 3 * 8;
const X8: usize = X0 + 8 * 8;
const PC: usize = X0 + 32 * 8;

/// `svc #0`, and the bytes of every instruction.
const SVC: u32 = 0xd400_0001;
const INSTRUCTION_BYTES: usize = 4;

/// MAP_FIXED, MAP_FIXED_NOREPLACE. Without these the first argument is only a wish.
const AT_ADDRESS: usize = 0x10 | 0x10_0000;

/// What becomes of a call that was cut short.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// It is made again with this first argument.
    Again(usize),
    /// It returns this.
    Returns(usize),
    Fails(Errno),
    /// It is none of ours, or nothing can be done.
    Unchanged,
}

/// Has a call of ours that was cut short made again, or return something that its callers know.
pub fn mend(context: usize) {
    let [x0, x3, x8, pc] = [X0, X3, X8, PC]
        .map(|register| ptr::with_exposed_provenance_mut::<usize>(context.wrapping_add(register)));
    // SAFETY: the kernel has made the context, and the thread goes on with what it holds.
    unsafe {
        if x0.read() != 0_usize.wrapping_sub(EINTR as usize) || !is_behind_call(pc.read()) {
            return;
        }
        match outcome_of(x8.read(), x3.read()) {
            Outcome::Again(first) => {
                x0.write(first);
                pc.write(pc.read().wrapping_sub(INSTRUCTION_BYTES));
            }
            Outcome::Returns(value) => x0.write(value),
            Outcome::Fails(errno) => x0.write(0_usize.wrapping_sub(errno.cast_unsigned() as usize)),
            Outcome::Unchanged => {}
        }
    }
}

/// What becomes of the call with this number and, for mmap, these flags.
fn outcome_of(number: usize, flags: usize) -> Outcome {
    match u32::try_from(number) {
        Ok(call::BRK) => Outcome::Returns(program_break()),
        Ok(call::MMAP) if flags & AT_ADDRESS == 0 => Outcome::Again(0),
        Ok(call::MMAP | call::MREMAP | call::IO_URING_SETUP) => Outcome::Fails(ENOMEM),
        Ok(call::MADVISE | call::PROCESS_MADVISE | call::CLONE | call::CLONE3) => {
            Outcome::Fails(EAGAIN)
        }
        // The status is that of the process only if no other thread is left. Nobody expects the call to return.
        Ok(call::EXIT) => Outcome::Again(0),
        _ => Outcome::Unchanged,
    }
}

/// The break as it is: what the kernel returns if it cannot move.
fn program_break() -> usize {
    // SAFETY: with 0 the call changes nothing. Unsafe: a bare call.
    unsafe { kernel::call(kernel::call::BRK, [0, 0, 0, 0, 0, MARK]) }.unwrap_or(0)
}

/// Does the instruction before this address make a system call?
fn is_behind_call(address: usize) -> bool {
    let before = address.wrapping_sub(INSTRUCTION_BYTES);
    // The whole word in which it lies, which is of one page. Code may be executable and not readable.
    if !before.is_multiple_of(INSTRUCTION_BYTES) || !is_readable(before & !7) {
        return false;
    }
    // SAFETY: the kernel has just read it. Unsafe: the code is the program's, so it is read by address.
    unsafe { ptr::with_exposed_provenance::<u32>(before).read() == SVC }
}

#[cfg(test)]
mod tests {
    use super::super::tests::cut_short;
    use super::*;
    use crate::registers_tests::word;

    #[test]
    fn memory_is_mapped_though_a_signal_came() {
        let mapped = cut_short(word(::libc::SIGVTALRM), call::MMAP as usize);
        assert!(mapped != 0 && mapped.is_multiple_of(4096), "{mapped:x}");
        // SAFETY: the page was mapped just now, and nobody else has it.
        unsafe {
            ptr::with_exposed_provenance_mut::<u8>(mapped).write(1);
            kernel::unmap(mapped, 4096);
        }
    }

    #[test]
    fn calls_whose_first_argument_is_gone_fail_as_they_may() {
        let outcome = |number: u32, flags| outcome_of(number as usize, flags);
        assert_eq!(outcome(call::MMAP, 0x22), Outcome::Again(0));
        assert_eq!(outcome(call::MMAP, 0x32), Outcome::Fails(ENOMEM));
        assert_eq!(outcome(call::MMAP, 0x10_0022), Outcome::Fails(ENOMEM));
        assert_eq!(outcome(call::MREMAP, 0), Outcome::Fails(ENOMEM));
        assert_eq!(outcome(call::MADVISE, 0), Outcome::Fails(EAGAIN));
        assert_eq!(outcome(call::BRK, 0), Outcome::Returns(program_break()));
        assert_eq!(outcome_of(kernel::call::READ, 0), Outcome::Unchanged);
        assert_eq!(outcome_of(usize::MAX, 0), Outcome::Unchanged);
    }

    #[test]
    fn only_the_instruction_of_a_call_is_taken_for_one() {
        let code = [SVC, 0xd65f_03c0, SVC];
        let at = |index: usize| (&raw const code).addr() + index * INSTRUCTION_BYTES;
        assert!(is_behind_call(at(1)) && is_behind_call(at(3)));
        assert!(!is_behind_call(at(2)) && !is_behind_call(at(1) + 1));
        assert!(!is_behind_call(0) && !is_behind_call(4096));
    }
}
