//! The one mapping that holds everything of the agent in the program's address space.
//!
//! ```text
//! base                                                                              base + BYTES
//! | guard | ring (memfd, shared) | guard | agent's stack, herald's stack | staging A | staging B | guard |
//! ```
//!
//! From the stacks to staging B it is one anonymous mapping, not inherited by children and without huge pages. It is
//! never unmapped while the process lives.

use crate::filter::MARK;
use crate::kernel::{Descriptor, Errno, PAGE_BYTES, advise, call, close, unmap};
use crate::ring::{RING_BYTES, STAGING_PAGES};
use crate::uffd::{self, mode};

const GUARD_BYTES: usize = PAGE_BYTES;
/// The agent's frames are small and take no signals; 48 KiB is more than ten times what was seen.
const AGENT_STACK_BYTES: usize = 48 * 1024;
const HERALD_STACK_BYTES: usize = 16 * 1024;
const STAGING_BYTES: usize = STAGING_PAGES * PAGE_BYTES;

const RING: usize = GUARD_BYTES;
const STACKS: usize = RING + RING_BYTES + GUARD_BYTES;
const AGENT_STACK_TOP: usize = STACKS + AGENT_STACK_BYTES;
const HERALD_STACK_TOP: usize = AGENT_STACK_TOP + HERALD_STACK_BYTES;
const STAGING_A: usize = HERALD_STACK_TOP;
const STAGING_B: usize = STAGING_A + STAGING_BYTES;
const END_GUARD: usize = STAGING_B + STAGING_BYTES;
/// Bytes of the whole.
pub const BYTES: usize = END_GUARD + GUARD_BYTES;

const PROT_NONE: usize = 0;
const PROT_READ_WRITE: usize = 3;
const MAP_SHARED: usize = 1;
const MAP_PRIVATE: usize = 2;
const MAP_FIXED: usize = 0x10;
const MAP_ANONYMOUS: usize = 0x20;
const MAP_NORESERVE: usize = 0x4000;
const MADV_DONTFORK: usize = 10;
const MADV_NOHUGEPAGE: usize = 15;
const MFD_CLOEXEC: usize = 1;
const MFD_NOEXEC_SEAL: usize = 8;

/// Where things are, for a reservation at a given base.
#[derive(Debug, Clone, Copy)]
pub struct Reservation(usize);

impl Reservation {
    /// Reserves the range and makes the stacks and staging usable.
    pub fn map() -> Result<Self, Errno> {
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base = unsafe { call(call::MMAP, [0, BYTES, PROT_NONE, flags, usize::MAX, MARK]) }?;
        let (start, bytes) = (base.wrapping_add(STACKS), END_GUARD - STACKS);
        // SAFETY: the range was mapped just now and nobody uses it.
        unsafe {
            let usable = call(call::MPROTECT, [start, bytes, PROT_READ_WRITE, 0, 0, 0])
                .and_then(|_| advise(start, bytes, MADV_DONTFORK));
            if let Err(errno) = usable {
                unmap(base, BYTES);
                return Err(errno);
            }
            // A kernel without huge pages says EINVAL, which is as good.
            let _ = advise(start, bytes, MADV_NOHUGEPAGE);
        }
        Ok(Self(base))
    }

    /// The reservation at `base`.
    pub fn at(base: usize) -> Self {
        Self(base)
    }

    /// Makes the ring and maps it. Returns its memfd.
    pub fn map_ring(self) -> Result<Descriptor, Errno> {
        let name = c"vswap-ring".as_ptr().addr();
        // SAFETY: makes a descriptor of the agent's own table, and maps it over a part of the reservation that nobody
        // uses.
        unsafe {
            let memfd = call(
                call::MEMFD_CREATE,
                [name, MFD_CLOEXEC | MFD_NOEXEC_SEAL, 0, 0, 0, 0],
            )
            .or_else(|_| call(call::MEMFD_CREATE, [name, MFD_CLOEXEC, 0, 0, 0, 0]))?;
            let place = [
                self.ring(),
                RING_BYTES,
                PROT_READ_WRITE,
                MAP_SHARED | MAP_FIXED,
                memfd,
                0,
            ];
            call(call::FTRUNCATE, [memfd, RING_BYTES, 0, 0, 0, 0])
                .and_then(|_| call(call::MMAP, place))
                .map(|_| memfd)
                .inspect_err(|_| close(memfd))
        }
    }

    /// Unmaps what a forked child has of its parent's reservation: the parts that were not inherited may be the child's
    /// own by now.
    ///
    /// # Safety
    /// The caller is the only thread of the child, and nothing uses the ring any more.
    pub unsafe fn forsake(self) {
        // SAFETY: guards and ring were inherited and are the agent's.
        unsafe {
            unmap(self.0, STACKS);
            unmap(self.0.wrapping_add(END_GUARD), GUARD_BYTES);
        }
    }

    /// Unmaps everything but the stacks, on one of which the caller runs.
    ///
    /// # Safety
    /// Nobody uses the ring or staging, now or later.
    pub unsafe fn give_up(self) {
        // SAFETY: the caller's promise.
        unsafe {
            unmap(self.0, STACKS);
            unmap(self.staging(), BYTES - STAGING_A);
        }
    }

    /// Lowest address.
    pub fn base(self) -> usize {
        self.0
    }

    /// Address of the ring.
    pub fn ring(self) -> usize {
        self.0.wrapping_add(RING)
    }

    /// End of the agent's stack.
    pub fn agent_stack_top(self) -> usize {
        self.0.wrapping_add(AGENT_STACK_TOP)
    }

    /// End of the herald's stack.
    pub fn herald_stack_top(self) -> usize {
        self.0.wrapping_add(HERALD_STACK_TOP)
    }

    /// Address of staging A, which takes pages out of the program.
    pub fn staging(self) -> usize {
        self.0.wrapping_add(STAGING_A)
    }

    /// Address of staging B, which frees them.
    pub fn freeing(self) -> usize {
        self.0.wrapping_add(STAGING_B)
    }

    /// Puts staging A under the main userfaultfd. Missing pages must not wait for an answer, here and in staging B:
    /// they are touched when the program locks all its memory, and then nobody may be reading.
    pub fn register_staging(self, main: Descriptor) -> Result<(), Errno> {
        uffd::register(main, self.staging(), STAGING_BYTES, mode::WP)
    }

    /// Puts staging B under its own.
    pub fn register_freeing(self, staging: Descriptor) -> Result<(), Errno> {
        uffd::register(staging, self.freeing(), STAGING_BYTES, mode::WP)
    }

    /// Undoes what mlockall has done to both.
    pub fn unlock_staging(self) {
        let arguments = [self.staging(), 2 * STAGING_BYTES, 0, 0, 0, 0];
        // SAFETY: unlocking changes no content, and the range is the agent's own. It cannot fail on mapped memory.
        let _ = unsafe { call(call::MUNLOCK, arguments) };
    }

    /// Takes staging B back from its userfaultfd, of which the pager may have a copy.
    pub fn unregister_freeing(self, staging: Descriptor) {
        uffd::unregister(staging, self.freeing(), STAGING_BYTES);
    }
}
