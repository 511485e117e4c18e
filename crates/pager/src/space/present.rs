//! What the page table of a process holds just now.

use std::ops::Range;

use crate::base::kernel::pagemap::{Pagemap, Query, Region, category};
use crate::base::page_run::PAGE_BYTES;
use crate::space::Space;

/// Most regions that one scan reports before it is called again.
const SCAN_REGIONS: usize = 64;

/// The parts of a range that are in memory now. If the kernel does not tell, all of it.
pub fn present_parts(space: &Space, range: Range<u64>) -> Vec<Range<u64>> {
    let all = vec![range.clone()];
    let Some(process) = space.process.get() else {
        return all;
    };
    // Pages that the kernel migrates, or keeps in a swap of its own, count as in memory.
    let present = Query {
        any_of: category::PRESENT | category::SWAPPED,
        ..Query::default()
    };
    scan(&process.pagemap, range, &present).unwrap_or(all)
}

/// Guard pages of a range. None before Linux 6.15, which does not report them.
pub fn guard_pages(space: &Space, range: Range<u64>) -> Option<Vec<u64>> {
    let guard = Query {
        all_of: category::GUARD,
        ..Query::default()
    };
    pages_of(space, range, &guard)
}

/// Pages of a range that match a query. None if the kernel does not tell.
pub fn pages_of(space: &Space, range: Range<u64>, query: &Query) -> Option<Vec<u64>> {
    let parts = scan(&space.process.get()?.pagemap, range, query)?;
    Some(parts.into_iter().flatten().collect())
}

fn scan(pagemap: &Pagemap, range: Range<u64>, query: &Query) -> Option<Vec<Range<u64>>> {
    let mut regions = [Region::default(); SCAN_REGIONS];
    let mut parts = Vec::new();
    let (mut start, end) = (range.start * PAGE_BYTES, range.end * PAGE_BYTES);
    while start < end {
        let scan = pagemap.scan(start, end, query, &mut regions).ok()?;
        let found = regions.iter().take(scan.regions);
        parts.extend(found.map(|r| r.start / PAGE_BYTES..r.end / PAGE_BYTES));
        start = scan.walk_end.max(start + PAGE_BYTES);
    }
    Some(parts)
}
