//! System calls on memory of an arena, with the names, arguments and results of the C library's.
//!
//! The kernel does not wait for a page that is out, so what is passed is kept in RAM during the call. Calls are made
//! without the C library's functions: these end a thread that is cancelled in the middle, and would leave pins behind.
//!
//! Unsafe is needed here because the caller's addresses go to the kernel, which looks at them itself.

use std::ffi::{c_int, c_long, c_void};

use libc::{iovec, msghdr, off_t, size_t, ssize_t};

use crate::failure::{Failure, note, set_errno};
use crate::parts::{Stopped, bytes_of, carry, pin};
use crate::way::{self, Way};

/// The most pieces that the kernel takes (UIO_MAXIOV).
const PIECES_MOST: usize = 1024;

/// A raw call. Its arguments become machine words, as the kernel wants them.
macro_rules! call {
    ($number:ident, $($argument:expr),+) => {
        // SAFETY: the kernel checks all addresses that are passed, and writes only where the caller has it write.
        as_isize(unsafe { libc::syscall(libc::$number, $($argument),+) })
    };
}

fn as_isize(result: c_long) -> isize {
    isize::try_from(result).unwrap_or(-1)
}

/// The result for C: -1 and errno for an error.
fn conclude(result: Result<usize, Stopped>) -> ssize_t {
    let errno = match result {
        Ok(moved) => return isize::try_from(moved).unwrap_or(isize::MAX),
        Err(Stopped::Errno(errno)) => errno,
        Err(Stopped::Arena(failure)) => {
            let errno = failure.errno();
            note(failure);
            errno
        }
    };
    set_errno(errno);
    -1
}

fn one(memory: *const c_void, bytes: size_t) -> Vec<iovec> {
    let piece = iovec {
        iov_base: memory.cast_mut(),
        iov_len: bytes,
    };
    vec![piece]
}

/// A copy of the caller's list, which may itself lie in an arena. None for one that the kernel would refuse.
///
/// # Safety
/// `list` is null or has so many pieces.
unsafe fn many(list: *const iovec, count: usize) -> Option<Vec<iovec>> {
    if list.is_null() || count > PIECES_MOST {
        return None;
    }
    // SAFETY: the caller has so many pieces there.
    let pieces = unsafe { std::slice::from_raw_parts(list, count) }.to_vec();
    bytes_of(&pieces).map(|_| pieces)
}

/// Where the next part is in the file.
fn further(offset: off_t, moved: usize) -> off_t {
    offset.saturating_add(off_t::try_from(moved).unwrap_or(off_t::MAX))
}

/// Carries memory that lies in one piece. The call is told where a part is, its bytes, and how many were moved before.
fn single(
    memory: *const c_void,
    bytes: size_t,
    way: impl Fn() -> Way,
    mut raw: impl FnMut(*mut c_void, usize, usize) -> isize,
) -> ssize_t {
    let call = |part: &[iovec], moved| raw(part[0].iov_base, part[0].iov_len, moved);
    conclude(carry(one(memory, bytes), way, call))
}

/// Carries a caller's list, for a file. The call is told of a list, its length, and how many bytes were moved before.
///
/// # Safety
/// `list` is null or has so many pieces.
unsafe fn vectored(
    fd: c_int,
    (list, count): (*const iovec, c_int),
    is_write: bool,
    mut raw: impl FnMut(*const iovec, c_long, usize) -> isize,
) -> ssize_t {
    // SAFETY: the caller's promise.
    match unsafe { many(list, usize::try_from(count).unwrap_or(usize::MAX)) } {
        Some(pieces) => conclude(carry(
            pieces,
            || way::of_file(fd, is_write),
            |part, moved| {
                let count = c_long::try_from(part.len()).unwrap_or(c_long::MAX);
                raw(part.as_ptr(), count, moved)
            },
        )),
        None => raw(list, c_long::from(count), 0),
    }
}

/// As read(2).
///
/// # Safety
/// So many bytes can be written there, and nobody else uses them meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vswap_read(fd: c_int, memory: *mut c_void, bytes: size_t) -> ssize_t {
    let way = || way::of_file(fd, false);
    single(memory, bytes, way, |place, bytes, _| {
        call!(SYS_read, fd, place, bytes)
    })
}

/// As write(2).
///
/// # Safety
/// So many bytes can be read there, and nobody writes to them meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vswap_write(fd: c_int, memory: *const c_void, bytes: size_t) -> ssize_t {
    let way = || way::of_file(fd, true);
    single(memory, bytes, way, |place, bytes, _| {
        call!(SYS_write, fd, place, bytes)
    })
}

/// As pread(2).
///
/// # Safety
/// As [`vswap_read`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vswap_pread(
    fd: c_int,
    memory: *mut c_void,
    bytes: size_t,
    offset: off_t,
) -> ssize_t {
    let way = || way::of_file(fd, false);
    single(memory, bytes, way, |place, bytes, moved| {
        call!(SYS_pread64, fd, place, bytes, further(offset, moved))
    })
}

/// As pwrite(2).
///
/// # Safety
/// As [`vswap_write`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vswap_pwrite(
    fd: c_int,
    memory: *const c_void,
    bytes: size_t,
    offset: off_t,
) -> ssize_t {
    let way = || way::of_file(fd, true);
    single(memory, bytes, way, |place, bytes, moved| {
        call!(SYS_pwrite64, fd, place, bytes, further(offset, moved))
    })
}

/// As readv(2).
///
/// # Safety
/// As [`vswap_read`], for each piece of the list, which has so many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vswap_readv(fd: c_int, list: *const iovec, count: c_int) -> ssize_t {
    let raw = |list: *const iovec, count: c_long, _: usize| call!(SYS_readv, fd, list, count);
    // SAFETY: the caller's promise.
    unsafe { vectored(fd, (list, count), false, raw) }
}

/// As writev(2).
///
/// # Safety
/// As [`vswap_write`], for each piece of the list, which has so many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vswap_writev(fd: c_int, list: *const iovec, count: c_int) -> ssize_t {
    let raw = |list: *const iovec, count: c_long, _: usize| call!(SYS_writev, fd, list, count);
    // SAFETY: the caller's promise.
    unsafe { vectored(fd, (list, count), true, raw) }
}

/// As preadv(2).
///
/// # Safety
/// As [`vswap_readv`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vswap_preadv(
    fd: c_int,
    list: *const iovec,
    count: c_int,
    offset: off_t,
) -> ssize_t {
    // The second word of the offset is for machines with smaller ones.
    let raw = |list: *const iovec, count: c_long, at: usize| {
        call!(SYS_preadv, fd, list, count, further(offset, at), 0_usize)
    };
    // SAFETY: the caller's promise.
    unsafe { vectored(fd, (list, count), false, raw) }
}

/// As pwritev(2).
///
/// # Safety
/// As [`vswap_writev`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vswap_pwritev(
    fd: c_int,
    list: *const iovec,
    count: c_int,
    offset: off_t,
) -> ssize_t {
    let raw = |list: *const iovec, count: c_long, at: usize| {
        call!(SYS_pwritev, fd, list, count, further(offset, at), 0_usize)
    };
    // SAFETY: the caller's promise.
    unsafe { vectored(fd, (list, count), true, raw) }
}

/// As recv(2).
///
/// # Safety
/// As [`vswap_read`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vswap_recv(
    fd: c_int,
    memory: *mut c_void,
    bytes: size_t,
    flags: c_int,
) -> ssize_t {
    let way = || way::of_socket(fd, flags, false);
    single(memory, bytes, way, |place, bytes, _| {
        call!(SYS_recvfrom, fd, place, bytes, flags, 0_usize, 0_usize)
    })
}

/// As send(2).
///
/// # Safety
/// As [`vswap_write`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vswap_send(
    fd: c_int,
    memory: *const c_void,
    bytes: size_t,
    flags: c_int,
) -> ssize_t {
    let way = || way::of_socket(fd, flags, true);
    single(memory, bytes, way, |place, bytes, _| {
        call!(SYS_sendto, fd, place, bytes, flags, 0_usize, 0_usize)
    })
}

/// Carries a message: its pieces in parts where that is the same, its name and control data with each.
///
/// # Safety
/// `message` is what sendmsg and recvmsg demand.
unsafe fn carry_message(
    message: &mut msghdr,
    way: impl Fn() -> Way,
    mut raw: impl FnMut(&mut msghdr) -> isize,
) -> Option<Result<usize, Stopped>> {
    // SAFETY: the caller's promise.
    let pieces = unsafe { many(message.msg_iov, message.msg_iovlen) };
    let pieces = match (pieces, message.msg_iovlen) {
        (Some(pieces), _) => pieces,
        (None, 0) => Vec::new(),
        (None, _) => return None,
    };
    let name_bytes = usize::try_from(message.msg_namelen).unwrap_or(0);
    let mut beside = Vec::new();
    for (place, bytes) in [
        (message.msg_name, name_bytes),
        (message.msg_control, message.msg_controllen),
    ] {
        if !place.is_null() && bytes > 0 {
            beside.extend(one(place, bytes));
        }
    }
    let _pins = match pin(&beside) {
        Ok(pins) => pins,
        Err(failure) => return Some(Err(Stopped::Arena(failure))),
    };
    let has_control = message.msg_controllen > 0;
    let way = || if has_control { Way::Whole } else { way() };
    Some(carry(pieces, way, |part, _| {
        message.msg_iov = part.as_ptr().cast_mut();
        message.msg_iovlen = part.len();
        raw(message)
    }))
}

fn no_message() -> ssize_t {
    note(Failure::argument(
        "the msghdr is NULL: pass the address of one",
    ));
    set_errno(libc::EFAULT);
    -1
}

/// As sendmsg(2).
///
/// # Safety
/// As sendmsg demands.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vswap_sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    if message.is_null() {
        return no_message();
    }
    // SAFETY: the caller has a msghdr there.
    let mut copy = unsafe { message.read() };
    let raw = |message: &mut msghdr| call!(SYS_sendmsg, fd, std::ptr::from_mut(message), flags);
    // SAFETY: the caller's promise.
    let carried = unsafe { carry_message(&mut copy, || way::of_socket(fd, flags, true), raw) };
    match carried {
        Some(result) => conclude(result),
        None => call!(SYS_sendmsg, fd, message, flags),
    }
}

/// As recvmsg(2).
///
/// # Safety
/// As recvmsg demands.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vswap_recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    if message.is_null() {
        return no_message();
    }
    // SAFETY: the caller has a msghdr there.
    let mut copy = unsafe { message.read() };
    let raw = |message: &mut msghdr| call!(SYS_recvmsg, fd, std::ptr::from_mut(message), flags);
    // SAFETY: the caller's promise.
    let carried = unsafe { carry_message(&mut copy, || way::of_socket(fd, flags, false), raw) };
    let Some(result) = carried else {
        return call!(SYS_recvmsg, fd, message, flags);
    };
    // SAFETY: the caller has a msghdr there, which is his to be written to.
    unsafe {
        (*message).msg_namelen = copy.msg_namelen;
        (*message).msg_controllen = copy.msg_controllen;
        (*message).msg_flags = copy.msg_flags;
    }
    conclude(result)
}
