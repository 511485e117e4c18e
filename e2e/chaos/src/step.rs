//! The calls that a generated program is made of. Ranges are pages of the arena of the thread that runs the step.

use serde::{Deserialize, Serialize};

/// What a new mapping is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    Anon,
    SharedAnon,
    FilePrivate,
    FileShared,
    MemfdPrivate,
    MemfdShared,
}

/// Where a new mapping goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Place {
    /// Over whatever is there.
    Fixed,
    /// Refused where something is there.
    NoReplace,
    /// Only a hint: where something is there the kernel chooses, and the mapping is given back at once.
    Hint,
}

/// The way by which the kernel is asked for an advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Door {
    Madvise,
    ProcessMadvise,
    IoUring,
}

/// The way by which bytes come into memory or are read from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Access {
    /// Loads and stores.
    Touch,
    /// `process_vm_readv` and `process_vm_writev` on the process itself.
    ProcessVm,
    /// Through a pipe.
    Pipe,
    /// Through a file that was opened with `O_DIRECT`.
    DirectIo,
    /// Through `/proc/self/mem`, which disregards protection.
    ProcMem,
    /// Through a pipe too, by an `io_uring` with the page registered as a fixed buffer.
    IoUringFixed,
}

/// Pieces of advice, each with its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[repr(i32)]
pub(crate) enum Advice {
    Normal = 0,
    Random = 1,
    Sequential = 2,
    WillNeed = 3,
    DontNeed = 4,
    Free = 8,
    Remove = 9,
    DontFork = 10,
    DoFork = 11,
    Mergeable = 12,
    Unmergeable = 13,
    HugePage = 14,
    NoHugePage = 15,
    DontDump = 16,
    DoDump = 17,
    WipeOnFork = 18,
    KeepOnFork = 19,
    Cold = 20,
    PageOut = 21,
    PopulateRead = 22,
    PopulateWrite = 23,
    DontNeedLocked = 24,
    Collapse = 25,
    GuardInstall = 102,
    GuardRemove = 103,
    /// There is no such advice.
    Unknown = 77,
}

/// How a child is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Birth {
    /// `fork`, with the C library's handlers.
    Fork,
    /// `_Fork`, without them.
    BareFork,
    /// The system call `clone`.
    Clone,
    /// The system call `clone3`.
    Clone3,
    /// `posix_spawn` of this program, which is a vfork and an exec.
    Spawn,
}

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum End {
    /// `exit_group` with this status.
    Exit(u8),
    /// `exit` of the only thread with this status.
    RawExit(u8),
    /// A signal to itself.
    Signal(u8),
}

/// One call, or a few that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Step {
    Map {
        at: u32,
        pages: u32,
        kind: Kind,
        prot: u8,
        place: Place,
        populate: bool,
        noreserve: bool,
    },
    Unmap {
        at: u32,
        pages: u32,
    },
    /// `mremap` to a place of our choice; `keep`: with `MREMAP_DONTUNMAP`.
    Move {
        at: u32,
        pages: u32,
        to: u32,
        keep: bool,
    },
    /// `mremap` that may not move.
    Resize {
        at: u32,
        pages: u32,
        new: u32,
    },
    /// `mremap` to a place of the kernel's choice and back again.
    Away {
        at: u32,
        pages: u32,
    },
    /// `pkey`: by `pkey_mprotect` with the key that everything has.
    Protect {
        at: u32,
        pages: u32,
        prot: u8,
        pkey: bool,
    },
    Advise {
        at: u32,
        pages: u32,
        advice: Advice,
        door: Door,
    },
    /// `on_fault`: `mlock2(MLOCK_ONFAULT)`.
    Lock {
        at: u32,
        pages: u32,
        on_fault: bool,
    },
    Unlock {
        at: u32,
        pages: u32,
    },
    /// Locks all there is and, with `future`, all that comes; a process with other threads leaves it out.
    LockAll {
        future: bool,
    },
    UnlockAll,
    Seal {
        at: u32,
        pages: u32,
    },
    Fill {
        at: u32,
        pages: u32,
        by: Access,
    },
    Check {
        at: u32,
        pages: u32,
        by: Access,
    },
    /// The break up, down and up again.
    Brk {
        pages: u32,
    },
    /// From here on no mapping can be made; a process with other threads leaves it out.
    LimitAddressSpace,
    /// Time to be evicted.
    Pause {
        ms: u32,
    },
    /// Checks everything again and again.
    Linger {
        ms: u32,
    },
    /// A handler for a signal reads this page.
    Signal {
        at: u32,
    },
    /// A thread by a bare `clone` that checks a page, and whose word at the end of its life lies in the arena.
    RawThread {
        at: u32,
    },
    /// A child that runs the steps of `child` and ends; `wait`: at once.
    Fork {
        how: Birth,
        child: u32,
        end: End,
        wait: bool,
    },
}
