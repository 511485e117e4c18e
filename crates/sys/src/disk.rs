//! Where pages lie on disk: a swap area in a file or device, or a private file that grows.
//!
//! A call takes a lane (`disk/lane.rs`), copies pages through the lane's buffer and waits for its requests. That is one
//! request for up to [`LANE_PAGES`] neighbouring pages, or several at once for runs of pages that lie apart. Any number
//! of threads may call at once; above [`LANES_MAX`] they wait for a lane. Nobody may read a page while it is being
//! written: the content would be mixed.
//!
//! The page cache is left out (`O_DIRECT`): a page that went out to be cached here again would have freed nothing.
//! Where a file system does not permit that, each write is followed to the disk and its pages are dropped from the
//! cache: that takes as long, and only then is an error that befalls it known to the right caller.
//!
//! Pages are encrypted on the way (`disk/cipher.rs`), in the copies that are made anyway. A header is not: it is read
//! before there is a disk, and no page is ever written over it.

pub mod area_file;
pub mod new_area;
pub mod room;

mod calls;
mod cipher;
mod cut;
mod lane;
mod lanes;
mod open;
mod private;

use std::fmt;
use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{
    Advice, FallocateFlags, OFlags, fadvise, fallocate, fcntl_getfl, fcntl_setfl, fstatvfs,
};
use rustix::io::{Errno, retry_on_intr};

pub use lane::LANE_PAGES;
pub use lanes::LANES_MAX;
pub use open::Options;
pub use private::PrivateError;

use crate::disk::area_file::{Held, Kind, device_bytes};
use cipher::Cipher;
use cut::Length;
use lane::{AT_ONCE_MAX, Lane, Op, Request, Way};
use lanes::Lanes;

/// Bytes of a page.
const PAGE_BYTES: usize = 4096;
const PAGE_BYTES_64: u64 = PAGE_BYTES as u64;
/// How often in a row a request is repeated that was interrupted, put off, or did nothing. The kernel asks for that
/// when memory or requests run out for a moment. Each repetition costs at least a system call.
const TRIES_MAX: u32 = 100;

/// The bytes of a page.
pub type PageBytes = [u8; PAGE_BYTES];

/// One of several runs of neighbouring pages to be read.
#[derive(Debug)]
pub struct ReadRun<'a> {
    /// Byte at which they begin, a multiple of the page size.
    pub at: u64,
    /// Where they are read to.
    pub pages: Vec<&'a mut PageBytes>,
    /// The outcome.
    pub outcome: Result<(), DiskError>,
}

impl ReadRun<'_> {
    fn bytes(&self) -> usize {
        self.pages.len() * PAGE_BYTES
    }
}

/// Why a disk did not do what it was asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DiskError {
    /// No room: in the file system, in the user's quota, or in the pool that lends a device its room.
    #[error("no space is left on it")]
    Full,
    /// It ends before the page, or it has gone.
    #[error("it is shorter than it was: it was cut, or the device has gone")]
    Short,
    /// The system refused.
    #[error("{}", io::Error::from_raw_os_error(*errno))]
    Failed {
        /// The system's error number.
        errno: i32,
    },
}

/// What the bytes lie in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// A block device.
    Device,
    /// A file with a name and a length, whose blocks are reserved.
    AreaFile,
    /// A file of our own without a name, whose blocks come with its content.
    Private,
}

/// An open file or device.
pub struct Disk {
    /// Before the file, so that the rings are dropped first and give back what they hold of the file.
    lanes: Lanes,
    file: Held,
    place: Place,
    /// What pages may lie in.
    bytes: u64,
    /// None for a device: it does not grow when it is written to.
    length: Option<Length>,
    rotating: bool,
    /// None if its pages are to be plain.
    cipher: Option<Cipher>,
    /// Room that its file system keeps.
    keep_free_bytes: u64,
    /// Whether requests pass the page cache by.
    direct: AtomicBool,
    /// Does discarding do anything?
    discards: AtomicBool,
    /// Held for a write through the page cache. The kernel reports an error of any write to the first caller that asks.
    through_cache: Mutex<()>,
}

impl fmt::Debug for Disk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Disk")
            .field("place", &self.place)
            .field("bytes", &self.bytes)
            .field("engine", &self.engine())
            .field("direct", &self.is_direct())
            .finish_non_exhaustive()
    }
}

impl Disk {
    /// Bytes that pages may lie in. For an area in a file that is one page less than the file has: the last one stays
    /// as it is (`disk/cut.rs`). For a private file it is the most to which it may grow.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// File or device.
    pub fn kind(&self) -> Kind {
        match self.place {
            Place::Device => Kind::BlockDevice,
            Place::AreaFile | Place::Private => Kind::RegularFile,
        }
    }

    /// Do heads have to move for another place? False if that is not known.
    pub fn is_rotating(&self) -> bool {
        self.rotating
    }

    /// How requests are made: "io_uring" (even then calls write to files), or "pread" if io_uring is not permitted.
    pub fn engine(&self) -> &'static str {
        match self.lanes.way() {
            Way::Ring => "io_uring",
            Way::Call => "pread",
        }
    }

    /// Do requests bypass the page cache? The first request may find that they cannot.
    pub fn is_direct(&self) -> bool {
        // Relaxed, here and below: the kernel orders the change of the file against requests, not this flag.
        self.direct.load(Ordering::Relaxed)
    }

    /// Are pages encrypted on their way there?
    pub fn is_encrypted(&self) -> bool {
        self.cipher.is_some()
    }

    /// Does discarding give anything back?
    pub fn discards(&self) -> bool {
        self.discards.load(Ordering::Relaxed)
    }

    /// Reads neighbouring pages from byte `at` on, which is a multiple of the page size.
    ///
    /// # Errors
    /// [`DiskError`]; pages may have been written to.
    pub fn read(&self, at: u64, pages: &mut [&mut PageBytes]) -> Result<(), DiskError> {
        self.check(at, pages.len())?;
        self.lanes.with(&self.file, |lane| {
            for (pages, at) in pages.chunks_mut(LANE_PAGES).zip(request_starts(at)) {
                let bytes = pages.len() * PAGE_BYTES;
                self.request(lane, Op::Read, at, 0..bytes)?;
                self.check_read(at, bytes)?;
                self.take_out(lane, 0, at, pages);
                self.forget_cached(at, bytes);
            }
            Ok(())
        })
    }

    /// Reads several runs of neighbouring pages, many of them at the same time if io_uring is permitted. Afterwards
    /// each run has its outcome. Pages of a run that failed may have been written to.
    pub fn read_runs(&self, runs: &mut [ReadRun<'_>]) {
        let mut rest = runs;
        while !rest.is_empty() {
            let (batch, later) = rest.split_at_mut(batch_len(rest));
            match batch {
                [one] => one.outcome = self.read(one.at, &mut one.pages),
                _ => self
                    .lanes
                    .with(&self.file, |lane| self.read_batch(lane, batch)),
            }
            rest = later;
        }
    }

    /// Reads runs that fit into a lane together.
    fn read_batch(&self, lane: &mut Lane, runs: &mut [ReadRun<'_>]) {
        let mut end = 0;
        let mut requests: Vec<Request> = Vec::with_capacity(runs.len());
        for run in runs.iter_mut() {
            run.outcome = self.check(run.at, run.pages.len());
            let bytes = if run.outcome.is_ok() { run.bytes() } else { 0 };
            requests.push(Request::new(run.at, end..end + bytes));
            end += bytes;
        }
        lane.request_all(&self.file, (Op::Read, self.way(Op::Read)), &mut requests);
        for (run, request) in runs.iter_mut().zip(requests) {
            let Ok(()) = run.outcome else { continue };
            let moved = request.moved.and_then(Result::ok).unwrap_or(0);
            let moved = moved - moved % PAGE_BYTES;
            // Asks again for what is left. Then it comes, or the reason is known.
            let left = request.range.start + moved..request.range.end;
            run.outcome = self
                .request(lane, Op::Read, run.at + moved as u64, left)
                .and_then(|()| self.check_read(run.at, run.bytes()));
            let from = request.range.start / PAGE_BYTES;
            self.take_out(lane, from, run.at, &mut run.pages);
            self.forget_cached(run.at, run.bytes());
        }
    }

    /// Writes neighbouring pages from byte `at` on, which is a multiple of the page size.
    ///
    /// # Errors
    /// [`DiskError`]; the places then hold anything.
    pub fn write(&self, at: u64, pages: &[&PageBytes]) -> Result<(), DiskError> {
        self.check(at, pages.len())?;
        self.check_room(pages.len())?;
        self.lanes.with(&self.file, |lane| {
            for (pages, at) in pages.chunks(LANE_PAGES).zip(request_starts(at)) {
                let bytes = pages.len() * PAGE_BYTES;
                for ((page, written), at) in pages.iter().zip(lane.pages()).zip(page_starts(at)) {
                    *written = **page;
                    if let Some(cipher) = &self.cipher {
                        cipher.encrypt(at / PAGE_BYTES_64, written);
                    }
                }
                match &self.length {
                    Some(length) => {
                        length.write(&self.file, || self.write_lane(lane, at, bytes))?;
                    }
                    None => self
                        .write_lane(lane, at, bytes)
                        .map_err(|error| self.or_end(error, at, bytes))?,
                }
            }
            Ok(())
        })
    }

    /// Copies pages of byte `at` on out of a lane, where they begin with page `from`.
    fn take_out(&self, lane: &mut Lane, from: usize, at: u64, pages: &mut [&mut PageBytes]) {
        let read = lane.pages().skip(from);
        for ((page, read), at) in pages.iter_mut().zip(read).zip(page_starts(at)) {
            **page = *read;
            if let Some(cipher) = &self.cipher {
                cipher.decrypt(at / PAGE_BYTES_64, page);
            }
        }
    }

    /// Writes the first `bytes` of a lane's buffer.
    fn write_lane(&self, lane: &mut Lane, at: u64, bytes: usize) -> Result<(), DiskError> {
        let lock = || {
            self.through_cache
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
        let _turn = (!self.is_direct()).then(lock);
        self.request(lane, Op::Write, at, 0..bytes)?;
        if !self.is_direct() {
            calls::write_back(&self.file, at, bytes).map_err(explain)?;
            self.forget_cached(at, bytes);
        }
        Ok(())
    }

    /// Gives back what lies in a range of whole pages. Pages read as anything afterwards. Nothing happens where a
    /// device cannot, and in the file of an area: its blocks are reserved on purpose, and the kernel's own swap keeps
    /// them as well.
    ///
    /// # Errors
    /// `Short`, `Failed`.
    pub fn discard(&self, bytes: Range<u64>) -> Result<(), DiskError> {
        let length = bytes.end.saturating_sub(bytes.start);
        if !length.is_multiple_of(PAGE_BYTES_64) {
            return Err(explain(Errno::INVAL));
        }
        let pages = usize::try_from(length / PAGE_BYTES_64).unwrap_or(usize::MAX);
        if length == 0 || !self.discards() {
            return Ok(());
        }
        self.check(bytes.start, pages)?;
        let done = match self.place {
            Place::Device => calls::discard(&self.file, bytes.start, length),
            Place::AreaFile | Place::Private => retry_on_intr(|| {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(&*self.file, flags, bytes.start, length)
            }),
        };
        match done {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                self.discards.store(false, Ordering::Relaxed);
                Ok(())
            }
            done => done.map_err(explain),
        }
    }

    /// Refuses pages that are not there, and places where no page begins.
    fn check(&self, at: u64, pages: usize) -> Result<(), DiskError> {
        if !at.is_multiple_of(PAGE_BYTES_64) {
            return Err(explain(Errno::INVAL));
        }
        let end = (pages as u64)
            .checked_mul(PAGE_BYTES_64)
            .and_then(|bytes| at.checked_add(bytes));
        match end {
            Some(end) if end <= self.bytes => Ok(()),
            _ => Err(DiskError::Short),
        }
    }

    /// Refuses what was read from a file where it was cut.
    fn check_read(&self, at: u64, bytes: usize) -> Result<(), DiskError> {
        match &self.length {
            Some(length) => length.check_read(&self.file, at + bytes as u64),
            None => Ok(()),
        }
    }

    /// Refuses to take the room that others are to find in the file system.
    fn check_room(&self, pages: usize) -> Result<(), DiskError> {
        if self.keep_free_bytes == 0 {
            return Ok(());
        }
        let found = fstatvfs(&*self.file).map_err(explain)?;
        let free = found.f_bavail.saturating_mul(found.f_frsize);
        if free.saturating_sub(pages as u64 * PAGE_BYTES_64) >= self.keep_free_bytes {
            Ok(())
        } else {
            Err(DiskError::Full)
        }
    }

    /// A device has no room left behind its end too: the end that it has now tells which it was.
    fn or_end(&self, error: DiskError, at: u64, bytes: usize) -> DiskError {
        let end = at + bytes as u64;
        match error {
            DiskError::Full if device_bytes(&self.file).is_ok_and(|now| now < end) => {
                DiskError::Short
            }
            error => error,
        }
    }

    /// Makes requests until a range of a lane's buffer is read from byte `at` on, or written there.
    fn request(
        &self,
        lane: &mut Lane,
        op: Op,
        mut at: u64,
        mut range: Range<usize>,
    ) -> Result<(), DiskError> {
        let way = self.way(op);
        let mut tries = 0;
        while !range.is_empty() {
            let direct = self.is_direct();
            match lane.request(&self.file, (op, way), at, range.clone()) {
                // Goes on where a page begins: direct I/O allows nothing else.
                Ok(moved) if moved >= PAGE_BYTES => {
                    let moved = moved - moved % PAGE_BYTES;
                    range.start += moved;
                    at += moved as u64;
                    tries = 0;
                    continue;
                }
                Ok(_) if op == Op::Read => return Err(DiskError::Short),
                Ok(_) | Err(Errno::INTR | Errno::AGAIN) => {}
                Err(Errno::INVAL) if direct => self.use_cache().map_err(explain)?,
                Err(errno) => return Err(explain(errno)),
            }
            tries += 1;
            if tries > TRIES_MAX {
                return Err(explain(Errno::IO));
            }
        }
        Ok(())
    }

    /// Which way a request goes. Calls write to files, because ext4 has another thread end an asynchronous direct
    /// write. For single pages that takes 1.5 times as long as a call (`examples/disk_speed.rs`).
    fn way(&self, op: Op) -> Way {
        match (op, self.place) {
            (Op::Read, _) | (Op::Write, Place::Device) => self.lanes.way(),
            (Op::Write, Place::AreaFile | Place::Private) => Way::Call,
        }
    }

    /// Goes on through the page cache.
    fn use_cache(&self) -> Result<(), Errno> {
        fcntl_setfl(&*self.file, fcntl_getfl(&*self.file)? - OFlags::DIRECT)?;
        self.direct.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Drops pages from the page cache.
    fn forget_cached(&self, at: u64, bytes: usize) {
        if !self.is_direct() {
            // This is only advice: what cannot be dropped stays.
            let _ = fadvise(
                &*self.file,
                at,
                NonZeroU64::new(bytes as u64),
                Advice::DontNeed,
            );
        }
    }
}

/// How many of the first runs are read at once: as many as fit into a lane together, but at least one.
fn batch_len(runs: &[ReadRun<'_>]) -> usize {
    let mut pages = 0;
    let fits = |run: &&ReadRun<'_>| {
        pages += run.pages.len();
        pages <= LANE_PAGES
    };
    let count = runs.iter().take(AT_ONCE_MAX).take_while(fits).count();
    count.max(1)
}

/// Where the requests begin that make up a call from byte `at` on.
fn request_starts(at: u64) -> impl Iterator<Item = u64> {
    (at..).step_by(LANE_PAGES * PAGE_BYTES)
}

/// Where the pages from byte `at` on begin.
fn page_starts(at: u64) -> impl Iterator<Item = u64> {
    (at..).step_by(PAGE_BYTES)
}

fn explain(errno: Errno) -> DiskError {
    match errno {
        Errno::NOSPC | Errno::DQUOT => DiskError::Full,
        Errno::NXIO | Errno::NODEV => DiskError::Short,
        _ => DiskError::Failed {
            errno: errno.raw_os_error(),
        },
    }
}

#[cfg(test)]
#[path = "disk/tests.rs"]
mod tests;
