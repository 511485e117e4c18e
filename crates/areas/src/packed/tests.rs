//! Everything at once against a model: every byte, all blocks back, damage and full areas.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::place::Place;
use super::*;
use vswap_sys::disk::Options;

/// Numbers from a seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 16) % bound
    }
}

/// What a page holds that was written with this seed: as much noise as the seed says, so that it packs as densely.
fn page(seed: u64) -> Page {
    let mut random = Random(seed | 1);
    let mut page = Page::zeroed();
    // One page in sixteen does not pack.
    let noise = match seed % 16 {
        0 => PAGE_BYTES,
        _ => 100 + usize::try_from(random.below(2600)).expect("few"),
    };
    for chunk in page.0[..noise].chunks_mut(8) {
        chunk.copy_from_slice(&random.next().to_le_bytes()[..chunk.len()]);
    }
    page.0[PAGE_BYTES - 8..].copy_from_slice(&seed.to_le_bytes());
    page
}

fn packed(page: &Page, scratch: &mut Scratch) -> Vec<u8> {
    match Codec::Lz4.compress(page, scratch) {
        Ok(payload) => payload.to_vec(),
        Err(_) => page.0.to_vec(),
    }
}

fn disk_of(blocks: u64) -> PackedDisk {
    let directory = tempfile::tempdir().expect("a directory");
    let bytes = blocks * PAGE_BYTES as u64;
    let disk = Disk::private(directory.path(), bytes, Options::default()).expect("a file");
    PackedDisk::new(disk, Codec::Lz4).expect("tables")
}

impl PackedDisk {
    fn place(&self, slot: u64) -> Option<Place> {
        self.tables.place(slot)
    }

    fn in_use(&self) -> usize {
        self.tables.map().in_use()
    }

    fn write_seeds(&self, slot: u64, seeds: &[u64]) -> Result<(), StorageError> {
        let mut scratch = Scratch::new();
        let payloads: Vec<Vec<u8>> = seeds
            .iter()
            .map(|&seed| packed(&page(seed), &mut scratch))
            .collect();
        let payloads: Vec<&[u8]> = payloads.iter().map(|payload| &payload[..]).collect();
        self.write_packed(slot, &payloads)
    }

    fn check(&self, slot: u64, seeds: &[u64]) {
        let mut pages = vec![Page::zeroed(); seeds.len()];
        let mut wanted: Vec<&mut Page> = pages.iter_mut().collect();
        assert_eq!(self.read(slot, &mut wanted), Ok(()), "slot {slot}");
        for ((slot, seed), found) in (slot..).zip(seeds).zip(&pages) {
            assert!(*found == page(*seed), "slot {slot}");
        }
    }
}

#[test]
fn several_pages_share_a_block_and_all_come_back() {
    let disk = disk_of(64);
    assert_eq!(disk.slots(), 64 * SLOTS_PER_BLOCK);
    let seeds: Vec<u64> = (17..31).collect();
    assert_eq!(disk.write_seeds(5, &seeds), Ok(()));
    assert!(disk.in_use() < 9, "{} blocks", disk.in_use());
    disk.check(5, &seeds);
    disk.check(9, &seeds[4..6]);
    let (mut one, mut two) = (Page::zeroed(), Page::zeroed());
    let run = |slot, page| ReadRun {
        slot,
        pages: vec![page],
        outcome: Ok(()),
    };
    let mut runs = [run(5, &mut one), run(200, &mut two)];
    disk.read_runs(&mut runs);
    assert_eq!(
        (runs[0].outcome, runs[1].outcome),
        (Ok(()), Err(StorageError::Lost))
    );
    assert!(one == page(17));
    let used = disk.extent().expect("known").used_bytes;
    assert_eq!(used, (disk.in_use() * PAGE_BYTES) as u64);
    (5..19).for_each(|slot| disk.freed(slot));
    assert_eq!((disk.in_use(), disk.tables.live_bytes()), (0, 0));
}

#[test]
fn pages_are_packed_and_what_does_not_pack_has_a_block_of_its_own() {
    let disk = disk_of(64);
    let pages: Vec<Page> = [32, 33, 34, 48].map(page).into();
    let written: Vec<&Page> = pages.iter().collect();
    assert_eq!(disk.write(0, &written), Ok(()));
    let is_whole = |slot| disk.place(slot).expect("written").is_whole();
    assert_eq!([0, 1, 2, 3].map(is_whole), [true, false, false, true]);
    disk.check(0, &[32, 33, 34, 48]);
    let past = disk.slots() - 1;
    assert_eq!(disk.write(past, &written), Err(StorageError::Short));
    let too_long: &[u8] = &[1; PAGE_BYTES + 1];
    let refused = disk.write_packed(0, &[too_long]);
    assert_eq!(refused, Err(StorageError::Unsupported));
    disk.check(0, &[32, 33, 34, 48]);
}

#[test]
fn a_full_area_refuses_and_keeps_what_it_has() {
    let disk = disk_of(80);
    let mut written = 0;
    // What does not pack: each takes a block.
    while disk.write_seeds(written, &[16 * written]).is_ok() {
        written += 1;
    }
    assert_eq!(written, 80 - disk.kept() as u64);
    let refused = disk.write_seeds(3, &[16; 8]);
    assert_eq!(refused, Err(StorageError::Full));
    (0..written).for_each(|slot| disk.check(slot, &[16 * slot]));
    assert_eq!(disk.in_use() as u64, written);
    disk.freed(7);
    assert_eq!(disk.write_seeds(written, &[5]), Ok(()));
    disk.check(written, &[5]);
}

#[test]
fn what_is_left_in_many_blocks_is_moved_together() {
    let disk = disk_of(256);
    let count = usize::try_from(disk.slots()).expect("few");
    let seeds: Vec<u64> = (0..disk.slots())
        .map(|slot| 16 * slot + 1 + slot % 15)
        .collect();
    let write =
        |from: usize, pages: usize| disk.write_seeds(from as u64, &seeds[from..from + pages]);
    let mut slots = 0;
    while write(slots, 16).is_ok() {
        slots += 16;
    }
    // Every third stays: a third of each block.
    let stays = |slot: &usize| slot.is_multiple_of(3);
    let goes = (0..slots).filter(|slot| !stays(slot));
    goes.for_each(|slot| disk.freed(slot as u64));
    let mut end = slots;
    while end + 8 <= count && write(end, 8).is_ok() {
        end += 8;
    }
    let more = end - slots;
    assert!(more > slots / 2, "{slots} slots, {more} more");
    for slot in (0..slots).filter(stays).chain(slots..end) {
        disk.check(slot as u64, &[seeds[slot]]);
    }
    let live = disk.tables.live_bytes() as f64 / (disk.in_use() * PAGE_BYTES) as f64;
    assert!(live > 0.75, "{live}");
    (0..end).for_each(|slot| disk.freed(slot as u64));
    assert_eq!((disk.in_use(), disk.tables.live_bytes()), (0, 0));
}

#[test]
fn empty_blocks_are_given_back_to_the_file_system() {
    let disk = disk_of(4096);
    let seeds: Vec<u64> = (0..1024).map(|at| 16 * at).collect();
    assert_eq!(disk.write_seeds(0, &seeds), Ok(()));
    assert_eq!(disk.discard(0..1024), Ok(()));
    assert_eq!(disk.in_use(), 0);
    assert!(!disk.tables.map().has_empty());
    assert_eq!(disk.write_seeds(0, &seeds[..70]), Ok(()));
    disk.check(0, &seeds[..70]);
}

#[test]
fn a_damaged_block_is_an_error_and_others_are_not() {
    let disk = disk_of(64);
    assert_eq!(disk.write_seeds(0, &[17, 18]), Ok(()));
    assert_eq!(disk.write_seeds(2, &[19]), Ok(()));
    let place = disk.place(0).expect("written");
    let at = u64::from(place.block) * PAGE_BYTES as u64;
    let noise = [0x5a; PAGE_BYTES];
    disk.disk.write(at, &[&noise]).expect("written over");
    let mut found = Page::zeroed();
    for slot in [0, 1] {
        let read = disk.read(slot, &mut [&mut found]);
        assert_eq!(read, Err(StorageError::Altered));
    }
    disk.check(2, &[19]);
}

/// Blocks that payloads cannot be moved out of gain nothing, and do not use up what is kept for moving.
#[test]
fn damaged_blocks_are_not_moved_out_of_again_and_again() {
    let disk = disk_of(256);
    let seeds: Vec<u64> = (0..disk.slots()).map(|slot| 16 * slot + 1).collect();
    let mut slots = 0;
    while disk.write_seeds(slots, &seeds[..8]).is_ok() {
        slots += 8;
    }
    // A third of all blocks, and most of what lies in them goes.
    let block = |slot| disk.place(slot).map(|place| place.block);
    let is_damaged = |block: &u32| block.is_multiple_of(3);
    let damaged: Vec<u64> = (0..slots)
        .filter(|&slot| block(slot).as_ref().is_some_and(is_damaged))
        .collect();
    let goes = damaged.iter().filter(|slot| *slot % 4 > 0);
    goes.for_each(|&slot| disk.freed(slot));
    for &slot in &damaged {
        let Some(block) = block(slot) else { continue };
        let at = u64::from(block) * PAGE_BYTES as u64;
        let noise = [0x5a; PAGE_BYTES];
        disk.disk.write(at, &[&noise]).expect("written over");
    }
    let mut end = slots;
    while disk.write_seeds(end, &seeds[..2]).is_ok() {
        end += 2;
    }
    assert!(disk.tables.map().free() >= disk.kept());
    let intact = (0..slots).filter(|slot| !damaged.contains(slot));
    intact.for_each(|slot| disk.check(slot, &[16 * (slot % 8) + 1]));
    (0..end).for_each(|slot| disk.freed(slot));
    assert_eq!((disk.in_use(), disk.tables.live_bytes()), (0, 0));
}

#[test]
fn a_held_block_does_not_get_free() {
    let disk = disk_of(64);
    assert_eq!(disk.write_seeds(0, &[17, 18]), Ok(()));
    let block = disk.place(0).expect("written").block;
    assert!(disk.tables.hold(block) && !disk.tables.hold(block));
    disk.freed(0);
    disk.freed(1);
    assert_eq!((disk.in_use(), disk.tables.left_in(block)), (1, 0));
    assert_eq!(disk.tables.live_in(block as usize), None);
    disk.tables.let_go(block);
    assert_eq!(disk.in_use(), 0);
    assert!(!disk.tables.hold(block), "nothing is in it");
}

/// What a thread has written to its slots.
type Model = BTreeMap<u64, u64>;

/// Writes, rewrites, frees, discards and reads slots of its own, and verifies every byte.
fn churn(disk: &PackedDisk, thread: u64, rounds: u64, target: usize, full: &AtomicU64) -> Model {
    const SLOTS: u64 = 4096;
    let base = thread * SLOTS;
    let mut random = Random(thread + 1);
    let mut model = Model::new();
    for round in 0..rounds {
        let slot = base + random.below(SLOTS - 64);
        let count = 1 + random.below(24);
        let is_much = model.len() > target;
        match random.below(8) {
            0..3 if !is_much => {
                let seeds: Vec<u64> = (0..count).map(|_| random.next() >> 8).collect();
                match disk.write_seeds(slot, &seeds) {
                    Ok(()) => model.extend((slot..).zip(seeds)),
                    Err(error) => {
                        assert_eq!(error, StorageError::Full);
                        full.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
            3 if is_much => {
                (slot..slot + 64).for_each(|slot| disk.freed(slot));
                model.retain(|at, _| !(slot..slot + 64).contains(at));
            }
            4 if round % 16 == 0 => {
                assert_eq!(disk.discard(slot..slot + 32), Ok(()));
                model.retain(|at, _| !(slot..slot + 32).contains(at));
            }
            5 if is_much => {
                let gone: Vec<u64> = model
                    .range(slot..)
                    .step_by(3)
                    .take(40)
                    .map(|(at, _)| *at)
                    .collect();
                for at in gone {
                    disk.freed(at);
                    model.remove(&at);
                }
            }
            _ => {
                for (slot, seed) in model.range(slot..).take(3) {
                    disk.check(*slot, &[*seed]);
                }
            }
        }
    }
    model
}

#[test]
fn threads_that_do_everything_at_once_find_what_they_wrote() {
    const THREADS: u64 = 4;
    let disk = disk_of(4 * 4096 / SLOTS_PER_BLOCK);
    let full = AtomicU64::new(0);
    // So many that blocks run short and payloads must be moved all the time, and all fit.
    let target = 2000;
    let models: Vec<Model> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (disk, full) = (&disk, &full);
                scope.spawn(move || churn(disk, thread, 6000, target, full))
            })
            .collect();
        threads
            .into_iter()
            .map(|one| one.join().expect("no panic"))
            .collect()
    });
    let used = disk.in_use();
    let moved = models
        .iter()
        .flatten()
        .filter(|(slot, _)| disk.place(**slot).is_some_and(Place::was_moved));
    let moved = moved.count();
    assert!(moved > 100, "only {moved} were moved");
    for (slot, seed) in models.iter().flatten() {
        disk.check(*slot, &[*seed]);
    }
    eprintln!(
        "{} pages in {used} blocks, {moved} of them moved, {} times full",
        models.iter().map(Model::len).sum::<usize>(),
        full.load(Ordering::Relaxed)
    );
    for slot in 0..disk.slots() {
        disk.freed(slot);
    }
    assert_eq!((disk.in_use(), disk.tables.live_bytes()), (0, 0));
    let free = disk.tables.map().free();
    assert_eq!(free, disk.tables.blocks());
}

/// Few blocks, so that each is written again at once, while pages are read that are moved all the time.
#[test]
fn pages_that_are_moved_while_they_are_read_are_what_was_written() {
    const STAY: u64 = 24;
    const ROUNDS: u64 = 4000;
    let disk = disk_of(64);
    // Pages that pack, each with others that go, so that its block is soon worth emptying.
    let seed = |number: u64| 16 * number + 1 + number % 15;
    let is_over = AtomicBool::new(false);
    let seeds: Vec<u64> = (0..STAY).map(seed).collect();
    assert_eq!(disk.write_seeds(0, &seeds), Ok(()));
    let (moved, reads) = std::thread::scope(|scope| {
        let read = || {
            let mut reads = 0_u64;
            while !is_over.load(Ordering::Relaxed) {
                disk.check(0, &seeds);
                reads += 1;
            }
            reads
        };
        let readers = [scope.spawn(read), scope.spawn(read)];
        let mut random = Random(5);
        let mut moved = 0;
        for round in 0..ROUNDS {
            let places = || (0..STAY).map(|slot| disk.place(slot)).collect::<Vec<_>>();
            let before = places();
            let slot = STAY + random.below(disk.slots() - STAY - 8);
            if disk
                .write_seeds(slot, &[seed(round), seed(round + 1)])
                .is_err()
            {
                (STAY..disk.slots())
                    .filter(|slot| slot % 4 != round % 4)
                    .for_each(|slot| disk.freed(slot));
            }
            moved += u64::from(places() != before);
        }
        is_over.store(true, Ordering::Relaxed);
        (
            moved,
            readers.map(|reader| reader.join().expect("no panic")),
        )
    });
    eprintln!("{moved} rounds in which a page was moved, {reads:?} reads of all");
    assert!(moved > 10, "{moved}");
}
