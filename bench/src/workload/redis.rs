//! `redis-client`: drives the measured redis server from outside of the measurement.
//!
//! It loads the server with values that compress as memory does (redis-benchmark's own values repeat one letter). It
//! makes redis-benchmark read them, without and with a BGSAVE under way. It mixes reads and writes by Zipf, and
//! compares every value with what it wrote. At the end it tells the server to end, whatever happened.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use clap::Args;

use crate::content::{Content, Kind, PageWords};
use crate::measure::{Latencies, Stage};
use crate::random::{Random, Zipf};
use crate::region::PAGE_WORDS;

use super::print_line;
use crate::resp::{Connection, Reply};

/// Bytes of a value, as `redis-benchmark -d` has them.
const VALUE_BYTES: usize = 1024;
const VALUE_WORDS: usize = VALUE_BYTES / 8;
/// Commands sent before their answers are awaited, as `redis-benchmark -P` has them.
const PIPELINE: usize = 32;
/// How long the server may take to begin to listen, and to save.
const START_PATIENCE: Duration = Duration::from_secs(60);
const SAVE_PATIENCE: Duration = Duration::from_secs(600);
const SAVE_PAUSE: Duration = Duration::from_millis(50);
/// The mix's exponent, and its share of writes in percent.
const EXPONENT: f64 = 0.99;
const WRITE_PERCENT: usize = 20;
/// The mix makes one request for this many keys, because it has no pipeline.
const MIX_SHARE: usize = 4;

/// Options of `redis-client`.
#[derive(Args, Debug)]
pub struct RedisClient {
    /// The server's socket.
    socket: PathBuf,
    /// Number of keys, with values of 1 KiB each.
    #[arg(long)]
    keys: usize,
    /// What the values contain.
    #[arg(long, value_enum, default_value = "mixed")]
    content: Kind,
    /// Seed of content and access order.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The program redis-benchmark.
    #[arg(long, default_value = "redis-benchmark")]
    benchmark: PathBuf,
    /// Change one value behind the workload's back, to see that the workload notices.
    #[arg(long, hide = true)]
    sabotage: bool,
}

pub(super) fn run(options: &RedisClient) -> Result<(), String> {
    let mut connection = Connection::open(&options.socket, START_PATIENCE)?;
    let done = Session::new(options).and_then(|mut session| session.run(&mut connection));
    // A connection in the middle of a reply would not understand the answer. The server ends in any case.
    let ended = Connection::open(&options.socket, Duration::ZERO)
        .and_then(|mut connection| connection.send_last(&[b"SHUTDOWN", b"NOSAVE"]));
    done.and(ended)
}

struct Session<'a> {
    options: &'a RedisClient,
    content: Content,
    /// How often each value was written after it was loaded.
    versions: Vec<u32>,
}

impl<'a> Session<'a> {
    fn new(options: &'a RedisClient) -> Result<Self, String> {
        if options.keys == 0 {
            return Err("no keys: expected --keys 1 or more".to_owned());
        }
        Ok(Self {
            options,
            content: Content::new(options.seed, options.content),
            versions: vec![0; options.keys],
        })
    }

    fn run(&mut self, connection: &mut Connection) -> Result<(), String> {
        self.load(connection)?;
        self.benchmark("get")?;
        connection.expect(&[b"BGSAVE"], "BGSAVE")?;
        self.benchmark("get_bgsave")?;
        wait_for_save(connection)?;
        self.mix(connection)?;
        if self.options.sabotage {
            let key = key(self.options.keys / 2);
            connection.expect(&[b"SET", &key, b"other"], "SET")?;
        }
        self.verify(connection)
    }

    /// The value of key `index`.
    fn value(&self, index: usize) -> [u8; VALUE_BYTES] {
        let mut page: PageWords = [0; PAGE_WORDS];
        let version = self.versions[index];
        self.content.generate(index, version, &mut page);
        // The page's own stamp may lie outside the part that is used.
        page[0] = self.content.stamp(index, version);
        let mut value = [0; VALUE_BYTES];
        let words = value.as_chunks_mut::<8>().0.iter_mut();
        for (bytes, word) in words.zip(&page[..VALUE_WORDS]) {
            *bytes = word.to_le_bytes();
        }
        value
    }

    fn load(&self, connection: &mut Connection) -> Result<(), String> {
        self.throughput("set", |first, last| {
            for index in first..last {
                connection.send(&[b"SET", &key(index), &self.value(index)])?;
            }
            for _ in first..last {
                connection.receive()?.ok("SET")?;
            }
            Ok(())
        })
    }

    fn verify(&self, connection: &mut Connection) -> Result<(), String> {
        self.throughput("verify", |first, last| {
            for index in first..last {
                connection.send(&[b"GET", &key(index)])?;
            }
            for index in first..last {
                self.check(index, connection.receive()?)?;
            }
            Ok(())
        })
    }

    /// Goes over all keys in pipelines and prints the keys per second.
    #[expect(clippy::cast_precision_loss, reason = "key counts are far below 2^53")]
    fn throughput(
        &self,
        phase: &str,
        mut pipeline: impl FnMut(usize, usize) -> Result<(), String>,
    ) -> Result<(), String> {
        let keys = self.options.keys;
        let begun = Instant::now();
        for first in (0..keys).step_by(PIPELINE) {
            pipeline(first, (first + PIPELINE).min(keys))?;
        }
        let wall_s = begun.elapsed().as_secs_f64();
        let ops_per_s = keys as f64 / wall_s;
        print_line(&format!(
            r#"{{"phase":"{phase}","pages":{keys},"wall_s":{wall_s:.6},"ops_per_s":{ops_per_s:.1}}}"#
        ));
        Ok(())
    }

    fn check(&self, index: usize, reply: Reply) -> Result<(), String> {
        let expected = self.value(index);
        match reply {
            Reply::Bulk(Some(found)) if found == expected => Ok(()),
            Reply::Bulk(Some(found)) => {
                let at = found
                    .iter()
                    .zip(&expected)
                    .take_while(|(a, b)| a == b)
                    .count();
                Err(format!(
                    "wrong value of {}: it differs at byte {at}",
                    String::from_utf8_lossy(&key(index))
                ))
            }
            other => Err(format!(
                "no value of {}: {other:?}",
                String::from_utf8_lossy(&key(index))
            )),
        }
    }

    /// One request at a time, with few keys used often.
    fn mix(&mut self, connection: &mut Connection) -> Result<(), String> {
        let keys = self.options.keys;
        let zipf = Zipf::new(keys, EXPONENT);
        let mut random = Random::new(self.options.seed);
        let mut accesses = Vec::with_capacity(keys / MIX_SHARE + 1);
        accesses.resize_with(keys / MIX_SHARE + 1, || {
            // Hot keys are scattered over all keys, as in the workload for memory.
            let index = zipf.sample(&mut random) * 1_000_003 % keys;
            (index, random.below(100) < WRITE_PERCENT)
        });
        let phase = Stage::new(1).run_alone("zipf", |latencies| {
            let mut accesses = accesses.into_iter();
            accesses.try_for_each(|(index, is_write)| {
                self.access(connection, index, is_write, latencies)
            })
        })?;
        print_line(&serde_json::to_string(&phase).map_err(|error| error.to_string())?);
        Ok(())
    }

    fn access(
        &mut self,
        connection: &mut Connection,
        index: usize,
        is_write: bool,
        latencies: &mut Latencies,
    ) -> Result<(), String> {
        if is_write {
            self.versions[index] += 1;
            let value = self.value(index);
            latencies.time(|| connection.expect(&[b"SET", &key(index), &value], "SET"))
        } else {
            let reply = latencies.time(|| {
                connection.send(&[b"GET", &key(index)])?;
                connection.receive()
            })?;
            self.check(index, reply)
        }
    }

    /// Makes redis-benchmark read all keys, with the usual options for measuring redis.
    fn benchmark(&self, phase: &str) -> Result<(), String> {
        let keys = self.options.keys.to_string();
        let output = Command::new(&self.options.benchmark)
            .arg("-s")
            .arg(&self.options.socket)
            .args([
                "-r", &keys, "-n", &keys, "-d", "1024", "-c", "12", "-P", "32",
            ])
            .args(["-t", "get", "--csv"])
            .output()
            .map_err(|error| format!("cannot run {}: {error}", self.options.benchmark.display()))?;
        let said = String::from_utf8_lossy(&output.stdout);
        let figures = csv_figures(&said).ok_or_else(|| {
            let errors = String::from_utf8_lossy(&output.stderr);
            format!("redis-benchmark gave no figures but: {said}{errors}")
        })?;
        let [ops_per_s, p50_us, p99_us] = figures;
        print_line(&format!(
            "{}{}",
            format_args!(r#"{{"phase":"{phase}","pages":{keys},"ops_per_s":{ops_per_s:.1},"#),
            format_args!(r#""p50_us":{p50_us:.1},"p99_us":{p99_us:.1}}}"#)
        ));
        Ok(())
    }
}

/// Name of key `index`, as redis-benchmark makes it.
fn key(index: usize) -> Vec<u8> {
    format!("key:{index:012}").into_bytes()
}

fn wait_for_save(connection: &mut Connection) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        connection.send(&[b"INFO", b"persistence"])?;
        let Reply::Bulk(Some(info)) = connection.receive()? else {
            return Err("redis told nothing of its BGSAVE".to_owned());
        };
        let info = String::from_utf8_lossy(&info);
        let has = |line: &str| info.lines().any(|found| found == line);
        if has("rdb_bgsave_in_progress:0") {
            return if has("rdb_last_bgsave_status:ok") {
                Ok(())
            } else {
                Err("BGSAVE of redis failed; its log tells why".to_owned())
            };
        }
        if begun.elapsed() > SAVE_PATIENCE {
            return Err(format!(
                "BGSAVE took longer than {} s",
                SAVE_PATIENCE.as_secs()
            ));
        }
        std::thread::sleep(SAVE_PAUSE);
    }
}

/// Requests per second, median and 99th percentile in microseconds, from redis-benchmark's CSV.
fn csv_figures(csv: &str) -> Option<[f64; 3]> {
    let mut lines = csv.lines().filter(|line| line.starts_with('"'));
    let fields = |line: &'_ str| -> Vec<String> {
        line.split(',')
            .map(|field| field.trim_matches('"').to_owned())
            .collect()
    };
    let (names, values) = (fields(lines.next()?), fields(lines.next()?));
    let of = |name: &str| -> Option<f64> {
        let at = names.iter().position(|found| found == name)?;
        values.get(at)?.parse().ok()
    };
    Some([
        of("rps")?,
        of("p50_latency_ms")? * 1e3,
        of("p99_latency_ms")? * 1e3,
    ])
}

/// The measured command: a server on a socket, which saves to `dir`.
#[must_use]
pub fn server_words(server: &Path, socket: &Path, dir: &Path) -> Vec<std::ffi::OsString> {
    let mut words: Vec<std::ffi::OsString> = vec![server.into(), "--port".into(), "0".into()];
    words.extend(["--unixsocket".into(), socket.into()]);
    words.extend([
        "--save".into(),
        "".into(),
        "--appendonly".into(),
        "no".into(),
    ]);
    words.extend([
        "--dir".into(),
        dir.into(),
        "--daemonize".into(),
        "no".into(),
    ]);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_by_their_names() {
        let csv = "\"test\",\"rps\",\"avg_latency_ms\",\"p50_latency_ms\",\"p99_latency_ms\"\n\
                   \"GET\",\"50000.00\",\"7.0\",\"6.5\",\"20.25\"\n";
        assert_eq!(csv_figures(csv), Some([50_000.0, 6500.0, 20_250.0]));
        assert_eq!(csv_figures("Could not connect"), None);
    }

    #[test]
    fn keys_are_those_of_redis_benchmark() {
        assert_eq!(key(42), b"key:000000000042");
    }
}
