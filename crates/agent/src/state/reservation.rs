//! The one mapping that holds everything of the agent in the program's address space.
//!
//! ```text
//! base                                                                              base + BYTES
//! | guard | ring (memfd, shared) | birthmark | guard | stacks: agent, herald | staging A | staging B | aside | guard |
//! ```
//!
//! From the stacks to staging B it is one anonymous mapping, without huge pages, which children do not inherit. It is
//! never unmapped while the process lives. Aside has no access except while pages of the program are there.
//!
//! The birthmark is a word that the kernel wipes in every child (MADV_WIPEONFORK), whatever call made the child. So it
//! tells the process that made the reservation from a copy of that process. A process id cannot: both may be pid 1,
//! each in its own namespace.
//!
//! Unsafe is needed here because the agent has no wrapper for these system calls, and because they change mappings,
//! which no type can describe.

use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::abi::advice;
use crate::base::kernel::{
    Descriptor, Errno, MARK, PAGE_BYTES, PROT_READ_WRITE, advise, call, close, unmap,
};
use crate::base::limits;
use crate::base::uffd::{self, mode};
use crate::ring::{
    ASIDE_PAGES, RESERVATION_BYTES, RING_BYTES, RING_NAME, SOCKET_PATH_BYTES_MAX, STAGING_PAGES,
};

const GUARD_BYTES: usize = PAGE_BYTES;
/// The agent's frames are small and take no signals. 48 KiB is more than ten times what was seen.
const AGENT_STACK_BYTES: usize = 48 * 1024;
const HERALD_STACK_BYTES: usize = 16 * 1024;
const STAGING_BYTES: usize = STAGING_PAGES * PAGE_BYTES;

const RING: usize = GUARD_BYTES;
const BIRTHMARK: usize = RING + RING_BYTES;
const STACKS: usize = BIRTHMARK + PAGE_BYTES + GUARD_BYTES;
const AGENT_STACK_TOP: usize = STACKS + AGENT_STACK_BYTES;
const HERALD_STACK_TOP: usize = AGENT_STACK_TOP + HERALD_STACK_BYTES;
const STAGING_A: usize = HERALD_STACK_TOP;
const STAGING_B: usize = STAGING_A + STAGING_BYTES;
const ASIDE: usize = STAGING_B + STAGING_BYTES;
/// Bytes of aside.
pub const ASIDE_BYTES: usize = ASIDE_PAGES * PAGE_BYTES;
const END_GUARD: usize = ASIDE + ASIDE_BYTES;
/// Bytes of the whole.
pub const BYTES: usize = END_GUARD + GUARD_BYTES;
const _: () = assert!(BYTES == RESERVATION_BYTES);

const PROT_NONE: usize = 0;
const MAP_SHARED: usize = 1;
const MAP_PRIVATE: usize = 2;
const MAP_FIXED: usize = 0x10;
const MAP_ANONYMOUS: usize = 0x20;
const MAP_NORESERVE: usize = 0x4000;
const MAP_FIXED_NOREPLACE: usize = 0x10_0000;
const MADV_DONTFORK: usize = advice::DONTFORK as usize;
const MADV_NOHUGEPAGE: usize = advice::NOHUGEPAGE as usize;
const MADV_WIPEONFORK: usize = advice::WIPEONFORK as usize;
/// Value of the birthmark in the process that made the reservation. In its children the word is 0.
const BORN_HERE: u64 = 1;
const MFD_CLOEXEC: usize = 1;
const MFD_NOEXEC_SEAL: usize = 8;

/// Name of the ring's file, with the path of the pager's socket and a zero at the end. The name is seen in the mappings
/// of every process that descends from an agent's by forks, even if it has no agent of its own.
fn ring_name(socket_path: impl Iterator<Item = u8>) -> [u8; RING_NAME_BYTES] {
    let mut name = [0; RING_NAME_BYTES];
    let text = RING_NAME.bytes().chain(socket_path);
    for (to, from) in name.iter_mut().zip(text) {
        *to = from;
    }
    name
}

const RING_NAME_BYTES: usize = RING_NAME.len() + SOCKET_PATH_BYTES_MAX + 1;
/// Longest name of a file in memory, less `memfd:`.
const _: () = assert!(RING_NAME_BYTES <= 249 + 1);

/// Where everything is, in a reservation at a given base.
#[derive(Debug, Clone, Copy)]
pub struct Reservation(usize);

impl Reservation {
    /// Reserves the range and makes the stacks and staging usable, even if limits permit the process no more memory.
    pub fn map() -> Result<Self, Errno> {
        limits::make_room(Self::map_within_limits)
    }

    fn map_within_limits() -> Result<Self, Errno> {
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        // SAFETY: makes a new mapping at an address that the kernel chooses.
        let base = unsafe { call(call::MMAP, [0, BYTES, PROT_NONE, flags, usize::MAX, MARK]) }?;
        Self::prepare(base)
    }

    /// The same at a given place, where nothing may be mapped.
    pub fn map_at(base: usize) -> Result<Self, Errno> {
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
        limits::make_room(|| {
            // SAFETY: the kernel replaces nothing.
            unsafe {
                call(
                    call::MMAP,
                    [base, BYTES, PROT_NONE, flags, usize::MAX, MARK],
                )
            }?;
            Self::prepare(base)
        })
    }

    /// Makes the stacks and staging usable in a range that is mapped, untouched and without access.
    pub fn prepare(base: usize) -> Result<Self, Errno> {
        let (start, bytes) = (base.wrapping_add(STACKS), ASIDE - STACKS);
        let mark = base.wrapping_add(BIRTHMARK);
        // With the mark, because a forked child has its parent's filter.
        let wipe = [mark, PAGE_BYTES, MADV_WIPEONFORK, 0, 0, MARK];
        // SAFETY: the range was mapped just now and nobody uses it.
        unsafe {
            let usable = call(call::MPROTECT, [start, bytes, PROT_READ_WRITE, 0, 0, 0])
                .and_then(|_| advise(start, bytes, MADV_DONTFORK))
                .and_then(|()| call(call::MPROTECT, [mark, PAGE_BYTES, PROT_READ_WRITE, 0, 0, 0]))
                .and_then(|_| call(call::MADVISE, wipe));
            if let Err(errno) = usable {
                unmap(base, BYTES);
                return Err(errno);
            }
            // A kernel without huge pages says EINVAL, which is as good.
            let _ = advise(start, bytes, MADV_NOHUGEPAGE);
        }
        let reservation = Self(base);
        reservation.birthmark().store(BORN_HERE, Ordering::SeqCst);
        Ok(reservation)
    }

    /// Did this very process make the reservation? False in every child that has a copy of it.
    pub fn was_made_here(self) -> bool {
        self.birthmark().load(Ordering::SeqCst) == BORN_HERE
    }

    fn birthmark(&self) -> &AtomicU64 {
        // SAFETY: the word is mapped from `map` on for as long as the process lives, and children inherit the mapping.
        // Only `forsake` unmaps it, after the child's only thread has forgotten the reservation. Unsafe: the memory is
        // a bare mapping.
        unsafe { &*ptr::with_exposed_provenance::<AtomicU64>(self.0.wrapping_add(BIRTHMARK)) }
    }

    /// The reservation at `base`.
    pub fn at(base: usize) -> Self {
        Self(base)
    }

    /// Makes the ring and maps it. Returns its memfd.
    pub fn map_ring(self, socket_path: impl Iterator<Item = u8>) -> Result<Descriptor, Errno> {
        let name = ring_name(socket_path);
        limits::make_room(|| self.map_ring_within_limits(&name))
    }

    fn map_ring_within_limits(self, name: &[u8; RING_NAME_BYTES]) -> Result<Descriptor, Errno> {
        let name = name.as_ptr().addr();
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

    /// Unmaps what a forked child has inherited of its parent's reservation. The other parts stay: the child may have
    /// its own memory there by now.
    ///
    /// # Safety
    /// The caller is the only thread of the child, and nothing uses the ring any more.
    pub unsafe fn forsake(self) {
        // SAFETY: the child inherited guards, ring and aside, and they are the agent's.
        unsafe {
            unmap(self.0, STACKS);
            unmap(self.0.wrapping_add(ASIDE), BYTES - ASIDE);
        }
    }

    /// Unmaps everything but the stacks and the birthmark. The caller runs on one of the stacks, and a program thread
    /// may be looking at the birthmark.
    ///
    /// # Safety
    /// Nobody uses the ring or staging, now or later.
    pub unsafe fn give_up(self) {
        // SAFETY: the caller promises that nobody uses what is unmapped.
        unsafe {
            unmap(self.0, BIRTHMARK);
            unmap(self.staging(), BYTES - STAGING_A);
        }
    }

    /// Unmaps everything but the birthmark, at which a program thread may be looking.
    ///
    /// # Safety
    /// Nobody uses the ring, the stacks or staging, now or later.
    pub unsafe fn give_up_all(self) {
        // SAFETY: the caller promises that nobody uses what is unmapped.
        unsafe {
            unmap(self.0, BIRTHMARK);
            unmap(self.0.wrapping_add(STACKS), BYTES - STACKS);
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

    /// Address of aside, for pages that UFFDIO_MOVE does not take from where they are.
    pub fn aside(self) -> usize {
        self.0.wrapping_add(ASIDE)
    }

    /// Makes aside a place without memory and without access, registered with the userfaultfd of staging B, which marks
    /// the place as the agent's. Replaces a mapping that lies there only if `replaces`.
    pub fn reserve_aside(self, staging: Descriptor, replaces: bool) -> Result<(), Errno> {
        let fixed = if replaces {
            MAP_FIXED
        } else {
            MAP_FIXED_NOREPLACE
        };
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | fixed;
        let arguments = [
            self.aside(),
            ASIDE_BYTES,
            PROT_NONE,
            flags,
            usize::MAX,
            MARK,
        ];
        // SAFETY: either the place is the agent's own, or the kernel replaces nothing.
        unsafe { call(call::MMAP, arguments) }?;
        uffd::register(staging, self.aside(), ASIDE_BYTES, mode::WP)
    }

    /// Undoes for staging B and aside what mlockall has done.
    pub fn unlock_aside(self) {
        let arguments = [self.freeing(), STAGING_BYTES + ASIDE_BYTES, 0, 0, 0, 0];
        // SAFETY: unlocking changes no content, and the range is the agent's own. It cannot fail on mapped memory.
        let _ = unsafe { call(call::MUNLOCK, arguments) };
    }

    /// Changes the protection of both staging ranges.
    pub fn protect_staging(self, protection: usize) -> Result<(), Errno> {
        let arguments = [self.staging(), 2 * STAGING_BYTES, protection, 0, 0, 0];
        // SAFETY: staging is the agent's own and empty. The caller has checked that it stays readable and writable.
        unsafe { call(call::MPROTECT, arguments) }.map(|_| ())
    }

    /// Registers staging A with the main userfaultfd. Missing pages must not wait for an answer, neither here nor in
    /// staging B: they are touched when the program locks all its memory, and then perhaps nobody reads events.
    pub fn register_staging(self, main: Descriptor) -> Result<(), Errno> {
        uffd::register(main, self.staging(), STAGING_BYTES, mode::WP)
    }

    /// Does `main` watch the memory of the process that runs here? Call before staging is registered with it.
    pub fn is_watched_by(self, main: Descriptor) -> bool {
        uffd::watches_this_process(main, self.staging(), self.freeing())
    }

    /// Registers staging B and aside with the userfaultfd of staging B.
    pub fn register_freeing(self, staging: Descriptor) -> Result<(), Errno> {
        uffd::register(
            staging,
            self.freeing(),
            STAGING_BYTES + ASIDE_BYTES,
            mode::WP,
        )
    }

    /// Undoes for both staging ranges what mlockall has done.
    pub fn unlock_staging(self) {
        let arguments = [self.staging(), 2 * STAGING_BYTES, 0, 0, 0, 0];
        // SAFETY: unlocking changes no content, and the range is the agent's own. It cannot fail on mapped memory.
        let _ = unsafe { call(call::MUNLOCK, arguments) };
    }

    /// Unregisters staging B and aside from their userfaultfd, of which the pager may have a copy.
    pub fn unregister_freeing(self, staging: Descriptor) {
        uffd::unregister(staging, self.freeing(), STAGING_BYTES + ASIDE_BYTES);
    }
}
