//! A disk that fails: the only file of a FUSE file system of our own. Reads and writes go to a real file. But a seed
//! makes some requests fail, be short, or take long. So errors come from the kernel, through the same calls as from a
//! broken device.
//!
//! Only this process and its children see the mount, so nothing stays, however the process ends.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyWrite, Request, WriteFlags,
};
use vswap_drive::random::Random;

use crate::driver::faults::{Fault, Kind};

const NAME: &str = "area";
const FILE: INodeNo = INodeNo(2);
/// How long the kernel may believe what it was told about the file, which never changes.
const TTL: Duration = Duration::from_secs(3600);
const PAGE_BYTES: usize = 4096;
/// Requests that are served at the same time.
const THREADS: usize = 4;

/// How many requests of a hundred fail, are short and are slow, and how slow.
const FAILING_PERCENT: u32 = 12;
const SHORT_PERCENT: u32 = 12;
const SLOW_PERCENT: u32 = 10;
const SLOW_MS: (u32, u32) = (1, 20);
/// Few reads fail, because a failing read ends a process.
const FAILING_READS_PERCENT: u32 = 2;

/// The mounted disk.
#[derive(Debug)]
pub(crate) struct SickDisk {
    place: PathBuf,
    illness: Arc<Mutex<Illness>>,
    _session: BackgroundSession,
}

impl SickDisk {
    /// Mounts a directory `place` with the one file. The file's bytes are those of `real`.
    ///
    /// # Errors
    /// This machine or user may not mount.
    pub(crate) fn mount(place: PathBuf, real: &Path) -> Result<Self, String> {
        let cannot = |what: &str, error: io::Error| format!("cannot {what}: {error}");
        let file = File::options().read(true).write(true).open(real);
        let file = file.map_err(|error| cannot("open the file of the sick disk", error))?;
        let blocks = file.metadata().map_or(0, |metadata| metadata.blocks());
        let bytes = file.metadata().map_or(0, |metadata| metadata.len());
        std::fs::create_dir_all(&place).map_err(|error| cannot("make a directory", error))?;
        let illness = Arc::new(Mutex::new(Illness {
            kind: Kind::None,
            random: Random::new(0),
        }));
        let disk = Disk {
            file,
            bytes,
            blocks,
            illness: Arc::clone(&illness),
        };
        let mut config = Config::default();
        config.n_threads = Some(THREADS);
        config.clone_fd = true;
        let session = fuser::spawn_mount(disk, &place, &config)
            .map_err(|error| cannot("mount the sick disk", error))?;
        Ok(Self {
            place,
            illness,
            _session: session,
        })
    }

    /// The file to swap to.
    pub(crate) fn area(&self) -> PathBuf {
        self.place.join(NAME)
    }

    /// From now on requests fail as this fault says.
    pub(crate) fn fall_ill(&self, fault: Fault) {
        let mut illness = self.illness.lock().unwrap_or_else(PoisonError::into_inner);
        *illness = Illness {
            kind: fault.kind,
            random: Random::new(fault.seed),
        };
    }
}

/// Makes mounts of this process visible only to itself and its children. Call it before there is another thread.
pub(crate) fn keep_mounts_to_ourselves() -> Result<(), String> {
    // SAFETY: one call that concerns no memory. The crate calls libc directly.
    let alone = unsafe { libc::unshare(libc::CLONE_NEWNS) } == 0;
    let flags = libc::MS_REC | libc::MS_PRIVATE;
    let (none, root) = (std::ptr::null(), c"/".as_ptr());
    // SAFETY: reads strings that end with a zero. The kernel allows the other arguments to be null here.
    if alone && unsafe { libc::mount(none, root, none, flags, none.cast()) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    Err(format!("no mounts of its own: {error}"))
}

#[derive(Debug)]
struct Illness {
    kind: Kind,
    random: Random,
}

/// What happens to a request.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Whole,
    /// Only this many bytes.
    Short(usize),
    Fails(i32),
}

impl Illness {
    fn pause(&mut self) -> Option<Duration> {
        let is_slow = self.kind == Kind::FailingWrites && self.random.chance(SLOW_PERCENT);
        is_slow.then(|| {
            let ms = self.random.between(SLOW_MS.0, SLOW_MS.1);
            Duration::from_millis(ms.into())
        })
    }

    fn of_write(&mut self, bytes: usize) -> Fate {
        if self.kind != Kind::FailingWrites {
            return Fate::Whole;
        }
        if self.random.chance(FAILING_PERCENT) {
            return Fate::Fails(self.random.pick(&[libc::EIO, libc::ENOSPC]));
        }
        self.shorten(bytes)
    }

    fn of_read(&mut self, bytes: usize) -> Fate {
        if self.kind == Kind::FailingReads && self.random.chance(FAILING_READS_PERCENT) {
            return Fate::Fails(libc::EIO);
        }
        if self.kind == Kind::FailingWrites {
            return self.shorten(bytes);
        }
        Fate::Whole
    }

    /// At least a page: a shorter answer would mean that the file has ended.
    fn shorten(&mut self, bytes: usize) -> Fate {
        if bytes <= PAGE_BYTES || !self.random.chance(SHORT_PERCENT) {
            return Fate::Whole;
        }
        let more = self.random.below((bytes - PAGE_BYTES) as u32) as usize;
        Fate::Short(PAGE_BYTES + more)
    }
}

/// Answers the kernel's requests.
#[derive(Debug)]
struct Disk {
    file: File,
    bytes: u64,
    blocks: u64,
    illness: Arc<Mutex<Illness>>,
}

impl Disk {
    fn attributes(&self, inode: INodeNo) -> FileAttr {
        let is_file = inode == FILE;
        FileAttr {
            ino: inode,
            size: if is_file { self.bytes } else { 0 },
            blocks: if is_file { self.blocks } else { 0 },
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if is_file {
                FileType::RegularFile
            } else {
                FileType::Directory
            },
            perm: if is_file { 0o600 } else { 0o700 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: PAGE_BYTES as u32,
            flags: 0,
        }
    }

    /// The fate of a request, after the time that the request takes. Page 0, the header, never fails, because it
    /// decides whether there is a run at all.
    fn fate(&self, offset: u64, of: impl FnOnce(&mut Illness) -> Fate) -> Fate {
        if offset < PAGE_BYTES as u64 {
            return Fate::Whole;
        }
        let (pause, fate) = {
            let mut illness = self.illness.lock().unwrap_or_else(PoisonError::into_inner);
            (illness.pause(), of(&mut illness))
        };
        if let Some(pause) = pause {
            thread::sleep(pause);
        }
        fate
    }
}

impl Filesystem for Disk {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == NAME {
            reply.entry(&TTL, &self.attributes(FILE), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &self.attributes(inode));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // With direct I/O, requests arrive as they were made, and a short answer stays short.
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let bytes = match self.fate(offset, |illness| illness.of_read(size as usize)) {
            Fate::Whole => size as usize,
            Fate::Short(bytes) => bytes,
            Fate::Fails(errno) => return reply.error(Errno::from_i32(errno)),
        };
        let mut data = vec![0; bytes];
        match self.file.read_at(&mut data, offset) {
            Ok(read) => reply.data(&data[..read]),
            Err(error) => reply.error(Errno::from(error)),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let bytes = match self.fate(offset, |illness| illness.of_write(data.len())) {
            Fate::Whole => data.len(),
            Fate::Short(bytes) => bytes,
            // A failed write may leave anything behind. Here it leaves what was written.
            Fate::Fails(errno) => {
                let _anything = self.file.write_all_at(&data[..data.len() / 2], offset);
                return reply.error(Errno::from_i32(errno));
            }
        };
        match self.file.write_all_at(&data[..bytes], offset) {
            Ok(()) => reply.written(bytes as u32),
            Err(error) => reply.error(Errno::from(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fates(kind: Kind, of: impl Fn(&mut Illness) -> Fate) -> Vec<Fate> {
        let mut illness = Illness {
            kind,
            random: Random::new(3),
        };
        (0..1000).map(|_| of(&mut illness)).collect()
    }

    #[test]
    fn each_illness_has_its_symptoms_and_no_others() {
        let write = |illness: &mut Illness| illness.of_write(16 * PAGE_BYTES);
        let read = |illness: &mut Illness| illness.of_read(16 * PAGE_BYTES);
        let fails = |fate: &Fate| matches!(fate, Fate::Fails(_));
        let short = |fate: &Fate| matches!(fate, Fate::Short(bytes) if (PAGE_BYTES..16 * PAGE_BYTES).contains(bytes));

        let writes = fates(Kind::FailingWrites, write);
        assert!(writes.iter().any(fails) && writes.iter().any(short));
        let reads = fates(Kind::FailingWrites, read);
        assert!(!reads.iter().any(fails) && reads.iter().any(short));

        assert!(fates(Kind::FailingReads, read).iter().any(fails));
        assert!(!fates(Kind::FailingReads, write).iter().any(fails));
        let healthy = fates(Kind::None, write);
        assert!(healthy.iter().all(|fate| *fate == Fate::Whole));
    }

    /// Reads or writes all of a buffer. Goes on at the next page boundary as long as something was transferred.
    fn all(file: &File, offset: u64, data: &mut [u8], write: bool) -> io::Result<()> {
        let mut done = 0;
        while done < data.len() {
            let (part, at) = (&mut data[done..], offset + done as u64);
            let moved = if write {
                file.write_at(part, at)
            } else {
                file.read_at(part, at)
            }?;
            done += moved - moved % PAGE_BYTES;
        }
        Ok(())
    }

    /// What was written without an error is read back, however short the requests were.
    #[test]
    fn what_was_written_is_read() {
        const PAGES: usize = 256;
        let place = std::env::temp_dir().join(format!("vswap-sick-disk-{}", std::process::id()));
        std::fs::create_dir_all(&place).unwrap();
        let real = place.join("real");
        std::fs::write(&real, vec![0; PAGES * PAGE_BYTES]).unwrap();
        let disk = match SickDisk::mount(place.join("sick"), &real) {
            Ok(disk) => disk,
            Err(error) => {
                std::fs::remove_dir_all(&place).unwrap();
                return eprintln!("SKIP: {error}");
            }
        };
        disk.fall_ill(Fault {
            kind: Kind::FailingWrites,
            seed: 5,
        });
        let file = File::options().read(true).write(true).open(disk.area());
        let file = file.unwrap();
        let mut random = Random::new(1);
        let mut known: Vec<Option<u64>> = vec![None; PAGES];
        let mut failed = 0;
        for _ in 0..300 {
            let first = random.between(1, PAGES as u32 - 65) as usize;
            let pages = random.between(1, 64) as usize;
            let offset = (first * PAGE_BYTES) as u64;
            let mut data = vec![0; pages * PAGE_BYTES];
            let seeds: Vec<u64> = (0..pages).map(|_| random.next()).collect();
            for (page, seed) in data.chunks_mut(PAGE_BYTES).zip(&seeds) {
                page.chunks_mut(8)
                    .for_each(|word| word.copy_from_slice(&seed.to_ne_bytes()));
            }
            let written = all(&file, offset, &mut data, true);
            failed += u32::from(written.is_err());
            for (page, seed) in seeds.into_iter().enumerate() {
                known[first + page] = written.is_ok().then_some(seed);
            }
            let mut read = vec![0; (PAGES - 1) * PAGE_BYTES];
            all(&file, PAGE_BYTES as u64, &mut read, false).unwrap();
            for (number, page) in read.chunks(PAGE_BYTES).enumerate() {
                let Some(seed) = known[number + 1] else {
                    continue;
                };
                let right = page.chunks(8).all(|word| word == seed.to_ne_bytes());
                assert!(right, "page {}", number + 1);
            }
        }
        assert!(failed > 0);
        drop(file);
        drop(disk);
        std::fs::remove_dir_all(&place).unwrap();
    }
}
