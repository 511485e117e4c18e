//! What the kernel has in place of the program's handlers, so that a signal ends no call that the filter has stopped.
//!
//! A call that stops in the filter can be interrupted until the pager has received it; from then on the kernel waits
//! for the answer. With SA_RESTART the call is made again after the handler. Without it the call returns EINTR, which
//! brk, mmap and the others never do natively, so nobody is prepared for it: malloc takes the EINTR of brk for an
//! address.
//!
//! So the kernel gets a *stand-in* for each handler without SA_RESTART. It runs on the handler's stack, looks at what
//! was interrupted, and jumps to the program's handler with everything as the kernel has left it. If a call of ours was
//! cut short, the thread will make it again when the handler returns. The kernel does not say which call it was, but
//! the code does: compilers put `mov eax, number` a few bytes before `syscall`. Not covered: numbers that come from
//! elsewhere (libc's `syscall`), and handlers beyond the table.
//!
//! Hooks of libc's functions install the stand-ins (`hooks/signals.rs`). Where an agent was attached from outside there
//! are no hooks: there rt_sigaction stops in the filter, and the agent's thread makes the call (`commands`).
//!
//! Unsafe is needed here because the records are the kernel's and the program's, and the stand-ins are bare code.

use core::arch::{global_asm, naked_asm};
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::abi::call;
use crate::base::kernel::{self, EINTR, Errno, MARK, PAGE_BYTES, is_readable};

/// The kernel's `struct sigaction`.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Action {
    pub handler: usize,
    pub flags: usize,
    pub restorer: usize,
    pub mask: usize,
}

const SA_RESTART: usize = 0x1000_0000;
/// SIG_DFL and SIG_IGN are 0 and 1, SIG_ERR is the last address.
const SIG_IGN: usize = 1;
pub const SIG_ERR: usize = usize::MAX;
const SIGNALS: usize = 64;

/// Handlers that can have a stand-in: most programs have a handful. All others stay as they are.
const STAND_INS: usize = 128;
/// Bytes from one stand-in to the next.
const STAND_IN_BYTES: usize = 16;
/// The handler of each stand-in, 0 for none. None is ever given up: a thread may be on its way to it.
#[unsafe(link_section = ".data")]
static HANDLERS: [AtomicUsize; STAND_INS] = [const { AtomicUsize::new(0) }; STAND_INS];

unsafe extern "C" {
    /// The first stand-in.
    #[link_name = "vswap_stand_ins"]
    safe static FIRST: u8;
}

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

fn first() -> usize {
    (&raw const FIRST).addr()
}

/// The program's handler, if the kernel has `installed`.
pub fn handler_of(installed: usize) -> usize {
    let offset = installed.wrapping_sub(first());
    let handler = HANDLERS.get(offset / STAND_IN_BYTES);
    handler.map_or(installed, |handler| handler.load(Ordering::SeqCst))
}

/// What the kernel shall have for a handler with these flags: a stand-in if it needs one.
pub fn stand_in_for(handler: usize, flags: usize) -> usize {
    let is_one = handler.wrapping_sub(first()) < STAND_INS * STAND_IN_BYTES;
    if handler <= SIG_IGN || handler == SIG_ERR || is_one || flags & SA_RESTART != 0 {
        return handler;
    }
    let place = HANDLERS.iter().position(|place| {
        let claimed = place.compare_exchange(0, handler, Ordering::SeqCst, Ordering::SeqCst);
        claimed.is_ok() || claimed == Err(handler)
    });
    place.map_or(handler, |index| {
        first().wrapping_add(index.wrapping_mul(STAND_IN_BYTES))
    })
}

/// rt_sigaction for the program: the kernel gets a stand-in if one is needed, and the program gets its own handler.
pub fn act(signal: usize, mut action: Action) -> Result<Action, Errno> {
    action.handler = stand_in_for(action.handler, action.flags);
    let mut before = exchange(signal, Some(&action))?;
    before.handler = handler_of(before.handler);
    Ok(before)
}

/// Gives all handlers that the kernel has their stand-ins.
pub fn cover_all() {
    for signal in 1..=SIGNALS {
        // The kernel refuses some.
        let Ok(mut found) = exchange(signal, None) else {
            continue;
        };
        // A thread that sets another one meanwhile has the last word.
        while stand_in_for(found.handler, found.flags) != found.handler {
            match act(signal, found) {
                Ok(before) if before != found => found = before,
                _ => break,
            }
        }
    }
}

fn exchange(signal: usize, new: Option<&Action>) -> Result<Action, Errno> {
    let mut before = Action::default();
    let new = new.map_or(0, |action| ptr::from_ref(action).addr());
    let mask_bytes = size_of::<u64>();
    let arguments = [signal, new, (&raw mut before).addr(), mask_bytes, 0, MARK];
    // SAFETY: both records have the kernel's layout and outlive the call. The program asked for this handler. Unsafe: a
    // bare call.
    unsafe { kernel::call(call::RT_SIGACTION as usize, arguments) }.map(|_| before)
}

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
        mend = sym mend,
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

/// Has a call of ours that was cut short made again, and returns the program's handler.
extern "C" fn mend(stand_in: usize, context: usize) -> usize {
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
    handler_of(stand_in)
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

    #[test]
    fn handlers_have_one_stand_in_each() {
        let handler = |number: usize| 0x10_0000 + number * 16;
        let one = stand_in_for(handler(0), 0);
        assert!(one != handler(0) && handler_of(one) == handler(0));
        assert_eq!(stand_in_for(handler(0), 0), one, "the same again");
        assert_eq!(stand_in_for(one, 0), one, "a stand-in needs none");
        let restarts = stand_in_for(handler(1), SA_RESTART);
        assert_eq!(restarts, handler(1), "the kernel makes calls again");
        for special in [0, SIG_IGN, SIG_ERR] {
            assert_eq!(stand_in_for(special, 0), special);
            assert_eq!(handler_of(special), special);
        }
        let given = (0..=STAND_INS).map(|number| stand_in_for(handler(number), 0));
        let own = given
            .zip(0..)
            .filter(|(given, number)| *given == handler(*number));
        assert_eq!(own.count(), 1, "the table is full");
    }
}
