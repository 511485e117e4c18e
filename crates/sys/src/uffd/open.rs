//! Getting a userfaultfd, from the device or else from the system call, and agreeing on features.
//!
//! The device is asked first because its permissions, not capabilities, decide who may have faults of the kernel
//! delivered. A failed handshake leaves the userfaultfd unused, so the same one is tried again. But asking what the
//! kernel offers uses a userfaultfd up, so another one is opened for that.

use std::os::fd::{AsFd, FromRawFd, OwnedFd};

use linux_raw_sys::general as raw;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, Updater, opcode};
use rustix::mm::UserfaultfdFlags;

use super::{UffdError, Userfaultfd, feature};

const API: Opcode = opcode::read_write::<raw::uffdio_api>(0xAA, 0x3f);
const NEW: Opcode = opcode::none(0xAA, 0x00);
const _: () = assert!(API == 0xc018_aa3f);

/// The device that gives userfaultfds to everybody who may open it.
pub const DEVICE: &str = "/dev/userfaultfd";

/// Where a userfaultfd came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// /dev/userfaultfd.
    Device,
    /// The userfaultfd system call.
    Syscall,
}

/// Why there is no userfaultfd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Both ways are closed.
    #[error(
        "no userfaultfd: {DEVICE} says errno {device}, the system call says errno {syscall}; \
         vswap doctor says what to do"
    )]
    Refused {
        /// errno of the device.
        device: i32,
        /// errno of the system call.
        syscall: i32,
    },
    /// The kernel and this program do not agree on features.
    #[error("the kernel refuses userfaultfd features {features:#x}: {error}")]
    Handshake {
        /// The features that were asked for.
        features: u64,
        /// The kernel's error.
        error: UffdError,
    },
}

/// Which faults a userfaultfd is to deliver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Faults {
    /// Those of the program and of the kernel on its behalf. Needs the device or privilege.
    All,
    /// Those of the program only: a system call on a missing page fails with EFAULT. Needs no privilege.
    UserOnly,
}

struct NewFromDevice {
    flags: usize,
}

// SAFETY: USERFAULTFD_IOC_NEW takes flags by value and returns a new descriptor. rustix has no wrapper for it.
unsafe impl Ioctl for NewFromDevice {
    type Output = OwnedFd;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        NEW
    }

    fn as_ptr(&mut self) -> *mut core::ffi::c_void {
        core::ptr::without_provenance_mut(self.flags)
    }

    unsafe fn output_from_ptr(
        out: IoctlOutput,
        _: *mut core::ffi::c_void,
    ) -> rustix::io::Result<OwnedFd> {
        // SAFETY: a successful call returns a new descriptor, which nobody else owns.
        Ok(unsafe { OwnedFd::from_raw_fd(out) })
    }
}

impl Userfaultfd {
    /// A userfaultfd of this process, close-on-exec and nonblocking, before the handshake.
    ///
    /// # Errors
    /// `OpenError::Refused` with both errnos.
    pub fn open(faults: Faults) -> Result<(Userfaultfd, Source), OpenError> {
        let device = match Userfaultfd::open_device(faults) {
            Ok(uffd) => return Ok((uffd, Source::Device)),
            Err(errno) => errno.raw_os_error(),
        };
        match Userfaultfd::open_syscall(faults) {
            Ok(uffd) => Ok((uffd, Source::Syscall)),
            Err(errno) => Err(OpenError::Refused {
                device,
                syscall: errno.raw_os_error(),
            }),
        }
    }

    /// A userfaultfd from the device only.
    ///
    /// # Errors
    /// The errno of opening the device or of its ioctl.
    pub fn open_device(faults: Faults) -> Result<Userfaultfd, Errno> {
        let flags = flags(faults).bits() as usize;
        let device = rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        // SAFETY: the ioctl takes a value, not a pointer, and touches no memory.
        let fd = unsafe { rustix::ioctl::ioctl(device.as_fd(), NewFromDevice { flags }) }?;
        Ok(Userfaultfd::from_fd(fd))
    }

    /// A userfaultfd from the system call only.
    ///
    /// # Errors
    /// The errno of the call.
    pub fn open_syscall(faults: Faults) -> Result<Userfaultfd, Errno> {
        // SAFETY: a new userfaultfd watches nothing until a range is registered. rustix has the call only as an unsafe
        // one.
        let fd = unsafe { rustix::mm::userfaultfd(flags(faults)) }?;
        Ok(Userfaultfd::from_fd(fd))
    }

    /// Opens a userfaultfd and turns on as many of the `wanted` features (`feature::*`) as the kernel offers and
    /// permits.
    ///
    /// Leaves out FORK if it is not permitted, and features that an older kernel does not know. Returns the userfaultfd
    /// and the features that are on.
    ///
    /// # Errors
    /// No userfaultfd to be had, or the kernel refuses even what it offers.
    pub fn open_with(faults: Faults, wanted: u64) -> Result<(Userfaultfd, u64), OpenError> {
        let (uffd, _) = Userfaultfd::open(faults)?;
        let permitted = wanted & !feature::EVENT_FORK;
        if uffd.handshake(wanted).is_ok() {
            return Ok((uffd, wanted));
        }
        if permitted != wanted && uffd.handshake(permitted).is_ok() {
            return Ok((uffd, permitted));
        }
        let offered = Userfaultfd::offered(faults)?;
        for features in [wanted & offered, permitted & offered] {
            match uffd.handshake(features) {
                Ok(_) => return Ok((uffd, features)),
                Err(UffdError::Other { .. }) if features != permitted & offered => {}
                Err(error) => return Err(OpenError::Handshake { features, error }),
            }
        }
        let error = UffdError::Other {
            errno: Errno::PERM.raw_os_error(),
            done_bytes: 0,
        };
        Err(OpenError::Handshake {
            features: permitted & offered,
            error,
        })
    }

    /// The features that the kernel knows, permitted or not. Uses up a userfaultfd that it opens for this.
    ///
    /// # Errors
    /// No userfaultfd to be had.
    pub fn offered(faults: Faults) -> Result<u64, OpenError> {
        let (probe, _) = Userfaultfd::open(faults)?;
        probe
            .handshake(0)
            .map_err(|error| OpenError::Handshake { features: 0, error })
    }

    /// UFFDIO_API: turns `features` on and returns those that the kernel knows. Works once per userfaultfd; a call
    /// that fails may be repeated.
    ///
    /// # Errors
    /// `Invalid` for an unknown feature or a second handshake, `Other { EPERM }` for FORK without CAP_SYS_PTRACE.
    pub fn handshake(&self, features: u64) -> Result<u64, UffdError> {
        let mut api = raw::uffdio_api {
            api: u64::from(raw::UFFD_API),
            features,
            ioctls: 0,
        };
        // SAFETY: the ioctl reads and writes one uffdio_api. rustix has no wrapper for it.
        let done = unsafe { rustix::ioctl::ioctl(self, Updater::<API, _>::new(&mut api)) };
        match done {
            Ok(()) => Ok(api.features),
            Err(errno) => Err(UffdError::new(errno, 0)),
        }
    }
}

fn flags(faults: Faults) -> UserfaultfdFlags {
    let flags = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK;
    match faults {
        Faults::All => flags,
        Faults::UserOnly => flags | UserfaultfdFlags::from_bits_retain(raw::UFFD_USER_MODE_ONLY),
    }
}

/// The handshake of another process's userfaultfd, which it may not do itself: the kernel asks whoever makes the call
/// whether it may have fork events.
///
/// # Errors
/// As [`Userfaultfd::handshake`].
pub fn shake_hands(userfaultfd: &Userfaultfd, features: u64) -> Result<u64, UffdError> {
    userfaultfd.handshake(features)
}
