//! Reading and writing with memory of arenas.
//!
//! The kernel does not wait for a page that is out: read(2) and write(2) on it fail with EFAULT. A reader or writer
//! that is wrapped here keeps what it is given in RAM during each call. Memory of no arena is passed on as it is.

use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

use crate::error::ArenaError;
use crate::passed::Passed;
use crate::state::PAGE_BYTES;

/// The most that one call passes on: 1 MiB. Beyond that a call costs little against what it moves, and of the smallest
/// arena it is an eighth.
const PART_BYTES: usize = 256 * PAGE_BYTES;

/// A reader or writer that may be given memory of arenas, of any arena of this process.
///
/// Each call moves 1 MiB at most, so it may move less than it was given, as `read` and `write` always may: use
/// `read_exact` and `write_all`. A part ends at the end of a page, so what was aligned for direct I/O still is.
///
/// ```
/// use std::io::{Seek, SeekFrom, Write, Read};
/// use vswap_arena::{Arena, Pinning};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let arena = Arena::builder().ram("16M").build()?;
/// let mut region = arena.allocate(40 << 20)?;
/// region.fill(7);
/// let mut file = Pinning::new(tempfile::tempfile()?);
/// file.write_all(&region)?;
/// file.seek(SeekFrom::Start(0))?;
/// file.read_exact(&mut region)?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Beside those of the calls: [`ErrorKind::OutOfMemory`] with an [`ArenaError`] in it if not even one page can be kept
/// in RAM, because others are pinned or the arena is full; [`ErrorKind::Other`] with one if the content of a page is
/// lost, or the memory is that of a fork's parent.
#[derive(Debug, Clone, Copy)]
pub struct Pinning<T>(T);

impl<T> Pinning<T> {
    /// Wraps it.
    pub fn new(inner: T) -> Pinning<T> {
        Pinning(inner)
    }

    /// What is wrapped. What it is given has to be in RAM.
    pub fn get_ref(&self) -> &T {
        &self.0
    }

    /// What is wrapped, to change it.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.0
    }

    /// Gives back what is wrapped.
    pub fn into_inner(self) -> T {
        self.0
    }
}

/// How many of the first bytes are passed on, and their pin.
fn first_part(bytes: &[u8]) -> io::Result<(usize, Passed)> {
    let start = bytes.as_ptr().addr();
    let mut most = PART_BYTES;
    loop {
        let length = bytes.len().min(most - start % PAGE_BYTES);
        match Passed::new(start..start + length) {
            Err(ArenaError::TooMuchPinned { .. }) if most > PAGE_BYTES => most /= 2,
            Err(why) => return Err(why.into()),
            Ok(pin) => return Ok((length, pin)),
        }
    }
}

impl From<ArenaError> for io::Error {
    fn from(why: ArenaError) -> io::Error {
        let kind = match why {
            ArenaError::TooMuchPinned { .. } | ArenaError::Full | ArenaError::KernelRefuses => {
                ErrorKind::OutOfMemory
            }
            _ => ErrorKind::Other,
        };
        io::Error::new(kind, why)
    }
}

impl<T: Read> Read for Pinning<T> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let (length, _pin) = first_part(into)?;
        self.0.read(&mut into[..length])
    }
}

impl<T: Write> Write for Pinning<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (length, _pin) = first_part(bytes)?;
        self.0.write(&bytes[..length])
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl<T: Seek> Seek for Pinning<T> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.0.seek(to)
    }
}

impl<T: FileExt> FileExt for Pinning<T> {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let (length, _pin) = first_part(into)?;
        self.0.read_at(&mut into[..length], offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let (length, _pin) = first_part(bytes)?;
        self.0.write_at(&bytes[..length], offset)
    }
}
