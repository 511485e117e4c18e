//! Tests of opening what holds an area. Devices need root and are tested through the command and with disks.

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

/// A directory of one test, removed at the end.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new() -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("area{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Scratch(path)
    }

    pub(crate) fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn data_at_either_end_is_seen() {
    let scratch = Scratch::new();
    let length = usize::try_from(HEAD_BYTES + TAIL_BYTES).unwrap() + 4096;
    let head = usize::try_from(HEAD_BYTES).unwrap();
    for (at, blank) in [
        (0, false),
        (head - 1, false),
        (head, true),
        (head + 4095, true),
        (head + 4096, false),
        (length - 1, false),
    ] {
        let mut content = vec![0; length];
        content[at] = 1;
        let path = scratch.file("data", &content);
        let ends = AreaFile::open(&path).unwrap().ends().unwrap();
        assert_eq!(ends.are_blank(), blank, "a byte at {at}");
    }
    let short = AreaFile::open(&scratch.file("short", b"x")).unwrap();
    let ends = short.ends().unwrap();
    assert_eq!((&ends.head[..], &ends.tail[..]), (&b"x"[..], &b"x"[..]));
    let empty = AreaFile::open(&scratch.file("empty", b"")).unwrap();
    assert!(empty.ends().unwrap().are_blank() && !empty.has_holes());
}

#[test]
fn modes_for_others_are_told() {
    let scratch = Scratch::new();
    let path = scratch.file("open", b"");
    for (mode, told) in [
        (0o600, None),
        (0o644, Some(0o644)),
        (0o620, Some(0o620)),
        (0o1600, None),
    ] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(AreaFile::open(&path).unwrap().mode_for_others(), told);
    }
}

#[test]
fn other_kinds_are_refused_without_being_opened() {
    let scratch = Scratch::new();
    let fifo = scratch.0.join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR).unwrap();
    let socket = scratch.0.join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    for (path, expected) in [
        (scratch.0.as_path(), "directory"),
        (Path::new("/dev/zero"), "character device"),
        (&fifo, "FIFO"),
        (&socket, "socket"),
    ] {
        match AreaFile::open(path) {
            Err(AreaError::OtherKind { what }) => assert_eq!(what, expected),
            other => panic!("{}: {other:?}", path.display()),
        }
    }
}

#[test]
fn a_running_program_is_in_use() {
    let running = std::env::current_exe().unwrap();
    assert!(matches!(AreaFile::open(&running), Err(AreaError::Busy)));
}

#[test]
fn files_are_the_same_under_any_name() {
    let scratch = Scratch::new();
    let (one, other) = (scratch.file("one", b""), scratch.file("other", b""));
    let link = scratch.0.join("hard");
    fs::hard_link(&one, &link).unwrap();
    let metadata = |path: &Path| fs::metadata(path).unwrap();
    assert!(is_same(&metadata(&one), &metadata(&link)));
    assert!(!is_same(&metadata(&one), &metadata(&other)));
    assert!(!is_active_swap(&metadata(&one)).unwrap());
}

#[test]
fn a_file_has_one_user() {
    let scratch = Scratch::new();
    let path = scratch.file("file", b"");
    let link = scratch.0.join("link");
    fs::hard_link(&path, &link).unwrap();
    let first = AreaFile::open(&path).unwrap();
    for path in [&path, &link] {
        assert!(matches!(AreaFile::open(path), Err(AreaError::Locked)));
    }
    drop(first);
    AreaFile::open(&path).unwrap();
}
