//! The part of redis's protocol that the workload and the tests on real programs use: commands of byte strings, and
//! replies.
//!
//! A client library would bring a dozen crates into the one binary, and would hide when a request is sent.

use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Pause between attempts to connect to a server that does not listen yet.
const TRY_PAUSE: Duration = Duration::from_millis(20);
/// The longest string that a reply may announce: many times the longest that is ever written.
const BULK_BYTES_MAX: usize = 1 << 20;

/// An answer.
#[derive(Debug, PartialEq)]
pub enum Reply {
    /// `+OK` and the like.
    Status(String),
    /// The server refuses and says why.
    Error(String),
    /// A number.
    Integer(i64),
    /// A value, or `None` for a key that does not exist.
    Bulk(Option<Vec<u8>>),
}

impl Reply {
    /// Was the command `name` carried out?
    ///
    /// # Errors
    /// The server has answered something else.
    pub fn ok(self, name: &str) -> Result<(), String> {
        match self {
            Self::Status(_) => Ok(()),
            other => Err(format!("redis answers to {name}: {other:?}")),
        }
    }
}

/// A connection to a server.
#[derive(Debug)]
pub struct Connection {
    reader: BufReader<UnixStream>,
    writer: BufWriter<UnixStream>,
}

impl Connection {
    /// Connects. Tries again for `patience` while nobody listens.
    ///
    /// # Errors
    /// Nobody listens.
    pub fn open(socket: &Path, patience: Duration) -> Result<Self, String> {
        let begun = Instant::now();
        let stream = loop {
            match UnixStream::connect(socket) {
                Ok(stream) => break stream,
                Err(error) if begun.elapsed() >= patience => {
                    return Err(format!(
                        "no redis server listens at {}: {error}",
                        socket.display()
                    ));
                }
                Err(_) => std::thread::sleep(TRY_PAUSE),
            }
        };
        let again = stream
            .try_clone()
            .map_err(|error| format!("cannot use the connection to redis: {error}"))?;
        Ok(Self {
            reader: BufReader::new(stream),
            writer: BufWriter::new(again),
        })
    }

    /// Sends a command, or keeps it until the next reply is awaited.
    ///
    /// # Errors
    /// The connection is lost. This may also show in a later call.
    pub fn send(&mut self, words: &[&[u8]]) -> Result<(), String> {
        self.write(words).map_err(lost)
    }

    /// Sends what was kept.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn flush(&mut self) -> Result<(), String> {
        self.writer.flush().map_err(lost)
    }

    /// Sends a command that the server answers only by ending.
    ///
    /// # Errors
    /// The connection is lost before it is sent.
    pub fn send_last(&mut self, words: &[&[u8]]) -> Result<(), String> {
        self.write(words)
            .and_then(|()| self.writer.flush())
            .map_err(lost)?;
        let mut rest = Vec::new();
        // An error is an end as well.
        let _ = self.reader.read_to_end(&mut rest);
        Ok(())
    }

    /// Sends a command and waits until it is done. Messages call it `name`.
    ///
    /// # Errors
    /// The connection is lost, or the server has not done it.
    pub fn expect(&mut self, words: &[&[u8]], name: &str) -> Result<(), String> {
        self.send(words)?;
        self.receive()?.ok(name)
    }

    fn write(&mut self, words: &[&[u8]]) -> io::Result<()> {
        write!(self.writer, "*{}\r\n", words.len())?;
        for word in words {
            write!(self.writer, "${}\r\n", word.len())?;
            self.writer.write_all(word)?;
            self.writer.write_all(b"\r\n")?;
        }
        Ok(())
    }

    /// Sends a command and reads its reply.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn ask(&mut self, words: &[&[u8]]) -> Result<Reply, String> {
        self.send(words)?;
        self.receive()
    }

    /// Makes the connection fail if an answer takes longer than this.
    ///
    /// # Errors
    /// The system refuses.
    pub fn wait_at_most(&self, within: Duration) -> Result<(), String> {
        let stream = self.reader.get_ref();
        let set = stream.set_read_timeout(Some(within));
        set.and_then(|()| stream.set_write_timeout(Some(within)))
            .map_err(lost)
    }

    /// The next reply.
    ///
    /// # Errors
    /// The connection is lost, or the server sends something that is no reply.
    pub fn receive(&mut self) -> Result<Reply, String> {
        self.writer.flush().map_err(lost)?;
        reply(&mut self.reader).map_err(lost)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "given to map_err")]
fn lost(error: io::Error) -> String {
    format!("the connection to redis: {error}")
}

/// Reads one reply.
fn reply(reader: &mut impl BufRead) -> io::Result<Reply> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let unknown = || io::Error::other(format!("not a reply: {line:?}"));
    let text = line.strip_suffix("\r\n").ok_or_else(unknown)?;
    let rest = text.get(1..).ok_or_else(unknown)?;
    match text.as_bytes().first() {
        Some(b'+') => Ok(Reply::Status(rest.to_owned())),
        Some(b'-') => Ok(Reply::Error(rest.to_owned())),
        Some(b':') => rest.parse().map(Reply::Integer).map_err(|_| unknown()),
        Some(b'$') if rest == "-1" => Ok(Reply::Bulk(None)),
        Some(b'$') => {
            let length: usize = rest.parse().map_err(|_| unknown())?;
            if length > BULK_BYTES_MAX {
                return Err(unknown());
            }
            let mut bytes = vec![0; length + 2];
            reader.read_exact(&mut bytes)?;
            bytes.truncate(length);
            Ok(Reply::Bulk(Some(bytes)))
        }
        _ => Err(unknown()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_read_and_nonsense_is_refused() {
        let read = |mut bytes: &[u8]| reply(&mut bytes);
        assert_eq!(read(b"+OK\r\n").unwrap(), Reply::Status("OK".to_owned()));
        assert_eq!(read(b":12\r\n").unwrap(), Reply::Integer(12));
        assert_eq!(read(b"$-1\r\n").unwrap(), Reply::Bulk(None));
        assert_eq!(
            read(b"$3\r\na\r\n\r\n").unwrap(),
            Reply::Bulk(Some(b"a\r\n".to_vec()))
        );
        assert!(
            read(b"-ERR no\r\n")
                .unwrap()
                .ok("SET")
                .unwrap_err()
                .contains("no")
        );
        for nonsense in [
            &b""[..],
            b"\r\n",
            b"?\r\n",
            b"$9999999999\r\n",
            b"$3\r\nab",
            b"+OK",
        ] {
            assert!(read(nonsense).is_err(), "{nonsense:?}");
        }
    }
}
