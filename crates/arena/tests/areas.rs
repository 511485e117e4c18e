//! Areas of every kind, tiers and groups: what goes where, and every byte of it.

mod support;

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use allocator_api2::vec::Vec as ArenaVec;
use support::{PAGE, check_all, named, wait_for, write_all};
use vswap_arena::{Advice, Arena, ArenaError, Limits, Region};
use vswap_engine::header;

const MIB: usize = 1 << 20;

/// What `vswap mkswap` makes: a file without holes, with a header.
fn made(directory: &Path, name: &str, bytes: usize) -> PathBuf {
    let path = directory.join(name);
    let mut file = File::create(&path).expect("a file");
    let zeros = vec![0_u8; MIB];
    (0..bytes / MIB).for_each(|_| file.write_all(&zeros).expect("room"));
    let encoded = header::encode(bytes as u64, None, [7; 16]).expect("large enough");
    file.write_all_at(&encoded.page, 0).expect("a header");
    let only_mine = std::fs::Permissions::from_mode(0o600);
    file.set_permissions(only_mine).expect("a mode");
    path
}

#[test]
fn cold_pages_go_down_the_tiers_and_all_come_back() {
    let directory = tempfile::tempdir().expect("a directory");
    let fast = made(directory.path(), "fast", 24 * MIB);
    let arena = Arena::builder()
        .ram("16M")
        .pool("2M")
        .area(&format!(
            "{}:128M,prio=1,tier=slow",
            directory.path().display()
        ))
        .area(&format!("{},prio=5,tier=fast", fast.display()))
        .build()
        .expect("an arena");
    let mut region = arena.allocate(80 * MIB).expect("addresses");
    for version in 1..4 {
        write_all(&mut region, version);
        check_all(&region, version);
    }
    let areas = arena.areas();
    let (fast, slow) = (named(&areas, "fast"), named(&areas, "slow"));
    assert_eq!((fast.priority, slow.priority), (5, 1));
    assert_eq!(
        (fast.size_bytes, fast.errors, slow.errors),
        (24 * MIB as u64 - 2 * PAGE as u64, 0, 0)
    );
    assert!(
        fast.pages_written > 0 && slow.pages_written > 0,
        "{areas:?}"
    );
    // The fast one is kept from being full, so that what leaves the pool still finds room there.
    assert!(fast.pages_read > slow.pages_read / 1000, "{areas:?}");
    assert!(fast.used_bytes < fast.size_bytes, "{areas:?}");
    drop(region);
    wait_for(&arena, "the areas are empty", |stats| stats.area_pages == 0);
}

#[test]
fn an_area_of_somebody_else_is_refused_and_nothing_is_written() {
    let directory = tempfile::tempdir().expect("a directory");
    let build = |area: &str| Arena::builder().ram("16M").area(area).build();
    let refused = |area: &str, expected: &str| {
        let error = build(area).expect_err(area);
        assert!(error.to_string().contains(expected), "{area}: {error}");
        error
    };
    let data = directory.path().join("data");
    std::fs::write(&data, vec![b'x'; 64 * PAGE]).expect("a file");
    let data = data.display().to_string();
    assert!(matches!(refused(&data, "swap"), ArenaError::Area(_)));
    assert_eq!(
        std::fs::read(&data).expect("still there"),
        vec![b'x'; 64 * PAGE]
    );
    refused("/nowhere/at/all", "no such file");
    assert!(matches!(refused("", "no path"), ArenaError::AreaName(_)));
    refused("/var/tmp,prio=-1", "0 to 32767");
    refused("/var/tmp:1Q", "no unit");
    // One user at a time.
    let mine = made(directory.path(), "mine", 8 * MIB)
        .display()
        .to_string();
    let first = build(&mine).expect("the first user");
    refused(&mine, "use");
    drop(first);
    build(&mine).expect("it is free again");
    let nine: Vec<String> = (0..9)
        .map(|at| format!("{}:8M,tier=t{at}", directory.path().display()))
        .collect();
    let builder = nine
        .iter()
        .fold(Arena::builder().ram("16M"), |builder, area| {
            builder.area(area)
        });
    assert!(matches!(builder.build(), Err(ArenaError::TooManyTiers)));
}

/// What a group has, in the areas of a tier and in all.
fn swap_bytes(group: &Arena) -> u64 {
    group.group_stats().expect("a group").swap_bytes
}

#[test]
fn groups_have_what_they_may_and_every_byte_is_right() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path().display();
    let arena = Arena::builder()
        .ram("24M")
        .pool("8M")
        .area(&format!("{place}:128M,prio=5,tier=fast"))
        .area(&format!("{place}:128M,prio=1,tier=slow"))
        .build()
        .expect("an arena");
    let group = |name: &str, limits: &str| {
        let limits: Limits = limits.parse().expect(limits);
        arena.group(name, &limits).expect(name)
    };
    // No more than 256 KiB in areas, nothing on the fast one, and nothing in areas at all.
    let little = group("jobs/little", "swap-max=256K");
    let slow = group("jobs/slow", "tier-max=fast=0");
    let inside = group("inside", "no-writeback");
    let handles = [&arena, &little, &slow, &inside];
    let mut regions: Vec<Region> = [24, 8, 24, 6]
        .iter()
        .zip(handles)
        .map(|(mib, handle)| handle.allocate(mib * MIB).expect("addresses"))
        .collect();
    for version in 1..4 {
        for region in &mut regions {
            write_all(region, version);
        }
        for region in &regions {
            check_all(region, version);
        }
        assert!(
            swap_bytes(&little) <= 256 << 10,
            "{:?}",
            little.group_stats()
        );
        assert_eq!(swap_bytes(&inside), 0);
    }
    let (areas, stats) = (arena.areas(), arena.stats());
    let used = named(&areas, "slow").used_bytes;
    assert_eq!(swap_bytes(&slow), used, "all of it is slow's: {areas:?}");
    assert!(
        used > 0 && named(&areas, "fast").used_bytes > 0,
        "{areas:?}"
    );
    assert!(
        stats.area_faults > 0 && stats.damaged_pages == 0,
        "{stats:?}"
    );
    let refused = little.group_stats().expect("a group").refused_pages;
    assert!(refused > 0, "it was kept to 256 KiB");
    // Both jobs together.
    let jobs = group("jobs", "").group_stats().expect("a group");
    assert_eq!(jobs.swap_bytes, swap_bytes(&slow) + swap_bytes(&little));
    assert!(arena.group_stats().is_none());
    drop(regions);
    wait_for(&arena, "it is free", |stats| stats.out_pages == 0);
    assert_eq!(jobs_now(&group("jobs", "")), 0);
}

fn jobs_now(jobs: &Arena) -> u64 {
    let stats = jobs.group_stats().expect("a group");
    stats.swap_bytes + stats.pool_bytes
}

#[test]
fn objects_of_groups_lie_apart_and_limits_can_change() {
    let arena = Arena::builder().ram("16M").build().expect("an arena");
    let limited = arena
        .group("limited", &Limits::new().pool_max("64K"))
        .expect("a group");
    let mut lists: Vec<ArenaVec<[u64; 5], _>> = vec![
        ArenaVec::new_in(arena.allocator()),
        ArenaVec::new_in(limited.allocator()),
    ];
    let heap = limited.heap();
    let layout = std::alloc::Layout::from_size_align(40, 8).expect("a layout");
    let mut small = Vec::new();
    for number in 0..40_000_u64 {
        lists.iter_mut().for_each(|list| list.push([number; 5]));
        let place = heap.allocate(layout).expect("room");
        // SAFETY: the allocation is new, and has 40 bytes.
        unsafe { place.cast::<[u64; 5]>().write([!number; 5]) };
        small.push(place);
    }
    for list in &lists {
        arena.advise(list, Advice::Cold).expect("ours");
    }
    wait_for(&arena, "what may leave is out", |stats| {
        stats.evicted_pages > 300
    });
    let held = || limited.group_stats().expect("a group").pool_bytes;
    assert!(held() <= 64 << 10, "{}", held());
    // More may leave from now on.
    let same = arena.group("limited", &Limits::new()).expect("the same");
    for list in &lists {
        arena.advise(list, Advice::Cold).expect("ours");
    }
    wait_for(&arena, "all of it is out", |stats| {
        stats.resident_bytes < 3 * MIB as u64
    });
    assert_eq!(same.group_stats(), limited.group_stats());
    for number in 0..40_000_u64 {
        let at = usize::try_from(number).expect("small");
        assert!(lists.iter().all(|list| list[at] == [number; 5]), "{number}");
        // SAFETY: it was written above, and is freed here once.
        let found = unsafe { small[at].cast::<[u64; 5]>().read() };
        assert_eq!(found, [!number; 5]);
        // SAFETY: nobody uses it any more.
        unsafe { heap.free(small[at].addr().get()) }.expect("ours");
    }
    for (wrong, limits) in [("a//b", ""), ("", ""), ("x", "tier-max=far=0")] {
        let limits: Limits = limits.parse().expect("limits");
        assert!(arena.group(wrong, &limits).is_err(), "{wrong}");
    }
}
