//! The userfaultfd calls of the agent. Layouts and numbers as in linux/userfaultfd.h.
//!
//! Unsafe is needed here because each is a bare ioctl: the agent has no wrapper for it, and the kernel reads and writes
//! the request by address.

use crate::base::kernel::{CLOEXEC, Descriptor, EAGAIN, Errno, MARK, PAGE_BYTES, call, close};
use crate::raw;

const USERFAULTFD_IOC_NEW: usize = 0xaa00;
const UFFDIO_API: usize = 0xc018_aa3f;
const UFFDIO_REGISTER: usize = 0xc020_aa00;
const UFFDIO_UNREGISTER: usize = 0x8010_aa01;
const UFFDIO_MOVE: usize = 0xc028_aa05;
const UFFDIO_WRITEPROTECT: usize = 0xc018_aa06;
const UFFD_API: u64 = 0xaa;
const O_NONBLOCK: usize = 0o4000;
const O_RDWR: usize = 2;
const AT_FDCWD: usize = (-100_isize).cast_unsigned();

/// What a registration watches.
pub mod mode {
    /// Write-protected pages. There are none, so nothing is ever reported.
    pub const WP: u64 = 2;
}

/// Do not look for threads to wake: nobody waits for a page of staging.
pub const MOVE_DONTWAKE: u64 = 1;
/// Holes in the source are no error.
pub const MOVE_ALLOW_SRC_HOLES: u64 = 2;

/// Opens a userfaultfd: by the device where this process may open it, else by the system call.
pub fn open() -> Result<Descriptor, Errno> {
    let device = c"/dev/userfaultfd".as_ptr().addr();
    // SAFETY: the path is a string, and the calls only make descriptors in the agent's own table.
    unsafe {
        if let Ok(device) = raw::result(raw::syscall4(
            call::OPENAT,
            AT_FDCWD,
            device,
            O_RDWR | CLOEXEC,
            0,
        )) {
            let opened = open_by(device);
            close(device);
            if opened.is_ok() {
                return opened;
            }
        }
        raw::result(raw::syscall1(call::USERFAULTFD, CLOEXEC | O_NONBLOCK))
    }
}

/// Opens a userfaultfd by a descriptor of the device.
pub fn open_by(device: Descriptor) -> Result<Descriptor, Errno> {
    // SAFETY: this only makes a descriptor in the agent's own table.
    raw::result(unsafe {
        raw::syscall3(
            call::IOCTL,
            device,
            USERFAULTFD_IOC_NEW,
            CLOEXEC | O_NONBLOCK,
        )
    })
}

/// Agrees on features. Returns those that the kernel has.
pub fn handshake(userfaultfd: Descriptor, features: u64) -> Result<u64, Errno> {
    // api, features, ioctls
    let mut request = [UFFD_API, features, 0];
    // SAFETY: the request has the layout of uffdio_api and lives until the call returns.
    raw::result(unsafe {
        raw::syscall3(
            call::IOCTL,
            userfaultfd,
            UFFDIO_API,
            (&raw mut request).addr(),
        )
    })?;
    let [_, offered, _] = request;
    Ok(offered)
}

/// Registers agent memory in `mode::*`.
pub fn register(
    userfaultfd: Descriptor,
    address: usize,
    bytes: usize,
    mode: u64,
) -> Result<(), Errno> {
    // start, len, mode, ioctls
    let mut request = [address as u64, bytes as u64, mode, 0];
    let request = (&raw mut request).addr();
    // SAFETY: the request has the layout of uffdio_register, and the range is the agent's own.
    raw::result(unsafe {
        raw::syscall6(
            call::IOCTL,
            [userfaultfd, UFFDIO_REGISTER, request, 0, 0, MARK],
        )
    })
    .map(|_| ())
}

/// Takes agent memory away from a userfaultfd.
pub fn unregister(userfaultfd: Descriptor, address: usize, bytes: usize) {
    // start, len
    let request = [address as u64, bytes as u64];
    let request = (&raw const request).addr();
    // SAFETY: the request has the layout of uffdio_range, and the range is the agent's own and empty.
    unsafe { raw::syscall3(call::IOCTL, userfaultfd, UFFDIO_UNREGISTER, request) };
}

/// Is there a layout event of this userfaultfd that is unread, or that the thread that raised it has not yet acted on?
/// Asks with a write-protect call on an empty range, which does nothing: the kernel checks for changing mappings first.
pub fn events_pending(userfaultfd: Descriptor) -> bool {
    // start, len, mode
    let mut request = [0_u64; 3];
    let request = (&raw mut request).addr();
    // SAFETY: the request has the layout of uffdio_writeprotect and names no memory.
    let answer = raw::result(unsafe {
        raw::syscall3(call::IOCTL, userfaultfd, UFFDIO_WRITEPROTECT, request)
    });
    answer == Err(EAGAIN)
}

/// Write-protects a range. Where the range has no pages, this leaves markers.
pub fn write_protect(userfaultfd: Descriptor, address: usize, bytes: usize) -> Result<(), Errno> {
    const WRITEPROTECT_WP: u64 = 1;
    // start, len, mode
    let mut request = [address as u64, bytes as u64, WRITEPROTECT_WP];
    let request = (&raw mut request).addr();
    // SAFETY: the request has the layout of uffdio_writeprotect. Content stays; whoever writes to the range waits for
    // the pager.
    raw::result(unsafe { raw::syscall3(call::IOCTL, userfaultfd, UFFDIO_WRITEPROTECT, request) })
        .map(|_| ())
}

/// Does this userfaultfd watch the whole of a range of the agent's, which is empty? Asks by lifting a write protection
/// that is not there.
pub fn is_watched(userfaultfd: Descriptor, address: usize, bytes: usize) -> bool {
    const WRITEPROTECT_DONTWAKE: u64 = 2;
    // start, len, mode
    let mut request = [address as u64, bytes as u64, WRITEPROTECT_DONTWAKE];
    let request = (&raw mut request).addr();
    // SAFETY: the request has the layout of uffdio_writeprotect. The kernel refuses a range of somebody else's.
    raw::result(unsafe { raw::syscall3(call::IOCTL, userfaultfd, UFFDIO_WRITEPROTECT, request) })
        .is_ok()
}

/// Is this the userfaultfd of the calling process's own memory? Changes nothing.
///
/// The kernel refuses a UFFDIO_MOVE in another process's memory before it does anything else, and writes `move` only
/// after that check. `target` is mapped but not yet under any userfaultfd, so nothing moves in this process either.
pub fn watches_this_process(userfaultfd: Descriptor, target: usize, source: usize) -> bool {
    const UNTOUCHED: u64 = u64::MAX;
    // dst, src, len, mode, move
    let mut request = [
        target as u64,
        source as u64,
        PAGE_BYTES as u64,
        0,
        UNTOUCHED,
    ];
    // SAFETY: the request has the layout of uffdio_move and outlives the call. The target takes no page.
    let answer = raw::result(unsafe {
        raw::syscall3(
            call::IOCTL,
            userfaultfd,
            UFFDIO_MOVE,
            (&raw mut request).addr(),
        )
    });
    // EAGAIN comes before both checks while a layout event is unread, and newer kernels write `move` with it. But no
    // event can be under way in this process, because its only program thread waits. So EAGAIN means another process.
    let [.., moved] = request;
    answer != Err(EAGAIN) && moved != UNTOUCHED
}

/// Moves pages from `source` to `target`. Returns how many bytes moved, from the start on, and why not more.
///
/// # Safety
/// `target` is staging. The pager wants the source moved away.
pub unsafe fn move_pages(
    userfaultfd: Descriptor,
    target: usize,
    source: usize,
    bytes: usize,
    mode: u64,
) -> (usize, Option<Errno>) {
    // dst, src, len, mode, move
    let mut request = [target as u64, source as u64, bytes as u64, mode, 0];
    // SAFETY: the request has the layout of uffdio_move and outlives the call. The caller answers for source and
    // target.
    let outcome = raw::result(unsafe {
        raw::syscall3(
            call::IOCTL,
            userfaultfd,
            UFFDIO_MOVE,
            (&raw mut request).addr(),
        )
    });
    let Err(errno) = outcome else {
        return (bytes, None);
    };
    // `move` holds the bytes moved, or a negative errno, or its old value if the kernel did not start.
    let [.., moved] = request;
    match usize::try_from(moved) {
        Ok(moved) if moved < bytes => (moved, Some(errno)),
        _ => (0, Some(errno)),
    }
}
