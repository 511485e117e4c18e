//! An area in a store on another machine: every byte comes back, and nothing is left behind.
#![cfg(feature = "far")]

mod support;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use support::{check_all, named, write_all};
use vswap_arena::Arena;

const MIB: usize = 1 << 20;

/// A redis-server on loopback, which is stopped when this is dropped. None where there is no such program.
struct Server {
    child: Child,
    port: u16,
    _directory: tempfile::TempDir,
}

impl Server {
    fn start() -> Option<Server> {
        let directory = tempfile::tempdir().expect("a directory");
        // A port that nobody has now. Somebody else may take it in the next moment.
        let free = || {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
            listener.local_addr().expect("an address").port()
        };
        for _ in 0..5 {
            let port = free();
            let started = Command::new("redis-server")
                .args([
                    "--port",
                    &port.to_string(),
                    "--bind",
                    "127.0.0.1",
                    "--save",
                    "",
                ])
                .arg("--dir")
                .arg(directory.path())
                .stdout(Stdio::null())
                .spawn();
            let Ok(child) = started else {
                eprintln!("skipped: there is no redis-server here");
                return None;
            };
            let mut server = Server {
                child,
                port,
                _directory: tempfile::tempdir().expect("a directory"),
            };
            if server.is_up() {
                return Some(server);
            }
        }
        panic!("redis-server does not start");
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

    /// How many keys it has.
    fn keys(&self) -> String {
        let asked = Command::new("redis-cli")
            .args(["-p", &self.port.to_string(), "dbsize"])
            .output();
        String::from_utf8(asked.expect("redis-cli").stdout).expect("text")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn what_lies_on_another_machine_comes_back_and_leaves_nothing_behind() {
    let Some(server) = Server::start() else {
        return;
    };
    let arena = Arena::builder()
        .ram("16M")
        .pool("2M")
        .area(&format!("valkey://127.0.0.1:{}:128M,tier=far", server.port))
        .far_backup(std::env::temp_dir())
        .build()
        .expect("an arena");
    let mut region = arena.allocate(48 * MIB).expect("addresses");
    for version in 1..3 {
        write_all(&mut region, version);
        check_all(&region, version);
    }
    let areas = arena.areas();
    let far = named(&areas, "far");
    assert_eq!((far.kind, far.errors), ("far", 0), "{areas:?}");
    assert!(
        far.pages_written > 1000 && far.pages_read > 1000,
        "{areas:?}"
    );
    assert_ne!(server.keys().trim(), "0");
    // The child of a fork has the same connections. It ends without a word on them.
    // SAFETY: the child ends at once, by calls that a child of a fork may make.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop(region);
        drop(arena);
        // SAFETY: the process ends here.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: it is our child, and the status is ours.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child ended by itself");
    check_all(&region, 2);
    drop(region);
    drop(arena);
    assert_eq!(server.keys().trim(), "0", "keys are left behind");
}
