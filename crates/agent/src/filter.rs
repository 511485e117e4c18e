//! The seccomp filter: six kinds of system call stop until the pager has dealt with them, everything else runs.
//!
//! mremap, because its events do not arrive in the order in which threads did it; madvise(MADV_FREE), because the
//! pages stay mapped and die later; madvise(MADV_WIPEONFORK), because a child must not get what was swapped out;
//! UFFDIO_REGISTER, because another userfaultfd on memory that is swapped out would lose it; brk and larger mappings
//! of private anonymous memory, because a program fills them faster than anybody can notice that they are there. The
//! number of the call is decided before anything else is looked at, so that the kernel keeps its table of calls that
//! are always allowed and the others cost nothing. The filter stays across fork and exec.

use crate::kernel::{Descriptor, EACCES, Errno, call};

/// The agent's own calls carry this in the sixth argument register, which brk, mremap and ioctl do not use, and in
/// which mmap wants a multiple of the page size that means nothing for anonymous memory. The address of the
/// instruction would not do: the filter outlives an exec, and the next image has its agent elsewhere.
pub const MARK: usize = (MARK_HIGH as usize) << 32 | MARK_LOW as usize;
const MARK_HIGH: u32 = 0x9b5c_71e2;
const MARK_LOW: u32 = 0xd03f_4000;
const _: () = assert!(MARK.is_multiple_of(crate::kernel::PAGE_BYTES));

#[repr(C)]
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
    // BPF_LD | BPF_W | BPF_ABS
    Instruction {
        code: 0x20,
        if_true: 0,
        if_false: 0,
        value: offset,
    }
}

/// Skips so many instructions if what was loaded is `value`, and so many if not.
const fn equal(value: u32, if_true: u8, if_false: u8) -> Instruction {
    // BPF_JMP | BPF_JEQ | BPF_K
    Instruction {
        code: 0x15,
        if_true,
        if_false,
        value,
    }
}

/// Skips so many instructions if what was loaded is `value` or more, and so many if not.
const fn at_least(value: u32, if_true: u8, if_false: u8) -> Instruction {
    // BPF_JMP | BPF_JGE | BPF_K
    Instruction {
        code: 0x35,
        if_true,
        if_false,
        value,
    }
}

/// Keeps the bits of `mask` of what was loaded.
const fn keep(mask: u32) -> Instruction {
    // BPF_ALU | BPF_AND | BPF_K
    Instruction {
        code: 0x54,
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

// Offsets in seccomp_data; low halves of arguments, on a little-endian machine.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const FIRST_ARGUMENT: u32 = 16;
const SECOND_ARGUMENT: u32 = 24;
const THIRD_ARGUMENT: u32 = 32;
const FOURTH_ARGUMENT: u32 = 40;
const SIXTH_ARGUMENT: u32 = 56;

const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
const ALLOW: u32 = 0x7fff_0000;
const USER_NOTIF: u32 = 0x7fc0_0000;

const MMAP: u32 = 9;
const BRK: u32 = 12;
const IOCTL: u32 = 16;
const MREMAP: u32 = 25;
const MADVISE: u32 = 28;
const MADV_FREE: u32 = 8;
const MADV_WIPEONFORK: u32 = 18;
const UFFDIO_REGISTER: u32 = 0xc020_aa00;
/// MAP_TYPE, MAP_ANONYMOUS, MAP_HUGETLB.
const KIND_OF_MAPPING: u32 = 0x0f | 0x20 | 0x4_0000;
/// MAP_PRIVATE, MAP_ANONYMOUS.
const PRIVATE_ANONYMOUS: u32 = 0x02 | 0x20;
/// Mappings from this size on are trapped: from here on libc's malloc makes a mapping for each allocation, and stopping
/// costs about what it costs to fill as much.
const MAPPING_BYTES: u32 = 128 << 10;
const FILTER_LENGTH: u16 = 28;

// The second and third number of `equal` and `at_least` are how many instructions are skipped.
#[rustfmt::skip]
static FILTER: [Instruction; FILTER_LENGTH as usize] = [
    /*  0 */ load(ARCHITECTURE),
    /*  1 */ equal(AUDIT_ARCH_X86_64, 0, 25),       // else 27
    /*  2 */ load(NUMBER),
    /*  3 */ equal(MREMAP, 18, 0),                  // then 22
    /*  4 */ equal(MMAP, 10, 0),                    // then 15
    /*  5 */ equal(BRK, 7, 0),                      // then 13
    /*  6 */ equal(IOCTL, 4, 0),                    // then 11
    /*  7 */ equal(MADVISE, 0, 19),                 // else 27
    /*  8 */ load(THIRD_ARGUMENT),
    /*  9 */ equal(MADV_FREE, 16, 0),               // then 26
    /* 10 */ equal(MADV_WIPEONFORK, 15, 16),        // then 26, else 27
    /* 11 */ load(SECOND_ARGUMENT),
    /* 12 */ equal(UFFDIO_REGISTER, 9, 14),         // then 22, else 27
    /* 13 */ load(FIRST_ARGUMENT),
    /* 14 */ equal(0, 12, 7),                       // where the break is: 27, else 22
    /* 15 */ load(FOURTH_ARGUMENT),
    /* 16 */ keep(KIND_OF_MAPPING),
    /* 17 */ equal(PRIVATE_ANONYMOUS, 0, 9),        // else 27
    /* 18 */ load(SECOND_ARGUMENT + 4),
    /* 19 */ equal(0, 0, 2),                        // 4 GiB or more: 22
    /* 20 */ load(SECOND_ARGUMENT),
    /* 21 */ at_least(MAPPING_BYTES, 0, 5),         // else 27
    /* 22 */ load(SIXTH_ARGUMENT),
    /* 23 */ equal(MARK_LOW, 0, 2),                 // else 26
    /* 24 */ load(SIXTH_ARGUMENT + 4),
    /* 25 */ equal(MARK_HIGH, 1, 0),                // then 27
    /* 26 */ answer(USER_NOTIF),
    /* 27 */ answer(ALLOW),
];

/// Installs the filter on all threads of the process and returns its listener. EBUSY: the process has inherited the
/// filter of another process of the run, whose listener serves it too.
///
/// Signals do not interrupt a call that the pager has received: mremap, done for the program and then done again after
/// the signal's handler, would move somebody else's memory. Without the right to install a filter the process gives up
/// the right to gain privileges, which is what the kernel then asks for.
pub fn install() -> Result<Descriptor, Errno> {
    const SECCOMP_SET_MODE_FILTER: usize = 1;
    /// TSYNC, SPEC_ALLOW, NEW_LISTENER, TSYNC_ESRCH, WAIT_KILLABLE_RECV.
    const FLAGS: usize = 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 5;
    const PR_SET_NO_NEW_PRIVS: usize = 38;
    let program = Program {
        length: FILTER_LENGTH,
        instructions: FILTER.as_ptr(),
    };
    let arguments = [
        SECCOMP_SET_MODE_FILTER,
        FLAGS,
        (&raw const program).addr(),
        0,
        0,
        0,
    ];
    // SAFETY: the program is complete, every jump ends inside it, and it stays in memory.
    unsafe {
        match call(call::SECCOMP, arguments) {
            Err(EACCES) => {
                call(call::PRCTL, [PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0])?;
                call(call::SECCOMP, arguments)
            }
            other => other,
        }
    }
}
