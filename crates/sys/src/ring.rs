//! The page that the agent and the pager share, and the messages that go with it.
//!
//! There is one memfd per process of a run, mapped by both sides. The pager writes a command and raises `command_seq`.
//! If the agent sleeps, the pager sends one byte on the agent's socket. The agent carries the command out, writes the
//! results, raises `complete_seq` to the same number and wakes the pager with a futex. One command is under way at a
//! time. Every word that the other side reads is atomic; the sequence numbers publish the rest (Release on the raise,
//! Acquire on the read). Neither side trusts a length that it reads here before it has checked its bound.

use core::ffi::CStr;
use core::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicU64};

/// Name and version of the protocol; both sides refuse any other.
pub const RING_MAGIC: u64 = 0x7673_7761_7000_000b;
/// Bytes of the shared mapping: the ring is rounded up to whole pages.
pub const RING_BYTES: usize = 4 * 4096;
/// How many threads of the pager may read a process's memory at a time.
pub const READERS_MAX: usize = 16;
/// Most pages that one MOVE_OUT may name; the pager's windows are smaller.
pub const MOVE_PAGES_MAX: usize = 512;
/// Most runs that one MOVE_OUT may name: every second page of the largest window.
pub const MOVE_RUNS_MAX: usize = 256;
/// Pages of the staging range that takes pages out of the program. The range that frees them has as many.
pub const STAGING_PAGES: usize = 1024;
/// Outcome of a page that moved but left no marker. Not an errno.
pub const MOVED_UNMARKED: i32 = 4096;
/// Most pages of one TAKE_ASIDE. The place that they are taken to follows the two staging ranges.
pub const ASIDE_PAGES: usize = 64;

/// Name of the agent's thread.
pub const AGENT_NAME: &CStr = c"vswap-agent";
/// Bytes of the one mapping that holds everything of the agent but its image.
pub const RESERVATION_BYTES: usize = (2 * STAGING_PAGES + ASIDE_PAGES + 24) * 4096;
/// Number of no system call: an agent that was attached from outside says with it that it has begun. Its argument is 0
/// or an errno.
pub const ATTACHED_CALL: usize = 0x7673_7761;

/// Longest path of the pager's socket: `sun_path` less the zero that ends it.
pub const SOCKET_PATH_BYTES_MAX: usize = 107;

/// What the entry of an agent that is attached from outside is told.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Parameters {
    /// Where the agent's reservation is to be, behind its image. 0 in a child that has its parent's image.
    pub base: usize,
    /// Bytes of image and stack before it.
    pub image_bytes: usize,
    /// How the process came to be, one of `origin::*`.
    pub origin: usize,
    /// The fork's token, see `Hello::fork`; 0 unless the process is INHERITED or COPIED.
    pub fork: u64,
    /// Bytes of `path`. Whoever has its parent's image has the path already.
    pub path_bytes: usize,
    /// Path of the pager's socket.
    pub path: [u8; SOCKET_PATH_BYTES_MAX],
}

/// How a process came to be to which the agent is attached from outside (`Parameters::origin`).
pub mod origin {
    /// A program that has an agent for the first time.
    pub const EXEC: usize = 0;
    /// The child of a fork from a process with an agent, in which nothing was registered yet.
    pub const FORKED: usize = 1;
    /// The same, and its memory is under a userfaultfd that the pager has. It has its parent's image.
    pub const INHERITED: usize = 2;
    /// The same, where the kernel tells of no fork: its memory is under no userfaultfd, and has holes where pages of
    /// its parent are out. The pager knows what belongs there.
    pub const COPIED: usize = 3;
}

/// Environment variable with the path of the pager's socket.
pub const SOCKET_ENV: &str = "VSWAP_SOCKET";

/// Name of the file of a ring, before the path of the pager's socket.
pub const RING_NAME: &str = "vswap-ring:";

/// How many seccomp filters vswap installs on a process (`commands/filter.rs` of the agent).
pub const FILTERS: u32 = 2;

/// Commands from the pager to the agent (`Ring::op`).
pub mod op {
    /// Do nothing and answer at once. Shows that the agent lives.
    pub const PING: u32 = 1;
    /// Move `runs` out of the program into staging, from page `args[0]` of staging on, run after run without gaps.
    /// `page_errno[i]` is 0 if the i-th page of the command moved, else the errno that kept it. Unless `args[1]` is 0,
    /// each page leaves a marker in the page table; `page_errno[i]` is MOVED_UNMARKED if the page moved and left none.
    /// EAGAIN ends the command: this page and all later ones have EAGAIN. The kernel says EEXIST of some pages that
    /// have moved (rule P8). `result` = pages moved for certain.
    pub const MOVE_OUT: u32 = 2;
    /// Free `args[1]` staging pages from page `args[0]` on, without raising an event.
    pub const STAGING_FREE: u32 = 3;
    /// MADV_POPULATE_WRITE on each of `runs`: makes pages exclusive after a fork. `result` = runs done.
    pub const POPULATE_WRITE: u32 = 4;
    /// `mremap(args[0..5])` for a thread whose own call was trapped. `result` = address or -errno.
    pub const MREMAP: u32 = 5;
    /// `madvise(args[0], args[1], args[2])` for a thread whose own call was trapped. If `args[3]` is not 0, by
    /// `process_madvise` on the own process, to which the kernel may answer differently. `result` = 0 or -errno.
    pub const ADVISE: u32 = 6;
    /// Install the seccomp filter on all threads. The listener arrives on the agent's socket, before any thread but the
    /// agent's has the filter: also if the command then fails. `result` = 0 or -errno. EEXIST: the process has
    /// inherited vswap's filter. EBUSY: it has somebody else's listener.
    pub const INSTALL_FILTER: u32 = 7;
    /// `mmap(args[0..4])` of private anonymous memory for a thread whose own call was trapped. `result` = address or
    /// -errno.
    pub const MMAP: u32 = 8;
    /// `brk(args[0])` for a thread whose own call was trapped. `result` = the break afterwards, `before` = the break
    /// before.
    pub const BRK: u32 = 9;
    /// No thread of the program is left: the agent's thread must end too, with status `args[0]`, which becomes the
    /// status of the process. There is no answer.
    pub const LEAVE: u32 = 10;
    /// `rt_sigaction(args[0], args[1..5])` for a thread whose own call was trapped. The arguments are signal, handler,
    /// flags, restorer and mask. `action` = what was there before, `result` = 0 or -errno.
    pub const ACT: u32 = 11;
    /// If `args[0]` is not 0, forks of this process stop in the filter from now on, and the pager follows them; the
    /// hooks of fork have nothing to do. Sent once, after the hello of a process whose userfaultfd has no fork events.
    /// The program waits for it.
    pub const FOLLOW: u32 = 12;
    /// Give both staging ranges, which are empty, the protection `args[0]`. `result` = 0 or -errno.
    pub const STAGING_PROTECT: u32 = 20;
    /// Take `args[1]` pages, holes included, from address `args[0]` on to the place behind the staging ranges. For
    /// memory that MOVE_OUT refuses. Raises a REMAP event. `result` = 0, or -errno if nothing was taken.
    pub const TAKE_ASIDE: u32 = 21;
    /// Move the `args[0]` pages that TAKE_ASIDE took to the beginning of the second staging range, each to the same
    /// offset. `page_errno[i]` is EBUSY if a page had to be copied because it was shared since a fork. Pages pinned for
    /// I/O stay: ask again. `result` = 0 or -errno.
    pub const ASIDE_TO_STAGING: u32 = 22;
    /// Discard what was taken, aside and in the second staging range. `result` = 0 or -errno.
    pub const ASIDE_END: u32 = 23;
}

/// The kind of a connection's first message (`Hello::kind`).
pub mod hello {
    /// A program image has started. Descriptors: userfaultfd, staging userfaultfd, ring memfd.
    pub const EXEC: u32 = 1;
    /// A forked child, before any code of the program runs in it. Descriptors: as for EXEC. If `flags` has `INHERITED`,
    /// the child's memory is already under a userfaultfd that the pager got with the fork event. Then the first
    /// descriptor is the staging one. The pager offers the userfaultfds of the children that were made during the fork,
    /// one after the other, until the agent says which is its own. If `flags` has `COPIED` the descriptors are as for
    /// EXEC, and the pager answers with one `ACK` byte when the child may run on.
    pub const FORKED: u32 = 2;
    /// A thread is about to fork. The pager answers with one `ACK` byte when it is ready for the fork. Whatever is sent
    /// next, or the end of the connection, says that the fork is over.
    pub const FORK_BEGIN: u32 = 3;
    /// A thread is about to install a seccomp filter of the program's own on itself. The pager answers with one `ACK`
    /// byte when vswap's filter is installed or cannot be.
    pub const FILTER: u32 = 4;
    /// The process may not make a userfaultfd, because it or its parent has given up the right. The pager answers with
    /// an `ACK` byte and a descriptor of /dev/userfaultfd.
    pub const DEVICE: u32 = 5;
    /// The process may not have fork events. The pager, which may, does the handshake of the userfaultfd that comes
    /// with this, for the features in `uffd_features`, and answers with an `ACK` byte.
    pub const HANDSHAKE: u32 = 6;
}

/// `Hello::flags`: the child was made between FORK_BEGIN and its end.
pub const INHERITED: u32 = 1;
/// `Hello::flags`: the agent was attached from outside. The hooks of fork do not run in its process.
pub const ATTACHED: u32 = 2;
/// `Hello::flags`: the child of a fork that the pager has followed, without fork events.
pub const COPIED: u32 = 4;
/// The one-byte answer to FORK_BEGIN, FILTER, DEVICE, HANDSHAKE and FORKED.
pub const ACK: u8 = 0x06;
/// The other answer to a FORKED with `INHERITED`: no fork event came, because nothing was registered after all. The
/// child then begins like any other, with a FORKED without `INHERITED` on a new connection.
pub const NOTHING_INHERITED: u8 = 0x15;
/// The agent's answer to a userfaultfd that watches another process; the pager then offers the next. The agent answers
/// its own with `ACK`. The pager answers that with `ACK` when the child may fork in its turn.
pub const NOT_MINE: u8 = 0x1a;
/// Sent instead of a doorbell, only while nothing is registered and nothing will be: the pager does not want this
/// process, or lets go of it, and it runs on without an agent. Without this byte the end of a connection is the pager's
/// death, and the process is killed.
pub const TURNED_AWAY: u8 = 0x18;
/// Like `TURNED_AWAY`, if no thread of the program is left. The next bytes of the same message are the signal that the
/// agent must end the process by, or 0, and the status that it must exit with: another message could have a doorbell
/// before it.
pub const LEFT_ALONE: u8 = 0x19;
/// Value of `Ring::active`: the program has confined the agent's thread. Children get no agent.
pub const CONFINED: u32 = 2;
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
    /// Flags, see `INHERITED`, `ATTACHED` and `COPIED`.
    pub flags: u32,
    /// Process id as the agent sees it. The pager believes the socket's credentials, not this.
    pub pid: i32,
    /// Parent process id. In FORKED it is the process that forked, which may have exited meanwhile.
    pub parent_pid: i32,
    /// Thread id of the agent's own thread, 0 if there is none.
    pub agent_tid: i32,
    /// errno of creating the userfaultfd, 0 if that worked. If it failed, the staging userfaultfd and the ring are
    /// missing too.
    pub uffd_errno: i32,
    /// Feature bits that the kernel granted to the userfaultfd.
    pub uffd_features: u64,
    /// Lowest address of everything that the agent has mapped (ring, stacks, staging, aside). None of it is ever
    /// evicted.
    pub agent_base: u64,
    /// Bytes from `agent_base` on that belong to the agent.
    pub agent_bytes: u64,
    /// Address of the staging range: `STAGING_PAGES` pages, on the main userfaultfd.
    pub staging: u64,
    /// Address at which the agent has mapped the ring.
    pub ring: u64,
    /// Where a thread that is made to run the agent from outside begins, with the address of `Parameters` in rdi.
    pub entry: u64,
    /// Where the stack for that ends. It is no part of the program's memory, and no page of it ever leaves.
    pub entry_stack: u64,
    /// Random name of the fork: the same in FORK_BEGIN and in the FORKED that comes of it, 0 elsewhere. It is
    /// needed because fork events carry no process id, a second fork may begin before the first child has said Hello,
    /// and the parent may be gone by then.
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

/// Name of the function of the agent that returns the words of this process, or null if it has none (yet).
pub const ARENAS_SYMBOL: &CStr = c"vswap_arenas_1";

/// What arenas of a process (crate `vswap-arena`) and the run say to each other. The pager cannot move memory of an
/// arena, and it counts as the run's.
///
/// Arenas may be built with another version of vswap than the agent: what changes here gets another
/// [`ARENAS_SYMBOL`].
#[repr(C)]
#[derive(Debug)]
pub struct Arenas {
    /// Program threads: bytes of RAM that the arenas of the process want, together.
    pub wished: AtomicU64,
    /// Pager: what they may take, together. 0 before it has looked for the first time.
    pub granted: AtomicU64,
}

/// The shared page. Each field says who writes it.
#[repr(C)]
#[derive(Debug)]
pub struct Ring {
    /// `RING_MAGIC`, written once by the agent before it sends the ring.
    pub magic: AtomicU64,

    /// Pager: number of the newest command.
    pub command_seq: AtomicU32,
    /// Agent: number of the newest completed command. A futex on which the pager waits.
    pub complete_seq: AtomicU32,
    /// The agent sets 1 before it sleeps on the socket. The pager exchanges it with 0 and, if it was 1, sends the
    /// doorbell.
    pub agent_sleeps: AtomicU32,
    /// The pager sets 1 before it sleeps on `complete_seq`. The agent wakes the pager only then.
    pub pager_sleeps: AtomicU32,

    /// Pager: 1 from the moment at which the space may have registered memory; `CONFINED` when nothing will be
    /// registered any more. Fork hooks read it (SeqCst, to pair with `forks`).
    pub active: AtomicU32,
    /// Program threads: forks under way that saw `active` = 0. While it is not 0 the pager does not activate. SeqCst: a
    /// fork raises `forks`, then reads `active`; the pager sets `active`, then reads `forks`.
    pub forks: AtomicU32,
    /// Pager: 1 once it has read the agent's hello. Before that the end of the connection takes nothing away.
    pub heard: AtomicU32,
    /// Pager: the command, one of `op::*`.
    pub op: AtomicU32,
    /// Pager: arguments.
    pub args: [AtomicU64; 6],
    /// Agent: result.
    pub result: AtomicI64,
    /// Agent: the break that BRK found.
    pub before: AtomicU64,
    /// Agent: handler, flags, restorer and mask that ACT found.
    pub action: [AtomicU64; 4],
    /// Pager: number of used `runs`.
    pub run_count: AtomicU32,
    /// Program threads: id of the thread that carries out commands, if it is not the one that said Hello; else 0.
    /// Around calls that want a process of one thread, one thread leaves and another comes.
    pub agent_tid: AtomicU32,
    /// Pager: numbers that nobody can guess, one for each thread that reads the process's memory, new each time. The
    /// number is read from the process along with the rest, so the pager knows that it reads memory in which this ring
    /// is mapped. A process id may name another process by then, and a process may run another program.
    pub proofs: [AtomicU64; READERS_MAX],
    /// What arenas of the process want and get.
    pub arenas: Arenas,
    /// Pager: runs of MOVE_OUT and POPULATE_WRITE.
    pub runs: [Run; MOVE_RUNS_MAX],
    /// Agent: errno of each page of MOVE_OUT; 0 = moved.
    pub page_errno: [AtomicI32; MOVE_PAGES_MAX],
}

const _: () = assert!(size_of::<Ring>() <= RING_BYTES);
const _: () = assert!(MOVE_PAGES_MAX <= STAGING_PAGES);
const _: () = assert!(ASIDE_PAGES <= STAGING_PAGES);
