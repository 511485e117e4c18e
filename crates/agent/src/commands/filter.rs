//! The seccomp filter. Some kinds of system call stop until the pager has dealt with them; every other call runs.
//!
//! | call | why it stops |
//! |---|---|
//! | mremap | its events do not arrive in the order in which threads called it |
//! | mmap of private anonymous memory, brk | registered before it is filled; so it merges with its neighbours |
//! | MADV_FREE | the pages stay mapped and die later, without an event |
//! | MADV_GUARD_INSTALL | discards content without an event |
//! | MADV_GUARD_REMOVE | the last moment at which the pager can see a guard that a ring has installed |
//! | MADV_WIPEONFORK | a child must not get what was swapped out |
//! | MADV_KEEPONFORK | the pager manages again what it left alone since MADV_WIPEONFORK |
//! | UFFDIO_REGISTER | another userfaultfd on memory that is swapped out would lose it |
//! | exit of a thread | the kernel writes to memory of a thread that ends, and cannot wait for a fault then |
//! | clone of a thread, clone3, set_tid_address | they name a word that the kernel will write in this way |
//! | fork, clone and clone3 of a process | where the agent was attached from outside no hook tells of a fork |
//! | io_uring_setup | advice by a ring raises no event and stops nowhere |
//! | PTRACE_ATTACH, PTRACE_SEIZE | a process that stops itself (LeakSanitizer does) must not stop its agent |
//! | a seccomp filter for all threads | the agent is one of them |
//! | rt_sigaction that sets a handler | where the agent was attached from outside no hook gives it a stand-in |
//!
//! Advice stops at both of its system calls, madvise and process_madvise. The filter decides by the number of the call
//! before it looks at anything else. So the kernel keeps its table of calls that are always allowed, and those cost
//! nothing. The filter survives fork and exec.
//!
//! It takes two filters: the agent's thread installs the one above for itself, and once the pager has its listener the
//! second one spreads both over all threads.
//!
//! Programs of 32 bits have the filter too, by exec, and their calls run, since nothing of them is swapped.

// What the filter says to calls of another kind, such as those of 32-bit programs.
#[cfg_attr(target_arch = "x86_64", path = "filter/x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "filter/aarch64.rs")]
mod machine;

use crate::abi::advice::{FREE, GUARD_INSTALL, GUARD_REMOVE, KEEPONFORK, WIPEONFORK};
use crate::abi::call::{
    ARCHITECTURE as OURS, BRK, CLONE, CLONE3, EXIT, FORK, IO_URING_SETUP, IOCTL, MADVISE, MMAP,
    MREMAP, PROCESS_MADVISE, PTRACE, RT_SIGACTION, SECCOMP, SET_TID_ADDRESS,
};
use crate::base::kernel::{
    Descriptor, EACCES, EBUSY, EEXIST, Errno, MARK, MARK_HIGH, MARK_LOW, call,
};

/// BPF_LD | BPF_W | BPF_ABS.
const LOAD: u16 = 0x20;
/// BPF_JMP | BPF_JEQ | BPF_K.
const EQUAL: u16 = 0x15;
/// BPF_JMP | BPF_JSET | BPF_K.
const ANY_OF: u16 = 0x45;
/// BPF_ALU | BPF_AND | BPF_K.
const KEEP: u16 = 0x54;

#[repr(C)]
#[derive(Clone, Copy)]
struct Instruction {
    code: u16,
    if_true: u8,
    if_false: u8,
    value: u32,
}

#[repr(C)]
struct Program {
    length: u16,
    instructions: *const Instruction,
}

const fn load(offset: u32) -> Instruction {
    Instruction {
        code: LOAD,
        if_true: 0,
        if_false: 0,
        value: offset,
    }
}

/// Skips `if_true` instructions if the loaded word is `value`, else `if_false`.
const fn equal(value: u32, if_true: u8, if_false: u8) -> Instruction {
    Instruction {
        code: EQUAL,
        if_true,
        if_false,
        value,
    }
}

/// Skips `if_true` instructions if the loaded word has a bit of `mask`, else `if_false`.
const fn any_of(mask: u32, if_true: u8, if_false: u8) -> Instruction {
    Instruction {
        code: ANY_OF,
        if_true,
        if_false,
        value: mask,
    }
}

/// Keeps only the bits of `mask` in the loaded word.
const fn keep(mask: u32) -> Instruction {
    Instruction {
        code: KEEP,
        if_true: 0,
        if_false: 0,
        value: mask,
    }
}

const fn answer(value: u32) -> Instruction {
    // BPF_RET | BPF_K
    Instruction {
        code: 0x06,
        if_true: 0,
        if_false: 0,
        value,
    }
}

// Offsets in seccomp_data. An argument's offset is that of its low half, on a little-endian machine.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const FIRST_ARGUMENT: u32 = 16;
const SECOND_ARGUMENT: u32 = 24;
const THIRD_ARGUMENT: u32 = 32;
const FOURTH_ARGUMENT: u32 = 40;
const SIXTH_ARGUMENT: u32 = 56;

/// The upper half of the address behind the instruction that makes the call.
const CODE_HIGH: u32 = 12;

const ALLOW: u32 = 0x7fff_0000;
const USER_NOTIF: u32 = 0x7fc0_0000;

const PTRACE_ATTACH: u32 = 16;
const PTRACE_SEIZE: u32 = 0x4206;
const SECCOMP_SET_MODE_FILTER: u32 = 1;
const SECCOMP_FILTER_FLAG_TSYNC: u32 = 1;
const CLONE_VM: u32 = 0x100;
/// CLONE_VM, CLONE_CHILD_CLEARTID: a thread, with a word that the kernel clears when the thread ends.
const THREAD_WITH_WORD: u32 = CLONE_VM | 0x20_0000;
const UFFDIO_REGISTER: u32 = 0xc020_aa00;
/// MAP_TYPE, MAP_ANONYMOUS, MAP_HUGETLB.
const KIND_OF_MAPPING: u32 = 0x0f | 0x20 | 0x4_0000;
/// MAP_PRIVATE, MAP_ANONYMOUS.
const PRIVATE_ANONYMOUS: u32 = 0x02 | 0x20;
/// Instructions for calls of this machine's own kind.
const OWN_LENGTH: usize = 56;
const FILTER_LENGTH: usize = OWN_LENGTH + machine::OTHERS.len();

// The second and third argument of `equal` and `any_of` say how many instructions are skipped. The comments behind the
// instructions name the target.
#[rustfmt::skip]
const OWN: [Instruction; OWN_LENGTH] = [
    /*  0 */ load(ARCHITECTURE),
    /*  1 */ equal(OURS, 0, 54),                      // else 56
    /*  2 */ load(NUMBER),
    /*  3 */ equal(MREMAP, 46, 0),                    // then 50
    /*  4 */ equal(MMAP, 42, 0),                      // then 47
    /*  5 */ equal(BRK, 37, 0),                       // then 43
    /*  6 */ equal(IOCTL, 30, 0),                     // then 37
    /*  7 */ equal(EXIT, 42, 0),                      // then 50
    /*  8 */ equal(RT_SIGACTION, 30, 0),              // then 39
    /*  9 */ equal(CLONE3, 44, 0),                    // then 54
    /* 10 */ equal(FORK, 43, 0),                      // then 54
    /* 11 */ equal(SET_TID_ADDRESS, 42, 0),           // then 54
    /* 12 */ equal(IO_URING_SETUP, 41, 0),            // then 54
    /* 13 */ equal(CLONE, 19, 0),                     // then 33
    /* 14 */ equal(PTRACE, 15, 0),                    // then 30
    /* 15 */ equal(SECCOMP, 10, 0),                   // then 26
    /* 16 */ equal(MADVISE, 3, 0),                    // then 20
    /* 17 */ equal(PROCESS_MADVISE, 0, 37),           // else 55
    /* 18 */ load(FOURTH_ARGUMENT),
    /* 19 */ equal(0, 1, 1),                          // 21
    /* 20 */ load(THIRD_ARGUMENT),
    /* 21 */ equal(FREE, 28, 0),                      // then 50
    /* 22 */ equal(WIPEONFORK, 27, 0),                // then 50
    /* 23 */ equal(KEEPONFORK, 26, 0),                // then 50
    /* 24 */ equal(GUARD_REMOVE, 25, 0),              // then 50
    /* 25 */ equal(GUARD_INSTALL, 24, 29),            // then 50, else 55
    /* 26 */ load(FIRST_ARGUMENT),
    /* 27 */ equal(SECCOMP_SET_MODE_FILTER, 0, 27),   // else 55
    /* 28 */ load(SECOND_ARGUMENT),
    /* 29 */ any_of(SECCOMP_FILTER_FLAG_TSYNC, 20, 25), // then 50, else 55
    /* 30 */ load(FIRST_ARGUMENT),
    /* 31 */ equal(PTRACE_ATTACH, 22, 0),             // then 54
    /* 32 */ equal(PTRACE_SEIZE, 21, 22),             // then 54, else 55
    /* 33 */ load(FIRST_ARGUMENT),
    /* 34 */ any_of(CLONE_VM, 0, 19),                 // else 54
    /* 35 */ keep(THREAD_WITH_WORD),
    /* 36 */ equal(THREAD_WITH_WORD, 17, 18),         // then 54, else 55
    /* 37 */ load(SECOND_ARGUMENT),
    /* 38 */ equal(UFFDIO_REGISTER, 11, 16),          // then 50, else 55
    /* 39 */ load(SECOND_ARGUMENT),
    /* 40 */ equal(0, 0, 9),                          // else 50
    /* 41 */ load(SECOND_ARGUMENT + 4),
    /* 42 */ equal(0, 12, 7),                         // then 55, else 50
    /* 43 */ load(FIRST_ARGUMENT),
    /* 44 */ equal(0, 0, 5),                          // else 50
    /* 45 */ load(FIRST_ARGUMENT + 4),
    /* 46 */ equal(0, 8, 3),                          // then 55, else 50
    /* 47 */ load(FOURTH_ARGUMENT),
    /* 48 */ keep(KIND_OF_MAPPING),
    /* 49 */ equal(PRIVATE_ANONYMOUS, 0, 5),          // else 55
    /* 50 */ load(SIXTH_ARGUMENT),
    /* 51 */ equal(MARK_LOW, 0, 2),                   // else 54
    /* 52 */ load(SIXTH_ARGUMENT + 4),
    /* 53 */ equal(MARK_HIGH, 1, 0),                  // then 55
    /* 54 */ answer(USER_NOTIF),
    /* 55 */ answer(ALLOW),
    // Calls of another kind, which are the machine's: `machine::OTHERS`.
];
const INSTRUCTIONS: [Instruction; FILTER_LENGTH] = {
    let mut all = [answer(ALLOW); FILTER_LENGTH];
    let mut at = 0;
    while at < FILTER_LENGTH {
        all[at] = if at < OWN_LENGTH {
            OWN[at]
        } else {
            machine::OTHERS[at - OWN_LENGTH]
        };
        at += 1;
    }
    all
};
static FILTER: [Instruction; FILTER_LENGTH] = INSTRUCTIONS;

/// What the kernel answers to a call. The compiler carries the instructions above out.
const fn decide(architecture: u32, number: usize, code_at: usize, arguments: [usize; 6]) -> u32 {
    let (mut at, mut word) = (0, 0);
    loop {
        let Instruction {
            code,
            if_true,
            if_false,
            value,
        } = INSTRUCTIONS[at];
        at += 1;
        match code {
            LOAD => word = read(architecture, number, code_at, &arguments, value),
            KEEP => word &= value,
            EQUAL | ANY_OF => {
                let is_so = if code == EQUAL {
                    word == value
                } else {
                    word & value != 0
                };
                at += (if is_so { if_true } else { if_false }) as usize;
            }
            _ => return value,
        }
    }
}

/// The word at an offset of seccomp_data.
#[allow(clippy::cast_possible_truncation, reason = "words are halves")]
const fn read(
    architecture: u32,
    number: usize,
    code_at: usize,
    arguments: &[usize; 6],
    offset: u32,
) -> u32 {
    match offset {
        CODE_HIGH => (code_at >> 32) as u32,
        NUMBER => number as u32,
        ARCHITECTURE => architecture,
        _ => {
            let argument = arguments[(offset - FIRST_ARGUMENT) as usize / 8];
            if offset.is_multiple_of(8) {
                argument as u32
            } else {
                (argument >> 32) as u32
            }
        }
    }
}

const fn is_trapped(number: u32, arguments: [usize; 6]) -> bool {
    decide(OURS, number as usize, 0, arguments) == USER_NOTIF
}

/// Checked at each compilation: what stops, what does not, and that the agent's own calls never stop.
const _: () = {
    const HIGH: usize = 1 << 32;
    assert!(is_trapped(MREMAP, [0; 6]) && !is_trapped(MREMAP, [0, 0, 0, 0, 0, MARK]));
    assert!(is_trapped(MREMAP, [0, 0, 0, 0, 0, MARK ^ HIGH]));
    assert!(is_trapped(BRK, [4096, 0, 0, 0, 0, 0]) && is_trapped(BRK, [HIGH, 0, 0, 0, 0, 0]));
    assert!(!is_trapped(BRK, [0; 6]) && !is_trapped(BRK, [4096, 0, 0, 0, 0, MARK]));
    // A record of the handler that is set, or none.
    assert!(
        is_trapped(RT_SIGACTION, [10, 4096, 0, 8, 0, 0])
            && is_trapped(RT_SIGACTION, [10, HIGH, 0, 8, 0, 0])
    );
    assert!(
        !is_trapped(RT_SIGACTION, [10, 0, 4096, 8, 0, 0])
            && !is_trapped(RT_SIGACTION, [10, 4096, 0, 8, 0, MARK])
    );
    // MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE; without MAP_ANONYMOUS; shared; huge pages.
    assert!(is_trapped(MMAP, [0, 4096, 3, 0x4022, usize::MAX, 0]));
    assert!(!is_trapped(MMAP, [0, 4096, 3, 0x4022, usize::MAX, MARK]));
    assert!(!is_trapped(MMAP, [0, 4096, 3, 0x02, 3, 0]));
    assert!(!is_trapped(MMAP, [0, 4096, 3, 0x21, usize::MAX, 0]));
    assert!(!is_trapped(MMAP, [0, 4096, 3, 0x4_0022, usize::MAX, 0]));
    assert!(is_trapped(IOCTL, [3, UFFDIO_REGISTER as usize, 0, 0, 0, 0]));
    assert!(!is_trapped(
        IOCTL,
        [3, UFFDIO_REGISTER as usize, 0, 0, 0, MARK]
    ));
    assert!(!is_trapped(
        IOCTL,
        [UFFDIO_REGISTER as usize, 0, 0, 0, 0, 0]
    ));
    let advices = [FREE, WIPEONFORK, KEEPONFORK, GUARD_INSTALL, GUARD_REMOVE];
    let mut at = 0;
    while at < advices.len() {
        let advice = advices[at] as usize;
        assert!(is_trapped(MADVISE, [0, 0, advice, 0, 0, 0]));
        assert!(!is_trapped(MADVISE, [0, 0, advice, 0, 0, MARK]));
        assert!(!is_trapped(MADVISE, [0, 0, 4, advice, 0, 0]));
        assert!(is_trapped(PROCESS_MADVISE, [3, 0, 1, advice, 0, 0]));
        assert!(!is_trapped(PROCESS_MADVISE, [3, 0, 1, advice, 0, MARK]));
        assert!(!is_trapped(PROCESS_MADVISE, [3, 0, advice, 4, 0, 0]));
        at += 1;
    }
    // Calls of threads stop even with the mark, except the exit of the agent's own threads. A fork stops too, with
    // CLONE_CHILD_CLEARTID or without. CLONE_VFORK | CLONE_VM, which is vfork, shares its memory and names no word.
    assert!(is_trapped(EXIT, [0; 6]) && !is_trapped(EXIT, [0, 0, 0, 0, 0, MARK]));
    assert!(is_trapped(CLONE, [0x3d_0f00, 0, 0, 4096, 0, 0]));
    assert!(is_trapped(CLONE, [0x20_0100, 0, 0, 4096, 0, MARK]));
    assert!(
        is_trapped(CLONE, [0x120_0011, 0, 0, 4096, 0, 0])
            && is_trapped(CLONE, [17, 0, 0, 0, 0, MARK])
    );
    assert!(is_trapped(FORK, [0; 6]));
    assert!(!is_trapped(CLONE, [0x4111, 0, 0, 0, 0, 0]));
    assert!(is_trapped(CLONE3, [4096, 88, 0, 0, 0, MARK]));
    assert!(is_trapped(SET_TID_ADDRESS, [4096, 0, 0, 0, 0, 0]));
    assert!(is_trapped(IO_URING_SETUP, [8, 4096, 0, 0, 0, 0]));
    // PTRACE_TRACEME, PTRACE_CONT.
    assert!(is_trapped(PTRACE, [PTRACE_ATTACH as usize, 2, 0, 0, 0, 0]));
    assert!(is_trapped(PTRACE, [PTRACE_SEIZE as usize, 2, 0, 0, 0, 0]));
    assert!(!is_trapped(PTRACE, [0; 6]) && !is_trapped(PTRACE, [7, 2, 0, 0, 0, 0]));
    // TSYNC with other flags, without it, SECCOMP_GET_NOTIF_SIZES, and the agent's own filter.
    assert!(is_trapped(SECCOMP, [1, 1, 4096, 0, 0, 0]));
    assert!(is_trapped(SECCOMP, [1, 0x1f, 4096, 0, 0, 0]));
    assert!(!is_trapped(SECCOMP, [1, 0x1e, 4096, 0, 0, 0]));
    assert!(!is_trapped(SECCOMP, [3, 1, 4096, 0, 0, 0]));
    assert!(!is_trapped(SECCOMP, [1, 0x3d, 4096, 0, 0, MARK]));
    assert!(decide(OURS, call::READ, 0, [0; 6]) == ALLOW);
    assert!(decide(OURS, call::EXIT_GROUP, 0, [MARK; 6]) == ALLOW);
};

/// The second filter. It lets every call run, and gives itself away to who asks by [`is_installed`].
static SPREADING: [Instruction; 8] = [
    load(ARCHITECTURE),
    equal(OURS, 0, 5), // else the last
    load(NUMBER),
    equal(SECCOMP, 0, 3), // else the last
    load(FIRST_ARGUMENT),
    equal(ARE_YOU_THERE, 0, 1), // else the last
    answer(YES),
    answer(ALLOW),
];
/// No operation of seccomp. The kernel itself answers with EINVAL.
const ARE_YOU_THERE: u32 = 0x7673_7761;
/// The call fails with EEXIST.
const YES: u32 = 0x0005_0000 | 17;

/// Installs the filter on the calling thread and returns its listener. EEXIST: the process has inherited the filter of
/// another process of the run, whose listener serves this process too. EBUSY: somebody else's filter has a listener,
/// and there can be only one.
///
/// The calling thread has the filter alone until [`spread`]. If another thread starts another program before the pager
/// has the listener, the new program has no filter. One whose listener is lost would have its trapped calls fail.
///
/// Signals do not interrupt a call that the pager has received. Otherwise mremap could be done for the program and then
/// once more after the signal's handler, and move somebody else's memory. If the process has no right to install a
/// filter, it gives up the right to gain privileges, which is what the kernel demands then.
pub fn install() -> Result<Descriptor, Errno> {
    /// SPEC_ALLOW, NEW_LISTENER, WAIT_KILLABLE_RECV.
    const FLAGS: usize = 1 << 2 | 1 << 3 | 1 << 5;
    const PR_SET_NO_NEW_PRIVS: usize = 38;
    match set(&FILTER, FLAGS) {
        Err(EACCES) => {
            // SAFETY: the call takes a right away and touches no memory.
            unsafe { call(call::PRCTL, [PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0]) }?;
            set(&FILTER, FLAGS)
        }
        Err(EBUSY) if is_installed() => Err(EEXIST),
        other => other,
    }
}

/// Gives all threads the filter that the calling thread has installed. ESRCH: a thread has a filter of its own.
///
/// The kernel gives a thread's filters to all others only while it installs one more, which is what the second filter
/// is for.
pub fn spread() -> Result<(), Errno> {
    /// TSYNC, SPEC_ALLOW, TSYNC_ESRCH.
    const FLAGS: usize = 1 | 1 << 2 | 1 << 4;
    set(&SPREADING, FLAGS).map(|_| ())
}

/// Has the calling thread both filters of vswap?
fn is_installed() -> bool {
    // SAFETY: the kernel knows no such operation and touches nothing.
    unsafe { call(call::SECCOMP, [ARE_YOU_THERE as usize, 0, 0, 0, 0, MARK]) == Err(EEXIST) }
}

fn set<const LENGTH: usize>(
    instructions: &'static [Instruction; LENGTH],
    flags: usize,
) -> Result<usize, Errno> {
    const { assert!(LENGTH <= u16::MAX as usize) };
    #[allow(clippy::cast_possible_truncation, reason = "checked above")]
    let program = Program {
        length: LENGTH as u16,
        instructions: instructions.as_ptr(),
    };
    let operation = SECCOMP_SET_MODE_FILTER as usize;
    let program = (&raw const program).addr();
    // SAFETY: the program is complete, every jump ends inside it, and both records outlive the call.
    unsafe { call(call::SECCOMP, [operation, flags, program, 0, 0, MARK]) }
}
