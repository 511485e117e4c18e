//! The calls that a generated program is made of. Ranges are pages in the arena of the thread that runs the step.

use serde::{Deserialize, Serialize};

/// The source of a new mapping.
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
    /// Refused if something is there.
    NoReplace,
    /// Only a hint. If something is there the kernel chooses a place, and the mapping is removed at once.
    Hint,
}

/// The call by which advice is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Door {
    Madvise,
    ProcessMadvise,
    IoUring,
}

/// The way in which bytes are written to memory or read from it.
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
    /// Through `/proc/self/mem`, which ignores protection.
    ProcMem,
    /// Through a pipe as well, but by an `io_uring` with the page registered as a fixed buffer.
    IoUringFixed,
}

/// Advice, with its numbers.
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
    /// The kernel knows no such advice.
    Unknown = 77,
}

/// What is done with memory in an arena of vswap's library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Use {
    Write,
    Read,
    Cold,
    WillNeed,
    /// Pin it, and give it to system calls.
    Pin,
    /// Have it never swapped, give it to system calls, and let it be swapped again.
    Keep,
    /// Drop its content.
    Drop,
    /// Free all of the actor's, and allocate as much.
    Renew,
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

/// How a process shuts itself in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Shut {
    /// Descriptors and directories of its own.
    Files,
    /// Namespaces for host names, IPC and networks.
    Names,
    /// A mount namespace.
    Mounts,
    /// A pid namespace for its children. The first is its init: it cannot kill itself, and after its end there can be
    /// no other child.
    Pids,
    /// By a filter that forbids a call which it never makes.
    FromNothing,
    /// By filters that forbid `mremap`, `madvise`, `mprotect` or `munmap`.
    FromMoving,
    FromAdvice,
    FromProtection,
    FromUnmapping,
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
    /// `mremap` to a place of our choice. `keep`: with `MREMAP_DONTUNMAP`.
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
    /// `mremap` to a place that the kernel chooses, and back again.
    Away {
        at: u32,
        pages: u32,
    },
    /// `pkey`: by `pkey_mprotect` with the default key.
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
    /// Locks all current memory and, with `future`, all later memory. A process with other threads leaves it out.
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
    /// Moves the break up, down and up again.
    Brk {
        pages: u32,
    },
    /// From here on no mapping can be made. A process with other threads leaves it out.
    LimitAddressSpace,
    /// From here on the process is shut in. A process with other threads leaves it out.
    ShutIn {
        how: Shut,
    },
    /// Gives vswap time to evict.
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
    /// A thread made by a bare `clone` checks a page. The kernel clears a word in the arena when the thread ends.
    RawThread {
        at: u32,
    },
    /// A range of some times as many pages that the actor has in an arena of vswap's library. A child has none, and
    /// leaves it out.
    Library {
        what: Use,
        at: u32,
        pages: u32,
    },
    /// A child that runs the steps of `child` and ends. `wait`: wait for it at once.
    Fork {
        how: Birth,
        child: u32,
        end: End,
        wait: bool,
    },
}
