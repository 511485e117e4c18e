//! May a call be made in parts? That depends on what is behind the descriptor.
//!
//! - Files give and take as much as is asked for: all parts, one after the other.
//! - A stream gives what has come: a second part could wait for what nobody sends, where the call itself would have
//!   returned. So one part is read. What is written to a stream may come in parts.
//! - A message is one: to cut it would send another. It goes as a whole, or not at all.
//!
//! Unsafe is needed here because libc's calls take pointers.

use std::ffi::{c_int, c_void};
use std::mem::{MaybeUninit, size_of};

/// How a large range goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Part by part, until one is cut short.
    AllParts,
    /// One part, which is a short count.
    FirstPart,
    /// In one call.
    Whole,
}

/// Flags of send and recv with which a part is as good as the whole.
const HARMLESS: c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_MORE;

/// For read, write and their kin.
pub fn of_file(fd: c_int, is_write: bool) -> Way {
    let mut stat = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the struct lives here. Zeros are a valid value of it, should the call fail.
    let stat = unsafe {
        libc::fstat(fd, stat.as_mut_ptr());
        stat.assume_init()
    };
    match stat.st_mode & libc::S_IFMT {
        libc::S_IFREG | libc::S_IFBLK => Way::AllParts,
        libc::S_IFSOCK => of_socket(fd, 0, is_write),
        _ => of_stream(is_write),
    }
}

fn of_stream(is_write: bool) -> Way {
    if is_write {
        Way::AllParts
    } else {
        Way::FirstPart
    }
}

/// For send, recv and their kin.
pub fn of_socket(fd: c_int, flags: c_int, is_write: bool) -> Way {
    let mut kind: c_int = 0;
    let mut bytes = libc::socklen_t::try_from(size_of::<c_int>()).unwrap_or(0);
    let place: *mut c_int = &raw mut kind;
    // SAFETY: the number and its length live here.
    let asked = unsafe {
        let to = place.cast::<c_void>();
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_TYPE, to, &raw mut bytes)
    };
    if asked != 0 || kind != libc::SOCK_STREAM {
        return Way::Whole;
    }
    match (is_write, flags & !HARMLESS) {
        (_, 0) => of_stream(is_write),
        // Who waits for all waits for the next part too.
        (false, libc::MSG_WAITALL) if flags & libc::MSG_DONTWAIT == 0 => Way::AllParts,
        _ => Way::Whole,
    }
}
