//! Areas in exports of nbdkit, which serves a file.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use vswap_engine::{Page, ReadRun, Storage, StorageError};
use vswap_far::{
    AreaId, Content, FarError, NbdOptions, NbdSpec, NbdStorage, NodeState, Patience, RunId,
    probe_export,
};

use crate::support::{Told, check, free_port, page, write};

const BYTES: u64 = 64 << 20;
const PAGES: u64 = BYTES / 4096;

/// A server with the file that it serves. It is stopped when it is dropped.
struct Server {
    child: Option<Child>,
    at: Listens,
    more: Vec<String>,
    dir: TempDir,
}

#[derive(Clone, Copy)]
enum Listens {
    Here,
    Port(u16),
}

impl Server {
    /// With a blank file. None, and a word about it, if this machine has no server program.
    fn start(at: Listens, more: &[&str]) -> Option<Server> {
        let dir = tempfile::tempdir().expect("a directory");
        let mut server = Server {
            child: None,
            at,
            more: more.iter().map(|&one| one.to_owned()).collect(),
            dir,
        };
        File::create(server.image())
            .and_then(|file| file.set_len(BYTES))
            .expect("a file");
        server.begin().then_some(server)
    }

    fn here(more: &[&str]) -> Option<Server> {
        Server::start(Listens::Here, more)
    }

    fn image(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    /// Starts it, once more if it was stopped. False if there is no such program.
    fn begin(&mut self) -> bool {
        let _ = fs::remove_file(self.socket());
        let mut command = Command::new("nbdkit");
        command.args(["-f", "--threads", "4"]);
        match self.at {
            Listens::Here => command.arg("-U").arg(self.socket()),
            Listens::Port(port) => command.args(["-i", "127.0.0.1", "-p", &port.to_string()]),
        };
        let (before, after): (Vec<_>, Vec<_>) =
            self.more.iter().partition(|word| word.starts_with('-'));
        command
            .args(before)
            .arg("file")
            .arg(self.image())
            .args(after);
        let Ok(child) = command.stdin(Stdio::null()).spawn() else {
            eprintln!("skipped: there is no nbdkit here");
            return false;
        };
        self.child = Some(child);
        let begun = Instant::now();
        while !self.is_up() {
            assert!(
                begun.elapsed() < Duration::from_secs(20),
                "nbdkit does not start"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        true
    }

    fn is_up(&self) -> bool {
        match self.at {
            Listens::Here => std::os::unix::net::UnixStream::connect(self.socket()).is_ok(),
            Listens::Port(port) => TcpStream::connect(("127.0.0.1", port)).is_ok(),
        }
    }

    fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.as_ref().expect("running").id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &pid]).status();
        assert!(sent.expect("kill").success());
        // A thread that has not heard of it yet would answer once more.
        let tasks = PathBuf::from(format!("/proc/{pid}/task"));
        let stands = |task: PathBuf| {
            let stat = fs::read_to_string(task.join("stat")).unwrap_or_default();
            stat.rsplit_once(") ")
                .is_none_or(|(_, rest)| rest.starts_with('T'))
        };
        let all_stand = || {
            let mut tasks = fs::read_dir(&tasks).expect("/proc");
            tasks.all(|task| stands(task.expect("a thread").path()))
        };
        while signal == "STOP" && !all_stand() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn spec(&self) -> NbdSpec {
        let text = match self.at {
            Listens::Here => format!("nbd+unix:///?socket={}", self.socket().display()),
            Listens::Port(port) => format!("nbd://127.0.0.1:{port}/"),
        };
        text.parse().expect("an address")
    }

    fn open(&self) -> NbdStorage {
        NbdStorage::open(&self.spec(), options()).expect("an export that is fit")
    }

    fn refusal(&self) -> String {
        let refused = NbdStorage::open(&self.spec(), options());
        refused.expect_err("an export that is not fit").to_string()
    }

    /// Does something with the file behind the server's back.
    fn meddle(&self, what: impl FnOnce(&File)) {
        let file = File::options().read(true).write(true).open(self.image());
        what(&file.expect("the file"));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

fn options() -> NbdOptions {
    let run = RunId::random().expect("random bytes");
    let mut options = NbdOptions::new(AreaId { run, area: 0 });
    options.patience = Patience {
        answer: Duration::from_secs(10),
        bound: Duration::from_secs(40),
    };
    options.renew = Duration::from_secs(1);
    options
}

fn seeds(range: std::ops::Range<u64>) -> Vec<u64> {
    range.collect()
}

#[test]
fn all_that_is_written_comes_back_over_both_kinds_of_socket() {
    for at in [Listens::Here, Listens::Port(free_port())] {
        let Some(server) = Server::start(at, &[]) else {
            return;
        };
        let storage = server.open();
        assert_eq!((storage.slots(), storage.bad()), (PAGES, &[0][..]));
        assert!(storage.export().can_trim && storage.export().can_multi_conn);
        // Over the border of a cluster, and more than one request carries.
        write(&storage, 500, &seeds(500..1100)).unwrap();
        check(&storage, 500, &seeds(500..1100)).unwrap();
        write(&storage, 700, &[1, 2]).unwrap();
        check(&storage, 699, &[699, 1, 2, 702]).unwrap();
        let mut pages = vec![Page::zeroed(); 3];
        let mut into = pages.iter_mut();
        let mut runs: Vec<ReadRun<'_>> = [510, 900, 3]
            .into_iter()
            .map(|slot| ReadRun {
                slot,
                pages: into.next().into_iter().collect(),
                outcome: Ok(()),
            })
            .collect();
        storage.read_runs(&mut runs);
        let outcomes: Vec<_> = runs.iter().map(|run| run.outcome).collect();
        assert_eq!(outcomes, [Ok(()), Ok(()), Err(StorageError::Lost)]);
        assert!(pages[0] == page(510) && pages[1] == page(900));
        let short = Err(StorageError::Short);
        assert_eq!(write(&storage, PAGES - 1, &[1, 2]), short);
        assert_eq!(check(&storage, PAGES, &[1]), short);
        let figures = storage.figures();
        assert_eq!((figures.pages, figures.nodes.len()), (600, 1));
        assert_eq!(figures.nodes[0].pages_out, 602);
        assert_eq!(figures.nodes[0].state, NodeState::Answers);
    }
}

#[test]
fn many_threads_share_connections_and_one_connection() {
    for more in [&[][..], &["--filter=multi-conn", "multi-conn-mode=disable"]] {
        let Some(server) = Server::here(more) else {
            return;
        };
        let storage = server.open();
        assert_eq!(storage.export().can_multi_conn, more.is_empty());
        std::thread::scope(|scope| {
            for thread in 0..6_u64 {
                let storage = &storage;
                scope.spawn(move || {
                    for turn in 0..8 {
                        let first = 512 + thread * 1024 + turn * 64;
                        write(storage, first, &seeds(first..first + 64)).unwrap();
                        check(storage, first, &seeds(first..first + 64)).unwrap();
                        check(storage, first + 9, &[first + 9]).unwrap();
                    }
                });
            }
        });
        assert_eq!(storage.figures().pages, 6 * 8 * 64);
    }
}

#[test]
fn what_was_altered_moved_or_is_of_yesterday_is_refused() {
    let Some(server) = Server::here(&[]) else {
        return;
    };
    let storage = server.open();
    write(&storage, 8, &seeds(8..16)).unwrap();
    let mut yesterday = [0; 4096];
    server.meddle(|file| {
        file.read_exact_at(&mut yesterday, 9 * 4096).unwrap();
        let plain = page(9);
        assert!(yesterday != plain.0, "not encrypted");
        assert!(!yesterday.windows(64).any(|part| plain.0.starts_with(part)));
    });
    write(&storage, 9, &[99]).unwrap();
    server.meddle(|file| {
        let mut byte = [0];
        file.read_exact_at(&mut byte, 8 * 4096 + 77).unwrap();
        file.write_all_at(&[byte[0] ^ 1], 8 * 4096 + 77).unwrap();
        file.write_all_at(&yesterday, 9 * 4096).unwrap();
        let mut other = [0; 4096];
        file.read_exact_at(&mut other, 10 * 4096).unwrap();
        file.write_all_at(&other, 11 * 4096).unwrap();
        file.write_all_at(&[0; 4096], 12 * 4096).unwrap();
    });
    let altered = Err(StorageError::Altered);
    assert_eq!(check(&storage, 8, &[8]), altered);
    assert_eq!(check(&storage, 9, &[99]), altered);
    assert_eq!(check(&storage, 11, &[11]), altered);
    assert_eq!(check(&storage, 12, &[12]), altered);
    check(&storage, 10, &[10]).unwrap();
    check(&storage, 13, &[13, 14, 15]).unwrap();
    assert_eq!(storage.figures().altered_pages, 4);
    write(&storage, 8, &[80]).unwrap();
    check(&storage, 8, &[80]).unwrap();
}

#[test]
fn a_server_that_was_killed_and_comes_back_has_all() {
    let Some(mut server) = Server::start(Listens::Port(free_port()), &[]) else {
        return;
    };
    let told = Arc::new(Told::default());
    let listener = Arc::clone(&told);
    let mut options = options();
    options.listener = Some(Arc::new(move |event| {
        listener.0.lock().unwrap().push(event.to_string());
    }));
    let storage = NbdStorage::open(&server.spec(), options).unwrap();
    write(&storage, 1, &seeds(1..200)).unwrap();
    server.stop();
    std::thread::scope(|scope| {
        scope.spawn(|| check(&storage, 1, &seeds(1..200)).unwrap());
        scope.spawn(|| write(&storage, 300, &[300, 301]).unwrap());
        std::thread::sleep(Duration::from_secs(2));
        assert!(server.begin());
    });
    check(&storage, 300, &[300, 301]).unwrap();
    let told = told.all();
    assert!(told[0].starts_with("waits for 127.0.0.1:"), "{told:?}");
    assert!(told[1].contains("answers again"), "{told:?}");
    assert_eq!(told.len(), 2, "{told:?}");
}

#[test]
fn a_server_that_stands_still_is_given_up_within_the_bound() {
    let Some(server) = Server::here(&[]) else {
        return;
    };
    let mut options = options();
    options.patience = Patience {
        answer: Duration::from_secs(3),
        bound: Duration::from_secs(3),
    };
    let storage = NbdStorage::open(&server.spec(), options).unwrap();
    write(&storage, 1, &[1]).unwrap();
    server.signal("STOP");
    let begun = Instant::now();
    assert_eq!(check(&storage, 1, &[1]), Err(StorageError::TimedOut));
    assert_eq!(write(&storage, 2, &[2]), Err(StorageError::TimedOut));
    assert!(begun.elapsed() < Duration::from_secs(30));
    let figures = storage.figures();
    assert!(matches!(figures.nodes[0].state, NodeState::GivenUp { .. }));
    server.signal("CONT");
    check(&storage, 1, &[1]).unwrap();
}

#[test]
fn what_is_freed_goes_back_and_the_header_stays() {
    let Some(server) = Server::here(&[]) else {
        return;
    };
    let blocks =
        || fs::metadata(server.image()).map(|file| std::os::unix::fs::MetadataExt::blocks(&file));
    let storage = server.open();
    write(&storage, 1, &seeds(1..2000)).unwrap();
    assert!(blocks().unwrap() > 15_000);
    storage.discard(0..1024).unwrap();
    assert!(blocks().unwrap() < 9000, "{:?}", blocks());
    assert_eq!(check(&storage, 5, &[5]), Err(StorageError::Lost));
    check(&storage, 1024, &seeds(1024..2000)).unwrap();
    storage.retire();
    assert!(blocks().unwrap() < 100);
    assert_eq!(write(&storage, 7, &[7]), Err(StorageError::Short));
    drop(storage);
    let again = server.open();
    assert_eq!(again.slots(), PAGES);
}

#[test]
fn a_blank_export_becomes_an_area_and_data_is_left_alone() {
    let Some(server) = Server::here(&[]) else {
        return;
    };
    let patience = Patience::default();
    let found = probe_export(&server.spec(), &patience).unwrap();
    assert_eq!(found.content, Content::Blank);
    assert!(
        fs::read(server.image())
            .unwrap()
            .iter()
            .all(|byte| *byte == 0)
    );
    drop(server.open());
    let Content::Area(header) = probe_export(&server.spec(), &patience).unwrap().content else {
        panic!("no area");
    };
    assert_eq!(header.pages, PAGES);
    // An area that another machine has used is an area.
    server.meddle(|file| file.write_all_at(&[7; 4096], 40960).unwrap());
    drop(server.open());
    server.meddle(|file| file.write_all_at(&[0; 4096], 0).unwrap());
    let before = fs::read(server.image()).unwrap();
    let refusal = server.refusal();
    assert!(
        refusal.contains("holds data") && refusal.contains("?force"),
        "{refusal}"
    );
    assert!(matches!(
        probe_export(&server.spec(), &patience),
        Err(FarError::Unfit { .. })
    ));
    assert!(
        fs::read(server.image()).unwrap() == before,
        "it was written to"
    );
    let forced = NbdSpec {
        force: true,
        ..server.spec()
    };
    let storage = NbdStorage::open(&forced, options()).unwrap();
    write(&storage, 1, &[1]).unwrap();
    drop(storage);
    drop(server.open());
}

#[test]
fn an_export_is_for_one_run_and_one_that_has_crashed_is_found_out() {
    let Some(server) = Server::here(&[]) else {
        return;
    };
    let first = server.open();
    write(&first, 1, &[1]).unwrap();
    let refusal = server.refusal();
    assert!(refusal.contains("another run uses"), "{refusal}");
    let found = probe_export(&server.spec(), &Patience::default()).unwrap();
    assert!(found.is_marked);
    let mut used = [0; 4096];
    server.meddle(|file| file.read_exact_at(&mut used, 0).unwrap());
    check(&first, 1, &[1]).unwrap();
    drop(first);
    let found = probe_export(&server.spec(), &Patience::default()).unwrap();
    assert!(!found.is_marked);
    // As if the run had crashed.
    server.meddle(|file| file.write_all_at(&used, 0).unwrap());
    let begun = Instant::now();
    let second = server.open();
    assert!(begun.elapsed() >= Duration::from_secs(4));
    write(&second, 1, &[2]).unwrap();
    // As if another run had taken it for dead.
    server.meddle(|file| file.write_all_at(&used, 0).unwrap());
    let begun = Instant::now();
    while write(&second, 1, &[3]).is_ok() {
        assert!(begun.elapsed() < Duration::from_secs(30), "it writes on");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(write(&second, 1, &[3]), Err(StorageError::Altered));
    drop(second);
    let mut left = [0; 4096];
    server.meddle(|file| file.read_exact_at(&mut left, 0).unwrap());
    assert!(left == used, "the mark of another was taken away");
}

#[test]
fn sizes_are_held_to() {
    let Some(server) = Server::here(&[]) else {
        return;
    };
    let sized = |bytes| NbdOptions {
        bytes: Some(bytes),
        ..options()
    };
    let storage = NbdStorage::open(&server.spec(), sized(1 << 20)).unwrap();
    assert_eq!(storage.slots(), 256);
    assert_eq!(write(&storage, 256, &[1]), Err(StorageError::Short));
    let refused = NbdStorage::open(&server.spec(), sized(BYTES + 1)).expect_err("too large");
    assert!(
        refused.to_string().contains("leave the size out"),
        "{refused}"
    );
}

#[test]
fn exports_that_are_not_fit_are_refused_with_what_mends_it() {
    for (more, expected) in [
        (&["-r"][..], "read-only"),
        (
            &["--filter=offset", "range=8192"],
            "expected are at least 40960",
        ),
        (
            &[
                "--filter=blocksize-policy",
                "blocksize-minimum=65536",
                "blocksize-preferred=65536",
            ],
            "blocks of 65536 bytes alone",
        ),
        (
            &[
                "--filter=exportname",
                "exportname=disk",
                "exportname-strict=true",
            ],
            "has no export \"\"",
        ),
        (&["--tls=require", "--tls-psk=PSK"], "TLS alone"),
        (
            &[
                "--filter=error",
                "error-pwrite=ENOSPC",
                "error-pwrite-rate=100%",
            ],
            "cannot read or write",
        ),
    ] {
        let keys = tempfile::NamedTempFile::new().expect("a file");
        keys.as_file()
            .write_all(b"somebody:00112233445566778899aabbccddeeff\n")
            .unwrap();
        let key = format!("--tls-psk={}", keys.path().display());
        let more: Vec<&str> = more
            .iter()
            .map(|word| {
                if *word == "--tls-psk=PSK" {
                    &key
                } else {
                    *word
                }
            })
            .collect();
        let Some(server) = Server::here(&more) else {
            return;
        };
        let refusal = server.refusal();
        assert!(refusal.contains(expected), "{expected}: {refusal}");
    }
}

#[test]
fn requests_are_as_small_as_the_server_wants_and_errors_are_told_apart() {
    let smallest = [
        "--filter=blocksize-policy",
        "blocksize-maximum=65536",
        "blocksize-error-policy=error",
    ];
    let Some(server) = Server::here(&smallest) else {
        return;
    };
    let storage = server.open();
    assert_eq!(storage.export().payload_bytes_max, 65536);
    write(&storage, 1, &seeds(1..130)).unwrap();
    check(&storage, 1, &seeds(1..130)).unwrap();
    drop(storage);
    let full = server.dir.path().join("full");
    let file = format!("error-file={}", full.display());
    let failing = [
        "--filter=error",
        "error-pwrite=ENOSPC",
        "error-pread=EIO",
        "error-rate=100%",
        &file,
    ];
    let Some(server) = Server::here(&failing) else {
        return;
    };
    let storage = server.open();
    write(&storage, 1, &[1]).unwrap();
    fs::write(&full, "").unwrap();
    assert_eq!(write(&storage, 2, &[2]), Err(StorageError::Full));
    assert_eq!(
        check(&storage, 1, &[1]),
        Err(StorageError::Failed { errno: 5 })
    );
    fs::remove_file(&full).unwrap();
    check(&storage, 1, &[1]).unwrap();
}

/// Answers a handshake, then whatever this says, once for each connection.
fn liar(replies: fn(usize) -> Vec<u8>) -> (NbdSpec, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let number = counted.fetch_add(1, Ordering::Relaxed);
            let mut stream = stream.expect("a connection");
            std::thread::spawn(move || {
                let mut says = b"NBDMAGICIHAVEOPT\0\x03".to_vec();
                for (kind, data) in [(3_u32, &b"\0\0\0\0\0\0\0\x40\0\0\0\x01"[..]), (1, b"")] {
                    says.extend_from_slice(&0x0003_e889_0455_65a9_u64.to_be_bytes());
                    says.extend_from_slice(&7_u32.to_be_bytes());
                    says.extend_from_slice(&kind.to_be_bytes());
                    says.extend_from_slice(
                        &u32::try_from(data.len()).expect("short").to_be_bytes(),
                    );
                    says.extend_from_slice(data);
                }
                says.extend_from_slice(&replies(number));
                // The client may hang up at any time.
                let _ = stream.write_all(&says);
                let _ = stream.read_to_end(&mut Vec::new());
            });
        }
    });
    let spec = format!("nbd://127.0.0.1:{port}/")
        .parse()
        .expect("an address");
    (spec, connections)
}

#[test]
fn a_server_that_answers_nonsense_is_given_up_and_asked_on_new_connections() {
    let no_reply = |_| b"HTTP/1.1 200 OK and more".to_vec();
    let not_asked = |_| [&[0x67, 0x44, 0x66, 0x98][..], &[0; 4], &[9; 8], &[0; 64]].concat();
    let says_nothing = |_| Vec::new();
    for replies in [no_reply as fn(usize) -> Vec<u8>, not_asked, says_nothing] {
        let (spec, connections) = liar(replies);
        let mut options = options();
        options.patience.answer = Duration::from_millis(200);
        options.patience.bound = Duration::from_secs(1);
        let begun = Instant::now();
        let refused = NbdStorage::open(&spec, options).expect_err("no answer");
        assert!(matches!(refused, FarError::NoAnswer { .. }), "{refused}");
        assert!(begun.elapsed() < Duration::from_secs(30));
        assert!(connections.load(Ordering::Relaxed) > 1);
    }
}
