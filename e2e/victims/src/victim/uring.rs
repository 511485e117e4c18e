//! `io_uring` reads and writes on registered buffers. The kernel holds references to these pages and goes on writing to
//! them, whatever the page table says.

use std::fs::File;
use std::os::fd::AsRawFd;

use io_uring::{IoUring, opcode, types};

use crate::content::{PAGE_BYTES, Random};
use crate::run::Options;
use crate::scratch;
use crate::segment::Segment;
use crate::wrong::{Checked, Wrong};

/// Entries of the ring: the transfers that are under way at the same time.
const DEPTH: usize = 16;
/// Registered buffers, each of [`BUFFER_PAGES`].
const BUFFERS: usize = 16;
const BUFFER_PAGES: usize = 8;
/// Blocks of the file, each of the size of a buffer.
const BLOCKS: usize = 32;
/// Transfers between two registrations.
const TRANSFERS: usize = 64;

pub(crate) fn run(options: &Options) -> Checked {
    let clock = options.clock();
    options.parallel(|thread| {
        let mut random = options.random(thread, 11);
        let mut ring =
            IoUring::new(u32::try_from(DEPTH).unwrap_or(1)).map_err(|error| {
                match error.raw_os_error() {
                    Some(libc::EPERM | libc::ENOSYS) => Wrong::Unavailable {
                        what: "io_uring",
                        error,
                    },
                    _ => Wrong::Call {
                        what: "io_uring_setup",
                        error,
                    },
                }
            })?;
        let pages = options.pages_per_thread().max(BUFFERS * BUFFER_PAGES * 2);
        let mut memory = Segment::new(pages, &mut random)?;
        let file = scratch::file()?;
        let file = scratch::direct(&file).unwrap_or(file);
        let mut blocks = vec![[(0, 0); BUFFER_PAGES]; BLOCKS];
        loop {
            round(&mut ring, &file, &mut memory, &mut blocks, &mut random)?;
            memory.check_all("all pages")?;
            if !clock.running() {
                return memory.unmap();
            }
        }
    })
}

/// Tags and versions of a buffer's pages.
type Block = [(u64, u32); BUFFER_PAGES];

/// A transfer between a registered buffer and a block of the file.
#[derive(Clone, Copy)]
struct Transfer {
    buffer: usize,
    block: usize,
    read: bool,
}

/// Registers buffers somewhere in memory, moves data, and unregisters them again.
fn round(
    ring: &mut IoUring,
    file: &File,
    memory: &mut Segment,
    blocks: &mut [Block],
    random: &mut Random,
) -> Checked {
    let stride = memory.pages.len() / BUFFERS;
    let firsts: Vec<usize> = (0..BUFFERS)
        .map(|n| n * stride + random.index(stride - BUFFER_PAGES + 1))
        .collect();
    let buffers: Vec<libc::iovec> = firsts
        .iter()
        .map(|&first| libc::iovec {
            iov_base: memory.page(first).cast(),
            iov_len: BUFFER_PAGES * PAGE_BYTES,
        })
        .collect();
    // SAFETY: the buffers are pages of the segment, which stay mapped until they are unregistered below.
    unsafe { ring.submitter().register_buffers(&buffers) }.map_err(|error| Wrong::Call {
        what: "io_uring_register(buffers)",
        error,
    })?;
    for _ in 0..TRANSFERS / DEPTH {
        // Different buffers and blocks, so that the transfers of one batch do not touch each other.
        let turn = random.index(BUFFERS);
        let batch: Vec<Transfer> = (0..DEPTH)
            .map(|n| {
                let block = (n * 2 + turn) % BLOCKS;
                let written = blocks[block] != [(0, 0); BUFFER_PAGES];
                let read = written && random.index(2) == 0;
                Transfer {
                    buffer: (n + turn) % BUFFERS,
                    block,
                    read,
                }
            })
            .collect();
        submit(ring, file, &buffers, &batch)?;
        for transfer in &batch {
            let first = firsts[transfer.buffer];
            let pages = &mut memory.pages[first..first + BUFFER_PAGES];
            if transfer.read {
                pages.copy_from_slice(&blocks[transfer.block]);
            } else {
                blocks[transfer.block].copy_from_slice(pages);
            }
            for index in first..first + BUFFER_PAGES {
                memory.check("registered buffer", index)?;
            }
            memory.rewrite(first + random.index(BUFFER_PAGES), random);
        }
        memory.check_some("page beside registered buffers", random)?;
    }
    ring.submitter()
        .unregister_buffers()
        .map_err(|error| Wrong::Call {
            what: "io_uring_unregister(buffers)",
            error,
        })
}

/// Runs a batch of transfers to its end.
fn submit(ring: &mut IoUring, file: &File, buffers: &[libc::iovec], batch: &[Transfer]) -> Checked {
    let fd = types::Fd(file.as_raw_fd());
    let bytes = u32::try_from(BUFFER_PAGES * PAGE_BYTES).unwrap_or(0);
    for transfer in batch {
        let buffer = buffers[transfer.buffer].iov_base.cast::<u8>();
        let index = u16::try_from(transfer.buffer).unwrap_or(0);
        let offset = (transfer.block * BUFFER_PAGES * PAGE_BYTES) as u64;
        let entry = if transfer.read {
            opcode::ReadFixed::new(fd, buffer, bytes, index)
                .offset(offset)
                .build()
        } else {
            opcode::WriteFixed::new(fd, buffer.cast_const(), bytes, index)
                .offset(offset)
                .build()
        };
        // SAFETY: the buffer is registered and outlives the transfer, which ends below.
        unsafe { ring.submission().push(&entry) }.map_err(|_| Wrong::Result {
            what: "room in the submission queue",
            expected: 1,
            found: 0,
        })?;
    }
    ring.submit_and_wait(batch.len())
        .map_err(|error| Wrong::Call {
            what: "io_uring_enter",
            error,
        })?;
    let expected = i64::from(bytes);
    let results: Vec<i64> = ring
        .completion()
        .map(|entry| entry.result().into())
        .collect();
    if results.len() != batch.len() {
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let (expected, found) = (count(batch.len()), count(results.len()));
        return Err(Wrong::Result {
            what: "completions",
            expected,
            found,
        });
    }
    match results.into_iter().find(|&result| result != expected) {
        Some(found) => Err(Wrong::Result {
            what: "bytes of a transfer",
            expected,
            found,
        }),
        None => Ok(()),
    }
}
