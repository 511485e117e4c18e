//! Servers, areas in them, and pages whose every byte is known.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use redis::Connection;
use vswap_engine::{Codec, Page, Storage, StorageError};
use vswap_far::{AreaId, FarError, FarOptions, FarSpec, FarStorage, Patience, RunId};

use crate::seeded::Seeded;

/// A server that is stopped with its directory when it is dropped.
pub struct Server {
    child: Child,
    pub port: u16,
    _dir: tempfile::TempDir,
}

/// The first port that is tried, and how many there are: below those that the system gives to connections.
const PORTS: (u32, u32) = (12000, 18000);

/// A free port that no other test of this process gets.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let (first, many) = PORTS;
    loop {
        let next = NEXT
            .fetch_add(1, Ordering::Relaxed)
            .wrapping_add(std::process::id().wrapping_mul(61));
        let port = u16::try_from(first + next % many).expect("small");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

impl Server {
    /// None, and a word about it, if this machine has no server program.
    pub fn start(more: &[&str]) -> Option<Server> {
        for _ in 0..5 {
            let server = Server::start_at(free_port(), more)?;
            if server.is_some() {
                return server;
            }
        }
        panic!("redis-server does not start");
    }

    /// On this port. None in there if it does not start.
    #[expect(clippy::option_option, reason = "no program, and a port that is taken")]
    pub fn start_at(port: u16, more: &[&str]) -> Option<Option<Server>> {
        let dir = tempfile::tempdir().expect("a directory");
        let started = Command::new("redis-server")
            .args([
                "--port",
                &port.to_string(),
                "--save",
                "",
                "--bind",
                "127.0.0.1",
            ])
            .args(["--dir", dir.path().to_str().expect("UTF-8")])
            .args(more)
            .stdout(Stdio::null())
            .spawn();
        let Ok(child) = started else {
            eprintln!("skipped: there is no redis-server here");
            return None;
        };
        let mut server = Server {
            child,
            port,
            _dir: dir,
        };
        Some(server.is_up().then_some(server))
    }

    fn is_up(&mut self) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(10) {
            if std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return true;
            }
            if self.child.try_wait().expect("own child").is_some() {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }

    pub fn at(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn url(&self) -> String {
        format!("valkey://{}", self.at())
    }

    /// A connection to look and meddle.
    pub fn client(&self) -> Connection {
        let client = redis::Client::open(format!("redis://{}", self.at())).expect("an address");
        client.get_connection().expect("a server")
    }

    /// Sends `STOP`, `CONT` or `KILL`.
    pub fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &pid]).status();
        assert!(sent.expect("kill").success());
    }

    /// All keys that areas have on it, but for the registry.
    pub fn keys(&self) -> Vec<Vec<u8>> {
        let mut keys = all_keys(&mut self.client());
        keys.retain(|key| !key.starts_with(b"vswap:run:"));
        keys
    }
}

pub fn all_keys(client: &mut Connection) -> Vec<Vec<u8>> {
    redis::cmd("KEYS")
        .arg("vswap:*")
        .query(client)
        .expect("keys")
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn spec(text: &str) -> FarSpec {
    text.parse().expect(text)
}

/// An area of this many slots that does not wait long.
pub fn options(slots: u64) -> FarOptions {
    let run = RunId::random().expect("random bytes");
    let mut options = FarOptions::new(AreaId { run, area: 0 }, slots, Codec::Lz4);
    options.patience = Patience {
        answer: Duration::from_millis(500),
        bound: Duration::from_secs(20),
    };
    options
}

pub fn open(text: &str, options: FarOptions) -> FarStorage {
    FarStorage::open(&spec(text), options).expect("a store that is fit")
}

pub fn refused(text: &str, options: FarOptions) -> FarError {
    FarStorage::open(&spec(text), options).expect_err("a store that is not fit")
}

/// A page that nothing but this seed has. Some compress, some do not.
pub fn page(seed: u64) -> Page {
    let mut random = Seeded(seed);
    let mut page = Page::zeroed();
    let words = [64, 200, 512][random.below(3)];
    for word in page.0.as_chunks_mut::<8>().0.iter_mut().take(words) {
        *word = random.next().to_le_bytes();
    }
    page
}

pub fn write(storage: &impl Storage, slot: u64, seeds: &[u64]) -> Result<(), StorageError> {
    let pages: Vec<Page> = seeds.iter().map(|seed| page(*seed)).collect();
    storage.write(slot, &pages.iter().collect::<Vec<_>>())
}

/// Reads pages and compares every byte.
pub fn check(storage: &impl Storage, slot: u64, seeds: &[u64]) -> Result<(), StorageError> {
    let mut pages = vec![Page([0x5a; 4096]); seeds.len()];
    storage.read(slot, &mut pages.iter_mut().collect::<Vec<_>>())?;
    for (at, (got, seed)) in pages.iter().zip(seeds).enumerate() {
        assert!(
            *got == page(*seed),
            "slot {} is not {seed}",
            slot + at as u64
        );
    }
    Ok(())
}

/// What was told, to be looked at afterwards.
#[derive(Default)]
pub struct Told(pub Mutex<Vec<String>>);

impl Told {
    pub fn all(&self) -> Vec<String> {
        self.0.lock().expect("no panic").clone()
    }
}
