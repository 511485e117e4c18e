//! Memory that is filled once and then frozen: read-only, executable, without access, or code that may be written.
//!
//! Ranges of every size change between all protections. Readable memory must hold what was written. The kernel must
//! refuse to read other memory. A write to a frozen page must raise SIGSEGV, whose handler makes that page writable, as
//! the write barriers of garbage collectors do. Frozen memory is discarded, mapped again, and inherited by children.
//! One thread flips the protection of a mapping while the others read it.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::time::Duration;

use crate::content::{self, PAGE_BYTES, PAGE_WORDS, Random};
use crate::pages::{Mapping, unmap_raw};
use crate::run::{Child, Clock, Options};
use crate::segment::Segment;
use crate::victim::mprotect::{Files, protect, refused};
use crate::wrong::{Checked, Wrong, call};

const READ: i32 = libc::PROT_READ;
const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;
/// The protections of frozen memory.
const PROTECTIONS: [i32; 5] = [
    READ,
    READ | libc::PROT_EXEC,
    READ_WRITE | libc::PROT_EXEC,
    libc::PROT_NONE,
    READ_WRITE,
];
/// Protections between which one thread may change while others read.
const READABLE: [i32; 4] = [PROTECTIONS[0], PROTECTIONS[1], PROTECTIONS[2], READ_WRITE];
/// Mappings of a thread.
const SEGMENTS: usize = 2;
/// Most pages that one round writes to through the barrier.
const WRITES: usize = 8;
/// Version of the pages that all threads read.
const SHARED_VERSION: u32 = 7;

thread_local! {
    /// The frozen page that this thread is about to write. 0 when the barrier was hit.
    static EXPECTED: Cell<usize> = const { Cell::new(0) };
}

pub(crate) fn run(options: &Options) -> Checked {
    install_barrier()?;
    let clock = options.clock();
    let files = Files::open()?;
    let shared = Mapping::new((options.pages() / 8).max(64))?;
    for index in 0..shared.pages() {
        // SAFETY: no other thread knows of the mapping yet.
        unsafe { content::fill(shared.page(index), index as u64, SHARED_VERSION) };
    }
    options.parallel(|thread| {
        let mut random = options.random(thread, 31);
        if thread == 0 && options.threads > 1 {
            return flip(&shared, &clock, &mut random);
        }
        let pages = options.pages_per_thread() * 7 / 8 / SEGMENTS;
        let mut segments = Vec::new();
        for _ in 0..SEGMENTS {
            segments.push(Segment::new(pages, &mut random)?);
        }
        while clock.running() {
            for _ in 0..16 {
                let index = random.index(SEGMENTS);
                freeze(&mut segments[index], &files, &mut random)?;
                check_shared(&shared, &mut random)?;
            }
            let index = random.index(SEGMENTS);
            match random.index(4) {
                0 => {
                    segments.swap_remove(index).unmap()?;
                    map_a_file(pages, &mut random)?;
                    segments.push(Segment::new(pages, &mut random)?);
                }
                1 => {
                    inherit(&segments)?;
                    grow_inherited(&mut random)?;
                }
                _ => segments[index].check_all("all pages")?,
            }
        }
        segments.into_iter().try_for_each(Segment::unmap)
    })
}

/// Freezes a range, checks it, and thaws it.
fn freeze(segment: &mut Segment, files: &Files, random: &mut Random) -> Checked {
    let all = segment.pages.len();
    let (first, count) = match random.index(4) {
        0 => (0, all),
        1 => {
            let first = random.index(all);
            (first, 1 + random.index((all - first).min(48)))
        }
        _ => {
            let first = random.index(all);
            (first, 1 + random.index(all - first))
        }
    };
    let start = segment.page(first);
    let protection = PROTECTIONS[random.index(PROTECTIONS.len())];
    protect(start, count, protection)?;
    for _ in 0..1 + random.index(3) {
        std::thread::sleep(Duration::from_millis(random.index(12) as u64));
        if protection == libc::PROT_NONE {
            // SAFETY: the page belongs to this thread, and the kernel must refuse to read it.
            let written = unsafe { libc::write(files.pipe(), start.cast(), 8) };
            refused("write from frozen memory without access", written)?;
            continue;
        }
        for index in first..first + count {
            segment.check("frozen page", index)?;
        }
    }
    if protection & libc::PROT_WRITE == 0 && protection & READ != 0 {
        // SAFETY: the page belongs to this thread, and the kernel must refuse to write it.
        let read = unsafe { libc::read(files.zero(), start.cast(), 8) };
        refused("read into frozen memory", read)?;
        let mut thawed = BTreeSet::new();
        for _ in 0..random.index(WRITES) {
            let index = first + random.index(count);
            write_through_barrier(segment, index, thawed.insert(index), random)?;
        }
    }
    if random.index(6) == 0 {
        let first = first + random.index(count);
        // SAFETY: the page is a part of this thread's segment, whose model is updated below.
        let result =
            unsafe { libc::madvise(segment.page(first).cast(), PAGE_BYTES, libc::MADV_DONTNEED) };
        call("madvise of a frozen page", result)?;
        segment.pages[first] = (0, 0);
    }
    protect(start, count, READ_WRITE)?;
    for index in first..first + count {
        segment.check("page that was frozen", index)?;
    }
    segment.rewrite_some(random)
}

/// Writes to a page that is frozen, or that the barrier has thawed before.
fn write_through_barrier(
    segment: &mut Segment,
    index: usize,
    is_frozen: bool,
    random: &mut Random,
) -> Checked {
    EXPECTED.set(segment.page(index).addr());
    segment.rewrite(index, random);
    let was_hit = EXPECTED.replace(0) == 0;
    if was_hit != is_frozen {
        return Err(Wrong::Result {
            what: "SIGSEGV on a write to a frozen page",
            expected: is_frozen.into(),
            found: was_hit.into(),
        });
    }
    segment.check("page that was thawed by its write", index)
}

/// Maps a file privately, modifies the memory, and unmaps it. The mapping often lies where frozen memory was.
fn map_a_file(pages: usize, random: &mut Random) -> Checked {
    let error = |error| Wrong::Call {
        what: "open the program itself",
        error,
    };
    let file = File::open("/proc/self/exe").map_err(error)?;
    let bytes = usize::try_from(file.metadata().map_err(error)?.len()).unwrap_or(0);
    let pages = pages.min(bytes / PAGE_BYTES);
    // SAFETY: a mapping at an address that the kernel chooses aliases nothing.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            pages * PAGE_BYTES,
            READ_WRITE,
            libc::MAP_PRIVATE,
            file.as_raw_fd(),
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return Err(Wrong::last("mmap of a file"));
    }
    let start: *mut u64 = start.cast();
    let page = |index: usize| {
        // SAFETY: the index is below the number of pages mapped.
        unsafe { start.add(index * PAGE_WORDS) }
    };
    let tag = random.next();
    let looks = 1 + random.index(4);
    for index in 0..pages {
        // SAFETY: the page is mapped, writable, and belongs to this thread.
        unsafe { content::fill(page(index), tag ^ index as u64, 1) };
    }
    for _ in 0..looks {
        for index in 0..pages {
            // SAFETY: as above.
            unsafe {
                content::check(
                    "modified page of a file",
                    page(index),
                    tag ^ index as u64,
                    1,
                )?;
            }
        }
    }
    // SAFETY: the mapping was made above, and nothing refers to it any more.
    unsafe { unmap_raw(start, pages) }
}

/// A child reads what its parent has frozen.
fn inherit(segments: &[Segment]) -> Checked {
    for segment in segments {
        protect(segment.page(0), segment.pages.len(), READ)?;
    }
    let child = Child::fork(|| {
        segments
            .iter()
            .try_for_each(|segment| segment.check_all("frozen page in a child"))
    })?;
    for segment in segments {
        segment.check_all("frozen page beside a child")?;
    }
    child.wait()?;
    for segment in segments {
        protect(segment.page(0), segment.pages.len(), READ_WRITE)?;
    }
    Ok(())
}

/// A child freezes a part of what it has inherited, and thaws it. To the kernel it is then one mapping again, which may
/// grow and move.
fn grow_inherited(random: &mut Random) -> Checked {
    let pages = 4 + random.index(90);
    let first = 1 + random.index(pages - 2);
    let count = 1 + random.index(pages - first - 1);
    let mut segment = Segment::new(pages, random)?;
    let child = Child::fork(|| {
        for _ in 0..2 {
            protect(segment.page(first), count, READ)?;
            std::thread::sleep(Duration::from_millis(20));
            protect(segment.page(first), count, READ_WRITE)?;
        }
        let more = segment.pages.len() + 32;
        segment.resize(more, libc::MREMAP_MAYMOVE, random)?;
        segment.check_all("mapping that grew after it was frozen in part")
    })?;
    child.wait()?;
    segment.unmap()
}

/// Changes the protection of ranges that other threads read.
fn flip(shared: &Mapping, clock: &Clock, random: &mut Random) -> Checked {
    while clock.running() {
        let first = random.index(shared.pages());
        let count = 1 + random.index(shared.pages() - first);
        let protection = READABLE[random.index(READABLE.len())];
        protect(shared.page(first), count, protection)?;
        std::thread::sleep(Duration::from_micros(random.index(3000) as u64));
    }
    Ok(())
}

fn check_shared(shared: &Mapping, random: &mut Random) -> Checked {
    for _ in 0..32 {
        let index = random.index(shared.pages());
        // SAFETY: the page is readable whatever its current protection is, and nobody writes it.
        unsafe {
            content::check(
                "page whose protection another thread changes",
                shared.page(index),
                index as u64,
                SHARED_VERSION,
            )?;
        }
    }
    Ok(())
}

/// The write barrier. Makes the page writable that this thread has announced. Any other page ends the victim.
extern "C" fn barrier(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: for SIGSEGV the kernel passes a valid siginfo with an address.
    let page = unsafe { (*info).si_addr() }.addr() / PAGE_BYTES * PAGE_BYTES;
    let is_expected = EXPECTED.get() == page && page != 0;
    // SAFETY: mprotect and signal are async-signal-safe. The page belongs to the interrupted thread. Once the default
    // action is restored, the access is repeated and ends the process.
    unsafe {
        if is_expected {
            EXPECTED.set(0);
            let page = std::ptr::with_exposed_provenance_mut(page);
            libc::mprotect(page, PAGE_BYTES, READ_WRITE);
        } else {
            libc::signal(libc::SIGSEGV, libc::SIG_DFL);
        }
    }
}

fn install_barrier() -> Checked {
    let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = barrier;
    // SAFETY: an all-zero sigaction is valid: no flags, empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    action.sa_flags = libc::SA_SIGINFO;
    // SAFETY: the handler is async-signal-safe: it makes a system call and uses a thread-local word without a
    // destructor.
    call("sigaction", unsafe {
        libc::sigaction(libc::SIGSEGV, &raw const action, std::ptr::null_mut())
    })
    .map(drop)
}
