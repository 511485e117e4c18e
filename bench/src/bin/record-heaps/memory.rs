//! The anonymous private pages of a stopped process, read through `/proc`.

use std::collections::HashSet;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use vswap_bench::content::PageWords;
use vswap_bench::content::recorded::words;
use vswap_bench::random::Random;
use vswap_bench::region::{PAGE_BYTES, PAGE_WORDS};

/// Pages that are looked at for one that is taken. Much of what runtimes reserve is never touched.
const LOOKS: usize = 20_000;

/// That many of the process's pages, chosen by chance. Each is different, and none is all zeros.
pub fn sample(pid: u32, pages: usize, random: &mut Random) -> Result<Vec<PageWords>, String> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"));
    let ranges = private(&maps.map_err(|error| format!("its mappings: {error}"))?);
    let all = ranges.iter().map(count).sum();
    let memory = File::open(format!("/proc/{pid}/mem"));
    let memory = memory.map_err(|error| format!("its memory: {error}"))?;
    let (mut taken, mut seen) = (Vec::with_capacity(pages), HashSet::new());
    for _ in 0..pages * LOOKS {
        if taken.len() == pages {
            return Ok(taken);
        }
        let Some(address) = address(&ranges, random.below(all)) else {
            break;
        };
        let mut bytes = [0; PAGE_BYTES];
        let read = memory.read_exact_at(&mut bytes, address);
        read.map_err(|error| format!("its memory at {address:#x}: {error}"))?;
        let page = words(&bytes);
        if page != [0; PAGE_WORDS] && seen.insert(page) {
            taken.push(page);
        }
    }
    Err(format!(
        "found {} pages that differ, expected {pages}",
        taken.len()
    ))
}

/// Writable private mappings of no file, without stacks and what the kernel maps.
fn private(maps: &str) -> Vec<Range<u64>> {
    let ranges = maps.lines().filter_map(|line| {
        let mut fields = line.split_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let is_private = fields.next()? == "rw-p";
        let is_named = fields.nth(3).is_some_and(|name| name != "[heap]");
        let range = hex(start)?..hex(end)?;
        (is_private && !is_named).then_some(range)
    });
    ranges.collect()
}

fn hex(digits: &str) -> Option<u64> {
    u64::from_str_radix(digits, 16).ok()
}

fn count(range: &Range<u64>) -> usize {
    usize::try_from(range.end - range.start).unwrap_or(0) / PAGE_BYTES
}

/// The address of one of all pages.
fn address(ranges: &[Range<u64>], mut page: usize) -> Option<u64> {
    for range in ranges {
        let pages = count(range);
        if page < pages {
            return Some(range.start + (page * PAGE_BYTES) as u64);
        }
        page -= pages;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
1000-3000 rw-p 00000000 08:01 7 /bin/program
3000-4000 rw-p 00000000 00:00 0 [heap]
4000-6000 r--p 00000000 00:00 0
6000-8000 rw-p 00000000 00:00 0
8000-9000 rw-s 00000000 00:00 0
9000-a000 rw-p 00000000 00:00 0 [stack]
";

    #[test]
    fn only_heaps_are_sampled() {
        let ranges = private(MAPS);
        assert_eq!(ranges, [0x3000..0x4000, 0x6000..0x8000]);
        let addresses: Vec<_> = (0..4).map(|page| address(&ranges, page)).collect();
        assert_eq!(addresses, [Some(0x3000), Some(0x6000), Some(0x7000), None]);
    }

    #[test]
    fn pages_of_a_process_differ_and_too_few_are_an_error() {
        let held: Vec<u64> = (0..512 * 1024).collect();
        let own = std::process::id();
        let pages = sample(own, 8, &mut Random::new(1)).unwrap();
        assert_eq!(pages.iter().collect::<HashSet<_>>().len(), 8);
        assert_eq!(held.len(), 512 * 1024);
        let none = sample(u32::MAX, 8, &mut Random::new(1)).unwrap_err();
        assert!(none.contains("its mappings"), "{none}");
    }
}
