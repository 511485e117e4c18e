//! Pages of equal content that the kernel merges (KSM) while they are swapped out, come back, and are written again.
//!
//! KSM is switched on for the whole machine meanwhile, which takes root, and then set as it was.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::content::Random;
use crate::run::Options;
use crate::segment::Segment;
use crate::wrong::{Checked, Wrong, call};

/// So few different pages that most of them have equals.
const CONTENTS: usize = 8;
/// Time for the kernel's thread to find some equal pages.
const MERGE_TIME: Duration = Duration::from_millis(5);

/// The settings of the kernel's thread while the victim runs: it looks through all memory again and again.
const SETTINGS: [(&str, &str); 3] = [
    ("pages_to_scan", "20000"),
    ("sleep_millisecs", "1"),
    ("run", "1"),
];

pub(crate) fn run(options: &Options) -> Checked {
    let before = switch_on()?;
    let merged = AtomicU64::new(0);
    let outcome = merge_and_split(options, &merged);
    for (name, value) in before {
        // Nobody is left to be told.
        let _ = fs::write(path(name), value);
    }
    outcome?;
    match merged.into_inner() {
        0 => Err(Wrong::Result {
            what: "pages that were merged",
            expected: 1,
            found: 0,
        }),
        _ => Ok(()),
    }
}

fn path(name: &str) -> String {
    format!("/sys/kernel/mm/ksm/{name}")
}

/// Returns the settings as they were.
fn switch_on() -> Checked<Vec<(&'static str, String)>> {
    let unavailable = |error| Wrong::Unavailable {
        what: "switching KSM on",
        error,
    };
    let mut before = Vec::new();
    for (name, value) in SETTINGS {
        let was = fs::read_to_string(path(name)).map_err(unavailable)?;
        before.push((name, was.trim().to_owned()));
        fs::write(path(name), value).map_err(unavailable)?;
    }
    // `run` must not stay on because a later setting is restored first.
    before.reverse();
    Ok(before)
}

fn merge_and_split(options: &Options, merged: &AtomicU64) -> Checked {
    let clock = options.clock();
    options.parallel(|thread| {
        let mut random = options.random(thread, 57);
        let mut memory = Segment::new(options.pages_per_thread(), &mut random)?;
        advise(&memory, libc::MADV_MERGEABLE)?;
        for index in 0..memory.pages.len() {
            equal(&mut memory, index, &mut random);
        }
        loop {
            for _ in 0..32 {
                std::thread::sleep(MERGE_TIME);
                memory.check_some("page that may be merged", &mut random)?;
                for _ in 0..CONTENTS {
                    let index = random.index(memory.pages.len());
                    equal(&mut memory, index, &mut random);
                }
            }
            merged.fetch_max(merging_pages(), Ordering::Relaxed);
            memory.check_all("page that may be merged")?;
            if random.index(4) == 0 {
                advise(&memory, libc::MADV_UNMERGEABLE)?;
                memory.check_all("page that was split from its equals")?;
                advise(&memory, libc::MADV_MERGEABLE)?;
            }
            if !clock.running() {
                return memory.unmap();
            }
        }
    })
}

/// How many pages of this process are merged with others.
fn merging_pages() -> u64 {
    let text = fs::read_to_string("/proc/self/ksm_merging_pages").unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

/// Gives a page one of few contents.
fn equal(memory: &mut Segment, index: usize, random: &mut Random) {
    memory.write(index, random.index(CONTENTS) as u64 + 1, 1);
}

fn advise(memory: &Segment, advice: i32) -> Checked {
    let bytes = memory.pages.len() * crate::content::PAGE_BYTES;
    // SAFETY: the segment is mapped, and this advice changes no content.
    let done = unsafe { libc::madvise(memory.start.cast(), bytes, advice) };
    call("madvise for KSM", done).map(drop)
}
