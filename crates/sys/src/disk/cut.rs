//! Files that somebody cuts while pages lie in them.
//!
//! The kernel forbids that for its own swap files. We cannot forbid it, so we must notice: whoever needs a page behind
//! the cut gets an error, and nobody reads zeros.
//!
//! A write that is under way when the file is cut is the danger. The file grows again up to the end of that write, and
//! reads as zeros where it was cut. No write can be told not to do that. So the last page of a file is spare: nothing
//! is ever written there, and no write of ours makes a cut file as long as it was. A file that is shorter than it was
//! has been cut, however much it grew since.

use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use rustix::fs::fstat;

use super::{DiskError, PAGE_BYTES_64, explain};

/// The length of a file, and what is believed of it. For any number of threads at once.
#[derive(Debug)]
pub(super) struct Length {
    /// Bytes that the file had, with the spare page.
    bytes: u64,
    /// What lies before this byte was not cut off. Falls, and never rises.
    whole_bytes: AtomicU64,
    /// Shared by writes. Alone has it who found that the file was cut: then no write is under way, and none begins.
    writes: RwLock<()>,
}

impl Length {
    /// The length of a file that is whole.
    pub(super) fn new(bytes: u64) -> Length {
        Length {
            bytes,
            whole_bytes: AtomicU64::new(bytes),
            writes: RwLock::new(()),
        }
    }

    /// How many bytes of the file may be written: all but the spare page.
    pub(super) fn usable_bytes(&self) -> u64 {
        self.bytes.saturating_sub(PAGE_BYTES_64)
    }

    /// Writes to the file, unless it was cut.
    ///
    /// # Errors
    /// `Short` if it was cut before or meanwhile, `Failed` if the file does not tell its length, and what `write` says.
    pub(super) fn write(
        &self,
        file: &File,
        write: impl FnOnce() -> Result<(), DiskError>,
    ) -> Result<(), DiskError> {
        let _shared = self.writes.read().unwrap_or_else(PoisonError::into_inner);
        if bytes_of(file)? < self.bytes {
            return Err(DiskError::Short);
        }
        let written = write();
        if bytes_of(file).is_ok_and(|bytes| bytes >= self.bytes) {
            written
        } else {
            // This write may have made it grow again. Where the cut was, nobody knows any more.
            self.whole_bytes.store(0, Ordering::Release);
            Err(DiskError::Short)
        }
    }

    /// Was what has just been read up to byte `end` really there?
    ///
    /// # Errors
    /// `Short` if it was cut off, or may have been. `Failed` if the file does not tell its length.
    pub(super) fn check_read(&self, file: &File, end: u64) -> Result<(), DiskError> {
        let is_whole = |bytes: u64| end <= bytes.min(self.whole_bytes.load(Ordering::Acquire));
        if bytes_of(file)? >= self.bytes && is_whole(self.bytes) {
            return Ok(());
        }
        // A write under way may make the file grow, and has not said so yet. None begins from now on.
        let _alone = self.writes.write().unwrap_or_else(PoisonError::into_inner);
        let bytes = bytes_of(file)?;
        self.whole_bytes.fetch_min(bytes, Ordering::AcqRel);
        if is_whole(bytes) {
            Ok(())
        } else {
            Err(DiskError::Short)
        }
    }
}

/// The length that a file has now.
fn bytes_of(file: &File) -> Result<u64, DiskError> {
    let found = fstat(file).map_err(explain)?;
    Ok(u64::try_from(found.st_size).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::area_file::tests::Scratch;

    const PAGES: u64 = 16;

    fn file() -> (Scratch, File) {
        let scratch = Scratch::new();
        let path = scratch.file("file", &[]);
        let file = File::options().read(true).write(true).open(path).unwrap();
        cut_to(&file, PAGES);
        (scratch, file)
    }

    fn cut_to(file: &File, pages: u64) {
        file.set_len(pages * PAGE_BYTES_64).unwrap();
    }

    #[test]
    fn what_lies_before_a_cut_is_there() {
        let (_scratch, file) = file();
        let length = Length::new(PAGES * PAGE_BYTES_64);
        let read = |pages| length.check_read(&file, pages * PAGE_BYTES_64);
        assert_eq!(length.write(&file, || Ok(())), Ok(()));
        assert_eq!(read(PAGES - 1), Ok(()));
        cut_to(&file, 4);
        assert_eq!(read(4), Ok(()));
        assert_eq!(read(5), Err(DiskError::Short));
        let refused = length.write(&file, || panic!("it would grow"));
        assert_eq!(refused, Err(DiskError::Short));
        // Somebody makes it as long as it was. What was seen to be cut off stays lost.
        cut_to(&file, PAGES);
        assert_eq!(read(4), Ok(()));
        assert_eq!(read(5), Err(DiskError::Short));
    }

    #[test]
    fn a_file_that_is_cut_below_a_write_is_not_believed() {
        let (_scratch, file) = file();
        let length = Length::new(PAGES * PAGE_BYTES_64);
        let written = length.write(&file, || {
            cut_to(&file, 4);
            // What the write does to the file. The last page is spare.
            cut_to(&file, PAGES - 1);
            Ok(())
        });
        assert_eq!(written, Err(DiskError::Short));
        let read = |pages| length.check_read(&file, pages * PAGE_BYTES_64);
        assert_eq!(read(5), Err(DiskError::Short));
        assert_eq!(
            read(1),
            Err(DiskError::Short),
            "the cut may have been there"
        );
    }

    /// The file has grown again, and the write that did it has not looked yet.
    #[test]
    fn who_reads_where_a_write_made_the_file_grow_waits_for_that_write() {
        let (_scratch, file) = file();
        let length = Length::new(PAGES * PAGE_BYTES_64);
        let read = || length.check_read(&file, 5 * PAGE_BYTES_64);
        let outcome = std::thread::scope(|scope| {
            let (grown, has_grown) = std::sync::mpsc::channel();
            let reader = scope.spawn(move || {
                has_grown.recv().unwrap();
                read()
            });
            let _ = length.write(&file, || {
                cut_to(&file, 4);
                cut_to(&file, PAGES - 1);
                grown.send(()).unwrap();
                // The reader has time to be wrong.
                std::thread::sleep(std::time::Duration::from_millis(50));
                Ok(())
            });
            reader.join().unwrap()
        });
        assert_eq!(outcome, Err(DiskError::Short));
    }
}
