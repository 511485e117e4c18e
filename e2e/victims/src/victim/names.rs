//! The names that the kernel has for parts of memory (`PR_SET_MM_MAP`) are moved while content is in use.
//!
//! A mapping far from the heap becomes the heap for a while. `brk` lets it grow and shrink there. Other names (data,
//! arguments) are put on its pages and read back through /proc. The kernel gives up on a page that somebody else holds,
//! so a reader may get less than it asks for, but never other bytes. The last line of output counts both.
//!
//! The allocator uses the same break. So nothing is allocated while it is elsewhere, and everything runs on one thread.

use std::fs;

use crate::content::{self, PAGE_BYTES, PAGE_WORDS, Random};
use crate::heap::Heap;
use crate::pages::Pages;
use crate::run::Options;
use crate::wrong::{Checked, Wrong, call, same};

/// Where the other heap begins: far from everything else, and below the heap of the allocator.
const PLACE: usize = 0x2000_0000_0000;
const PR_SET_MM_MAP: i32 = 14;
/// Fields of /proc/self/stat, counted from the one after the name, in the order of [`Map`]. The break is not among
/// them.
const FIELDS: [usize; 10] = [23, 24, 42, 43, 44, 25, 45, 46, 47, 48];
/// Most pages that arguments are put on.
const ARGUMENT_PAGES: usize = 3;
/// Bytes of the last page that are not arguments. What precedes them is 0 on every page, as the end of arguments has to
/// be: otherwise the kernel shows one string alone.
const ARGUMENTS_REST: usize = 4;

/// `struct prctl_mm_map` of linux/prctl.h.
#[repr(C)]
#[derive(Clone, Copy)]
struct Map {
    start_code: usize,
    end_code: usize,
    start_data: usize,
    end_data: usize,
    start_break: usize,
    end_break: usize,
    start_stack: usize,
    arg_start: usize,
    arg_end: usize,
    env_start: usize,
    env_end: usize,
    /// Null and 0: stays as it is.
    vector: usize,
    vector_bytes: u32,
    /// -1: stays as it is.
    program: i32,
}
const _: () = assert!(size_of::<Map>() == 104);

/// The names as the kernel made them.
struct Names(Map);

pub(crate) fn run(options: &Options) -> Checked {
    let clock = options.clock();
    let mut random = options.random(0, 71);
    let mut beside = Pages::filled(options.pages() / 2, options.tag(0))?;
    let names = Names::read()?;
    permitted(&names)?;
    let mut heap = map_elsewhere((options.pages() / 2).max(64), options.tag(1))?;
    let (mut whole, mut short) = (0, 0);
    loop {
        let before = names.borrow_break(heap.pages)?;
        for _ in 0..16 {
            let pages = random.index(heap.versions.len() - 8) + 8;
            resize(&mut heap, pages)?;
            heap.stir("heap elsewhere", &mut random, 32)?;
            beside.stir("page beside a heap elsewhere", &mut random, 16)?;
        }
        same("break elsewhere", heap.end(heap.pages).addr(), brk(0))?;
        set("PR_SET_MM_MAP with the old break", &before)?;
        same("the break that came back", before.end_break, brk(0))?;
        for _ in 0..8 {
            names.lend_data(&heap, &mut random)?;
            match names.lend_arguments(&heap, &mut random)? {
                true => whole += 1,
                false => short += 1,
            }
            heap.stir("heap elsewhere", &mut random, 32)?;
        }
        heap.check_all("heap elsewhere")?;
        beside.check_all("page beside a heap elsewhere")?;
        if !clock.running() {
            println!("arguments read whole: {whole}, cut short: {short}");
            return Ok(());
        }
    }
}

fn set(what: &'static str, map: &Map) -> Checked {
    let map: *const Map = map;
    let bytes = size_of::<Map>();
    // SAFETY: moves names and touches no memory but the argument.
    let done = unsafe { libc::prctl(libc::PR_SET_MM, PR_SET_MM_MAP, map, bytes, 0_usize) };
    call(what, done).map(drop)
}

/// Kernels without checkpoints do not have the call.
fn permitted(names: &Names) -> Checked {
    set("PR_SET_MM_MAP", &names.0).map_err(|wrong| match wrong {
        Wrong::Call { error, .. }
            if matches!(error.raw_os_error(), Some(libc::EPERM | libc::EINVAL)) =>
        {
            Wrong::Unavailable {
                what: "PR_SET_MM_MAP",
                error,
            }
        }
        other => other,
    })
}

/// The system call itself: the C library's function remembers where its break was.
fn brk(to: usize) -> usize {
    // SAFETY: only `resize` moves the break, over its own pages.
    let found = unsafe { libc::syscall(libc::SYS_brk, to) };
    usize::try_from(found).unwrap_or(0)
}

impl Names {
    fn read() -> Checked<Names> {
        let failed = |error| Wrong::Call {
            what: "read of /proc/self/stat",
            error,
        };
        let text = fs::read_to_string("/proc/self/stat").map_err(failed)?;
        let after = text.rsplit(')').next().unwrap_or_default();
        let words: Vec<&str> = after.split_whitespace().collect();
        let value = |field: usize| words.get(field).and_then(|word| word.parse().ok());
        let [
            start_code,
            end_code,
            start_data,
            end_data,
            start_break,
            start_stack,
            rest @ ..,
        ] = FIELDS.map(|field| value(field).unwrap_or(0));
        let [arg_start, arg_end, env_start, env_end] = rest;
        Ok(Names(Map {
            start_code,
            end_code,
            start_data,
            end_data,
            start_break,
            end_break: brk(0),
            start_stack,
            arg_start,
            arg_end,
            env_start,
            env_end,
            vector: 0,
            vector_bytes: 0,
            program: -1,
        }))
    }

    /// Returns what the names were before.
    fn borrow_break(&self, pages: usize) -> Checked<Map> {
        let before = self.now();
        let map = Map {
            start_break: PLACE,
            end_break: PLACE + pages * PAGE_BYTES,
            ..before
        };
        set("PR_SET_MM_MAP with a break elsewhere", &map)?;
        Ok(before)
    }

    /// The allocator has moved its break since the names were read.
    fn now(&self) -> Map {
        Map {
            end_break: brk(0),
            ..self.0
        }
    }

    /// Code and data are named on pages of the heap, and a part of the heap is looked at meanwhile.
    fn lend_data(&self, heap: &Heap, random: &mut Random) -> Checked {
        let index = random.index(heap.pages);
        let (start, end) = (PLACE, heap.page(index).addr() + PAGE_BYTES);
        let map = Map {
            start_code: start,
            end_code: end,
            start_data: start,
            end_data: end,
            ..self.now()
        };
        set("PR_SET_MM_MAP with data elsewhere", &map)?;
        heap.check("page named as data", index)?;
        set("PR_SET_MM_MAP with the old data", &self.now())
    }

    /// Arguments are named on pages of the heap, and are what /proc shows. Returns whether it shows all of them.
    fn lend_arguments(&self, heap: &Heap, random: &mut Random) -> Checked<bool> {
        let pages = ARGUMENT_PAGES.min(heap.pages);
        let first = random.index(heap.pages - pages + 1);
        let start = heap.page(first).addr();
        let map = Map {
            arg_start: start,
            arg_end: start + pages * PAGE_BYTES - ARGUMENTS_REST,
            ..self.now()
        };
        set("PR_SET_MM_MAP with arguments elsewhere", &map)?;
        let read = fs::read("/proc/self/cmdline");
        set("PR_SET_MM_MAP with the old arguments", &self.now())?;
        let bytes = read.map_err(|error| Wrong::Call {
            what: "read of /proc/self/cmdline",
            error,
        })?;
        let mut right: Vec<u8> = (first..first + pages)
            .flat_map(|index| {
                let version = heap.versions[index];
                (0..PAGE_WORDS)
                    .map(move |word| content::word(heap.tag ^ index as u64, version, word))
            })
            .flat_map(u64::to_ne_bytes)
            .collect();
        right.truncate(right.len() - ARGUMENTS_REST);
        // A page that nobody waits for ends the text early.
        if !right.starts_with(&bytes) {
            let found = bytes.iter().zip(&right).take_while(|(a, b)| a == b).count();
            same("right bytes of /proc/self/cmdline", bytes.len(), found)?;
        }
        Ok(bytes.len() == right.len())
    }
}

fn map_elsewhere(pages: usize, tag: u64) -> Checked<Heap> {
    let bytes = pages * PAGE_BYTES;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let place = std::ptr::without_provenance_mut(PLACE);
    // SAFETY: with this flag the call fails where anything is mapped.
    let start = unsafe { libc::mmap(place, bytes, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(Wrong::last("mmap of the other heap"));
    }
    same("place of the other heap", PLACE, start.addr())?;
    let mut heap = Heap::new(start.cast(), pages, tag);
    heap.resized(pages)?;
    Ok(heap)
}

fn resize(heap: &mut Heap, pages: usize) -> Checked {
    let end = heap.end(pages).addr();
    same("brk elsewhere", end, brk(end))?;
    heap.resized(pages)
}
