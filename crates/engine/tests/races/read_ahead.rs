//! Races of pages that are read into the swap cache along with another page.

use super::*;

/// An engine with two neighbouring pages in an area, and enough frames to read one of them ahead.
fn two_in_an_area() -> (Shared, Entry, Entry) {
    let engine = engine_with_area(4, 2);
    let entries = written_together(&engine, 1..3);
    (engine, entries[0], entries[1])
}

/// Swaps in the page filled with `byte`, and what is next to it.
fn read_around(engine: &Engine, entry: Entry, byte: u8) {
    let mut page = Box::new(Page([0xee; PAGE_BYTES]));
    let read = engine.swap_in_around(entry, 2, &mut page, &mut Scratch::new());
    assert!(read.is_ok(), "{read:?}");
    assert!(page.0.iter().all(|&found| found == byte));
}

/// The last reference of a page is put while it is read ahead.
pub fn read_ahead_against_put() {
    let (engine, entry, neighbour) = two_in_an_area();
    let put = spawn(&engine, move |engine| engine.put(neighbour));
    read_around(&engine, entry, 1);
    put.join().expect("no panic");
    assert_eq!(read(&engine, neighbour), None);
    engine.put(entry);
    assert_empty(&engine);
}

/// A page is swapped in and its neighbour read ahead, while another thread does the same the other way round.
pub fn read_ahead_against_swap_in_of_the_neighbour() {
    let (engine, entry, neighbour) = two_in_an_area();
    let other = spawn(&engine, move |engine| read_around(engine, neighbour, 2));
    read_around(&engine, entry, 1);
    other.join().expect("no panic");
    assert_all_written(&engine, 1, [entry, neighbour]);
    assert_empty(&engine);
}

/// A page is read from the frame into which it was read ahead, while the frame is taken for another page.
pub fn a_clean_frame_is_wanted_while_it_is_read() {
    let (engine, entry, neighbour) = two_in_an_area();
    read_around(&engine, entry, 1);
    let taker = spawn(&engine, |engine| {
        let mut frames: Vec<_> = std::iter::from_fn(|| engine.frame()).collect();
        frames.iter_mut().for_each(|frame| frame.0.fill(9));
        frames.len()
    });
    assert_eq!(read(&engine, neighbour), Some(2));
    assert!(taker.join().expect("no panic") >= 3);
    assert_all_written(&engine, 1, [entry, neighbour]);
    assert_empty(&engine);
}

/// A page is read ahead while its area is swapped off. Afterwards it is found in its frame or its new home.
#[cfg(shuttle)]
pub fn bug_14_read_ahead_against_swap_off() {
    let (engine, entry, neighbour) = two_in_an_area();
    engine.set_pool_limit(1 << 20);
    let mover = spawn(&engine, swap_off);
    read_around(&engine, entry, 1);
    mover.join().expect("no panic");
    assert_swapped_off(&engine);
    let frames: Vec<_> = std::iter::from_fn(|| engine.frame()).collect();
    assert_eq!(frames.len(), 4, "clean frames are given up");
    drop(frames);
    assert_all_written(&engine, 1, [entry, neighbour]);
    assert_empty(&engine);
}
