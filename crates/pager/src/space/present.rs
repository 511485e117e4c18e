//! What the page table of a process holds just now.

use std::ops::Range;

use crate::base::kernel::pagemap::{Pagemap, Query, Region, category};
use crate::base::page_run::PAGE_BYTES;
use crate::space::Space;

/// Most regions that one scan reports before it is called again.
const SCAN_REGIONS: usize = 64;

/// Pages of a range that are in memory now. If the kernel does not tell, all of them.
pub fn present_pages(space: &Space, range: Range<u64>) -> Vec<u64> {
    let Some(process) = space.process.get() else {
        return range.collect();
    };
    // Pages that the kernel migrates, or keeps in a swap of its own, count as in memory.
    let present = Query {
        any_of: category::PRESENT | category::SWAPPED,
        ..Query::default()
    };
    list(&process.pagemap, range.clone(), &present).unwrap_or_else(|| range.collect())
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
    list(&space.process.get()?.pagemap, range, query)
}

fn list(pagemap: &Pagemap, range: Range<u64>, query: &Query) -> Option<Vec<u64>> {
    let mut regions = [Region::default(); SCAN_REGIONS];
    let mut pages = Vec::new();
    let (mut start, end) = (range.start * PAGE_BYTES, range.end * PAGE_BYTES);
    while start < end {
        let scan = pagemap.scan(start, end, query, &mut regions).ok()?;
        let found = regions.iter().take(scan.regions);
        pages.extend(found.flat_map(|r| r.start / PAGE_BYTES..r.end / PAGE_BYTES));
        start = scan.walk_end.max(start + PAGE_BYTES);
    }
    Some(pages)
}
