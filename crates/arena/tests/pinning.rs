//! Memory of arenas goes to files and sockets and comes from there, also where it is out, and every byte is right.

mod support;

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;

use support::{PAGE, check_page, write_page};
use vswap_arena::{Arena, ArenaError, Pin, Pinning, Region};

/// Three times the RAM.
const PAGES: usize = 6 << 10;

fn arena() -> Arena {
    Arena::builder()
        .ram("8M")
        .pool("1M")
        .swap(std::env::temp_dir(), "64M")
        .build()
        .expect("an arena")
}

fn filled(arena: &Arena, version: u64) -> Region {
    let mut region = arena.allocate(PAGES * PAGE).expect("addresses");
    (0..PAGES).for_each(|number| write_page(&mut region, number, version));
    region
}

#[track_caller]
fn check(region: &Region, version: u64) {
    (0..PAGES).for_each(|number| check_page(region, number, version));
}

fn file() -> File {
    tempfile::tempfile().expect("a file")
}

#[test]
fn a_file_gets_and_gives_memory_that_is_out() {
    let arena = arena();
    let written = filled(&arena, 3);
    let refused = file().write_all(&written).expect_err("it cannot all be in");
    assert_eq!(
        refused.raw_os_error(),
        Some(14),
        "EFAULT is why this is needed"
    );
    let mut file = Pinning::new(file());
    file.write_all(&written).expect("a file has room");
    let mut read = arena.allocate(PAGES * PAGE).expect("addresses");
    file.seek(SeekFrom::Start(0)).expect("a place");
    file.read_exact(&mut read).expect("what was written");
    check(&read, 3);
    // The other way, by places, which are not those of pages.
    let (place, rest) = (PAGE as u64 + 5, PAGE + 5);
    file.write_all_at(&written[rest..], place)
        .expect("a file has room");
    read.drop_content(0..PAGES * PAGE).expect("no pin");
    read[..rest].copy_from_slice(&written[..rest]);
    file.read_exact_at(&mut read[rest..], place)
        .expect("what was written");
    check(&read, 3);
    check(&written, 3);
    assert_eq!(arena.stats().pinned_bytes, 0);
}

#[test]
fn a_socket_carries_memory_that_is_out() {
    let arena = arena();
    let sent = filled(&arena, 4);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let stream = TcpStream::connect(address).expect("a connection");
            Pinning::new(stream)
                .write_all(&sent)
                .expect("somebody reads");
            check(&sent, 4);
        });
        let (stream, _) = listener.accept().expect("a connection");
        let mut received = arena.allocate(PAGES * PAGE).expect("addresses");
        Pinning::new(stream)
            .read_exact(&mut received)
            .expect("somebody writes");
        check(&received, 4);
    });
}

#[test]
fn memory_of_no_arena_is_passed_on() {
    let mut file = Pinning::new(file());
    let bytes = vec![5; 3 << 20];
    file.write_all(&bytes).expect("a file has room");
    let mut read = vec![0; 3 << 20];
    file.read_exact_at(&mut read, 0).expect("what was written");
    assert_eq!(read, bytes);
    assert_eq!(file.write(&[]).expect("nothing to do"), 0);
}

/// Pins as much as can be pinned but for so many pages. How much that is changes a little with the size of the pool.
fn pin_nearly_all(region: &Region, but: u64) -> Pin<'_> {
    let mut pages = PAGES;
    loop {
        match region.pin(..pages * PAGE) {
            Ok(pin) => return pin,
            Err(ArenaError::TooMuchPinned { most, .. }) => {
                pages = usize::try_from(most - but).expect("fewer than there are");
            }
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn few_pages_are_enough_and_none_is_an_error() {
    let arena = arena();
    let region = filled(&arena, 5);
    let mut file = Pinning::new(file());
    let but_some = pin_nearly_all(&region, 20);
    file.write_all(&region).expect("in small parts");
    drop(but_some);
    let all = pin_nearly_all(&region, 0);
    // The limit may have grown by a few pages. What is pinned twice counts twice.
    let mut more = Vec::new();
    let full = loop {
        match file.write_at(&region[..PAGE], 0) {
            Ok(_) => more.extend(region.pin(..PAGE)),
            Err(full) => break full,
        }
    };
    drop(more);
    assert_eq!(full.kind(), ErrorKind::OutOfMemory);
    let why = full
        .get_ref()
        .and_then(|why| why.downcast_ref::<ArenaError>());
    assert!(
        matches!(why, Some(ArenaError::TooMuchPinned { .. })),
        "{full}"
    );
    drop(all);
    let mut read = arena.allocate(PAGES * PAGE).expect("addresses");
    file.read_exact_at(&mut read, 0).expect("what was written");
    check(&read, 5);
}
