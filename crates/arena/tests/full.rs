//! Content that does not compress, more of it than there is RAM. Without an area the arena says that it is full, soon,
//! and goes on when content is given up. With an area there is room for all.

mod support;

use std::time::{Duration, Instant};

use support::{PAGE, Random, page_mut};
use vswap_arena::{Arena, ArenaError, Region};

const MIB: usize = 1 << 20;
const RAM_BYTES: usize = 16 * MIB;
/// Pages of the content.
const PAGES: usize = 4 * RAM_BYTES / PAGE;
/// Longer than an arena may take to say that it is full, on a machine with much else to do.
const PATIENCE: Duration = Duration::from_secs(20);

/// The page's content: noise that its number determines.
fn noise(number: usize) -> [u8; PAGE] {
    let mut random = Random(number as u64);
    let mut page = [0; PAGE];
    for word in page.as_chunks_mut::<8>().0 {
        *word = random.next().to_ne_bytes();
    }
    page
}

/// Writes a page for which there is room, or says that there is none. A bare touch would end the process.
fn write(region: &mut Region, number: usize) -> Result<(), ArenaError> {
    drop(region.pin(number * PAGE..(number + 1) * PAGE)?);
    page_mut(region, number).copy_from_slice(&noise(number));
    Ok(())
}

fn check(region: &Region, number: usize) -> Result<(), ArenaError> {
    let bytes = number * PAGE..(number + 1) * PAGE;
    let pin = region.pin(bytes.clone())?;
    assert!(region[bytes] == noise(number), "page {number} is wrong");
    drop(pin);
    Ok(())
}

#[test]
fn noise_fills_an_arena_that_soon_says_so_and_goes_on_when_some_is_freed() {
    let arena = Arena::builder()
        .ram(RAM_BYTES as u64)
        .build()
        .expect("an arena");
    let mut region = arena.allocate(PAGES * PAGE).expect("addresses");
    let begun = Instant::now();
    let refused = (0..PAGES).find_map(|number| {
        let error = write(&mut region, number).err()?;
        Some((number, error))
    });
    let took = begun.elapsed();
    let (written, error) = refused.expect("four times the RAM cannot have had room");
    let stats = arena.stats();
    assert!(matches!(error, ArenaError::Full), "{error}: {stats:?}");
    assert!(
        matches!(arena.allocate(PAGE), Err(ArenaError::Full)),
        "{stats:?}"
    );
    assert!(took < PATIENCE, "{took:?}: {stats:?}");
    assert!(written * PAGE > RAM_BYTES / 2, "page {written}: {stats:?}");
    assert!(
        stats.used_bytes < (RAM_BYTES + RAM_BYTES / 10) as u64,
        "{stats:?}"
    );
    // All that fits has stayed where it is: the pool would have saved nothing.
    assert_eq!((stats.pool_bytes, stats.out_pages), (0, 0), "{stats:?}");
    assert!(stats.raw_pages * 10 > stats.resident_bytes / PAGE as u64 * 9);
    // What it has is as it was written, once there is room to bring it in.
    let freed = written / 4;
    region.drop_content(0..freed * PAGE).expect("no pins");
    let begun = Instant::now();
    for number in freed..written {
        check(&region, number).expect("there is room again");
    }
    for number in 0..freed / 2 {
        write(&mut region, number).expect("there is room again");
    }
    for number in (0..freed / 2).chain(freed..written) {
        check(&region, number).expect("there is still room");
    }
    let took = begun.elapsed();
    assert!(took < PATIENCE, "{took:?}: {:?}", arena.stats());
    drop(region);
    assert_eq!(arena.stats().raw_pages, 0);
}

#[test]
fn an_area_has_room_for_noise() {
    let directory = tempfile::tempdir().expect("a directory");
    let arena = Arena::builder()
        .ram(RAM_BYTES as u64)
        .swap(directory.path(), (8 * RAM_BYTES) as u64)
        .build()
        .expect("an arena");
    let mut region = arena.allocate(PAGES * PAGE).expect("addresses");
    for number in 0..PAGES {
        write(&mut region, number).expect("the area has room");
    }
    for number in 0..PAGES {
        check(&region, number).expect("the area has room");
    }
}
