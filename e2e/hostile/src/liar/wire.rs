//! Connections to the agents' socket on which anything can be sent: any number of bytes, any number of descriptors.
//!
//! Nothing here waits for the other end, except where a time is given. Unsafe is needed here because `vswap-sys` sends
//! whole messages alone.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use vswap_sys::eventfd::{PollFd, PollFlags, poll};
use vswap_sys::ring::Hello;
use vswap_sys::sock::{SockError, Stream, Wait};

/// The kernel takes no more descriptors in one message (SCM_MAX_FD).
pub(crate) const DESCRIPTORS_MAX: usize = 253;

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection(pub(crate) Stream);

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Connection {
    /// Connects to the path, or to the abstract name with the same text. None if nobody takes the call at once.
    pub(crate) fn new(path: &Path, is_abstract: bool) -> Option<Connection> {
        let address = if is_abstract {
            SocketAddrUnix::new_abstract_name(path.as_os_str().as_bytes()).ok()?
        } else {
            SocketAddrUnix::new(path).ok()?
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let kind = SocketType::SEQPACKET;
        let fd = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None).ok()?;
        rustix::net::connect(&fd, &address).ok()?;
        Some(Connection(Stream::from_fd(fd)))
    }

    /// Sends a hello with descriptors. False if it did not go.
    pub(crate) fn hello(&self, hello: &Hello, fds: &[BorrowedFd<'_>]) -> bool {
        // SAFETY: a Hello is made of integers without padding.
        let bytes = unsafe {
            core::slice::from_raw_parts(core::ptr::from_ref(hello).cast::<u8>(), size_of::<Hello>())
        };
        send(self.as_fd(), bytes, fds)
    }

    /// Sends bytes with descriptors. False if they did not go.
    pub(crate) fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> bool {
        send(self.as_fd(), bytes, fds)
    }

    /// The next byte and its descriptor. None if none comes within the time.
    pub(crate) fn hear(&self, patience: Duration) -> Option<(u8, Option<OwnedFd>)> {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        if poll(&mut fds, Some(patience)) != Ok(1) {
            return None;
        }
        match self.0.recv::<u8>(Wait::No) {
            Ok((byte, mut descriptors)) => Some((byte, descriptors.take(0))),
            Err(SockError::Length { .. }) => Some((0, None)),
            Err(_) => None,
        }
    }
}

/// Sends a message as it is, without waiting.
pub(crate) fn send(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> bool {
    let numbers: Vec<i32> = fds
        .iter()
        .take(DESCRIPTORS_MAX)
        .map(AsRawFd::as_raw_fd)
        .collect();
    let payload = numbers.len() * size_of::<i32>();
    // SAFETY: these only compute lengths.
    let (space, length) = unsafe {
        (
            libc::CMSG_SPACE(payload as u32),
            libc::CMSG_LEN(payload as u32),
        )
    };
    // Words, so that the header is aligned.
    let mut control = vec![0_u64; (space as usize).div_ceil(8)];
    let mut vector = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: a record of integers and pointers, for which zeros are values.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    if !numbers.is_empty() {
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = space as usize;
        let header = control.as_mut_ptr().cast::<libc::cmsghdr>();
        // SAFETY: `control` has room for a header and the numbers behind it, as CMSG_SPACE says, and is aligned.
        unsafe {
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = length as usize;
            let data = libc::CMSG_DATA(header);
            core::ptr::copy_nonoverlapping(numbers.as_ptr().cast::<u8>(), data, payload);
        }
    }
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: the message and all that it points to live until the call returns; the kernel reads them.
    unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) >= 0 }
}
