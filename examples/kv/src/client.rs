//! The client: fills a server with values, and compares every byte of what it gives back. It works with redis too.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use redis::{Connection, FromRedisValue, Pipeline, RedisError};

use crate::content::{key, value};

/// In scattered order one key is so far from the next. A prime number.
const STRIDE: u64 = 1_000_003;
/// Commands in one pipeline.
const PIPELINE: u64 = 32;
/// A server that is silent for so long is given up.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often an answer is asked for again because a signal came.
const INTERRUPTIONS_MAX: u32 = 3;

/// What is filled or verified.
#[derive(Debug, Clone)]
pub struct Work {
    /// The server, `HOST:PORT`.
    pub server: String,
    /// Numbers of keys.
    pub keys: Range<u64>,
    /// What values follow from.
    pub seed: u64,
    /// The same.
    pub version: u64,
    /// Connections at the same time.
    pub connections: u64,
    /// Fill in another order than that of the numbers.
    pub is_scattered: bool,
}

/// Why it did not go well.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server does not answer, or refuses.
    #[error("{server}: {why}")]
    Server {
        /// Which.
        server: String,
        /// What it said, or why nothing came.
        why: String,
    },
    /// The server gives another value than it was given.
    #[error(
        "{key} has a wrong value: {found} bytes instead of {expected}, and they differ from byte {at} on"
    )]
    Wrong {
        /// Whose value.
        key: String,
        /// Its length.
        found: usize,
        /// The length that it should have.
        expected: usize,
        /// The first byte that differs.
        at: usize,
    },
    /// The server has no value.
    #[error("{key} has no value")]
    Missing {
        /// Whose value.
        key: String,
    },
}

/// How much was done, and how fast.
#[derive(Debug, Clone, Copy)]
pub struct Done {
    /// Keys.
    pub keys: u64,
    /// Of these, keys whose value somebody else has set since ([`verify`]).
    pub others: u64,
    /// Bytes of values.
    pub bytes: u64,
    /// How long it took.
    pub time: Duration,
}

impl std::fmt::Display for Done {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rate = u128::from(self.keys) * 1000 / self.time.as_millis().max(1);
        let mib = self.bytes >> 20;
        write!(f, "{} keys, {mib} MiB, {rate} keys/s", self.keys)?;
        if self.others > 0 {
            write!(f, "; {} have the other value", self.others)?;
        }
        Ok(())
    }
}

impl Work {
    fn connect(&self) -> Result<Connection, RedisError> {
        let connection =
            redis::Client::open(format!("redis://{}/", self.server))?.get_connection()?;
        connection.set_read_timeout(Some(PATIENCE))?;
        connection.set_write_timeout(Some(PATIENCE))?;
        Ok(connection)
    }

    /// Asks for the whole pipeline again where a signal has interrupted the wait for its answer, on another connection:
    /// a socket whose reads end by time does not go on waiting by itself. What is asked for here can be asked twice.
    fn ask<T: FromRedisValue>(
        &self,
        pipeline: &Pipeline,
        connection: &mut Connection,
    ) -> Result<T, RedisError> {
        for _ in 0..INTERRUPTIONS_MAX {
            match pipeline.query(connection) {
                Err(error) if is_interruption(&error) => *connection = self.connect()?,
                answer => return answer,
            }
        }
        pipeline.query(connection)
    }

    /// The part of one connection.
    fn part(&self, number: u64) -> Range<u64> {
        let keys = self.keys.end.saturating_sub(self.keys.start);
        let bound = |number: u64| {
            let share = u128::from(keys) * u128::from(number) / u128::from(self.connections);
            self.keys.start + u64::try_from(share).unwrap_or(keys)
        };
        bound(number)..bound(number + 1)
    }

    /// The number that is filled in place of this one. Each is filled once.
    fn scattered(&self, number: u64) -> u64 {
        let keys = u128::from(self.keys.end - self.keys.start);
        if !self.is_scattered || keys.is_multiple_of(u128::from(STRIDE)) {
            return number;
        }
        let at = u128::from(number - self.keys.start) * u128::from(STRIDE) % keys;
        self.keys.start + u64::try_from(at).unwrap_or(0)
    }

    /// Does one pipeline after the other, on all connections.
    fn spread<E: From<RedisError> + Send>(
        &self,
        pipeline: impl Fn(&mut Connection, Range<u64>) -> Result<(), E> + Sync,
    ) -> Result<(), E> {
        let pipeline = &pipeline;
        let work = |number| {
            let part = self.part(number);
            let mut connection = self.connect()?;
            let mut first = part.start;
            while first < part.end {
                let end = part.end.min(first + PIPELINE);
                pipeline(&mut connection, first..end)?;
                first = end;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let work = &work;
            let threads: Vec<_> = (0..self.connections)
                .map(|number| scope.spawn(move || work(number)))
                .collect();
            threads
                .into_iter()
                .try_for_each(|thread| match thread.join() {
                    Ok(done) => done,
                    Err(panic) => std::panic::resume_unwind(panic),
                })
        })
    }

    fn failed(&self, failure: Failure) -> ClientError {
        match failure {
            Failure::Server(error) => ClientError::Server {
                server: self.server.clone(),
                why: first(error),
            },
            Failure::Content(error) => error,
        }
    }
}

/// What the crate keeps the error of a socket in.
type Kept = Arc<dyn Error + Send + Sync>;

fn is_interruption(error: &RedisError) -> bool {
    let kept = error
        .source()
        .and_then(|cause| cause.downcast_ref::<Kept>());
    let cause = kept.and_then(|kept| kept.downcast_ref::<io::Error>());
    cause.is_some_and(|cause| cause.kind() == ErrorKind::Interrupted)
}

/// Of many commands of one pipeline that were refused, the first says enough.
fn first(error: RedisError) -> String {
    let text = error.to_string();
    let refused = error.into_server_errors();
    match refused.as_deref() {
        Some([(_, refused), ..]) => refused.to_string(),
        _ => text,
    }
}

/// A failure before it is known which server it was.
enum Failure {
    Server(RedisError),
    Content(ClientError),
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Failure {
        Failure::Server(error)
    }
}

/// Sets the values of all keys.
///
/// # Errors
/// The server does not answer, or refuses.
pub fn fill(work: &Work) -> Result<Done, ClientError> {
    let begun = Instant::now();
    let bytes = AtomicU64::new(0);
    let filled = work.spread(|connection, keys| {
        let mut pipeline = redis::pipe();
        for number in keys {
            let number = work.scattered(number);
            let value = value(work.seed, number, work.version);
            bytes.fetch_add(value.len() as u64, Ordering::Relaxed);
            pipeline.cmd("SET").arg(key(number)).arg(value).ignore();
        }
        work.ask::<()>(&pipeline, connection)
            .map_err(Failure::Server)
    });
    filled.map_err(|failure| work.failed(failure))?;
    Ok(Done {
        keys: work.keys.end - work.keys.start,
        others: 0,
        bytes: bytes.into_inner(),
        time: begun.elapsed(),
    })
}

/// Compares the values of all keys with what they should be. With `other_bytes` a key may also have a value of that
/// length that somebody else has set, the same for all such keys: so does redis-benchmark.
///
/// # Errors
/// The server does not answer, or a value is wrong.
pub fn verify(work: &Work, other_bytes: Option<usize>) -> Result<Done, ClientError> {
    let begun = Instant::now();
    let (bytes, others) = (AtomicU64::new(0), AtomicU64::new(0));
    let other = Mutex::new(None);
    let is_other = |found: &[u8]| {
        let mut other = other
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        other_bytes == Some(found.len()) && *other.get_or_insert_with(|| found.to_vec()) == *found
    };
    let verified = work.spread(|connection, keys| {
        let mut pipeline = redis::pipe();
        for number in keys.clone() {
            pipeline.cmd("GET").arg(key(number));
        }
        let found: Vec<Option<Vec<u8>>> = work.ask(&pipeline, connection)?;
        for (number, found) in keys.zip(found) {
            let expected = value(work.seed, number, work.version);
            let key = key(number);
            let found = found.ok_or(Failure::Content(ClientError::Missing { key }))?;
            bytes.fetch_add(found.len() as u64, Ordering::Relaxed);
            if found != expected {
                if !is_other(&found) {
                    return Err(Failure::Content(wrong(number, &found, &expected)));
                }
                others.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    });
    verified.map_err(|failure| work.failed(failure))?;
    Ok(Done {
        keys: work.keys.end - work.keys.start,
        others: others.into_inner(),
        bytes: bytes.into_inner(),
        time: begun.elapsed(),
    })
}

fn wrong(number: u64, found: &[u8], expected: &[u8]) -> ClientError {
    let pairs = found.iter().zip(expected);
    ClientError::Wrong {
        key: key(number),
        found: found.len(),
        expected: expected.len(),
        at: pairs
            .take_while(|(found, expected)| found == expected)
            .count(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interruption_is_told_from_other_failures() {
        let of = |kind| RedisError::from(io::Error::from(kind));
        assert!(is_interruption(&of(ErrorKind::Interrupted)));
        assert!(!is_interruption(&of(ErrorKind::TimedOut)));
        assert!(!is_interruption(&RedisError::from((
            redis::ErrorKind::Client,
            "no answer"
        ))));
    }
}
