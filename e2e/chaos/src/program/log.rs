//! What a program did, in a file that all its processes share and that outlives them. It has one record for each line
//! of the plan, and the first thing that was found wrong.
//!
//! Each record has one writer: the actor of its line. The driver reads at any time. Unsafe is needed because the
//! mapping is shared with other processes, so the records are atomics at addresses in it.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

/// Values of [`Record::state`].
pub(crate) const BEGUN: u32 = 1;
pub(crate) const DONE: u32 = 2;

/// What a program can find wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Wrong {
    /// A word of a page differs from what it must be.
    Content = 1,
    /// A signal came that no step asked for.
    Signal = 2,
    /// A page that must not be readable could be read, or a page that must be readable could not.
    Access = 3,
    /// A call failed without a reason.
    Call = 4,
}

impl Wrong {
    pub(crate) fn name(value: u32) -> &'static str {
        match value {
            1 => "wrong content",
            2 => "unexpected signal",
            3 => "wrong access",
            4 => "failed call",
            _ => "unknown",
        }
    }
}

/// The first thing that was found wrong.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Finding {
    /// Not 0 once a process has claimed it.
    pub(crate) claimed: AtomicU32,
    /// One of [`Wrong`], written last.
    pub(crate) what: AtomicU32,
    pub(crate) pid: AtomicU32,
    pub(crate) line: AtomicU32,
    pub(crate) address: AtomicU64,
    pub(crate) expected: AtomicU64,
    pub(crate) found: AtomicU64,
}

/// The result of a step.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Record {
    pub(crate) state: AtomicU32,
    pub(crate) errno: AtomicU32,
    pub(crate) result: AtomicI64,
    /// Number of the layout after the step.
    pub(crate) layout: AtomicU64,
    /// Grows while a step is repeated.
    pub(crate) beats: AtomicU64,
}

/// The whole file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Log {
    finding: &'static Finding,
    records: &'static [Record],
}

/// Bytes of the head, which holds the finding. Records follow.
const HEAD_BYTES: usize = 4096;

impl Log {
    /// Maps the file for a plan of `lines` lines. Makes or grows the file as needed.
    ///
    /// # Errors
    /// The file cannot be made or mapped.
    pub(crate) fn open(path: &Path, lines: usize) -> std::io::Result<Log> {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        let bytes = HEAD_BYTES + lines.max(1) * size_of::<Record>();
        file.set_len(bytes as u64)?;
        let (prot, fd) = (libc::PROT_READ | libc::PROT_WRITE, file.as_raw_fd());
        // SAFETY: a mapping at an address that the kernel chooses aliases nothing.
        let base =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, prot, libc::MAP_SHARED, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: the mapping is never unmapped, large enough and page-aligned. Both types consist of atomics, for
        // which every content is valid.
        unsafe {
            Ok(Log {
                finding: &*base.cast::<Finding>(),
                records: std::slice::from_raw_parts(base.byte_add(HEAD_BYTES).cast(), lines),
            })
        }
    }

    pub(crate) fn finding(&self) -> &'static Finding {
        self.finding
    }

    pub(crate) fn records(&self) -> &'static [Record] {
        self.records
    }

    /// Unmaps the file, for a reader of one log after the other. No reference to its parts may be left.
    pub(crate) fn close(self, lines: usize) {
        let bytes = HEAD_BYTES + lines.max(1) * size_of::<Record>();
        let start = (&raw const *self.finding).cast_mut().cast();
        // SAFETY: the mapping belongs to this log, and the caller has no reference to it.
        unsafe { libc::munmap(start, bytes) };
    }

    pub(crate) fn begin(&self, line: usize) {
        self.records[line].state.store(BEGUN, Ordering::SeqCst);
    }

    pub(crate) fn beat(&self, line: usize) {
        if let Some(record) = self.records.get(line) {
            record.beats.fetch_add(1, Ordering::SeqCst);
        }
    }

    pub(crate) fn done(&self, line: usize, (result, errno): (i64, i32), layout: u64) {
        let record = &self.records[line];
        record.result.store(result, Ordering::SeqCst);
        record.errno.store(errno as u32, Ordering::SeqCst);
        record.layout.store(layout, Ordering::SeqCst);
        record.state.store(DONE, Ordering::SeqCst);
    }

    /// Records what is wrong, if it is the first finding, and ends the process.
    pub(crate) fn fail(&self, line: usize, what: Wrong, address: usize, words: (u64, u64)) -> ! {
        let finding = self.finding;
        let order = Ordering::SeqCst;
        if finding.claimed.swap(1, order) == 0 {
            finding.pid.store(std::process::id(), order);
            finding.line.store(line as u32, order);
            finding.address.store(address as u64, order);
            finding.expected.store(words.0, order);
            finding.found.store(words.1, order);
            finding.what.store(what as u32, order);
        }
        // SAFETY: ends the process, of which nothing matters any more.
        unsafe { libc::_exit(FOUND_STATUS) }
    }
}

/// Exit status of a process that has found something wrong.
pub(crate) const FOUND_STATUS: i32 = 99;
