//! What a true agent has before it says hello: memory, two userfaultfds, a ring. Lies are told about it.
//!
//! The arena lies below everything else of the process, and the hello says that all that lies above belongs to the
//! agent. So the pager takes pages of the arena alone, and the liar can go on lying. Unsafe is needed here because
//! mappings are made and touched by address.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};
use vswap_drive::random::Random;
use vswap_sys::memory::Mapping;
use vswap_sys::ring::{ASIDE_PAGES, Hello, RING_BYTES, RING_MAGIC, Ring, STAGING_PAGES, hello};
use vswap_sys::uffd::{Faults, Userfaultfd, mode};

use crate::liar::descriptors::FEATURES;

const PAGE: u64 = 4096;
/// Where arenas and what the agent claims for itself begin.
const ARENAS: u64 = 0x1000_0000_0000;
const OWN: u64 = 0x2000_0000_0000;
const OWN_END: u64 = 0x7fff_ffff_f000;
const ARENA_BYTES: u64 = 4 << 20;
const END_PAGES: u64 = 32;
pub(crate) const STAGING_BYTES: u64 = STAGING_PAGES as u64 * PAGE;
const ASIDE_BYTES: u64 = ASIDE_PAGES as u64 * PAGE;

/// Memory that may be evicted. Nobody has references to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arena {
    pub(crate) start: u64,
    pub(crate) bytes: u64,
}

fn map(at: u64, bytes: u64, flags: MapFlags) -> Option<u64> {
    let place = core::ptr::without_provenance_mut(at as usize);
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let flags = flags | MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: the kernel replaces nothing: the callers pass MAP_FIXED_NOREPLACE or leave the place to it.
    let base = unsafe { rustix::mm::mmap_anonymous(place, bytes as usize, protection, flags) };
    Some(base.ok()?.expose_provenance() as u64)
}

impl Arena {
    /// Maps and fills it.
    pub(crate) fn new(random: &mut Random) -> Option<Arena> {
        let at = ARENAS + (u64::from(random.below(1 << 16)) << 21);
        let arena = Arena {
            start: map(at, ARENA_BYTES, MapFlags::FIXED_NOREPLACE)?,
            bytes: ARENA_BYTES,
        };
        for page in 0..arena.pages() {
            arena.touch(page, Some(random.next() & 0xff));
        }
        Some(arena)
    }

    pub(crate) fn pages(self) -> u64 {
        self.bytes / PAGE
    }

    /// Those before its end, which is for calls that take memory away.
    pub(crate) fn touched_pages(self) -> u64 {
        self.pages() - END_PAGES
    }

    pub(crate) fn near(self) -> (u64, u64) {
        (self.start, self.bytes)
    }

    /// The first word of a page.
    pub(crate) fn read(self, page: u64) -> u64 {
        let address = self.start + page % self.touched_pages() * PAGE;
        let place = core::ptr::with_exposed_provenance::<u64>(address as usize);
        // SAFETY: as for `touch`.
        unsafe { place.read_volatile() }
    }

    /// Writes a word of a page, or reads it.
    pub(crate) fn touch(self, page: u64, word: Option<u64>) {
        let address = self.start + page % self.touched_pages() * PAGE;
        let place = core::ptr::with_exposed_provenance_mut::<u64>(address as usize);
        // SAFETY: the place lies in the arena, which is unmapped only by a lie; then this process dies, as it may.
        unsafe {
            match word {
                Some(word) => place.write_volatile(word),
                None => drop(place.read_volatile()),
            }
        }
    }
}

/// What a hello is about.
#[derive(Debug)]
pub(crate) struct Truth {
    pub(crate) main: Userfaultfd,
    pub(crate) second: Userfaultfd,
    ring: Mapping,
    pub(crate) ring_file: OwnedFd,
    /// Address of staging; the second staging range and aside follow.
    pub(crate) staging: u64,
    features: u64,
}

impl Truth {
    /// Makes all of it. The ring can shrink, or cannot.
    pub(crate) fn new(can_shrink: bool) -> Option<Truth> {
        let (main, features) = Userfaultfd::open_with(Faults::All, FEATURES).ok()?;
        let (second, _) = Userfaultfd::open_with(Faults::All, 0).ok()?;
        let staging = map(OWN, 2 * STAGING_BYTES + ASIDE_BYTES, MapFlags::empty())?;
        let behind = staging + STAGING_BYTES;
        // SAFETY: nobody refers to staging, and nobody but the lies touches it.
        unsafe {
            main.register(staging, STAGING_BYTES, mode::WP).ok()?;
            second
                .register(behind, STAGING_BYTES + ASIDE_BYTES, mode::WP)
                .ok()?;
        }
        let ring_file = ring_file(can_shrink)?;
        let ring = Mapping::shared(ring_file.as_fd(), RING_BYTES).ok()?;
        Some(Truth {
            main,
            second,
            ring,
            ring_file,
            staging,
            features,
        })
    }

    /// The ring.
    pub(crate) fn ring(&self) -> &Ring {
        // SAFETY: the mapping is page aligned, as long as a Ring, and lives as long as `self`. A Ring is all atomics,
        // and any bytes are a valid one. If the file shrinks, the liar dies of its lie.
        unsafe { self.ring.pointer().cast::<Ring>().as_ref() }
    }

    /// The true hello.
    pub(crate) fn hello(&self) -> Hello {
        let id = |pid: rustix::process::Pid| pid.as_raw_nonzero().get();
        Hello {
            magic: RING_MAGIC,
            kind: hello::EXEC,
            pid: id(rustix::process::getpid()),
            parent_pid: rustix::process::getppid().map_or(0, id),
            agent_tid: id(rustix::thread::gettid()),
            uffd_features: self.features,
            agent_base: OWN,
            agent_bytes: OWN_END - OWN,
            staging: self.staging,
            ring: self.ring.address(),
            ..Hello::default()
        }
    }

    /// The descriptors that go with it.
    pub(crate) fn descriptors(&self) -> [BorrowedFd<'_>; 3] {
        [
            self.main.as_fd(),
            self.second.as_fd(),
            self.ring_file.as_fd(),
        ]
    }
}

/// The file of a ring, which takes seals or does not.
fn ring_file(can_shrink: bool) -> Option<OwnedFd> {
    let seals = if can_shrink {
        MemfdFlags::empty()
    } else {
        MemfdFlags::ALLOW_SEALING
    };
    let file = rustix::fs::memfd_create("vswap-ring:", MemfdFlags::CLOEXEC | seals).ok()?;
    rustix::fs::ftruncate(&file, RING_BYTES as u64).ok()?;
    rustix::io::write(&file, &RING_MAGIC.to_ne_bytes()).ok()?;
    Some(file)
}
