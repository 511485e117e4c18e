//! The memory of a process as a file, `/proc/PID/mem`.
//!
//! Reading through it takes three times as long as `read_memory`. But the file stays that of the address space that was
//! opened, whatever the process runs later, whoever gets its id, and whether or not it may still be traced.

use std::fs::File;
use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt;

use rustix::io::Errno;

use crate::process::{LocalSpan, RemoteSpan};

/// The address space that a process had when this was opened.
#[derive(Debug)]
pub struct MemoryFile {
    file: File,
}

impl MemoryFile {
    /// Opens the memory of the process of thread `tid`.
    ///
    /// # Errors
    /// ENOENT if it has gone; EACCES if it may not be traced; EMFILE.
    pub fn open(tid: u32) -> std::io::Result<MemoryFile> {
        let file = File::options()
            .read(true)
            .write(true)
            .open(format!("/proc/{tid}/mem"))?;
        Ok(MemoryFile { file })
    }

    /// The word at `address`. None if it cannot be read.
    pub fn word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, address).ok()?;
        Some(u64::from_ne_bytes(bytes))
    }

    /// Reads the `remote` spans, one after the other, into the `local` ones, as `read_memory` does. Returns how many
    /// bytes were read, up to the first that cannot be read.
    ///
    /// # Errors
    /// What pread(2) says.
    ///
    /// # Safety
    /// Each local span is memory that may be written for the length of the call and that no reference covers.
    pub unsafe fn read(
        &self,
        remote: &[RemoteSpan],
        local: &[LocalSpan],
    ) -> std::io::Result<usize> {
        let mut done = 0;
        let mut remote = remote.iter().map(|span| (span.address, span.bytes));
        let (mut address, mut bytes) = (0, 0);
        for span in local {
            let mut filled = 0;
            while filled < span.bytes {
                if bytes == 0 {
                    let Some(next) = remote.next() else {
                        return Ok(done);
                    };
                    (address, bytes) = next;
                    continue;
                }
                let piece = bytes.min(span.bytes - filled);
                // SAFETY: the caller answers for the span, of which this is a part.
                let read = unsafe { self.read_piece(address, span.pointer.add(filled), piece) }?;
                done += read;
                if read < piece {
                    return Ok(done);
                }
                filled += piece;
                bytes -= piece;
                address += piece as u64;
            }
        }
        Ok(done)
    }

    /// # Safety
    /// As for `read`.
    unsafe fn read_piece(
        &self,
        address: u64,
        into: *mut u8,
        bytes: usize,
    ) -> std::io::Result<usize> {
        // SAFETY: the caller answers for the memory. Uninitialised bytes are not looked at.
        let into = unsafe { std::slice::from_raw_parts_mut(into.cast::<MaybeUninit<u8>>(), bytes) };
        match rustix::io::pread(&self.file, into, address) {
            Ok((read, _)) => Ok(read.len()),
            // Nothing is mapped there.
            Err(Errno::IO) => Ok(0),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Puts `words` to `address` and on. False if not all of it can be written. The kernel also writes where the
    /// process itself may not.
    pub fn put(&self, address: u64, words: &[u64]) -> bool {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.file.write_all_at(&bytes, address).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn own_memory_is_read_and_written() {
        let words = [AtomicU64::new(7), AtomicU64::new(8)];
        let address = words.as_ptr().expose_provenance() as u64;
        let memory = MemoryFile::open(std::process::id()).unwrap();
        assert_eq!(memory.word(address), Some(7));
        assert!(memory.put(address, &[9, 10]));
        assert_eq!(
            words.each_ref().map(|word| word.load(Ordering::SeqCst)),
            [9, 10]
        );
        let mut into = [0_u64; 2];
        let at = |word: u64, bytes| RemoteSpan {
            address: address + word * 8,
            bytes,
        };
        let mut read = |remote: &[RemoteSpan]| {
            let local = into.each_mut().map(|word| LocalSpan {
                pointer: std::ptr::from_mut(word).cast(),
                bytes: 8,
            });
            // SAFETY: the spans are the words of `into`, which is borrowed, and take any bytes.
            let read = unsafe { memory.read(remote, &local) }.unwrap();
            (read, into)
        };
        assert_eq!(read(&[at(1, 8), at(0, 8)]), (16, [10, 9]));
        assert_eq!(read(&[at(0, 4), at(1, 12), at(0, 4)]).0, 16);
        let nowhere = RemoteSpan {
            address: 8,
            bytes: 8,
        };
        assert_eq!(read(&[at(1, 8), nowhere]).0, 8);
        assert_eq!(memory.word(8), None);
        assert!(!memory.put(8, &[1]));
    }
}
