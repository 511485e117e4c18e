//! The userfaultfd calls of the agent. Layouts and numbers as in linux/userfaultfd.h.

use crate::filter::MARK;
use crate::kernel::{CLOEXEC, Descriptor, Errno, call, close};
use crate::raw;

const USERFAULTFD_IOC_NEW: usize = 0xaa00;
const UFFDIO_API: usize = 0xc018_aa3f;
const UFFDIO_REGISTER: usize = 0xc020_aa00;
const UFFDIO_UNREGISTER: usize = 0x8010_aa01;
const UFFDIO_MOVE: usize = 0xc028_aa05;
const UFFD_API: u64 = 0xaa;
const O_NONBLOCK: usize = 0o4000;
const O_RDWR: usize = 2;
const AT_FDCWD: usize = (-100_isize).cast_unsigned();

/// What a registration watches.
pub mod mode {
    /// Write-protected pages: there are none, so nothing is ever reported.
    pub const WP: u64 = 2;
}

/// Do not look for threads to wake: nobody waits for a page of staging.
pub const MOVE_DONTWAKE: u64 = 1;
/// Holes in the source are no error.
pub const MOVE_ALLOW_SRC_HOLES: u64 = 2;

const FEATURE_FORK: u64 = 1 << 1;
/// What the pager uses if it is offered: PAGEFAULT_FLAG_WP, EVENT_FORK, EVENT_REMAP, EVENT_REMOVE, EVENT_UNMAP,
/// THREAD_ID, EXACT_ADDRESS, WP_UNPOPULATED, POISON, MOVE.
const FEATURES: u64 =
    1 | FEATURE_FORK | 1 << 2 | 1 << 3 | 1 << 6 | 1 << 8 | 1 << 11 | 1 << 13 | 1 << 14 | 1 << 16;

/// The two userfaultfds of a process.
#[derive(Debug, Clone, Copy)]
pub struct Pair {
    /// For the program's memory and staging A, with events.
    pub main: Descriptor,
    /// For staging B, without events.
    pub staging: Descriptor,
    /// Features of `main`.
    pub features: u64,
}

/// Opens both. Falls back to a `main` without fork events where they are not permitted.
pub fn open_pair() -> Result<Pair, Errno> {
    let staging = open()?;
    // No feature asked for: the answer says which there are. UFFDIO_MOVE needs none.
    let offered = handshake(staging, 0)?;
    let main = open()?;
    let mut features = FEATURES & offered;
    if handshake(main, features).is_err() {
        features &= !FEATURE_FORK;
        handshake(main, features)?;
    }
    Ok(Pair {
        main,
        staging,
        features,
    })
}

/// Opens only the one for staging, in a child that inherits the other.
pub fn open_staging() -> Result<Descriptor, Errno> {
    let staging = open()?;
    handshake(staging, 0)?;
    Ok(staging)
}

fn open() -> Result<Descriptor, Errno> {
    let device = c"/dev/userfaultfd".as_ptr().addr();
    // SAFETY: opens descriptors of the agent's own table.
    unsafe {
        if let Ok(device) = raw::result(raw::syscall4(
            call::OPENAT,
            AT_FDCWD,
            device,
            O_RDWR | CLOEXEC,
            0,
        )) {
            let opened = raw::syscall3(
                call::IOCTL,
                device,
                USERFAULTFD_IOC_NEW,
                CLOEXEC | O_NONBLOCK,
            );
            close(device);
            if let Ok(opened) = raw::result(opened) {
                return Ok(opened);
            }
        }
        raw::result(raw::syscall1(call::USERFAULTFD, CLOEXEC | O_NONBLOCK))
    }
}

fn handshake(userfaultfd: Descriptor, features: u64) -> Result<u64, Errno> {
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
    // SAFETY: the request has the layout of uffdio_register; the range is the agent's own.
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
    // SAFETY: the request has the layout of uffdio_range; the range is the agent's own and empty.
    unsafe { raw::syscall3(call::IOCTL, userfaultfd, UFFDIO_UNREGISTER, request) };
}

/// Moves pages from `source` to `target`. Returns how many bytes moved, from the start on, and why not more.
///
/// # Safety
/// `target` is staging. Moving the source away is what the pager wants.
pub unsafe fn move_pages(
    userfaultfd: Descriptor,
    target: usize,
    source: usize,
    bytes: usize,
    mode: u64,
) -> (usize, Option<Errno>) {
    // dst, src, len, mode, move
    let mut request = [target as u64, source as u64, bytes as u64, mode, 0];
    // SAFETY: the request has the layout of uffdio_move and lives until the call returns; the rest is the caller's
    // promise.
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
    // `move` holds the bytes moved, or a negative errno, or what it was where the kernel did not start.
    let [.., moved] = request;
    match usize::try_from(moved) {
        Ok(moved) if moved < bytes => (moved, Some(errno)),
        _ => (0, Some(errno)),
    }
}
