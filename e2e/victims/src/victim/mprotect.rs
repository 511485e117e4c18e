//! Protection that changes while pages are out: content stays, and what is forbidden fails.
//!
//! The kernel makes the forbidden accesses on the program's behalf (`read` into a read-only page, `write` from an
//! inaccessible one), and then has to say EFAULT. Code that the program wrote into executable memory has to run as
//! written.

use std::fs::File;
use std::os::fd::AsRawFd;

use crate::content::{self, PAGE_BYTES, PAGE_WORDS, Random};
use crate::pages::{map_raw, unmap_raw};
use crate::run::Options;
use crate::segment::Segment;
use crate::wrong::{Checked, Wrong, call};

const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;
/// Mappings of a thread.
const SEGMENTS: usize = 4;
/// Most pages that change their protection together.
const RANGE_PAGES_MAX: usize = 64;
/// Pages with code in them.
const CODE_PAGES: usize = 8;

/// Files for trying forbidden accesses.
pub(crate) struct Files {
    zero: File,
    pipe: std::io::PipeWriter,
    _reader: std::io::PipeReader,
}

impl Files {
    pub(crate) fn open() -> Checked<Self> {
        let call = |what| move |error| Wrong::Call { what, error };
        let (reader, pipe) = std::io::pipe().map_err(call("pipe"))?;
        let zero = File::open("/dev/zero").map_err(call("open /dev/zero"))?;
        Ok(Self {
            zero,
            pipe,
            _reader: reader,
        })
    }

    /// A file to read from.
    pub(crate) fn zero(&self) -> i32 {
        self.zero.as_raw_fd()
    }

    /// A pipe to write to.
    pub(crate) fn pipe(&self) -> i32 {
        self.pipe.as_raw_fd()
    }
}

pub(crate) fn run(options: &Options) -> Checked {
    let clock = options.clock();
    let files = Files::open()?;
    options.parallel(|thread| {
        let mut random = options.random(thread, 8);
        let pages = options.pages_per_thread() / SEGMENTS;
        let mut segments = Vec::new();
        for _ in 0..SEGMENTS {
            segments.push(Segment::new(pages, &mut random)?);
        }
        let mut code = Code::new(&mut random)?;
        loop {
            for _ in 0..32 {
                change(&mut segments[random.index(SEGMENTS)], &files, &mut random)?;
                segments[random.index(SEGMENTS)].check_some("page beside", &mut random)?;
                code.run_and_rewrite(&mut random)?;
            }
            for segment in &segments {
                segment.check_all("all pages")?;
            }
            if !clock.running() {
                break;
            }
        }
        code.unmap()?;
        segments.into_iter().try_for_each(Segment::unmap)
    })
}

/// Makes a range read-only, inaccessible and writable again, and checks it at every stage.
pub(crate) fn change(segment: &mut Segment, files: &Files, random: &mut Random) -> Checked {
    let first = random.index(segment.pages.len());
    let count = 1 + random.index((segment.pages.len() - first).min(RANGE_PAGES_MAX));
    let range = first..first + count;
    let buffer = segment.page(first);
    protect(buffer, count, libc::PROT_READ)?;
    range
        .clone()
        .try_for_each(|index| segment.check("read-only page", index))?;
    // SAFETY: the page belongs to this thread, and the kernel must refuse to write it.
    let read = unsafe { libc::read(files.zero(), buffer.cast(), 8) };
    refused("read into a read-only page", read)?;
    protect(buffer, count, libc::PROT_NONE)?;
    // SAFETY: as above, and the kernel must refuse to read it.
    let written = unsafe { libc::write(files.pipe(), buffer.cast(), 8) };
    refused("write from an inaccessible page", written)?;
    if random.index(4) == 0 {
        std::thread::yield_now();
    }
    protect(buffer, count, READ_WRITE)?;
    for index in range {
        segment.check("page that is accessible again", index)?;
        if random.index(4) == 0 {
            segment.rewrite(index, random);
        }
    }
    Ok(())
}

pub(crate) fn protect(start: *mut u64, pages: usize, protection: i32) -> Checked {
    // SAFETY: the range is a part of a mapping of this thread, which only makes accesses that the protection allows.
    let result = unsafe { libc::mprotect(start.cast(), pages * PAGE_BYTES, protection) };
    call("mprotect", result).map(drop)
}

pub(crate) fn refused(what: &'static str, result: isize) -> Checked {
    let error = std::io::Error::last_os_error();
    match (result, error.raw_os_error()) {
        (-1, Some(libc::EFAULT)) => Ok(()),
        (-1, _) => Err(Wrong::Call { what, error }),
        _ => Err(Wrong::Result {
            what,
            expected: -1,
            found: result as i64,
        }),
    }
}

/// Pages that each begin with a function. The function returns the page's own number.
struct Code {
    start: *mut u64,
    numbers: [u32; CODE_PAGES],
}

impl Code {
    fn new(random: &mut Random) -> Checked<Self> {
        let start = map_raw(CODE_PAGES, READ_WRITE | libc::PROT_EXEC, libc::MAP_PRIVATE)?;
        let mut code = Self {
            start,
            numbers: [0; CODE_PAGES],
        };
        for page in 0..CODE_PAGES {
            code.write(page, random);
        }
        Ok(code)
    }

    fn page(&self, page: usize) -> *mut u64 {
        assert!(page < CODE_PAGES);
        // SAFETY: the page is inside the mapping, by the assertion.
        unsafe { self.start.add(page * PAGE_WORDS) }
    }

    fn write(&mut self, page: usize, random: &mut Random) {
        let number = u32::try_from(random.next() >> 32).unwrap_or(0);
        self.numbers[page] = number;
        // mov eax, number; ret; and two bytes that are never reached.
        let [a, b, c, d] = number.to_le_bytes();
        let instructions = u64::from_le_bytes([0xb8, a, b, c, d, 0xc3, 0xcc, 0xcc]);
        // SAFETY: the page is mapped and writable, and belongs to this thread.
        unsafe {
            content::fill(self.page(page), u64::from(number), 1);
            self.page(page).write_volatile(instructions);
        }
    }

    fn run_and_rewrite(&mut self, random: &mut Random) -> Checked {
        let page = random.index(CODE_PAGES);
        // SAFETY: the page begins with a function of this type, which `write` has written.
        let function: extern "C" fn() -> u32 = unsafe { std::mem::transmute(self.page(page)) };
        let (expected, found) = (self.numbers[page], function());
        if found != expected {
            let what = "result of code written by the program";
            return Err(Wrong::Result {
                what,
                expected: expected.into(),
                found: found.into(),
            });
        }
        if random.index(4) == 0 {
            self.write(page, random);
        }
        Ok(())
    }

    fn unmap(self) -> Checked {
        // SAFETY: the mapping belongs to this value and ends with it.
        unsafe { unmap_raw(self.start, CODE_PAGES) }
    }
}
