//! Content of an arena that is larger than its RAM: every byte is verified.

mod support;

use allocator_api2::vec::Vec as ArenaVec;
use hashbrown::{DefaultHashBuilder, HashMap};
use support::{PAGE, Random, check_page, wait_for, write_page};
use vswap_arena::{Advice, Arena, Codec};

const MIB: usize = 1 << 20;

#[test]
fn four_times_the_ram_reads_as_it_was_written() {
    let fast = "zstd:-3".parse().expect("a codec");
    for codec in [Codec::Lz4, Codec::Zstd, fast] {
        let arena = Arena::builder()
            .ram("16M")
            .codec(codec)
            .build()
            .expect("an arena");
        let pages = 60 * MIB / PAGE;
        let mut region = arena.allocate(64 * MIB).expect("addresses");
        for number in 0..pages {
            write_page(&mut region, number, 1);
        }
        for number in 0..pages {
            check_page(&region, number, 1);
        }
        let mut random = Random(7);
        let mut versions = vec![1; pages];
        for _ in 0..pages {
            let number = random.below(pages);
            if random.next().is_multiple_of(2) {
                versions[number] += 1;
                write_page(&mut region, number, versions[number]);
            } else {
                check_page(&region, number, versions[number]);
            }
        }
        for (number, version) in versions.iter().enumerate() {
            check_page(&region, number, *version);
        }
        // What was never written is zero.
        assert!(region[60 * MIB..].iter().all(|byte| *byte == 0));
        let stats = arena.stats();
        assert!(
            stats.evicted_pages > 0 && stats.pool_faults > 0,
            "{stats:?}"
        );
        // 4 % and a window more than the limit is what a stall may take.
        assert!(
            stats.used_bytes <= stats.ram_bytes + stats.ram_bytes / 16,
            "{stats:?}"
        );
        drop(region);
        wait_for(&arena, "all is free", |stats| {
            stats.resident_bytes == 0 && stats.out_pages == 0 && stats.allocated_bytes == 0
        });
    }
}

#[test]
fn an_area_takes_what_the_pool_has_no_room_for() {
    let directory = tempfile::tempdir().expect("a directory");
    let arena = Arena::builder()
        .ram("16M")
        .pool("2M")
        .swap(directory.path(), "128M")
        .build()
        .expect("an arena");
    let pages = 48 * MIB / PAGE;
    let mut region = arena.allocate(48 * MIB).expect("addresses");
    for round in 0..2 {
        for number in 0..pages {
            write_page(&mut region, number, round);
        }
        let mut random = Random(round);
        for _ in 0..pages {
            let number = random.below(pages);
            check_page(&region, number, round);
        }
        for number in 0..pages {
            check_page(&region, number, round);
        }
    }
    let stats = arena.stats();
    assert!(stats.area_pages > 0 && stats.area_faults > 0, "{stats:?}");
    assert!(
        stats.clean_drops > 0,
        "what was only read is dropped as it is: {stats:?}"
    );
    assert!(stats.pool_bytes <= 2 * MIB as u64, "{stats:?}");
}

#[test]
fn cold_pages_leave_and_come_back() {
    let arena = Arena::builder().ram("32M").build().expect("an arena");
    let pages = 512;
    let mut region = arena.allocate(pages * PAGE).expect("addresses");
    for number in 0..pages {
        write_page(&mut region, number, 3);
    }
    region.advise(.., Advice::Cold).expect("advice");
    wait_for(&arena, "cold pages are out", |stats| {
        stats.resident_bytes == 0
    });
    region
        .advise(..PAGE * 16, Advice::WillNeed)
        .expect("advice");
    // Pages of zeros are nowhere, so there is nothing to bring.
    let brought = (0..16)
        .filter(|number| support::content(*number, 3) != [0; PAGE])
        .count();
    assert!(brought < 16);
    assert_eq!(arena.stats().resident_bytes, (brought * PAGE) as u64);
    for number in 0..pages {
        check_page(&region, number, 3);
    }
    // Half of it is dropped, and the other half keeps what it has.
    region.advise(.., Advice::Cold).expect("advice");
    region.drop_content(0..pages / 2 * PAGE).expect("no pins");
    assert!(region[..pages / 2 * PAGE].iter().all(|byte| *byte == 0));
    for number in pages / 2..pages {
        check_page(&region, number, 3);
    }
}

#[test]
fn zeros_cost_no_slot() {
    let arena = Arena::builder().ram("32M").build().expect("an arena");
    let mut region = arena.allocate(4 * MIB).expect("addresses");
    region.fill(0);
    assert_eq!(arena.stats().resident_bytes, 4 * MIB as u64);
    region.advise(.., Advice::Cold).expect("advice");
    wait_for(&arena, "zeros leave", |stats| stats.resident_bytes == 0);
    assert_eq!(arena.stats().out_pages, 0);
    assert!(region.iter().all(|byte| *byte == 0));
}

#[test]
fn collections_live_in_an_arena() {
    let arena = Arena::builder().ram("8M").build().expect("an arena");
    let mut numbers = ArenaVec::new_in(arena.allocator());
    let mut names: HashMap<u64, ArenaVec<u8, _>, DefaultHashBuilder, _> =
        HashMap::new_in(arena.allocator());
    for number in 0..100_000_u64 {
        numbers.push(number * 3);
        let mut name = ArenaVec::new_in(arena.allocator());
        name.extend_from_slice(format!("the name of number {number}").as_bytes());
        names.insert(number, name);
    }
    for number in (0..100_000).step_by(3) {
        assert!(names.remove(&number).is_some());
    }
    for number in 0..100_000_u64 {
        let index = usize::try_from(number).expect("small");
        assert_eq!(numbers[index], number * 3);
        let expected = format!("the name of number {number}");
        let found = names.get(&number).map(|name| &name[..]);
        let is_left = number % 3 != 0;
        assert_eq!(found, is_left.then_some(expected.as_bytes()), "{number}");
    }
    assert!(arena.stats().evicted_pages > 0);
    drop((numbers, names));
    // A slab of each class may be left.
    wait_for(&arena, "it is free", |stats| {
        stats.allocated_bytes <= 15 * 4 * PAGE as u64
    });
}

#[test]
fn what_was_freed_is_zero_when_it_is_handed_out_again() {
    let arena = Arena::builder()
        .ram("8M")
        .capacity("16M")
        .build()
        .expect("an arena");
    for round in 0..20 {
        let mut region = arena.allocate(12 * MIB).expect("addresses");
        assert!(
            region.iter().step_by(512).all(|byte| *byte == 0),
            "round {round}"
        );
        let pages = region.len() / PAGE;
        for number in 0..pages {
            region[number * PAGE..(number + 1) * PAGE].fill(round + 1);
        }
    }
}
