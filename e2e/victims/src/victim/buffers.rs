//! Memory as the buffer of system calls: `pread`, `preadv`, `O_DIRECT`, pipes and sockets.
//!
//! The model knows which page is in which block of the file. So content can go back and forth between memory, file and
//! pipes and still be checked.

use std::fs::File;
use std::io::{PipeReader, PipeWriter};
use std::os::fd::{AsRawFd, RawFd};

use crate::content::{self, PAGE_BYTES, PAGE_WORDS, Random};
use crate::run::Options;
use crate::scratch;
use crate::segment::Segment;
use crate::wrong::{Checked, Wrong, call_len};

/// Blocks of the file, one page each.
const BLOCKS: usize = 256;
/// Most pages of a transfer: as many as a pipe holds by default.
const TRANSFER_PAGES_MAX: usize = 16;

struct Transfers {
    memory: Segment,
    /// Tag and version of the content of each block of the file.
    blocks: Vec<(u64, u32)>,
    file: File,
    direct: Option<File>,
    pipe: (PipeReader, PipeWriter),
    socket: (
        std::os::unix::net::UnixStream,
        std::os::unix::net::UnixStream,
    ),
}

pub(crate) fn run(options: &Options) -> Checked {
    let clock = options.clock();
    options.parallel(|thread| {
        let mut random = options.random(thread, 10);
        let pages = options.pages_per_thread().max(TRANSFER_PAGES_MAX * 2);
        let mut transfers = Transfers::new(pages, &mut random)?;
        loop {
            for _ in 0..64 {
                transfers.step(&mut random)?;
            }
            transfers.memory.check_all("all pages")?;
            if !clock.running() {
                return transfers.memory.unmap();
            }
        }
    })
}

fn offset(block: usize) -> i64 {
    i64::try_from(block * PAGE_BYTES).unwrap_or(i64::MAX)
}

impl Transfers {
    fn new(pages: usize, random: &mut Random) -> Checked<Self> {
        let call = |what| move |error| Wrong::Call { what, error };
        let file = scratch::file()?;
        let mut this = Self {
            memory: Segment::new(pages, random)?,
            blocks: vec![(0, 0); BLOCKS],
            direct: scratch::direct(&file),
            file,
            pipe: std::io::pipe().map_err(call("pipe"))?,
            socket: std::os::unix::net::UnixStream::pair().map_err(call("socketpair"))?,
        };
        let all = TRANSFER_PAGES_MAX.min(pages);
        for block in (0..BLOCKS).step_by(all) {
            this.write_out(
                this.file.as_raw_fd(),
                random.index(pages - all + 1),
                block,
                all,
            )?;
        }
        Ok(this)
    }

    fn step(&mut self, random: &mut Random) -> Checked {
        let count = 1 + random.index(TRANSFER_PAGES_MAX);
        let page = random.index(self.memory.pages.len() - count);
        let block = random.index(BLOCKS - count);
        let buffered = self.file.as_raw_fd();
        let direct = self.direct.as_ref().map_or(buffered, AsRawFd::as_raw_fd);
        match random.index(8) {
            0 => self.read_in(buffered, page, block, count)?,
            1 => self.write_out(buffered, page, block, count)?,
            2 => self.read_in(direct, page, block, count)?,
            3 => self.write_out(direct, page, block, count)?,
            4 => self.read_scattered(block, count, random)?,
            5 => self.through_pipe(page, count, random)?,
            6 => self.through_socket(page, count, random)?,
            _ => self.read_across(block, random)?,
        }
        self.memory
            .rewrite(random.index(self.memory.pages.len()), random);
        self.memory.check_some("page beside a transfer", random)
    }

    fn check_range(&self, what: &'static str, page: usize, count: usize) -> Checked {
        (page..page + count).try_for_each(|index| self.memory.check(what, index))
    }

    fn read_in(&mut self, fd: RawFd, page: usize, block: usize, count: usize) -> Checked {
        let bytes = count * PAGE_BYTES;
        // SAFETY: the pages are inside the segment, which this thread owns.
        let len = unsafe { libc::pread(fd, self.memory.page(page).cast(), bytes, offset(block)) };
        call_len("pread", len, bytes)?;
        let moved = &self.blocks[block..block + count];
        self.memory.pages[page..page + count].copy_from_slice(moved);
        self.check_range("page that was read", page, count)
    }

    fn write_out(&mut self, fd: RawFd, page: usize, block: usize, count: usize) -> Checked {
        let bytes = count * PAGE_BYTES;
        // SAFETY: the pages are inside the segment, which this thread owns.
        let len = unsafe { libc::pwrite(fd, self.memory.page(page).cast(), bytes, offset(block)) };
        call_len("pwrite", len, bytes)?;
        let moved = &self.memory.pages[page..page + count];
        self.blocks[block..block + count].copy_from_slice(moved);
        Ok(())
    }

    /// Reads consecutive blocks into pages that are far apart.
    fn read_scattered(&mut self, block: usize, count: usize, random: &mut Random) -> Checked {
        let stride = self.memory.pages.len() / count;
        let pages: Vec<usize> = (0..count)
            .map(|n| n * stride + random.index(stride))
            .collect();
        let buffers: Vec<libc::iovec> = pages
            .iter()
            .map(|&page| libc::iovec {
                iov_base: self.memory.page(page).cast(),
                iov_len: PAGE_BYTES,
            })
            .collect();
        let buffers_len = i32::try_from(count).unwrap_or(i32::MAX);
        // SAFETY: the buffers are different pages of the segment, which this thread owns.
        let len = unsafe {
            libc::preadv(
                self.file.as_raw_fd(),
                buffers.as_ptr(),
                buffers_len,
                offset(block),
            )
        };
        call_len("preadv", len, count * PAGE_BYTES)?;
        for (at, &page) in pages.iter().enumerate() {
            self.memory.pages[page] = self.blocks[block + at];
            self.memory.check("page of a scattered read", page)?;
        }
        Ok(())
    }

    /// The target of a transfer within memory: pages that do not overlap `page..page + count`.
    fn elsewhere(&self, page: usize, count: usize, random: &mut Random) -> usize {
        let after = self.memory.pages.len() - (page + count);
        if after >= count {
            page + count + random.index(after - count + 1)
        } else {
            random.index(page - count + 1)
        }
    }

    fn through_pipe(&mut self, page: usize, count: usize, random: &mut Random) -> Checked {
        let (reader, writer) = (self.pipe.0.as_raw_fd(), self.pipe.1.as_raw_fd());
        let target = self.elsewhere(page, count, random);
        let bytes = count * PAGE_BYTES;
        // SAFETY: both ranges are inside the segment, which this thread owns. By default the pipe holds at least as
        // much as is written.
        unsafe {
            call_len(
                "write",
                libc::write(writer, self.memory.page(page).cast(), bytes),
                bytes,
            )?;
            call_len(
                "read",
                libc::read(reader, self.memory.page(target).cast(), bytes),
                bytes,
            )?;
        }
        self.memory.pages.copy_within(page..page + count, target);
        self.check_range("page that came through a pipe", target, count)
    }

    fn through_socket(&mut self, page: usize, count: usize, random: &mut Random) -> Checked {
        let (to, from) = (self.socket.0.as_raw_fd(), self.socket.1.as_raw_fd());
        let target = self.elsewhere(page, count, random);
        let bytes = count * PAGE_BYTES;
        // SAFETY: both ranges are inside the segment, which this thread owns.
        unsafe {
            let sent = libc::send(to, self.memory.page(page).cast(), bytes, 0);
            call_len("send", sent, bytes)?;
            let buffer = self.memory.page(target).cast();
            call_len(
                "recv",
                libc::recv(from, buffer, bytes, libc::MSG_WAITALL),
                bytes,
            )?;
        }
        self.memory.pages.copy_within(page..page + count, target);
        self.check_range("page that came through a socket", target, count)
    }

    /// Reads a page's worth of bytes that begins and ends in the middle of pages.
    fn read_across(&mut self, block: usize, random: &mut Random) -> Checked {
        let page = random.index(self.memory.pages.len() - 1);
        let word = 1 + random.index(PAGE_WORDS - 1);
        // SAFETY: the range is within two pages of the segment, which this thread owns.
        let len = unsafe {
            let buffer = self.memory.page(page).add(word);
            let at = offset(block) + i64::try_from(word * 8).unwrap_or(0);
            libc::pread(self.file.as_raw_fd(), buffer.cast(), PAGE_BYTES, at)
        };
        call_len("pread across pages", len, PAGE_BYTES)?;
        for index in 0..PAGE_WORDS {
            let (first, second) = if index < word { (0, 1) } else { (1, 0) };
            let sources = [self.memory.pages[page], self.blocks[block]];
            self.check_word(page, index, sources[first])?;
            let sources = [self.memory.pages[page + 1], self.blocks[block + 1]];
            self.check_word(page + 1, index, sources[second])?;
        }
        self.memory.rewrite(page, random);
        self.memory.rewrite(page + 1, random);
        Ok(())
    }

    fn check_word(&self, page: usize, word: usize, (tag, version): (u64, u32)) -> Checked {
        let expected = content::word(tag, version, word);
        // SAFETY: the word is inside a page of the segment, which this thread owns.
        let cell = unsafe { self.memory.page(page).add(word) };
        // SAFETY: as above.
        let found = unsafe { cell.read_volatile() };
        if found == expected {
            return Ok(());
        }
        let what = "read across pages";
        Err(Wrong::Content {
            what,
            address: cell.addr(),
            page,
            word,
            expected,
            found,
        })
    }
}
