//! `VSWAP_ARENA_DEBUG=calls` names the calls that would fail with EFAULT, once each, and has them succeed. Programs
//! that do right hear nothing.

mod support;

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::process::Command;

use support::{PAGE, check_page, write_page};
use vswap_arena::{Arena, Pinning, Region};

/// Three times the RAM.
const PAGES: usize = 6 << 10;
/// Says to this program that it is the one that is observed, and what to do.
const PART: &str = "OBSERVED_PART";

fn filled(arena: &Arena) -> Region {
    let mut region = arena.allocate(PAGES * PAGE).expect("addresses");
    (0..PAGES).for_each(|number| write_page(&mut region, number, 7));
    region
}

/// Writes memory that is out to a file, and reads it again, from and into other places.
fn passes_memory(wrap: bool) {
    let arena = Arena::builder()
        .ram("8M")
        .pool("1M")
        .swap(std::env::temp_dir(), "64M")
        .build()
        .expect("an arena");
    let written = filled(&arena);
    let mut read = arena.allocate(PAGES * PAGE).expect("addresses");
    let file: File = tempfile::tempfile().expect("a file");
    if wrap {
        let mut file = Pinning::new(file);
        file.write_all(&written).expect("room");
        file.read_exact_at(&mut read, 0).expect("what was written");
    } else {
        let mut file = file;
        file.write_all(&written).expect("no EFAULT");
        file.seek(SeekFrom::Start(0)).expect("a place");
        file.read_exact(&mut read).expect("no EFAULT");
    }
    for region in [&written, &read] {
        (0..PAGES).for_each(|number| check_page(region, number, 7));
    }
}

/// Not a test by itself: what is observed.
#[test]
fn part() {
    match std::env::var(PART).as_deref() {
        Ok("wrong") => passes_memory(false),
        Ok("right") => passes_memory(true),
        _ => {}
    }
}

/// Runs a part, and returns what it says on standard error.
#[track_caller]
fn observed(part: &str) -> String {
    let own = std::env::current_exe().expect("this program");
    let run = Command::new(own)
        .args(["--exact", "part", "--nocapture", "--test-threads=1"])
        .env(PART, part)
        .env("VSWAP_ARENA_DEBUG", "calls")
        .output()
        .expect("a child");
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(run.status.success(), "{said}");
    said
}

#[test]
fn calls_that_would_fail_are_named_once_each_and_succeed() {
    let said = observed("wrong");
    if said.contains("is not observed") {
        eprintln!("SKIP: no privilege for faults of the kernel");
        return;
    }
    let lines: Vec<&str> = said.lines().collect();
    let count = |what: &str| lines.iter().filter(|line| line.contains(what)).count();
    assert_eq!(count("write is to read memory of an arena"), 1, "{said}");
    assert_eq!(count("read is to write to memory of an arena"), 1, "{said}");
    let own = std::env::current_exe().expect("this program");
    assert!(count(&own.display().to_string()) > 0, "{said}");
}

#[test]
fn who_pins_hears_nothing() {
    let said = observed("right");
    assert!(!said.contains("memory of an arena"), "{said}");
}
