//! Advice that changes no content, and the kernel's other ways to access memory. Content stays, whatever advice is
//! given on it and whoever reads or writes it.

use std::os::fd::AsRawFd;
use std::time::Duration;

use crate::content::{PAGE_BYTES, Random};
use crate::run::Options;
use crate::scratch;
use crate::segment::Segment;
use crate::wrong::{Checked, Wrong, call_len};

const PR_SET_VMA: i32 = 0x5356_4d41;
const MADV_COLLAPSE: i32 = 25;
/// Advice that leaves content alone. Not every kernel knows or permits all of it.
const HINTS: [i32; 14] = [
    libc::MADV_NORMAL,
    libc::MADV_RANDOM,
    libc::MADV_SEQUENTIAL,
    libc::MADV_WILLNEED,
    libc::MADV_COLD,
    libc::MADV_PAGEOUT,
    libc::MADV_POPULATE_READ,
    libc::MADV_POPULATE_WRITE,
    MADV_COLLAPSE,
    libc::MADV_MERGEABLE,
    libc::MADV_UNMERGEABLE,
    libc::MADV_HUGEPAGE,
    libc::MADV_NOHUGEPAGE,
    libc::MADV_DONTDUMP,
];
/// Pages of one transfer.
const TRANSFER: usize = 16;
/// Commands of an `iocb`.
const PREAD: u16 = 0;
const PWRITE: u16 = 1;

/// `struct iocb` of linux/aio_abi.h.
#[repr(C)]
#[derive(Default)]
struct Iocb {
    data: u64,
    key: u32,
    flags: i32,
    opcode: u16,
    priority: i16,
    descriptor: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags_of_aio: u32,
    event_descriptor: u32,
}
const _: () = assert!(size_of::<Iocb>() == 64);

pub(crate) fn run(options: &Options) -> Checked {
    let clock = options.clock();
    options.parallel(|thread| {
        let mut random = options.random(thread, 43);
        let pages = options.pages_per_thread().max(4 * TRANSFER);
        let mut memory = Segment::new(pages, &mut random)?;
        loop {
            for _ in 0..16 {
                advise(&memory, &mut random);
                name(&memory, &mut random);
                by_process_vm(&mut memory, &mut random)?;
                memory.rewrite_some(&mut random)?;
            }
            by_aio(&mut memory, &mut random)?;
            watch_writes();
            memory.check_all("page of which much was said")?;
            if !clock.running() {
                return memory.unmap();
            }
        }
    })
}

/// A range of at most `most` pages: its first page and its length.
fn range(memory: &Segment, most: usize, random: &mut Random) -> (usize, usize) {
    let first = random.index(memory.pages.len());
    let count = 1 + random.index((memory.pages.len() - first).min(most));
    (first, count)
}

fn advise(memory: &Segment, random: &mut Random) {
    let hint = HINTS[random.index(HINTS.len())];
    let (first, count) = range(memory, 600, random);
    // SAFETY: the range is inside the segment, and the advice leaves content alone. The kernel may refuse it.
    unsafe { libc::madvise(memory.page(first).cast(), count * PAGE_BYTES, hint) };
    std::thread::sleep(Duration::from_micros(random.index(2000) as u64));
}

/// Names a mapping, if the kernel was built with that.
fn name(memory: &Segment, random: &mut Random) {
    let (first, count) = range(memory, 64, random);
    let name = c"a victim's";
    // SAFETY: names a range of the segment. The name lives until the call returns.
    unsafe {
        libc::prctl(
            PR_SET_VMA,
            0,
            memory.page(first),
            count * PAGE_BYTES,
            name.as_ptr(),
        );
    }
}

/// process_vm_readv and process_vm_writev from one part of the memory to another.
fn by_process_vm(memory: &mut Segment, random: &mut Random) -> Checked {
    let half = memory.pages.len() / 2;
    let count = 1 + random.index(TRANSFER.min(half));
    let (from, to) = (
        random.index(half - count + 1),
        half + random.index(half - count + 1),
    );
    let part = |first: usize| libc::iovec {
        iov_base: memory.page(first).cast(),
        iov_len: count * PAGE_BYTES,
    };
    let (source, target) = (part(from), part(to));
    let reads = random.index(2) == 0;
    // SAFETY: both parts are inside the segment and do not overlap. Its model is updated below.
    let done = unsafe {
        let own = libc::getpid();
        if reads {
            libc::process_vm_readv(own, &raw const target, 1, &raw const source, 1, 0)
        } else {
            libc::process_vm_writev(own, &raw const source, 1, &raw const target, 1, 0)
        }
    };
    call_len("process_vm_readv or writev", done, count * PAGE_BYTES)?;
    memory.pages.copy_within(from..from + count, to);
    (to..to + count).try_for_each(|index| memory.check("page that came by process_vm", index))
}

/// Linux AIO past the page cache: pages go to a file and come back in other places.
fn by_aio(memory: &mut Segment, random: &mut Random) -> Checked {
    let file = scratch::file()?;
    let file = scratch::direct(&file).unwrap_or(file);
    let half = memory.pages.len() / 2;
    let count = TRANSFER.min(half);
    let (from, to) = (
        random.index(half - count + 1),
        half + random.index(half - count + 1),
    );
    let mut context = 0_u64;
    // SAFETY: writes only the context.
    if unsafe { libc::syscall(libc::SYS_io_setup, 4, &raw mut context) } != 0 {
        // The machine may have no more contexts.
        return Ok(());
    }
    let request = |opcode, first: usize| Iocb {
        opcode,
        descriptor: file.as_raw_fd().cast_unsigned(),
        buffer: memory.page(first).expose_provenance() as u64,
        bytes: (count * PAGE_BYTES) as u64,
        ..Iocb::default()
    };
    let written = carry_out(context, &mut request(PWRITE, from), count * PAGE_BYTES);
    let read =
        written.and_then(|()| carry_out(context, &mut request(PREAD, to), count * PAGE_BYTES));
    // SAFETY: no request is under way any more.
    unsafe { libc::syscall(libc::SYS_io_destroy, context) };
    read?;
    memory.pages.copy_within(from..from + count, to);
    (to..to + count).try_for_each(|index| memory.check("page that came by AIO", index))
}

fn carry_out(context: u64, request: &mut Iocb, bytes: usize) -> Checked {
    // data, obj, res, res2
    let mut event = [0_i64; 4];
    let requests = [std::ptr::from_mut(request)];
    // SAFETY: the request and its buffer live until the event has been read.
    unsafe {
        if libc::syscall(libc::SYS_io_submit, context, 1, requests.as_ptr()) != 1 {
            return Err(Wrong::last("io_submit"));
        }
        let none = std::ptr::null::<libc::timespec>();
        if libc::syscall(
            libc::SYS_io_getevents,
            context,
            1,
            1,
            event.as_mut_ptr(),
            none,
        ) != 1
        {
            return Err(Wrong::last("io_getevents"));
        }
    }
    let [_, _, result, _] = event;
    call_len("AIO", isize::try_from(result).unwrap_or(-1), bytes)
}

/// Clears the soft-dirty bits, as programs do that save themselves piece by piece. Not every kernel has them.
fn watch_writes() {
    let _ = std::fs::write("/proc/self/clear_refs", "4");
}
