//! Races of pages that are packed again in the pool.
//!
//! A page filled with one byte is raw here (`engine` in `mod.rs`), and packs into a small payload.

use vswap_engine::{Codec, Engine, Entry, PRIORITY_DEFAULT, Repack, Scratch, WriteBack};

use super::{Shared, assert_empty, engine, read, spawn, swap_on, written};
#[cfg(shuttle)]
use super::{assert_all_written, out};

/// An engine with cold pages in the pool, made of 1, 2 and so on.
fn cold_in_the_pool(pages: u8) -> (Shared, Vec<Entry>) {
    let engine = engine(1);
    let entries = (1..=pages).map(|byte| written(&engine, byte)).collect();
    engine.begin_generation();
    engine.begin_generation();
    (engine, entries)
}

fn repack(engine: &Engine, pages: usize) -> Repack {
    let done = engine.repack(pages, &mut Scratch::new());
    assert_eq!((done.dense, done.full, done.damaged), (0, 0, 0));
    done
}

/// Checks that each of so many pages has one payload, and that so many of them were packed again.
fn assert_payloads(engine: &Engine, pages: u64, packed: usize) {
    let stats = engine.stats();
    let packed = packed as u64;
    assert_eq!((stats.raw, stats.compressed), (pages - packed, packed));
}

fn is_packed(engine: &Engine, entry: Entry) -> bool {
    let (codec, _) = engine.packed_as(entry).expect("in the pool");
    codec == Codec::Zstd
}

/// A page is read while it is packed again.
pub fn repack_against_swap_in() {
    let (engine, entries) = cold_in_the_pool(1);
    let packer = spawn(&engine, |engine| repack(engine, 1));
    assert_eq!(read(&engine, entries[0]), Some(1));
    let done = packer.join().expect("no panic");
    assert!(done.pages + done.warm <= 1);
    assert_payloads(&engine, 1, done.pages);
    assert_eq!(is_packed(&engine, entries[0]), done.pages == 1);
    assert_eq!(read(&engine, entries[0]), Some(1));
    engine.put(entries[0]);
    assert_empty(&engine);
}

/// The last reference of a page is put while it is packed again.
pub fn repack_against_put() {
    let (engine, entries) = cold_in_the_pool(1);
    let entry = entries[0];
    let packer = spawn(&engine, |engine| repack(engine, 1));
    engine.put(entry);
    packer.join().expect("no panic");
    assert_eq!(read(&engine, entry), None);
    assert_empty(&engine);
}

/// A fork shares a page that is packed again.
pub fn repack_against_dup() {
    let (engine, entries) = cold_in_the_pool(1);
    let entry = entries[0];
    let packer = spawn(&engine, |engine| repack(engine, 1));
    engine.dup(entry).expect("in use");
    engine.put(entry);
    // Nobody has read the page.
    assert_eq!(packer.join().expect("no panic").pages, 1);
    assert_eq!((engine.count(entry), read(&engine, entry)), (1, Some(1)));
    assert_payloads(&engine, 1, 1);
    engine.put(entry);
    assert_empty(&engine);
}

/// A page is packed again and goes to an area, in either order or only one of both.
pub fn repack_against_write_back() {
    let (engine, entries) = cold_in_the_pool(1);
    swap_on(&engine, 1, PRIORITY_DEFAULT);
    let packer = spawn(&engine, |engine| repack(engine, 1).pages);
    let written: WriteBack = engine.write_back(0, 1, &mut Scratch::new());
    let packed = packer.join().expect("no panic");
    assert!(written.pages + packed >= 1, "one of both had it");
    assert_eq!(engine.is_physical(entries[0]), written.pages == 1);
    if written.pages == 0 {
        assert_payloads(&engine, 1, packed);
    } else {
        assert_payloads(&engine, 0, 0);
    }
    assert_eq!(read(&engine, entries[0]), Some(1));
    engine.put(entries[0]);
    assert_empty(&engine);
}

/// Two threads pack again. No page is packed twice.
pub fn two_threads_repack() {
    let (engine, entries) = cold_in_the_pool(1);
    let other = spawn(&engine, |engine| repack(engine, 1).pages);
    let mine = repack(&engine, 1).pages;
    assert_eq!(mine + other.join().expect("no panic"), 1);
    assert_payloads(&engine, 1, 1);
    assert_eq!(read(&engine, entries[0]), Some(1));
    engine.put(entries[0]);
    assert_empty(&engine);
}

/// All at once, and another page takes the slot of a page that was put.
#[cfg(shuttle)]
pub fn repack_against_swap_in_put_and_write_back() {
    let (engine, entries) = cold_in_the_pool(3);
    swap_on(&engine, 2, PRIORITY_DEFAULT);
    let (first, second, third) = (entries[0], entries[1], entries[2]);
    let packer = spawn(&engine, |engine| repack(engine, 3));
    let writer = spawn(&engine, |engine| {
        engine.write_back(0, 2, &mut Scratch::new()).pages
    });
    let put = spawn(&engine, move |engine| {
        engine.put(first);
        let fresh = out(engine, 4);
        engine
            .write_out(fresh, &mut Scratch::new())
            .expect("room in the pool");
        fresh
    });
    assert!(matches!(read(&engine, first), None | Some(1 | 4)));
    assert_eq!(read(&engine, second), Some(2));
    let packed = packer.join().expect("no panic").pages;
    writer.join().expect("no panic");
    let fresh = put.join().expect("no panic");
    let stats = engine.stats();
    assert_eq!(stats.raw + stats.compressed + stats.physical, 3);
    assert!(stats.compressed <= packed as u64);
    assert_all_written(&engine, 2, [second, third, fresh]);
    assert_empty(&engine);
}
