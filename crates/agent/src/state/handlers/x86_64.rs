//! Stand-ins on x86-64, and calls that are made again there.
//!
//! The kernel does not say which call was cut short: the register with its number holds the result. But the code does:
//! compilers put `mov eax, number` a few bytes before `syscall`. Not covered: numbers that come from elsewhere (libc's
//! `syscall`).

use core::arch::{global_asm, naked_asm};
use core::ptr;

use super::{STAND_INS, mend as mend_and_find};
use crate::abi::call;
use crate::base::kernel::{EINTR, PAGE_BYTES, is_readable};

global_asm!(
    ".pushsection .text.vswap_stand_ins, \"ax\", @progbits",
    ".p2align 4",
    ".globl vswap_stand_ins",
    ".hidden vswap_stand_ins",
    "vswap_stand_ins:",
    ".rept {count}",
    ".p2align 4",
    "lea rax, [rip]",
    "jmp {enter}",
    ".endr",
    ".popsection",
    count = const STAND_INS,
    enter = sym enter,
);
/// How far the place that a stand-in loads is behind its beginning.
const LEA_BYTES: usize = 7;

/// All stand-ins go on here, with their place in rax.
#[unsafe(naked)]
extern "C" fn enter() {
    naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "lea rdi, [rax - {lea}]",
        "mov rsi, rdx",
        "call {mend}",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "mov rcx, rax",
        // As the kernel leaves it.
        "xor eax, eax",
        "jmp rcx",
        lea = const LEA_BYTES,
        mend = sym mend_and_find,
    )
}

/// Offsets in the `ucontext_t` that the kernel gives a handler, in bytes.
const RAX: usize = 144;
const RIP: usize = 168;

/// The calls that the filter may stop and that never return EINTR natively.
const RESTARTED: [u32; 14] = [
    call::BRK,
    call::MMAP,
    call::MREMAP,
    call::MADVISE,
    call::PROCESS_MADVISE,
    call::CLONE,
    call::CLONE3,
    call::FORK,
    call::EXIT,
    call::SET_TID_ADDRESS,
    call::IO_URING_SETUP,
    call::SECCOMP,
    call::PTRACE,
    call::RT_SIGACTION,
];

/// Has a call of ours that was cut short made again.
pub fn mend(context: usize) {
    let [rax, rip] = [RAX, RIP]
        .map(|register| ptr::with_exposed_provenance_mut::<usize>(context.wrapping_add(register)));
    // SAFETY: the kernel has made the context, and the thread goes on with what it holds.
    unsafe {
        if rax.read() == 0_usize.wrapping_sub(EINTR as usize)
            && let Some(number) = number_of_call(rip.read())
            && RESTARTED.contains(&number)
        {
            rax.write(number as usize);
            rip.write(rip.read().wrapping_sub(SYSCALL.len()));
        }
    }
}

const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// How far before the interrupted place the number is looked for.
const LOOK_BYTES: usize = 48;
/// No system call has a higher number.
const NUMBER_MAX: u32 = 1023;

/// The number of the call whose instruction ends at this address, if the code before it tells.
fn number_of_call(end: usize) -> Option<u32> {
    let first = end.wrapping_sub(LOOK_BYTES);
    // What begins on the page before may not be readable there. The instruction itself was just run.
    let start = if is_readable(first) {
        first
    } else {
        first.max(end.wrapping_sub(SYSCALL.len()) & !(PAGE_BYTES - 1))
    };
    let mut code = [0; LOOK_BYTES];
    for (byte, address) in code.iter_mut().rev().zip((start..end).rev()) {
        // SAFETY: all of it is readable, as just asked, or on the page of an instruction that was run. Unsafe: the
        // bytes are the program's, so they are read by address.
        *byte = unsafe { ptr::with_exposed_provenance::<u8>(address).read() };
    }
    number_in(&code)
}

/// The number that is loaded last before the instruction at the end of `code`.
fn number_in(code: &[u8]) -> Option<u32> {
    let code = code.strip_suffix(&SYSCALL)?;
    for at in (0..code.len()).rev() {
        let prefix = at.checked_sub(1).and_then(|before| code.get(before));
        // With one of these prefixes eax is r8d.
        let is_eax = prefix.is_none_or(|prefix| prefix & 0xf1 != 0x41);
        let number = match *code.get(at..)? {
            // Another call ends here. xor eax, eax: no call of ours.
            [0x0f, 0x05, ..] => return None,
            [0x31 | 0x33, 0xc0, ..] if is_eax => return None,
            // mov eax, number
            [0xb8, a, b, c, d, ..] if is_eax => u32::from_le_bytes([a, b, c, d]),
            // mov rax, number
            [0xc7, 0xc0, a, b, c, d, ..] if prefix == Some(&0x48) => {
                u32::from_le_bytes([a, b, c, d])
            }
            // push number; pop rax
            [0x6a, number, 0x58, ..] => u32::from(number),
            _ => continue,
        };
        // Else these bytes are part of something else.
        if number <= NUMBER_MAX {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_where_compilers_put_it() {
        let number = |code: &[u8]| number_in(&[code, &SYSCALL].concat());
        assert_eq!(number(&[0xb8, 9, 0, 0, 0]), Some(9));
        assert_eq!(number(&[0xb8, 0xb3, 1, 0, 0]), Some(435));
        assert_eq!(number(&[0x48, 0xc7, 0xc0, 12, 0, 0, 0]), Some(12));
        assert_eq!(number(&[0x6a, 25, 0x58]), Some(25), "push, pop");
        // mov eax, 9; xor r8d, r8d; mov r10, rcx
        let between = [0xb8, 9, 0, 0, 0, 0x45, 0x31, 0xc0, 0x49, 0x89, 0xca];
        assert_eq!(number(&between), Some(9));
        // mov eax, 9; mov r8d, -1 and mov r8d, 12
        let other = [0xb8, 9, 0, 0, 0, 0x41, 0xb8, 0xff, 0xff, 0xff, 0xff];
        assert_eq!(number(&other), Some(9));
        let other = [0xb8, 9, 0, 0, 0, 0x41, 0xb8, 12, 0, 0, 0];
        assert_eq!(number(&other), Some(9));
        // The last one holds: futex after mmap, read after mmap, and a call in between.
        let last = [0xb8, 9, 0, 0, 0, 0xb8, 202, 0, 0, 0];
        assert_eq!(number(&last), Some(202));
        assert_eq!(number(&[0xb8, 9, 0, 0, 0, 0x31, 0xc0]), None);
        assert_eq!(number(&[0xb8, 9, 0, 0, 0, 0x0f, 0x05, 0x90]), None);
        // As libc's syscall has it: mov rax, rdi; mov rdi, rsi
        assert_eq!(number(&[0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7]), None);
        assert_eq!(number_in(&[0xb8, 9, 0, 0, 0]), None, "no call");
    }
}
