//! Small mappings made next to one another. The kernel merges them into one mapping, and must do so with watched memory
//! too. What was one mapping can be moved and grown as one.

use crate::content::{PAGE_BYTES, Random};
use crate::pages::{map_raw, unmap_raw};
use crate::run::Options;
use crate::segment::Segment;
use crate::victim::doors::{self, Door};
use crate::wrong::{Checked, Wrong};

/// Pages of a block. Holes are made in a block and filled again.
const BLOCK_PAGES: usize = 256;
/// How many mappings a refilled block may lie in: its own, and those of its neighbours.
const MAPPINGS_MAX: usize = 3;

pub(crate) fn run(options: &Options) -> Checked {
    let clock = options.clock();
    options.parallel(|thread| {
        let mut random = options.random(thread, 37);
        let blocks = (options.pages_per_thread() / BLOCK_PAGES).max(1);
        while clock.running() {
            let mut segments = (0..blocks)
                .map(|_| Segment::new(BLOCK_PAGES, &mut random))
                .collect::<Checked<Vec<_>>>()?;
            for segment in &mut segments {
                punch_and_fill(segment, &mut random)?;
                is_one_mapping(segment)?;
                wipe_and_keep(segment, &mut random)?;
                segment.rewrite_some(&mut random)?;
                move_whole(segment)?;
                segment.check_all("page of a mapping that was filled and moved")?;
            }
            segments.into_iter().try_for_each(Segment::unmap)?;
            keep_and_move()?;
        }
        Ok(())
    })
}

/// Unmaps single pages and small runs, at once maps them again one by one, and writes some.
fn punch_and_fill(segment: &mut Segment, random: &mut Random) -> Checked {
    for _ in 0..24 {
        let pages = 1 + random.index(4);
        let first = 1 + random.index(BLOCK_PAGES - pages - 1);
        // SAFETY: the range is a part of the segment, and this thread knows that it is gone.
        unsafe { unmap_raw(segment.page(first), pages)? };
        for index in first..first + pages {
            map_at(segment.page(index), 1)?;
            segment.pages[index] = (0, 0);
            segment.check("fresh page in a hole", index)?;
            if random.index(4) != 0 {
                segment.rewrite(index, random);
            }
        }
    }
    Ok(())
}

fn map_at(place: *mut u64, pages: usize) -> Checked {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the flag forbids replacing anything.
    let placed = unsafe { libc::mmap(place.cast(), pages * PAGE_BYTES, protection, flags, -1, 0) };
    if placed.addr() == place.addr() {
        Ok(())
    } else {
        Err(Wrong::last("mmap into a hole"))
    }
}

/// Keeps a part from children and gives it to them again. That cuts the mapping, and merges the parts again.
fn wipe_and_keep(segment: &Segment, random: &mut Random) -> Checked {
    let first = random.index(BLOCK_PAGES / 2);
    let pages = 1 + random.index(BLOCK_PAGES / 2);
    for advice in [libc::MADV_WIPEONFORK, libc::MADV_KEEPONFORK] {
        // Not by a ring, because vswap does not see that and then does not promise that the parts merge.
        let door = [Door::Madvise, Door::ProcessMadvise][random.index(2)];
        doors::advise(door, segment.page(first).cast(), pages * PAGE_BYTES, advice)?;
    }
    Ok(())
}

/// Moves two mappings that were never touched with one call that leaves the old place mapped, and a part of what is
/// left to the end of what was moved. Both are one mapping then, which can grow.
fn keep_and_move() -> Checked {
    const PLAIN: usize = 24;
    const ALL: usize = 64;
    const FIRST: usize = 12;
    const END: usize = 40;
    let page = |start: *mut u64, index: usize| start.wrapping_byte_add(index * PAGE_BYTES);
    // Apart from all other memory, which was touched.
    let around = map_raw(ALL + 2, libc::PROT_NONE, libc::MAP_PRIVATE)?;
    let old = page(around, 1);
    // SAFETY: it was mapped here, and is mapped again at once.
    unsafe { unmap_raw(old, ALL)? };
    map_at(old, ALL)?;
    let new = map_raw(ALL, libc::PROT_NONE, libc::MAP_PRIVATE)?;
    let rest = (ALL - PLAIN) * PAGE_BYTES;
    doors::advise(
        Door::Madvise,
        page(old, PLAIN).cast(),
        rest,
        libc::MADV_SEQUENTIAL,
    )?;
    let kept = remap(
        page(old, FIRST),
        END - FIRST,
        page(new, 0),
        libc::MREMAP_DONTUNMAP,
    );
    // Before Linux 6.17 a call moves one mapping alone.
    if kept.is_err() {
        // SAFETY: both were mapped here.
        return unsafe { unmap_raw(around, ALL + 2).and_then(|()| unmap_raw(new, ALL)) };
    }
    let plain = PLAIN - FIRST;
    remap(page(old, FIRST), plain, page(new, plain), 0)
        .map_err(|()| Wrong::last("mremap of what MREMAP_DONTUNMAP has left"))?;
    let bytes = 2 * plain * PAGE_BYTES;
    // SAFETY: the range was moved there, and nothing else uses it.
    let grown = unsafe { libc::mremap(new.cast(), bytes, 2 * bytes, libc::MREMAP_MAYMOVE) };
    if grown == libc::MAP_FAILED {
        return Err(Wrong::last(
            "mremap of two untouched parts that lie side by side",
        ));
    }
    // Other threads may have mapped something where a move has left a hole.
    let ends = 2 * plain;
    // SAFETY: these parts were mapped here and were not moved away.
    unsafe {
        unmap_raw(grown.cast(), 2 * ends)?;
        unmap_raw(page(new, ends), ALL - ends)?;
        unmap_raw(around, 1 + FIRST)?;
        unmap_raw(page(old, PLAIN), ALL - PLAIN + 1)
    }
}

/// Moves pages to a place that was mapped for them.
fn remap(from: *mut u64, pages: usize, to: *mut u64, flags: libc::c_int) -> Result<(), ()> {
    let bytes = pages * PAGE_BYTES;
    let flags = flags | libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: the caller has mapped both ranges, and nothing lies in them.
    let moved = unsafe { libc::mremap(from.cast(), bytes, bytes, flags, to.cast::<u8>()) };
    if moved == libc::MAP_FAILED {
        Err(())
    } else {
        Ok(())
    }
}

/// Checks how many mappings the segment lies in, by the kernel's list.
fn is_one_mapping(segment: &Segment) -> Checked {
    let error = |error| Wrong::Call {
        what: "read /proc/self/maps",
        error,
    };
    let maps = std::fs::read_to_string("/proc/self/maps").map_err(error)?;
    let start = segment.start.addr();
    let end = start + segment.pages.len() * PAGE_BYTES;
    let bounds = maps.lines().filter_map(|line| {
        let (from, rest) = line.split_once('-')?;
        let (to, _) = rest.split_once(' ')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        Some((number(from)?, number(to)?))
    });
    let count = bounds
        .filter(|(from, to)| *from < end && start < *to)
        .count();
    if count <= MAPPINGS_MAX {
        return Ok(());
    }
    Err(Wrong::Result {
        what: "mappings that a block lies in which was filled again",
        expected: 1,
        found: i64::try_from(count).unwrap_or(i64::MAX),
    })
}

/// Moves the whole segment to another place with one call, and lets it grow and shrink by a page there.
fn move_whole(segment: &mut Segment) -> Checked {
    let pages = segment.pages.len();
    let place = map_raw(pages + 1, libc::PROT_NONE, libc::MAP_PRIVATE)?;
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    let (old, bytes) = (segment.start.cast(), pages * PAGE_BYTES);
    // SAFETY: the target was mapped for this, and the source belongs to the segment.
    let moved = unsafe { libc::mremap(old, bytes, bytes + PAGE_BYTES, flags, place.cast::<u8>()) };
    if moved == libc::MAP_FAILED {
        return Err(Wrong::last("mremap of a whole block"));
    }
    segment.start = moved.cast();
    segment.pages.push((0, 0));
    segment.check("page that a mapping grew by", pages)?;
    // SAFETY: the last page belongs to the segment and is not used any more.
    unsafe { unmap_raw(segment.page(pages), 1)? };
    segment.pages.pop();
    Ok(())
}
