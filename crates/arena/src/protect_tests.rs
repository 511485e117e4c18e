//! Unit tests of bridges: what happens to a page that is brought in while it is bridged, and to whoever pins.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::arena::Arena;
use crate::region::Region;
use crate::registry;
use crate::state::{Core, PAGE_BYTES};

const RAM_BYTES: u64 = 16 << 20;

fn arena() -> Arena {
    Arena::builder().ram(RAM_BYTES).build().expect("an arena")
}

/// What a region is of, and its first page.
fn of(region: &Region) -> (Arc<Core>, usize) {
    let address = region.as_ptr().addr().get();
    let cores = registry::cores_with(&(address..address + PAGE_BYTES)).expect("one arena");
    let start = cores[0].memory.pointer().addr().get();
    (Arc::clone(&cores[0]), (address - start) / PAGE_BYTES)
}

/// Can the kernel write to this page of the region without a fault that somebody serves?
fn is_writable(region: &mut Region, page: usize) -> bool {
    use std::io::Read;
    let to = &mut region[page * PAGE_BYTES..][..PAGE_BYTES];
    let read = std::fs::File::open("/dev/zero").and_then(|mut zeros| zeros.read(to));
    read.is_ok_and(|bytes| bytes == PAGE_BYTES)
}

#[test]
fn who_is_brought_in_meanwhile_is_not_left_protected() {
    let arena = arena();
    let mut region = arena.allocate(8 * PAGE_BYTES).expect("addresses");
    let (core, first) = of(&region);
    let pages = [0, 3, 5].map(|at| first + at);
    for page in pages {
        core.have(page).expect("room");
    }
    let brought = |row: Range<usize>| {
        // After it was seen that the row can be bridged.
        assert_eq!(row, first..first + 6);
        core.have(first + 1).expect("room");
        core.protect_row(row)
    };
    assert!(core.protect_some(&pages, brought));
    let writable = [0, 1, 3, 5].map(|at| is_writable(&mut region, at));
    assert_eq!(writable, [false, true, false, false]);
    // A row that lies open by then is protected page by page.
    assert!(core.protect_some(&pages, |row| {
        assert_eq!(row.len(), 1);
        core.protect_row(row)
    }));
    assert!(is_writable(&mut region, 1));
}

#[test]
fn whoever_pins_waits_for_the_bridge() {
    let arena = arena();
    let region = arena.allocate(4 * PAGE_BYTES).expect("addresses");
    let (core, _) = of(&region);
    let is_pinned = AtomicBool::new(false);
    core.bridges.begin();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let pin = region.pin(..PAGE_BYTES).expect("room");
            is_pinned.store(true, Ordering::SeqCst);
            drop(pin);
        });
        std::thread::sleep(Duration::from_millis(50));
        assert!(!is_pinned.load(Ordering::SeqCst));
        core.bridges.end();
    });
    assert!(is_pinned.load(Ordering::SeqCst));
}
