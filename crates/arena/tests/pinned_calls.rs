//! System calls write to pinned pages whatever the evictor does to the pages around them. Each page belongs to one of
//! two threads in turn: one pins its pages and has the kernel write to them, the other touches its own at random, so
//! that they come and go. A page that is write-protected would make the call fail with EFAULT.

mod support;

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use support::{PAGE, Random, check_page, content, write_page};
use vswap_arena::{Advice, Arena, Region};

const RAM: &str = "8M";
/// Regions of one page: more than twice the RAM.
const REGIONS: usize = 6 << 10;
const VERSIONS: u64 = 8;

fn duration() -> Duration {
    let seconds = std::env::var("VSWAP_ARENA_STRESS_SECONDS").ok();
    Duration::from_secs(seconds.and_then(|text| text.parse().ok()).unwrap_or(3))
}

/// Has the kernel write to pages, pinned and unpinned again, and verifies them later.
fn calls(regions: &mut [Region], file: &File, until: Instant) -> u64 {
    let mut random = Random(3);
    let mut versions = vec![None; regions.len()];
    let mut done = 0;
    while Instant::now() < until {
        let at = random.below(regions.len());
        if let Some(version) = versions[at] {
            check_page(&regions[at], 0, version);
        }
        let version = random.next() % VERSIONS;
        let mut pinned = regions[at].pin_mut().expect("few are pinned");
        file.read_exact_at(&mut pinned, version * PAGE as u64)
            .expect("a pinned page can be written to");
        drop(pinned);
        versions[at] = Some(version);
        if random.next().is_multiple_of(4) {
            regions[at].advise(.., Advice::Cold).expect("advice");
        }
        done += 1;
    }
    for (region, version) in regions.iter().zip(versions) {
        if let Some(version) = version {
            check_page(region, 0, version);
        }
    }
    done
}

/// Touches pages at random.
fn churn(regions: &mut [Region], is_over: &AtomicBool) {
    let mut random = Random(5);
    let mut versions = vec![1; regions.len()];
    for region in &mut *regions {
        write_page(region, 0, 1);
    }
    while !is_over.load(Ordering::Relaxed) {
        let at = random.below(regions.len());
        check_page(&regions[at], 0, versions[at]);
        if random.next().is_multiple_of(2) {
            versions[at] += 1;
            write_page(&mut regions[at], 0, versions[at]);
        }
    }
}

#[test]
fn pinned_pages_can_be_written_to_by_system_calls_all_the_time() {
    let arena = Arena::builder().ram(RAM).build().expect("an arena");
    let mut file = tempfile::tempfile().expect("a file");
    for version in 0..VERSIONS {
        file.write_all(&content(0, version)).expect("room");
    }
    let (mut pinned, mut touched) = (Vec::new(), Vec::new());
    for number in 0..REGIONS {
        let region = arena.allocate(PAGE).expect("addresses");
        if number % 2 == 0 {
            pinned.push(region);
        } else {
            touched.push(region);
        }
    }
    let (is_over, done) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| churn(&mut touched, &is_over));
        scope.spawn(|| {
            let until = Instant::now() + duration();
            done.store(calls(&mut pinned, &file, until), Ordering::Relaxed);
            is_over.store(true, Ordering::Relaxed);
        });
    });
    let stats = arena.stats();
    assert!(done.load(Ordering::Relaxed) > 500, "{done:?} calls");
    assert!(stats.evicted_pages > 10_000, "{stats:?}");
}
