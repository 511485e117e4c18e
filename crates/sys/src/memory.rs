//! Memory of this process: anonymous and shared mappings, and the ring that an agent shares with the pager.
//!
//! Mappings are reached only through raw pointers. Whoever takes a pointer says who else touches the memory. `RingMap`
//! is the one exception: all of a ring is atomic, so a shared reference to it is sound whatever the other side does, as
//! long as the file keeps its length, which a seal guarantees.
//!
//! Unsafe is needed here because mappings are made, changed and unmapped by address. Rust cannot check that nobody uses
//! what goes away, so rustix has these calls only as unsafe ones.

pub mod addresses;
pub mod heap;
pub mod maps;
pub mod mremap;
pub mod own_code;
pub mod pagemap;
pub mod procmap;

mod arena;
mod secret;
mod words;

use core::ffi::c_void;
use core::ptr::NonNull;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

pub use arena::{ArenaBytes, PageArena, RUN_PAGES_MAX};
pub use secret::Secret;
pub use words::Words;

use crate::memory::pagemap::PAGE_BYTES;
use crate::memory::procmap::FileId;
use crate::ring::{RING_BYTES, RING_MAGIC, Ring};

const PAGE: usize = 4096;
const _: () = assert!(PAGE as u64 == PAGE_BYTES);

/// Why there is no mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// A length of 0 or one that is not a multiple of the page size.
    #[error("length of {bytes} bytes: a multiple of 4096 above 0 is needed")]
    Length {
        /// What was asked for.
        bytes: usize,
    },
    /// The file of a ring is too short.
    #[error("ring file of {bytes} bytes, {RING_BYTES} are needed: the agent is of another version")]
    ShortRing {
        /// Length of the file.
        bytes: u64,
    },
    /// The file of a ring is not one in memory, or may shrink.
    #[error("the ring is no memory file that keeps its length")]
    Unsealed,
    /// A ring of another version.
    #[error("ring magic {magic:#x}, {RING_MAGIC:#x} is expected: the agent is of another version")]
    Magic {
        /// What the ring holds.
        magic: u64,
    },
    /// The kernel refuses.
    #[error(
        "mapping {bytes} bytes failed with errno {errno}: see ulimit -v and the sysctl vm.overcommit_memory"
    )]
    Refused {
        /// What was asked for.
        bytes: usize,
        /// The errno.
        errno: i32,
    },
}

fn refused(bytes: usize, errno: Errno) -> MemoryError {
    MemoryError::Refused {
        bytes,
        errno: errno.raw_os_error(),
    }
}

/// May the kernel back memory with huge pages?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HugePages {
    /// Never: memory that is given back page by page stays given back.
    Never,
    /// If the machine's settings allow it. For memory that is used whole.
    Allowed,
}

/// A page of this process that cannot be read; the same every time. None if there is no memory for it.
pub fn unreadable_page() -> Option<*const u8> {
    static PAGE_ADDRESS: OnceLock<Option<usize>> = OnceLock::new();
    let address = PAGE_ADDRESS.get_or_init(|| {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: without MAP_FIXED the kernel picks a place where nothing is mapped. It stays mapped for good.
        let page = unsafe {
            rustix::mm::mmap_anonymous(core::ptr::null_mut(), PAGE, ProtFlags::empty(), flags)
        };
        Some(page.ok()?.expose_provenance())
    });
    address.map(core::ptr::with_exposed_provenance)
}

/// An owned mapping, unmapped when it is dropped.
#[derive(Debug)]
pub struct Mapping {
    pointer: NonNull<u8>,
    bytes: usize,
}

// SAFETY: an address range is not tied to a thread. Access is through raw pointers, for which their users answer.
unsafe impl Send for Mapping {}
// SAFETY: as above. The methods read only the address and the length, and madvise may run concurrently.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Private zeroed memory. The kernel reserves nothing for it before it is touched.
    ///
    /// # Errors
    /// `Length`, `Refused`.
    pub fn anonymous(bytes: usize, huge: HugePages) -> Result<Mapping, MemoryError> {
        check_length(bytes)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: without MAP_FIXED the kernel picks a place where nothing is mapped.
        let mapped =
            unsafe { rustix::mm::mmap_anonymous(core::ptr::null_mut(), bytes, protection, flags) };
        let mapping = Mapping::own(mapped, bytes)?;
        let advice = match huge {
            HugePages::Never => Advice::LinuxNoHugepage,
            HugePages::Allowed => Advice::LinuxHugepage,
        };
        // A kernel without huge pages refuses the advice and needs none.
        let _ = mapping.advise(0, bytes, advice);
        Ok(mapping)
    }

    /// Keeps all of it out of core dumps of this process.
    pub fn keep_out_of_dumps(&self) {
        // Advice that every kernel with userfaultfd knows. Who refuses it makes no dumps.
        let _ = self.advise(0, self.bytes, Advice::LinuxDontDump);
    }

    /// Keeps all of it out of the kernel's swap, if so much memory may be locked (`ulimit -l`).
    pub fn keep_in_memory(&self) {
        // SAFETY: the range is this mapping. Locking changes no content.
        let _ = unsafe { rustix::mm::mlock(self.pointer.as_ptr().cast(), self.bytes) };
    }

    /// Keeps all of it from children of forks: they have no memory there.
    ///
    /// # Errors
    /// `Refused`.
    pub fn keep_out_of_forks(&self) -> Result<(), MemoryError> {
        self.advise(0, self.bytes, Advice::LinuxDontFork)
    }

    /// The first `bytes` of a file, shared with everyone who maps it. Touching bytes beyond the file's end raises
    /// SIGBUS.
    ///
    /// # Errors
    /// `Length`, `Refused`.
    pub fn shared(file: BorrowedFd<'_>, bytes: usize) -> Result<Mapping, MemoryError> {
        check_length(bytes)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: without MAP_FIXED the kernel picks a place where nothing is mapped.
        let mapped = unsafe {
            rustix::mm::mmap(
                core::ptr::null_mut(),
                bytes,
                protection,
                MapFlags::SHARED,
                file,
                0,
            )
        };
        Mapping::own(mapped, bytes)
    }

    fn own(mapped: Result<*mut c_void, Errno>, bytes: usize) -> Result<Mapping, MemoryError> {
        let mapped = mapped.map_err(|errno| refused(bytes, errno))?;
        let pointer = NonNull::new(mapped.cast::<u8>()).ok_or(refused(bytes, Errno::NOMEM))?;
        Ok(Mapping { pointer, bytes })
    }

    /// First byte.
    pub fn pointer(&self) -> NonNull<u8> {
        self.pointer
    }

    /// Address of the first byte.
    pub fn address(&self) -> u64 {
        self.pointer.as_ptr().expose_provenance() as u64
    }

    /// Length in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Gives the pages of [offset, offset + bytes) back to the kernel. They then read as zeros.
    ///
    /// # Errors
    /// `Length` for a range outside the mapping or not page aligned; `Refused`.
    ///
    /// # Safety
    /// Nothing refers to the range, and whoever holds pointers to it expects its content to be gone.
    pub unsafe fn discard(&self, offset: usize, bytes: usize) -> Result<(), MemoryError> {
        if !offset.is_multiple_of(PAGE) {
            return Err(MemoryError::Length { bytes: offset });
        }
        self.advise(offset, bytes, Advice::LinuxDontNeed)
    }

    fn advise(&self, offset: usize, bytes: usize, advice: Advice) -> Result<(), MemoryError> {
        if offset.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            return Err(MemoryError::Length { bytes });
        }
        // SAFETY: the range lies in this mapping. Only `discard` gives advice that drops content, and its caller
        // promises that nothing refers to the range.
        let done =
            unsafe { rustix::mm::madvise(self.pointer.as_ptr().add(offset).cast(), bytes, advice) };
        done.map_err(|errno| refused(bytes, errno))
    }
}

/// Keeps the whole pages of a slice out of core dumps of this process. They stay out when the slice is freed.
pub fn keep_out_of_dumps(bytes: &[u8]) {
    let start = bytes.as_ptr().expose_provenance();
    let first = start.next_multiple_of(PAGE);
    let end = (start + bytes.len()) / PAGE * PAGE;
    if first >= end {
        return;
    }
    let first = core::ptr::with_exposed_provenance_mut(first);
    // SAFETY: the range lies in the slice, so it is mapped. The advice changes neither content nor mapping.
    let _ = unsafe { rustix::mm::madvise(first, end - first.addr(), Advice::LinuxDontDump) };
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is owned, so nobody uses it any more. If this fails it stays mapped, which does no harm.
        let _ = unsafe { rustix::mm::munmap(self.pointer.as_ptr().cast(), self.bytes) };
    }
}

fn check_length(bytes: usize) -> Result<(), MemoryError> {
    if bytes == 0 || !bytes.is_multiple_of(PAGE) {
        return Err(MemoryError::Length { bytes });
    }
    Ok(())
}

/// Makes a memory file of `bytes`, close-on-exec, sealed so that it keeps its length.
///
/// # Errors
/// `Length`, `Refused`.
pub fn memory_file(name: &str, bytes: usize) -> Result<OwnedFd, MemoryError> {
    check_length(bytes)?;
    let make = || -> Result<OwnedFd, Errno> {
        let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&fd, bytes as u64)?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW)?;
        Ok(fd)
    };
    make().map_err(|errno| refused(bytes, errno))
}

/// A mapped ring, whose file keeps its length.
#[derive(Debug)]
pub struct RingMap {
    mapping: Mapping,
    file: FileId,
}

impl RingMap {
    /// Makes a new ring, with its magic, and the file to send to the other side.
    ///
    /// # Errors
    /// `Refused`.
    pub fn create() -> Result<(RingMap, OwnedFd), MemoryError> {
        let file = memory_file("vswap-ring", RING_BYTES)?;
        let ring = RingMap {
            mapping: Mapping::shared(file.as_fd(), RING_BYTES)?,
            file: FileId::of(&file).map_err(|errno| refused(RING_BYTES, errno))?,
        };
        ring.magic
            .store(RING_MAGIC, core::sync::atomic::Ordering::Release);
        Ok((ring, file))
    }

    /// Maps a ring that came from the other side, after checking its kind, length and magic.
    ///
    /// # Errors
    /// `Unsealed`, `ShortRing`, `Magic`, `Refused`.
    pub fn open(file: BorrowedFd<'_>) -> Result<RingMap, MemoryError> {
        check_keeps_length(file)?;
        let stat = rustix::fs::fstat(file).map_err(|errno| refused(RING_BYTES, errno))?;
        let bytes = u64::try_from(stat.st_size).unwrap_or(0);
        if bytes < RING_BYTES as u64 {
            return Err(MemoryError::ShortRing { bytes });
        }
        let ring = RingMap {
            mapping: Mapping::shared(file, RING_BYTES)?,
            file: FileId::of(file).map_err(|errno| refused(RING_BYTES, errno))?,
        };
        match ring.magic.load(core::sync::atomic::Ordering::Acquire) {
            RING_MAGIC => Ok(ring),
            magic => Err(MemoryError::Magic { magic }),
        }
    }

    /// The file of the ring.
    pub fn file(&self) -> FileId {
        self.file
    }
}

/// If the file could shrink, or its pages could be missing, its other owner could make this process die of SIGBUS. So
/// it is on tmpfs, and it has the seal. Seals it first, and its length is checked after that.
fn check_keeps_length(file: BorrowedFd<'_>) -> Result<(), MemoryError> {
    /// The type of tmpfs in `statfs`. Files of huge pages can be sealed too, but the kernel may have no page for them.
    const TMPFS_MAGIC: u64 = 0x0102_1994;
    let is_on_tmpfs = rustix::fs::fstatfs(file)
        .is_ok_and(|stat| u64::try_from(stat.f_type).is_ok_and(|kind| kind == TMPFS_MAGIC));
    // A file with the seal SEAL refuses another one, but may have this one.
    let _ = rustix::fs::fcntl_add_seals(file, SealFlags::SHRINK);
    let is_sealed =
        rustix::fs::fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
    (is_on_tmpfs && is_sealed)
        .then_some(())
        .ok_or(MemoryError::Unsealed)
}

impl core::ops::Deref for RingMap {
    type Target = Ring;

    fn deref(&self) -> &Ring {
        // SAFETY: the mapping is page aligned, at least as long as a Ring, and lives as long as `self`. The other side
        // writes to it, but a Ring is all atomics, so a shared reference is sound, and any bytes are a valid Ring.
        unsafe { self.mapping.pointer.cast::<Ring>().as_ref() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::Ordering;

    #[test]
    fn both_ends_of_a_ring_see_the_same_words() {
        let (mine, file) = RingMap::create().unwrap();
        let theirs = RingMap::open(file.as_fd()).unwrap();
        mine.command_seq.store(7, Ordering::Release);
        assert_eq!(theirs.command_seq.load(Ordering::Acquire), 7);
        assert!(rustix::fs::ftruncate(&file, 0).is_err());
    }

    #[test]
    fn rings_of_another_kind_are_refused() {
        let short = memory_file("short", PAGE).unwrap();
        let error = RingMap::open(short.as_fd()).err();
        assert_eq!(error, Some(MemoryError::ShortRing { bytes: PAGE as u64 }));
        let blank = memory_file("blank", RING_BYTES).unwrap();
        assert_eq!(
            RingMap::open(blank.as_fd()).err(),
            Some(MemoryError::Magic { magic: 0 })
        );
        let plain = rustix::fs::memfd_create("plain", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&plain, RING_BYTES as u64).unwrap();
        rustix::io::write(&plain, &RING_MAGIC.to_ne_bytes()).unwrap();
        assert_eq!(
            RingMap::open(plain.as_fd()).err(),
            Some(MemoryError::Unsealed)
        );
        let (pipe, _writer) = std::io::pipe().unwrap();
        assert_eq!(
            RingMap::open(pipe.as_fd()).err(),
            Some(MemoryError::Unsealed)
        );
    }

    #[test]
    fn anonymous_memory_is_zero_again_after_a_discard() {
        let mapping = Mapping::anonymous(4 * PAGE, HugePages::Never).unwrap();
        let pointer = mapping.pointer().as_ptr();
        // SAFETY: the mapping is 4 pages of this test's own memory.
        unsafe {
            pointer.write_bytes(0xA5, 4 * PAGE);
            mapping.discard(PAGE, 2 * PAGE).unwrap();
            let kept = [pointer.read(), pointer.add(3 * PAGE).read()];
            let gone = [pointer.add(PAGE).read(), pointer.add(3 * PAGE - 1).read()];
            assert_eq!((kept, gone), ([0xA5; 2], [0; 2]));
            assert!(mapping.discard(1, PAGE).is_err());
            assert!(mapping.discard(4 * PAGE, PAGE).is_err());
            assert!(mapping.discard(PAGE, usize::MAX).is_err());
        }
        assert!(Mapping::anonymous(0, HugePages::Never).is_err());
        assert!(Mapping::anonymous(5, HugePages::Never).is_err());
        assert!(Mapping::anonymous(1 << 60, HugePages::Never).is_err());
    }
}
