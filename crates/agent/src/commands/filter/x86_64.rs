//! What the filter says to calls of another kind on x86-64.
//!
//! A 64-bit program can also make the calls of 32-bit programs (`int 0x80`). Of these, the ones in the table of the
//! filter that would lead to wrong bytes fail with ENOSYS, as all of them do on a kernel without 32-bit calls. The
//! code of 32-bit programs lies below 4 GiB, which is how the filter tells one from the other. So calls from code of a
//! 64-bit program that lies there run as well.

use super::{
    ALLOW, CODE_HIGH, FOURTH_ARGUMENT, Instruction, NUMBER, SECOND_ARGUMENT, THIRD_ARGUMENT,
    UFFDIO_REGISTER, answer, decide, equal, load,
};
use crate::abi::advice::{FREE, GUARD_INSTALL, GUARD_REMOVE, KEEPONFORK, WIPEONFORK};
use crate::abi::call::{ARCHITECTURE_32_BIT, CLONE3, IO_URING_SETUP, PROCESS_MADVISE};

/// The call fails with ENOSYS.
const NO_SUCH_CALL: u32 = 0x0005_0000 | 38;

/// Numbers of the calls of 32-bit programs.
mod of_32_bits {
    pub const FORK: u32 = 2;
    pub const IOCTL: u32 = 54;
    pub const CLONE: u32 = 120;
    pub const MREMAP: u32 = 163;
    pub const MADVISE: u32 = 219;
    pub const SET_TID_ADDRESS: u32 = 258;
    pub const SECCOMP: u32 = 354;
}

/// The last instructions of the filter. The comments name places in the whole filter, which has 56 before these.
#[rustfmt::skip]
pub const OTHERS: [Instruction; 26] = [
    /* 56 */ equal(ARCHITECTURE_32_BIT, 0, 24),       // else 81
    /* 57 */ load(NUMBER),
    /* 58 */ equal(of_32_bits::MREMAP, 19, 0),        // then 78
    /* 59 */ equal(of_32_bits::FORK, 18, 0),          // then 78
    /* 60 */ equal(of_32_bits::CLONE, 17, 0),         // then 78
    /* 61 */ equal(CLONE3, 16, 0),                    // then 78
    /* 62 */ equal(of_32_bits::SET_TID_ADDRESS, 15, 0), // then 78
    /* 63 */ equal(IO_URING_SETUP, 14, 0),            // then 78
    /* 64 */ equal(of_32_bits::SECCOMP, 13, 0),       // then 78
    /* 65 */ equal(of_32_bits::MADVISE, 2, 0),        // then 68
    /* 66 */ equal(PROCESS_MADVISE, 3, 0),            // then 70
    /* 67 */ equal(of_32_bits::IOCTL, 8, 13),         // then 76, else 81
    /* 68 */ load(THIRD_ARGUMENT),
    /* 69 */ equal(0, 1, 1),                          // 71
    /* 70 */ load(FOURTH_ARGUMENT),
    /* 71 */ equal(FREE, 6, 0),                       // then 78
    /* 72 */ equal(WIPEONFORK, 5, 0),                 // then 78
    /* 73 */ equal(KEEPONFORK, 4, 0),                 // then 78
    /* 74 */ equal(GUARD_REMOVE, 3, 0),               // then 78
    /* 75 */ equal(GUARD_INSTALL, 2, 5),              // then 78, else 81
    /* 76 */ load(SECOND_ARGUMENT),
    /* 77 */ equal(UFFDIO_REGISTER, 0, 3),            // else 81
    /* 78 */ load(CODE_HIGH),
    /* 79 */ equal(0, 1, 0),                          // then 81
    /* 80 */ answer(NO_SUCH_CALL),
    /* 81 */ answer(ALLOW),
];

/// Does this call of 32-bit programs fail? It comes from code above 4 GiB.
const fn is_refused(number: u32, arguments: [usize; 6]) -> bool {
    decide(
        ARCHITECTURE_32_BIT,
        number as usize,
        0x5555_5555_0000,
        arguments,
    ) == NO_SUCH_CALL
}

/// Checked at each compilation: what 64-bit programs cannot do by `int 0x80`, and that 32-bit programs can do it.
const _: () = {
    use of_32_bits::{CLONE, FORK, IOCTL, MADVISE, MREMAP, SECCOMP, SET_TID_ADDRESS};
    let refused = [
        MREMAP,
        FORK,
        CLONE,
        CLONE3,
        SET_TID_ADDRESS,
        IO_URING_SETUP,
        SECCOMP,
    ];
    let mut at = 0;
    while at < refused.len() {
        assert!(is_refused(refused[at], [0; 6]));
        assert!(
            decide(
                ARCHITECTURE_32_BIT,
                refused[at] as usize,
                0x0804_8000,
                [0; 6]
            ) == ALLOW
        );
        at += 1;
    }
    let advices = [FREE, WIPEONFORK, KEEPONFORK, GUARD_INSTALL, GUARD_REMOVE];
    let mut at = 0;
    while at < advices.len() {
        let advice = advices[at] as usize;
        assert!(is_refused(MADVISE, [0, 0, advice, 0, 0, 0]));
        assert!(!is_refused(MADVISE, [0, 0, 4, advice, 0, 0]));
        assert!(is_refused(PROCESS_MADVISE, [3, 0, 1, advice, 0, 0]));
        assert!(!is_refused(PROCESS_MADVISE, [3, 0, advice, 4, 0, 0]));
        let low = decide(
            ARCHITECTURE_32_BIT,
            MADVISE as usize,
            0x0804_8000,
            [0, 0, advice, 0, 0, 0],
        );
        assert!(low == ALLOW);
        at += 1;
    }
    assert!(is_refused(IOCTL, [3, UFFDIO_REGISTER as usize, 0, 0, 0, 0]));
    assert!(!is_refused(IOCTL, [3, 0x5401, 0, 0, 0, 0]));
    // mmap2, munmap, mprotect, brk and vfork raise events, or share their memory.
    let events = [192, 91, 125, 45, 190];
    let mut at = 0;
    while at < events.len() {
        assert!(!is_refused(events[at], [0; 6]));
        at += 1;
    }
    // Numbers of 64-bit calls mean other calls here, and an architecture that is none of both is left alone.
    assert!(!is_refused(25, [0; 6]) && !is_refused(56, [0; 6]));
    assert!(decide(0x4000_0028, MREMAP as usize, 1 << 40, [0; 6]) == ALLOW);
};
