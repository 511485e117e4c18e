//! A small client of the Redis protocol over a unix socket, pipelined, that checks every answer.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::failure::During;
use crate::{Failure, Outcome};

/// The longest that one answer may take; a server in swap is slow, not stuck.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// A connection to a server.
#[derive(Debug)]
pub struct Client {
    reader: BufReader<UnixStream>,
    unsent: Vec<u8>,
}

/// One answer of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// `+OK` and the like.
    Status(String),
    /// A number.
    Integer(i64),
    /// A value, or `None` for a key that does not exist.
    Value(Option<Vec<u8>>),
}

impl Client {
    /// Connects once; refused while the server is not up.
    pub fn connect(socket: &Path) -> std::io::Result<Client> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(ANSWER_WITHIN))?;
        stream.set_write_timeout(Some(ANSWER_WITHIN))?;
        Ok(Client {
            reader: BufReader::new(stream),
            unsent: Vec::new(),
        })
    }

    /// Puts a command into the pipeline; it goes out with [`Client::flush`].
    pub fn queue(&mut self, words: &[&[u8]]) {
        self.unsent
            .extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            self.unsent
                .extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            self.unsent.extend_from_slice(word);
            self.unsent.extend_from_slice(b"\r\n");
        }
    }

    /// Sends what is queued.
    pub fn flush(&mut self) -> Outcome {
        let unsent = std::mem::take(&mut self.unsent);
        self.reader
            .get_mut()
            .write_all(&unsent)
            .during(|| "send to redis-server".to_owned())
    }

    /// Reads the next answer.
    pub fn reply(&mut self) -> Outcome<Reply> {
        let mut line = String::new();
        let got = self
            .reader
            .read_line(&mut line)
            .during(|| "read from redis-server".to_owned())?;
        let wrong = |text: &str| Failure::wrong(format!("redis-server answered {text:?}"));
        if got == 0 {
            return Err(wrong("end of file"));
        }
        let line = line.trim_end();
        let (kind, rest) = line.split_at_checked(1).ok_or_else(|| wrong(line))?;
        match kind {
            "+" => Ok(Reply::Status(rest.to_owned())),
            ":" => rest.parse().map(Reply::Integer).map_err(|_| wrong(line)),
            "$" if rest == "-1" => Ok(Reply::Value(None)),
            "$" => {
                let bytes: usize = rest.parse().map_err(|_| wrong(line))?;
                let mut value = vec![0; bytes + 2];
                self.reader
                    .read_exact(&mut value)
                    .during(|| "read a value from redis-server".to_owned())?;
                value.truncate(bytes);
                Ok(Reply::Value(Some(value)))
            }
            _ => Err(wrong(line)),
        }
    }

    /// Sends one command and reads its answer.
    pub fn ask(&mut self, words: &[&str]) -> Outcome<Reply> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        self.queue(&words);
        self.flush()?;
        self.reply()
    }
}
