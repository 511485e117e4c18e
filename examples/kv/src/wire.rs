//! One connection: requests in, replies out.
//!
//! Requests are parsed by the crate `redis`. Replies are collected, and sent before the thread waits for more requests,
//! so that a pipeline costs few system calls. What is sent is ordinary memory, never memory of the arena.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use redis::{Parser, Value};

/// Replies are sent at the latest when there are so many bytes of them.
const SEND_BYTES: usize = 256 << 10;
/// A client that takes nothing for so long is given up.
const SEND_PATIENCE: Duration = Duration::from_secs(60);
/// What a client still sends after a mistake is thrown away for so long, so that it reads the error before the end.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: u64 = 64 << 20;

/// What came.
#[derive(Debug, PartialEq, Eq)]
pub enum Request {
    /// The words of a command, one at least.
    Words(Vec<Vec<u8>>),
    /// Nothing that could be a command. The connection is of no use any more.
    Nonsense(&'static str),
    /// The client has gone.
    End,
}

/// The socket, replies that are not sent yet, and how much has come of one request.
#[derive(Debug)]
struct Buffered<S> {
    socket: S,
    replies: Vec<u8>,
    came_bytes: usize,
    request_bytes: usize,
    is_too_long: bool,
}

impl<S: Write> Buffered<S> {
    fn send(&mut self) -> io::Result<()> {
        self.socket.write_all(&self.replies)?;
        self.replies.clear();
        Ok(())
    }
}

impl<S: Read + Write> Read for Buffered<S> {
    /// Called by the parser when it has used up what came before.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.came_bytes > self.request_bytes {
            self.is_too_long = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.send()?;
        let bytes = self.socket.read(into)?;
        self.came_bytes += bytes;
        Ok(bytes)
    }
}

/// A connection.
pub struct Wire<S> {
    buffered: Buffered<S>,
    parser: Parser,
}

impl<S> std::fmt::Debug for Wire<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wire").finish_non_exhaustive()
    }
}

impl Wire<TcpStream> {
    /// A connection of the network.
    ///
    /// # Errors
    /// It has gone.
    pub fn on(socket: TcpStream, request_bytes: usize) -> io::Result<Wire<TcpStream>> {
        socket.set_nodelay(true)?;
        socket.set_write_timeout(Some(SEND_PATIENCE))?;
        Ok(Wire::new(socket, request_bytes))
    }

    /// Ends the connection so that the client still reads what was sent.
    pub fn end(mut self) {
        let socket = &self.buffered.socket;
        let is_sent = self.buffered.replies.is_empty();
        if is_sent
            && socket.shutdown(Shutdown::Write).is_ok()
            && socket.set_read_timeout(Some(LINGER)).is_ok()
        {
            let rest = &mut (&mut self.buffered.socket).take(LINGER_BYTES);
            // The client may be gone, which is an end as well.
            let _ = io::copy(rest, &mut io::sink());
        }
    }
}

impl<S: Read + Write> Wire<S> {
    /// A connection whose requests have no more bytes than this.
    pub fn new(socket: S, request_bytes: usize) -> Wire<S> {
        Wire {
            buffered: Buffered {
                socket,
                replies: Vec::new(),
                came_bytes: 0,
                request_bytes,
                is_too_long: false,
            },
            parser: Parser::new(),
        }
    }

    /// Waits for the next request. Sends all replies before it waits.
    pub fn receive(&mut self) -> Request {
        loop {
            self.buffered.came_bytes = 0;
            let parsed = self.parser.parse_value(&mut self.buffered);
            match parsed {
                Ok(Value::Array(items)) if items.is_empty() => {}
                Ok(Value::Nil) => {}
                Ok(Value::Array(items)) => return words(items),
                Ok(_) => return Request::Nonsense("expected '*'"),
                Err(_) if self.buffered.is_too_long => {
                    return Request::Nonsense("invalid bulk length");
                }
                Err(error) if error.is_io_error() => return Request::End,
                Err(_) => return Request::Nonsense("expected '*' or '$', and a length"),
            }
        }
    }

    /// Sends the replies that were collected.
    ///
    /// # Errors
    /// The client has gone, or takes nothing.
    pub fn send(&mut self) -> io::Result<()> {
        self.buffered.send()
    }

    /// Sends the replies if there are many.
    ///
    /// # Errors
    /// The client has gone, or takes nothing.
    pub fn send_if_many(&mut self) -> io::Result<()> {
        if self.buffered.replies.len() >= SEND_BYTES {
            self.send()?;
        }
        Ok(())
    }

    fn line(&mut self, kind: u8, text: &str) {
        let replies = &mut self.buffered.replies;
        replies.push(kind);
        // What a client has sent may come back in a text.
        replies.extend(
            text.bytes()
                .map(|byte| if byte < b' ' { b' ' } else { byte }),
        );
        replies.extend_from_slice(b"\r\n");
    }

    /// `OK` and the like.
    pub fn status(&mut self, text: &str) {
        self.line(b'+', text);
    }

    /// Why a command is not carried out.
    pub fn error(&mut self, text: &str) {
        self.line(b'-', text);
    }

    /// A number.
    pub fn integer(&mut self, number: usize) {
        self.line(b':', &number.to_string());
    }

    /// The head of a list of so many replies.
    pub fn list(&mut self, length: usize) {
        self.line(b'*', &length.to_string());
    }

    /// A string of bytes, which may lie in the arena: it is copied.
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.line(b'$', &bytes.len().to_string());
        self.buffered.replies.extend_from_slice(bytes);
        self.buffered.replies.extend_from_slice(b"\r\n");
    }

    /// No string.
    pub fn none(&mut self) {
        self.line(b'$', "-1");
    }
}

fn words(items: Vec<Value>) -> Request {
    let mut words = Vec::with_capacity(items.len());
    for item in items {
        match item {
            Value::BulkString(word) => words.push(word),
            _ => return Request::Nonsense("expected '$'"),
        }
    }
    Request::Words(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that has sent all of it at once, and what was sent to it.
    struct Sent<'a>(&'a [u8], Vec<u8>);

    impl Read for Sent<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            // Few bytes at a time, as a network may do.
            let count = into.len().min(7);
            self.0.read(&mut into[..count])
        }
    }

    impl Write for Sent<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn all(bytes: &[u8]) -> Vec<Request> {
        let mut wire = Wire::new(Sent(bytes, Vec::new()), 1000);
        let mut found = Vec::new();
        loop {
            match wire.receive() {
                Request::Words(words) => found.push(Request::Words(words)),
                last => {
                    found.push(last);
                    return found;
                }
            }
        }
    }

    #[test]
    fn requests_are_read_one_after_the_other() {
        let words = |words: &[&str]| {
            Request::Words(words.iter().map(|word| word.as_bytes().to_vec()).collect())
        };
        let found = all(
            b"*1\r\n$4\r\nPING\r\n*0\r\n*-1\r\n*2\r\n$3\r\nGET\r\n$3\r\na\r\n\r\n*1\r\n$4\r\nPI",
        );
        assert_eq!(
            found,
            [words(&["PING"]), words(&["GET", "a\r\n"]), Request::End]
        );
    }

    #[test]
    fn nonsense_is_said_to_be_that() {
        let deep = b"*1\r\n".repeat(200);
        let long = [&b"*1\r\n$100000\r\n"[..], &[b'a'; 5000]].concat();
        for nonsense in [
            &b"GET a\r\n"[..],
            b"+OK\r\n",
            b"*1\r\n:5\r\n",
            b"*1\r\n$x\r\n",
            b"*1\r\n*1\r\n$1\r\na\r\n",
            b"$4\r\nPING\r\n",
            b"\0\0\0\r\n",
            &deep,
            &long,
        ] {
            let found = all(nonsense);
            assert!(
                matches!(found[..], [Request::Nonsense(_)]),
                "{:?}: {found:?}",
                nonsense.escape_ascii().to_string()
            );
        }
        // What was announced and does not come takes no memory.
        for cut in [
            &b"*2147483647\r\n"[..],
            b"*1\r\n$9223372036854775807\r\n",
            b"%9223372036854775807\r\n",
        ] {
            assert_ne!(all(cut).len(), 0, "{:?}", cut.escape_ascii().to_string());
        }
    }

    #[test]
    fn replies_are_written_as_redis_writes_them() {
        let mut wire = Wire::new(Sent(b"", Vec::new()), 1000);
        wire.status("OK");
        wire.error("ERR unknown command 'a\r\nb'");
        wire.integer(12);
        wire.list(2);
        wire.bulk(b"a\r\n");
        wire.none();
        assert!(
            wire.buffered.socket.1.is_empty(),
            "it is sent before the next wait"
        );
        assert_eq!(wire.receive(), Request::End);
        let sent = wire.buffered.socket.1.escape_ascii().to_string();
        let expected = b"+OK\r\n-ERR unknown command 'a  b'\r\n:12\r\n*2\r\n$3\r\na\r\n\r\n$-1\r\n";
        assert_eq!(sent, expected.escape_ascii().to_string());
    }
}
