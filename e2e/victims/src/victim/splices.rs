//! Pages that go through pipes without being copied: `splice` and `tee` between pipes, a file and a socket.
//!
//! Into a pipe come copies of memory (`write`), pages themselves (`vmsplice`) and pages of a file (`splice`). They
//! leave for a file, a socket, another pipe, or memory. Meanwhile the memory that they came from may be moved out.
//! Memory that was only copied is written again meanwhile; pages themselves are not, because their reader may see
//! that.

use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::content::{self, PAGE_BYTES, PAGE_WORDS, Random};
use crate::run::Options;
use crate::scratch;
use crate::segment::Segment;
use crate::wrong::{Checked, Wrong, call_len};

const SPLICE_F_MOVE: u32 = 1;
const SPLICE_F_GIFT: u32 = 8;
/// Pages under way at once: fewer than a pipe or a socket holds.
const PAGES: usize = 8;
const BYTES: usize = PAGES * PAGE_BYTES;
/// Longest time in a pipe, a socket or a file.
const UNDER_WAY_US: usize = 10_000;

/// Tag and version of pages.
type Contents = [(u64, u32); PAGES];

struct Pipe {
    reader: PipeReader,
    writer: PipeWriter,
}

struct Ways {
    memory: Segment,
    from: Pipe,
    copy: Pipe,
    file: File,
    socket: (UnixStream, UnixStream),
}

pub(crate) fn run(options: &Options) -> Checked {
    let clock = options.clock();
    options.parallel(|thread| {
        let mut random = options.random(thread, 101);
        let pages = options.pages_per_thread().max(4 * PAGES);
        let mut ways = Ways::new(pages, &mut random)?;
        loop {
            for _ in 0..8 {
                ways.step(&mut random)?;
                ways.memory.rewrite_some(&mut random)?;
            }
            ways.memory.check_all("page beside splices")?;
            if !clock.running() {
                return ways.memory.unmap();
            }
        }
    })
}

fn failed(what: &'static str) -> impl Fn(std::io::Error) -> Wrong {
    move |error| Wrong::Call { what, error }
}

fn pause(random: &mut Random) {
    std::thread::sleep(Duration::from_micros(random.index(UNDER_WAY_US) as u64));
}

impl Pipe {
    fn new() -> Checked<Self> {
        let (reader, writer) = std::io::pipe().map_err(failed("pipe"))?;
        Ok(Self { reader, writer })
    }
}

impl Ways {
    fn new(pages: usize, random: &mut Random) -> Checked<Self> {
        Ok(Self {
            memory: Segment::new(pages, random)?,
            from: Pipe::new()?,
            copy: Pipe::new()?,
            file: scratch::file()?,
            socket: UnixStream::pair().map_err(failed("socketpair"))?,
        })
    }

    /// Pages go into a pipe, perhaps are doubled, and go on.
    fn step(&mut self, random: &mut Random) -> Checked {
        let (contents, kept) = self.fill(random)?;
        pause(random);
        let is_doubled = random.index(2) == 0;
        if is_doubled {
            // SAFETY: both are pipes, and no memory is named.
            let len = unsafe {
                libc::tee(
                    self.from.reader.as_raw_fd(),
                    self.copy.writer.as_raw_fd(),
                    BYTES,
                    0,
                )
            };
            call_len("tee", len, BYTES)?;
            pause(random);
        }
        self.drain(&contents, kept, random)?;
        if is_doubled {
            pause(random);
            let reader = self.copy.reader.as_raw_fd();
            self.read_into_memory(
                reader,
                "page of a pipe that tee filled",
                &contents,
                kept,
                random,
            )?;
        }
        // Nobody sees pages of this range any more.
        for index in kept..kept + PAGES {
            self.memory.check("page that was in a pipe", index)?;
            self.memory.rewrite(index, random);
        }
        Ok(())
    }

    /// Fills the first pipe. Returns what is in it, and the range of memory whose pages must stay as they are.
    fn fill(&mut self, random: &mut Random) -> Checked<(Contents, usize)> {
        let first = random.index(self.memory.pages.len() - PAGES + 1);
        let mut contents: Contents = [(0, 0); PAGES];
        contents.copy_from_slice(&self.memory.pages[first..first + PAGES]);
        let (source, writer) = (self.memory.page(first), self.from.writer.as_raw_fd());
        match random.index(3) {
            0 => {
                // SAFETY: the pages are inside the segment, which this thread owns.
                let len = unsafe { libc::write(writer, source.cast(), BYTES) };
                call_len("write", len, BYTES)?;
                // They are copies.
                (first..first + PAGES).for_each(|index| self.memory.rewrite(index, random));
            }
            1 => {
                let file = self.file.as_raw_fd();
                // SAFETY: as above.
                let len = unsafe { libc::pwrite(file, source.cast(), BYTES, 0) };
                call_len("pwrite", len, BYTES)?;
                splice("splice from a file", (file, Some(&mut 0)), (writer, None))?;
            }
            _ => {
                let flags = [0, SPLICE_F_GIFT][random.index(2)];
                let given = libc::iovec {
                    iov_base: source.cast(),
                    iov_len: BYTES,
                };
                // SAFETY: the pages are inside the segment and stay mapped.
                let len = unsafe { libc::vmsplice(writer, &raw const given, 1, flags) };
                call_len("vmsplice", len, BYTES)?;
            }
        }
        Ok((contents, first))
    }

    /// Empties the first pipe in one of several ways, and reads what came through.
    fn drain(&mut self, contents: &Contents, kept: usize, random: &mut Random) -> Checked {
        let from = self.from.reader.as_raw_fd();
        match random.index(5) {
            0 => {
                // Another part of the file than pages of the pipe may come from.
                let file = self.file.as_raw_fd();
                let at = PAGES + random.index(4 * PAGES);
                let mut offset = i64::try_from(at * PAGE_BYTES).unwrap_or(0);
                splice("splice to a file", (from, None), (file, Some(&mut offset)))?;
                pause(random);
                let start = offset - i64::try_from(BYTES).unwrap_or(0);
                let target = self.elsewhere(kept, random);
                let buffer = self.memory.page(target).cast();
                // SAFETY: the target is inside the segment, which this thread owns.
                let len = unsafe { libc::pread(file, buffer, BYTES, start) };
                call_len("pread", len, BYTES)?;
                self.arrived("page that was spliced to a file", target, contents)
            }
            1 => {
                let (to, out) = (self.socket.0.as_raw_fd(), self.socket.1.as_raw_fd());
                splice("splice to a socket", (from, None), (to, None))?;
                pause(random);
                self.read_into_memory(
                    out,
                    "page that was spliced to a socket",
                    contents,
                    kept,
                    random,
                )
            }
            2 => {
                let between = Pipe::new()?;
                let writer = between.writer.as_raw_fd();
                splice("splice to a pipe", (from, None), (writer, None))?;
                pause(random);
                let mut bytes = vec![0_u8; BYTES];
                (&between.reader)
                    .read_exact(&mut bytes)
                    .map_err(failed("read of a pipe"))?;
                compare(&bytes, contents)
            }
            3 => {
                let target = self.elsewhere(kept, random);
                let into = libc::iovec {
                    iov_base: self.memory.page(target).cast(),
                    iov_len: BYTES,
                };
                // SAFETY: the target is inside the segment, which this thread owns.
                let len = unsafe { libc::vmsplice(from, &raw const into, 1, 0) };
                call_len("vmsplice from a pipe", len, BYTES)?;
                self.arrived("page that vmsplice took out of a pipe", target, contents)
            }
            _ => self.read_into_memory(
                from,
                "page that was read from a pipe",
                contents,
                kept,
                random,
            ),
        }
    }

    /// Reads a pipe or a socket into memory that may be out.
    fn read_into_memory(
        &mut self,
        from: RawFd,
        what: &'static str,
        contents: &Contents,
        kept: usize,
        random: &mut Random,
    ) -> Checked {
        let target = self.elsewhere(kept, random);
        let mut done = 0;
        while done < BYTES {
            // SAFETY: the target is inside the segment, which this thread owns.
            let len = unsafe {
                let buffer = self.memory.page(target).cast::<u8>().add(done);
                libc::read(from, buffer.cast(), BYTES - done)
            };
            match usize::try_from(len) {
                Ok(len @ 1..) => done += len,
                _ => return call_len(what, len, BYTES - done),
            }
        }
        self.arrived(what, target, contents)
    }

    fn arrived(&mut self, what: &'static str, target: usize, contents: &Contents) -> Checked {
        self.memory.pages[target..target + PAGES].copy_from_slice(contents);
        content::strike(self.memory.page(target));
        (target..target + PAGES).try_for_each(|index| self.memory.check(what, index))
    }

    /// Pages that do not overlap those from `kept` on.
    fn elsewhere(&self, kept: usize, random: &mut Random) -> usize {
        let after = self.memory.pages.len() - (kept + PAGES);
        if after >= PAGES {
            kept + PAGES + random.index(after - PAGES + 1)
        } else {
            random.index(kept - PAGES + 1)
        }
    }
}

/// Moves all pages from one descriptor to another. An offset says where in a file, and goes on behind them.
fn splice(
    what: &'static str,
    (from, mut from_offset): (RawFd, Option<&mut i64>),
    (to, mut to_offset): (RawFd, Option<&mut i64>),
) -> Checked {
    let place = |offset: &mut Option<&mut i64>| {
        (offset.as_deref_mut()).map_or(std::ptr::null_mut(), std::ptr::from_mut)
    };
    let mut done = 0;
    while done < BYTES {
        let (source, target) = (place(&mut from_offset), place(&mut to_offset));
        // SAFETY: the offsets outlive the call, and no other memory is named.
        let len = unsafe { libc::splice(from, source, to, target, BYTES - done, SPLICE_F_MOVE) };
        match usize::try_from(len) {
            Ok(len @ 1..) => done += len,
            _ => return call_len(what, len, BYTES - done),
        }
    }
    Ok(())
}

fn compare(bytes: &[u8], contents: &Contents) -> Checked {
    let (words, _) = bytes.as_chunks();
    for (at, word) in words.iter().enumerate() {
        let (page, index) = (at / PAGE_WORDS, at % PAGE_WORDS);
        let (tag, version) = contents[page];
        let (expected, found) = (
            content::word(tag, version, index),
            u64::from_ne_bytes(*word),
        );
        if found != expected {
            return Err(Wrong::Content {
                what: "page that was spliced to a pipe",
                address: bytes.as_ptr().addr() + at * 8,
                page,
                word: index,
                expected,
                found,
            });
        }
    }
    Ok(())
}
