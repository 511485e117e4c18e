//! Message sockets between agent and pager: unix SEQPACKET, fixed structures, and descriptors beside them.
//!
//! Every descriptor made or received is close-on-exec. A message is one structure, whole or not at all. A message of
//! another length, or one whose descriptors did not fit, is an error, and its descriptors are closed. Once a socket has
//! been made, nothing here allocates.
//!
//! Unsafe is needed here because structures are sent as their bytes, and because of two options of sockets: rustix
//! misreads one and lacks the other.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use crate::ring::Hello;

/// Descriptors that one message may carry: those of a Hello, and room for one more.
pub const DESCRIPTORS_MAX: usize = 4;
/// Connections that wait for accept: a burst of forks of a busy program.
const BACKLOG: i32 = 128;
const CONTROL_BYTES: usize = rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX));

/// A structure that may be sent as its bytes.
///
/// # Safety
/// `repr(C)` or an integer, without padding, and every bit pattern is a value.
pub unsafe trait Plain: Copy + Default {}

// SAFETY: an integer.
unsafe impl Plain for u8 {}
// SAFETY: two integers of one byte.
unsafe impl Plain for [u8; 3] {}
// SAFETY: an integer.
unsafe impl Plain for u64 {}
// SAFETY: an integer.
unsafe impl Plain for i32 {}
// SAFETY: repr(C) integers of one size.
unsafe impl Plain for Credentials {}
// SAFETY: repr(C) integers, and the assertion below shows that there is no padding.
unsafe impl Plain for Hello {}
const _: () = assert!(size_of::<Hello>() == size_of::<([u64; 9], [u32; 6])>());

/// `struct ucred`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Credentials {
    pid: i32,
    uid: u32,
    gid: u32,
}

/// Why a message was not sent or received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SockError {
    /// The other end is closed.
    #[error("the other end of the socket is closed")]
    Closed,
    /// Nothing to receive, or no room to send, in a call that does not wait.
    #[error("the socket is not ready: wait for it")]
    NotReady,
    /// The message has another length than the structure.
    #[error(
        "message of {got} bytes where {expected} were expected: the peer speaks another protocol"
    )]
    Length {
        /// Bytes of the message (or of the buffer, when it was longer).
        got: usize,
        /// Bytes of the structure.
        expected: usize,
    },
    /// More descriptors than `DESCRIPTORS_MAX`, or no room for them in this process.
    #[error(
        "descriptors of a message were lost: more than {DESCRIPTORS_MAX}, or the limit of open files is reached"
    )]
    DescriptorsLost,
    /// Any other errno.
    #[error("socket call failed with errno {0}")]
    Other(i32),
}

impl From<Errno> for SockError {
    fn from(errno: Errno) -> SockError {
        match errno {
            Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN => SockError::Closed,
            Errno::AGAIN => SockError::NotReady,
            other => SockError::Other(other.raw_os_error()),
        }
    }
}

/// Does a call wait until it can be done?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Wait.
    Yes,
    /// Return `NotReady` at once.
    No,
}

/// Descriptors that came with a message, in the order in which they were sent. Those not taken are closed.
#[derive(Debug, Default)]
pub struct Descriptors {
    fds: [Option<OwnedFd>; DESCRIPTORS_MAX],
}

impl Descriptors {
    /// How many are left.
    pub fn len(&self) -> usize {
        self.fds.iter().flatten().count()
    }

    /// Is none left?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes the `index`-th descriptor of the message.
    pub fn take(&mut self, index: usize) -> Option<OwnedFd> {
        self.fds.get_mut(index)?.take()
    }
}

/// Who is at the other end, as the kernel recorded it at connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Process id in this process's namespace, 0 when it is not visible from here.
    pub pid: u32,
    /// Effective user id.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
}

/// A connected socket.
#[derive(Debug)]
pub struct Stream {
    fd: OwnedFd,
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl From<Stream> for OwnedFd {
    fn from(stream: Stream) -> OwnedFd {
        stream.fd
    }
}

fn socket() -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
}

impl Stream {
    /// Connects to a listener.
    ///
    /// # Errors
    /// `Other` with ENOENT or ECONNREFUSED when nobody listens at `path`, EACCES when it may not be written.
    pub fn connect(path: &Path) -> Result<Stream, SockError> {
        let address = SocketAddrUnix::new(path)?;
        let fd = socket()?;
        rustix::net::connect(&fd, &address)?;
        Ok(Stream { fd })
    }

    /// A connected pair.
    ///
    /// # Errors
    /// The errno of the call.
    pub fn pair() -> Result<(Stream, Stream), SockError> {
        let (one, other) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        Ok((Stream { fd: one }, Stream { fd: other }))
    }

    /// Takes a SEQPACKET socket that came from elsewhere.
    pub fn from_fd(fd: OwnedFd) -> Stream {
        Stream { fd }
    }

    /// Sends one structure with up to `DESCRIPTORS_MAX` descriptors. Never raises SIGPIPE.
    ///
    /// # Errors
    /// As `SockError` says; too many descriptors are `DescriptorsLost`.
    pub fn send<T: Plain>(
        &self,
        value: &T,
        fds: &[BorrowedFd<'_>],
        wait: Wait,
    ) -> Result<(), SockError> {
        // SAFETY: Plain has no padding, so all bytes of `value` are initialised.
        let bytes = unsafe {
            core::slice::from_raw_parts(core::ptr::from_ref(value).cast::<u8>(), size_of::<T>())
        };
        let mut space = [MaybeUninit::<u8>::uninit(); CONTROL_BYTES];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if fds.len() > DESCRIPTORS_MAX
            || (!fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)))
        {
            return Err(SockError::DescriptorsLost);
        }
        let mut flags = SendFlags::NOSIGNAL;
        flags.set(SendFlags::DONTWAIT, wait == Wait::No);
        let sent = rustix::io::retry_on_intr(|| {
            rustix::net::sendmsg(&self.fd, &[IoSlice::new(bytes)], &mut control, flags)
        })?;
        if sent == bytes.len() {
            Ok(())
        } else {
            Err(SockError::Length {
                got: sent,
                expected: bytes.len(),
            })
        }
    }

    /// Receives one structure and the descriptors beside it.
    ///
    /// # Errors
    /// `Closed` at the end of the connection; as `SockError` says.
    pub fn recv<T: Plain>(&self, wait: Wait) -> Result<(T, Descriptors), SockError> {
        let mut value = T::default();
        // SAFETY: Plain has no padding and takes any bytes. Nothing else refers to `value` as long as `bytes` is used.
        let bytes = unsafe {
            core::slice::from_raw_parts_mut(
                core::ptr::from_mut(&mut value).cast::<u8>(),
                size_of::<T>(),
            )
        };
        let mut space = [MaybeUninit::<u8>::uninit(); CONTROL_BYTES];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        // With TRUNC the kernel tells the real length of a message that is too long.
        let mut flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::TRUNC;
        flags.set(RecvFlags::DONTWAIT, wait == Wait::No);
        let expected = bytes.len();
        let received = rustix::io::retry_on_intr(|| {
            rustix::net::recvmsg(&self.fd, &mut [IoSliceMut::new(bytes)], &mut control, flags)
        })?;
        let mut descriptors = Descriptors::default();
        let mut lost = received.flags.contains(ReturnFlags::CTRUNC);
        let mut next = descriptors.fds.iter_mut();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                for fd in fds {
                    match next.next() {
                        Some(place) => *place = Some(fd),
                        None => lost = true,
                    }
                }
            }
        }
        match received.bytes {
            0 => Err(SockError::Closed),
            got if got != expected => Err(SockError::Length { got, expected }),
            _ if lost => Err(SockError::DescriptorsLost),
            _ => Ok((value, descriptors)),
        }
    }

    /// Ends the connection for both ends and both directions. Wakes a waiting receiver.
    ///
    /// # Errors
    /// The errno of shutdown; an end that is closed already is no error.
    pub fn shutdown(&self) -> Result<(), SockError> {
        match rustix::net::shutdown(&self.fd, rustix::net::Shutdown::Both) {
            Ok(()) | Err(Errno::NOTCONN) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Who connected (or listened).
    ///
    /// # Errors
    /// The errno of getsockopt.
    pub fn peer(&self) -> Result<Peer, SockError> {
        // rustix reads the pid as a value that cannot be 0. But it is 0 for a peer in a foreign pid namespace.
        let Credentials { pid, uid, gid } = self.option(libc::SO_PEERCRED)?;
        let pid = u32::try_from(pid).unwrap_or(0);
        Ok(Peer { pid, uid, gid })
    }

    /// A pidfd of the process that connected. The process may have ended, but the pidfd never names another one.
    ///
    /// # Errors
    /// The errno of getsockopt: ESRCH if the process has been reaped, EMFILE.
    pub fn peer_pidfd(&self) -> Result<OwnedFd, SockError> {
        let fd: i32 = self.option(libc::SO_PEERPIDFD)?;
        // SAFETY: the kernel has made this descriptor for this call, so nobody else owns it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    fn option<T: Plain>(&self, name: i32) -> Result<T, SockError> {
        let mut value = T::default();
        let mut bytes = libc::socklen_t::try_from(size_of::<T>()).unwrap_or(0);
        // SAFETY: the kernel writes at most `bytes` bytes to `value`, which takes any bytes.
        let done = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_SOCKET,
                name,
                core::ptr::from_mut(&mut value).cast(),
                &raw mut bytes,
            )
        };
        if done == 0 {
            return Ok(value);
        }
        let errno = std::io::Error::last_os_error().raw_os_error();
        Err(SockError::Other(errno.unwrap_or(0)))
    }
}

/// A listening socket. Dropping it removes its path.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    path: PathBuf,
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Listener {
    /// Listens at `path`, which must not exist. `mode` says who may connect (0o600: the same user), less the umask.
    ///
    /// # Errors
    /// `Other` with EADDRINUSE when the path exists, ENAMETOOLONG above 107 bytes, or what bind says.
    pub fn bind(path: &Path, mode: u32) -> Result<Listener, SockError> {
        let address = SocketAddrUnix::new(path)?;
        let fd = socket()?;
        // The mode of an unbound socket becomes the mode of its file, so at no moment is the file open to more users.
        rustix::fs::fchmod(&fd, Mode::from_raw_mode(mode))?;
        rustix::net::bind(&fd, &address)?;
        let listener = Listener {
            fd,
            path: path.to_owned(),
        };
        rustix::net::listen(&listener.fd, BACKLOG)?;
        Ok(listener)
    }

    /// Listens at the abstract name with the same text as `path`. A process in another root can reach that too. Such a
    /// name has no permissions, so check the peer.
    ///
    /// # Errors
    /// `Other` with EADDRINUSE, ENAMETOOLONG.
    pub fn bind_abstract(path: &Path) -> Result<Listener, SockError> {
        let address = SocketAddrUnix::new_abstract_name(path.as_os_str().as_bytes())?;
        let fd = socket()?;
        rustix::net::bind(&fd, &address)?;
        rustix::net::listen(&fd, BACKLOG)?;
        Ok(Listener {
            fd,
            path: PathBuf::new(),
        })
    }

    /// Waits for a connection. To avoid waiting, poll the descriptor first.
    ///
    /// # Errors
    /// The errno of accept.
    pub fn accept(&self) -> Result<Stream, SockError> {
        let fd =
            rustix::io::retry_on_intr(|| rustix::net::accept_with(&self.fd, SocketFlags::CLOEXEC))?;
        Ok(Stream { fd })
    }

    /// The path at which it listens.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // A path that is gone or cannot be removed does no harm: nothing listens there any more.
        if !self.path.as_os_str().is_empty() {
            let _ = rustix::fs::unlink(&self.path);
        }
    }
}

#[cfg(test)]
#[path = "sock_tests.rs"]
mod tests;
