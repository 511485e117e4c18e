//! The page that the agent and the pager share, and the messages that go with it.
//!
//! One memfd per process of a run, mapped by both sides. The pager writes a command, raises `command_seq` and,
//! when the agent sleeps, sends one byte on the agent's socket. The agent carries the command out, writes the
//! results, raises `complete_seq` to the same number and wakes the pager with a futex. One command is under way
//! at a time. Every word that the other side reads is atomic; the sequence numbers publish the rest (Release on
//! the raise, Acquire on the read). Neither side trusts a length it reads here without checking its bound.

use core::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicU64};

/// Name and version of the protocol; both sides refuse any other.
pub const RING_MAGIC: u64 = 0x7673_7761_7000_0002;
/// Bytes of the shared mapping: the ring is rounded up to whole pages.
pub const RING_BYTES: usize = 4 * 4096;
/// Most pages that one MOVE_OUT may name: the pager's largest eviction window.
pub const MOVE_PAGES_MAX: usize = 512;
/// Most runs that one MOVE_OUT may name: every second page of the largest window.
pub const MOVE_RUNS_MAX: usize = 256;
/// Pages of the staging range that takes pages out of the program, and of the range that frees them.
pub const STAGING_PAGES: usize = 1024;
/// Addresses of thread control blocks that the ring can hold before it says that it has lost some.
pub const PINS_MAX: usize = 512;

/// Environment variable with the path of the pager's socket.
pub const SOCKET_ENV: &str = "VSWAP_SOCKET";

/// Commands from the pager to the agent (`Ring::op`).
pub mod op {
    /// Nothing to do; answers at once. Shows that the agent lives.
    pub const PING: u32 = 1;
    /// Move `runs` out of the program into staging, from page `args[0]` of staging on, run after run without gaps.
    /// `page_errno[i]` is 0 where the i-th page of the command moved, else the errno that kept it.
    /// EAGAIN ends the command: this and all later pages keep EAGAIN. EEXIST is what the kernel says of some pages that
    /// have moved (rule P8). `result` = pages moved for certain.
    pub const MOVE_OUT: u32 = 2;
    /// Give back the memory of `args[1]` staging pages from page `args[0]` on, without raising an event.
    pub const STAGING_FREE: u32 = 3;
    /// MADV_POPULATE_WRITE on each of `runs`: makes pages exclusive after a fork. `result` = runs done.
    pub const POPULATE_WRITE: u32 = 4;
    /// `mremap(args[0..5])` for a thread whose own call was trapped. `result` = address or -errno.
    pub const MREMAP: u32 = 5;
    /// `madvise(args[0], args[1], MADV_DONTNEED)` for a trapped MADV_FREE. `result` = 0 or -errno.
    pub const DISCARD: u32 = 6;
    /// Install the seccomp filter on all threads. The listener arrives on the agent's socket. `result` = 0 or -errno.
    pub const INSTALL_FILTER: u32 = 7;
    /// `mmap(args[0..4])` of private anonymous memory for a thread whose own call was trapped. `result` = address or
    /// -errno.
    pub const MMAP: u32 = 8;
    /// `brk(args[0])` for a thread whose own call was trapped. `result` = the break afterwards, `before` = the break
    /// before.
    pub const BRK: u32 = 9;
}

/// What a fresh connection says first (`Hello::kind`).
pub mod hello {
    /// A program image has started. Descriptors: userfaultfd, staging userfaultfd, ring memfd.
    pub const EXEC: u32 = 1;
    /// A forked child, before any code of the program runs in it. Descriptors: as for EXEC. If `flags` has
    /// `INHERITED`, the child's memory is already under a userfaultfd that the pager got with the fork event:
    /// the first descriptor is then the staging one, and the pager answers with a copy of the inherited one.
    pub const FORKED: u32 = 2;
    /// A thread is about to fork. Answered by one `ACK` byte when the pager is ready for it. Whatever is sent
    /// next, or the end of the connection, says that the fork is over.
    pub const FORK_BEGIN: u32 = 3;
}

/// `Hello::flags`: the child was made between FORK_BEGIN and its end.
pub const INHERITED: u32 = 1;
/// The one-byte answer to FORK_BEGIN and FORKED.
pub const ACK: u8 = 0x06;
/// The other answer to a FORKED with `INHERITED`: no fork event came, since nothing was registered after all. The child
/// then begins like any other, with a FORKED without `INHERITED` on a new connection.
pub const NOTHING_INHERITED: u8 = 0x15;
/// Instead of a doorbell, while nothing was ever registered: the pager does not want this process, which runs on
/// without an agent. Without this byte the end of a connection is the pager's death, and the process is killed.
pub const TURNED_AWAY: u8 = 0x18;
/// The one-byte doorbell of the pager.
pub const DOORBELL: u8 = 0x07;

/// First message on a connection, fixed size, native endian: both ends are on one machine.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hello {
    /// `RING_MAGIC`.
    pub magic: u64,
    /// One of `hello::*`.
    pub kind: u32,
    /// Flags, see `INHERITED`.
    pub flags: u32,
    /// Process id as the agent sees it (the pager believes the socket's credentials, not this).
    pub pid: i32,
    /// Parent process id. For FORKED the process that forked, which may have exited meanwhile.
    pub parent_pid: i32,
    /// Thread id of the agent's own thread, 0 in FORK_BEGIN.
    pub agent_tid: i32,
    /// errno of creating the userfaultfd, 0 when it worked. Without one only the staging and ring are absent too.
    pub uffd_errno: i32,
    /// Feature bits that the kernel granted to the userfaultfd.
    pub uffd_features: u64,
    /// Lowest address and bytes of everything the agent has mapped (staging, stack, ring): never registered,
    /// never evicted. Staging A begins at `agent_base + staging_offset`.
    pub agent_base: u64,
    /// Bytes from `agent_base` on that belong to the agent.
    pub agent_bytes: u64,
    /// Address of the staging range (`STAGING_PAGES` pages, on the main userfaultfd).
    pub staging: u64,
    /// Names the fork, at random: the same in FORK_BEGIN and in the FORKED that comes of it, 0 elsewhere. Fork events
    /// carry no process id, a second fork may begin before the first child has said Hello, and the parent may be gone
    /// by then.
    pub fork: u64,
}

/// A run of pages of the program.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Run {
    /// First address, page aligned.
    pub address: AtomicU64,
    /// Pages.
    pub pages: AtomicU64,
}

/// The shared page. Fields are grouped by who writes them.
#[repr(C)]
#[derive(Debug)]
pub struct Ring {
    /// `RING_MAGIC`, written once by the agent before it sends the ring.
    pub magic: AtomicU64,

    /// Pager: number of the newest command.
    pub command_seq: AtomicU32,
    /// Agent: number of the newest completed command. A futex word; the pager waits on it.
    pub complete_seq: AtomicU32,
    /// Agent sets 1 before it sleeps on the socket, pager exchanges it with 0 and then sends the doorbell.
    pub agent_sleeps: AtomicU32,
    /// Pager sets 1 before it sleeps on `complete_seq`; the agent wakes only then.
    pub pager_sleeps: AtomicU32,

    /// Pager: 1 from the moment the space may have registered memory. Read by fork hooks (SeqCst, against `forks`).
    pub active: AtomicU32,
    /// Program threads: forks under way that saw `active` = 0. The pager does not activate while it is not 0
    /// (SeqCst: raise `forks`, then read `active`; the pager sets `active`, then reads `forks`).
    pub forks: AtomicU32,
    /// Program threads: thread control blocks recorded in `pins` (may exceed `PINS_MAX`: then some are lost).
    pub pin_count: AtomicU32,
    /// Pager: what the agent's command is, `op::*`.
    pub op: AtomicU32,
    /// Pager: arguments.
    pub args: [AtomicU64; 6],
    /// Agent: result.
    pub result: AtomicI64,
    /// Agent: what BRK found.
    pub before: AtomicU64,
    /// Pager: runs that follow.
    pub run_count: AtomicU32,
    /// Keeps the arrays aligned.
    pub reserved: AtomicU32,
    /// Pager: runs of MOVE_OUT and POPULATE_WRITE.
    pub runs: [Run; MOVE_RUNS_MAX],
    /// Agent: errno per page of MOVE_OUT, 0 = moved.
    pub page_errno: [AtomicI32; MOVE_PAGES_MAX],
    /// Program threads: addresses of thread control blocks; their pages are never evicted, because the kernel
    /// writes them while a thread exits, when it can no longer wait for a fault.
    pub pins: [AtomicU64; PINS_MAX],
}

const _: () = assert!(size_of::<Ring>() <= RING_BYTES);
const _: () = assert!(MOVE_PAGES_MAX <= STAGING_PAGES);
