//! Tests of files that become areas. Devices and full disks need root and are tested through the command.

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

/// A directory of one test, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("area{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Scratch(path)
    }

    fn file(&self, name: &str, content: &[u8]) -> PathBuf {
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

const PAGE: [u8; PAGE_BYTES] = [7; PAGE_BYTES];

#[test]
fn a_file_that_is_made_and_kept_has_blocks_and_no_other_readers() {
    let scratch = Scratch::new();
    let path = scratch.0.join("new");
    let mut area = Area::create(&path).unwrap();
    area.reserve(1 << 20).unwrap();
    assert_eq!((area.kind(), area.bytes()), (Kind::RegularFile, 1 << 20));
    assert!(!area.has_holes());
    assert!(area.ends().unwrap().are_blank());
    area.write_first_page(&PAGE).unwrap();
    area.keep();
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!((metadata.len(), metadata.mode() & 0o7777), (1 << 20, 0o600));
    assert!(metadata.blocks() * 512 >= 1 << 20);
    let content = fs::read(&path).unwrap();
    assert_eq!(content[..PAGE_BYTES], PAGE);
    assert!(content[PAGE_BYTES..].iter().all(|byte| *byte == 0));
    assert_eq!(Area::open(&path).unwrap().mode_for_others(), None);
}

#[test]
fn a_file_that_is_not_kept_is_gone() {
    let scratch = Scratch::new();
    let path = scratch.0.join("new");
    let mut area = Area::create(&path).unwrap();
    area.reserve(1 << 20).unwrap();
    area.write_first_page(&PAGE).unwrap();
    drop(area);
    assert!(!path.exists());
    // A file that has taken the name meanwhile is somebody else's.
    let area = Area::create(&path).unwrap();
    fs::rename(&path, scratch.0.join("elsewhere")).unwrap();
    scratch.file("new", b"theirs");
    drop(area);
    assert_eq!(fs::read(&path).unwrap(), b"theirs");
}

#[test]
fn an_existing_file_that_is_not_kept_is_as_it_was() {
    let scratch = Scratch::new();
    let content: Vec<u8> = (0..10_000u32).map(|i| i.to_le_bytes()[0]).collect();
    let path = scratch.file("old", &content);
    let mut area = Area::open(&path).unwrap();
    area.reserve(1 << 20).unwrap();
    area.write_first_page(&PAGE).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 1 << 20);
    drop(area);
    assert_eq!(fs::read(&path).unwrap(), content);
}

#[test]
fn growing_keeps_the_content_and_fills_holes() {
    let scratch = Scratch::new();
    let path = scratch.file("sparse", b"start");
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(1 << 20)
        .unwrap();
    let mut area = Area::open(&path).unwrap();
    assert!(area.has_holes());
    area.reserve(2 << 20).unwrap();
    assert!(!area.has_holes());
    area.reserve(5).unwrap();
    assert_eq!(area.bytes(), 2 << 20);
    area.keep();
    let content = fs::read(&path).unwrap();
    assert_eq!((content.len(), &content[..5]), (2 << 20, &b"start"[..]));
}

#[test]
fn zeros_are_written_in_chunks_and_only_behind_the_end() {
    let scratch = Scratch::new();
    let path = scratch.file("zeros", b"data");
    let area = Area::open(&path).unwrap();
    let end = 2 * ZEROS_BYTES as u64 + 77;
    area.write_zeros(4, end).unwrap();
    area.keep();
    let content = fs::read(&path).unwrap();
    assert_eq!((content.len() as u64, &content[..4]), (end, &b"data"[..]));
    assert!(content[4..].iter().all(|byte| *byte == 0));
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
        let ends = Area::open(&path).unwrap().ends().unwrap();
        assert_eq!(ends.are_blank(), blank, "a byte at {at}");
    }
    let short = Area::open(&scratch.file("short", b"x")).unwrap();
    let ends = short.ends().unwrap();
    assert_eq!((&ends.head[..], &ends.tail[..]), (&b"x"[..], &b"x"[..]));
    let empty = Area::open(&scratch.file("empty", b"")).unwrap();
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
        assert_eq!(Area::open(&path).unwrap().mode_for_others(), told);
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
        match Area::open(path) {
            Err(AreaError::OtherKind { what }) => assert_eq!(what, expected),
            other => panic!("{}: {other:?}", path.display()),
        }
    }
}

#[test]
fn missing_files_and_links_to_nothing_are_told_apart() {
    let scratch = Scratch::new();
    let link = scratch.0.join("link");
    std::os::unix::fs::symlink("nowhere", &link).unwrap();
    assert!(matches!(Area::open(&link), Err(AreaError::Missing)));
    assert!(matches!(Area::create(&link), Err(AreaError::Dangling)));
    let below = scratch.file("file", b"").join("below");
    assert!(matches!(Area::open(&below), Err(AreaError::Io { .. })));
    let message = Area::create(&scratch.0.join("no/such")).unwrap_err();
    assert!(
        message.to_string().starts_with("it cannot be made: "),
        "{message}"
    );
}

#[test]
fn a_running_program_is_in_use() {
    let running = std::env::current_exe().unwrap();
    assert!(matches!(Area::open(&running), Err(AreaError::Busy)));
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
