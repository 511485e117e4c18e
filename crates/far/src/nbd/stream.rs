//! A socket whose every wait is bounded.
//!
//! For one thread that reads and one that writes at a time. A server that gives single bytes gains nothing by that:
//! what belongs together has to come within twice the time of one wait.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use socket2::{Domain, SockAddr, Socket, Type};

use crate::nbd::spec::NbdServer;

/// The shortest time-out that a socket has.
const SHORTEST: Duration = Duration::from_millis(1);

/// A connected socket.
#[derive(Debug)]
pub(crate) struct Stream {
    socket: Socket,
    patience: Duration,
}

impl Stream {
    /// Connects. Blocks for `patience` at most, but for looking up the name.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn connect(to: &NbdServer, patience: Duration) -> io::Result<Stream> {
        let patience = patience.max(SHORTEST);
        let socket = match to {
            NbdServer::Unix(path) => {
                let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
                // A server that takes nobody is an error at once, not a wait without an end.
                socket.set_nonblocking(true)?;
                socket.connect(&SockAddr::unix(path)?)?;
                socket.set_nonblocking(false)?;
                socket
            }
            NbdServer::Tcp(address) => {
                let socket = tcp(&address.host, address.port, patience)?;
                socket.set_tcp_nodelay(true)?;
                socket
            }
        };
        let mut stream = Stream { socket, patience };
        stream.set_patience(patience)?;
        Ok(stream)
    }

    /// How long one wait may take from now on.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn set_patience(&mut self, patience: Duration) -> io::Result<()> {
        self.patience = patience.max(SHORTEST);
        self.socket.set_read_timeout(Some(self.patience))?;
        self.socket.set_write_timeout(Some(self.patience))
    }

    /// Fills all of it.
    ///
    /// # Errors
    /// The system's; the stream is of no use then.
    pub(crate) fn fill(&self, into: &mut [u8]) -> io::Result<()> {
        let until = Instant::now() + self.patience;
        let mut filled = 0;
        while let Some(rest) = into.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match (&self.socket).read(rest) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => filled += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if filled < into.len() && Instant::now() > until {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }

    /// Sends all of these, one behind the other.
    ///
    /// # Errors
    /// The system's; the stream is of no use then.
    pub(crate) fn send(&self, mut parts: &mut [IoSlice<'_>]) -> io::Result<()> {
        let until = Instant::now() + self.patience;
        while !parts.is_empty() {
            match (&self.socket).write_vectored(parts) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => IoSlice::advance_slices(&mut parts, bytes),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if !parts.is_empty() && Instant::now() > until {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }

    /// Whoever waits for it waits no longer.
    pub(crate) fn close(&self) {
        // It may be closed already.
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.socket.read(into)
    }

    fn read_exact(&mut self, into: &mut [u8]) -> io::Result<()> {
        self.fill(into)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Connects to the first address of the host that answers.
fn tcp(host: &str, port: u16, patience: Duration) -> io::Result<Socket> {
    let until = Instant::now() + patience;
    let mut failed = None;
    for address in (host, port).to_socket_addrs()? {
        let left = until.saturating_duration_since(Instant::now());
        match TcpStream::connect_timeout(&address, left.max(SHORTEST)) {
            Ok(stream) => return Ok(stream.into()),
            Err(error) => failed = Some(error),
        }
    }
    Err(failed.unwrap_or_else(|| io::ErrorKind::NotFound.into()))
}
