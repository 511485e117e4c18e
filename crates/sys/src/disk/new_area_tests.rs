//! Tests of files that become areas. Devices and full disks need root and are tested through the command.

use std::fs;
use std::os::unix::fs::MetadataExt;

use super::*;
use crate::disk::area_file::Kind;
use crate::disk::area_file::tests::Scratch;

const PAGE: [u8; PAGE_BYTES] = [7; PAGE_BYTES];

#[test]
fn a_file_that_is_made_and_kept_has_blocks_and_no_other_readers() {
    let scratch = Scratch::new();
    let path = scratch.0.join("new");
    let mut area = NewArea::create(&path).unwrap();
    area.reserve(1 << 20).unwrap();
    assert_eq!(
        (area.file().kind(), area.file().bytes()),
        (Kind::RegularFile, 1 << 20)
    );
    assert!(!area.file().has_holes());
    assert!(area.file().ends().unwrap().are_blank());
    area.write_first_page(&PAGE).unwrap();
    area.keep();
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!((metadata.len(), metadata.mode() & 0o7777), (1 << 20, 0o600));
    assert!(metadata.blocks() * 512 >= 1 << 20);
    let content = fs::read(&path).unwrap();
    assert_eq!(content[..PAGE_BYTES], PAGE);
    assert!(content[PAGE_BYTES..].iter().all(|byte| *byte == 0));
    assert_eq!(AreaFile::open(&path).unwrap().mode_for_others(), None);
}

#[test]
fn a_file_that_is_not_kept_is_gone() {
    let scratch = Scratch::new();
    let path = scratch.0.join("new");
    let mut area = NewArea::create(&path).unwrap();
    area.reserve(1 << 20).unwrap();
    area.write_first_page(&PAGE).unwrap();
    drop(area);
    assert!(!path.exists());
    // A file that has taken the name meanwhile belongs to somebody else.
    let area = NewArea::create(&path).unwrap();
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
    let mut area = NewArea::open(&path).unwrap();
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
    let mut area = NewArea::open(&path).unwrap();
    assert!(area.file().has_holes());
    area.reserve(2 << 20).unwrap();
    assert!(!area.file().has_holes());
    area.reserve(5).unwrap();
    assert_eq!(area.file().bytes(), 2 << 20);
    area.keep();
    let content = fs::read(&path).unwrap();
    assert_eq!((content.len(), &content[..5]), (2 << 20, &b"start"[..]));
}

#[test]
fn zeros_are_written_in_chunks_and_only_behind_the_end() {
    let scratch = Scratch::new();
    let path = scratch.file("zeros", b"data");
    let area = NewArea::open(&path).unwrap();
    let end = 2 * ZEROS_BYTES as u64 + 77;
    area.write_zeros(4, end).unwrap();
    area.keep();
    let content = fs::read(&path).unwrap();
    assert_eq!((content.len() as u64, &content[..4]), (end, &b"data"[..]));
    assert!(content[4..].iter().all(|byte| *byte == 0));
}

#[test]
fn missing_files_and_links_to_nothing_are_told_apart() {
    let scratch = Scratch::new();
    let link = scratch.0.join("link");
    std::os::unix::fs::symlink("nowhere", &link).unwrap();
    assert!(matches!(NewArea::open(&link), Err(AreaError::Missing)));
    assert!(matches!(NewArea::create(&link), Err(AreaError::Dangling)));
    let below = scratch.file("file", b"").join("below");
    assert!(matches!(NewArea::open(&below), Err(AreaError::Io { .. })));
    let message = NewArea::create(&scratch.0.join("no/such")).unwrap_err();
    assert!(
        message.to_string().starts_with("it cannot be made: "),
        "{message}"
    );
}
