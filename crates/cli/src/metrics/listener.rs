//! The listening end: a TCP port, or a unix socket that nobody but its owner can open.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, fchmod};
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, bind, listen, shutdown,
    socket_with,
};

use crate::args::metrics_address::MetricsAddress;
use crate::failure::Failure;

/// Connections that may wait for their turn.
const BACKLOG: i32 = 16;

/// Where it listens.
#[derive(Debug)]
pub enum Listener {
    /// At a port.
    Tcp(TcpListener),
    /// At a path.
    Unix {
        /// The socket.
        listener: UnixListener,
        /// Its file, which is removed at the end.
        file: SocketFile,
    },
}

/// The file of a socket. Dropping it removes the file, unless another one lies there by now.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    identity: Option<(u64, u64)>,
}

/// A connection.
#[derive(Debug)]
pub enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Listener {
    /// Begins to listen.
    ///
    /// # Errors
    /// The address cannot be had.
    pub fn bind(address: &MetricsAddress) -> Result<Listener, Failure> {
        match address {
            MetricsAddress::Tcp(tcp) => TcpListener::bind(tcp)
                .map(Listener::Tcp)
                .map_err(|error| no_port(&tcp.to_string(), &error)),
            MetricsAddress::Socket(path) => {
                bind_unix(path).map_err(|error| no_socket(path, &error))
            }
        }
    }

    /// Where it listens: with the number of the port if the kernel has chosen it.
    pub fn address(&self) -> MetricsAddress {
        match self {
            Listener::Tcp(listener) => {
                let unknown = (std::net::Ipv4Addr::UNSPECIFIED, 0).into();
                MetricsAddress::Tcp(listener.local_addr().unwrap_or(unknown))
            }
            Listener::Unix { file, .. } => MetricsAddress::Socket(file.path.clone()),
        }
    }

    /// The next connection.
    pub fn accept(&self) -> io::Result<Stream> {
        match self {
            Listener::Tcp(listener) => listener.accept().map(|(stream, _)| Stream::Tcp(stream)),
            Listener::Unix { listener, .. } => {
                listener.accept().map(|(stream, _)| Stream::Unix(stream))
            }
        }
    }

    /// Ends `accept`, for good.
    pub fn wake(&self) {
        let _ = match self {
            Listener::Tcp(listener) => shutdown(listener, Shutdown::Both),
            Listener::Unix { listener, .. } => shutdown(listener, Shutdown::Both),
        };
    }
}

fn bind_unix(path: &Path) -> io::Result<Listener> {
    let socket: OwnedFd = socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // The file gets the mode that its socket has, so there is no moment in which others may connect.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    let file = SocketFile {
        path: path.to_owned(),
        identity: identity(path),
    };
    listen(&socket, BACKLOG)?;
    Ok(Listener::Unix {
        listener: UnixListener::from(socket),
        file,
    })
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let metadata = fs::symlink_metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.identity.is_some() && identity(&self.path) == self.identity {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn no_port(address: &str, error: &io::Error) -> Failure {
    let what_to_do = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "something listens there already: choose another port; port 0 takes any that is free"
        }
        io::ErrorKind::AddrNotAvailable => {
            "this machine has no such address: 127.0.0.1 is always there"
        }
        io::ErrorKind::PermissionDenied => "ports below 1024 are root's: choose a higher one",
        _ => "choose another address",
    };
    Failure::own(format!(
        "--metrics: cannot listen at {address}: {error}; {what_to_do}"
    ))
}

fn no_socket(path: &Path, error: &io::Error) -> Failure {
    let what_to_do = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "there is a file of this name: choose another one, or remove it if nobody listens there any more"
        }
        io::ErrorKind::NotFound => "make the directory first",
        io::ErrorKind::PermissionDenied => "choose a directory that you may write to",
        _ => "choose another path",
    };
    Failure::own(format!(
        "--metrics: cannot make a socket at {}: {error}; {what_to_do}",
        path.display()
    ))
}

impl Stream {
    /// How long a read or a write may take.
    pub fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => {
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))
            }
            Stream::Unix(stream) => {
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))
            }
        }
    }

    /// Says that nothing more comes.
    pub fn end_writing(&self) {
        let _ = match self {
            Stream::Tcp(stream) => stream.shutdown(std::net::Shutdown::Write),
            Stream::Unix(stream) => stream.shutdown(std::net::Shutdown::Write),
        };
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(buffer),
            Stream::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(buffer),
            Stream::Unix(stream) => stream.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
