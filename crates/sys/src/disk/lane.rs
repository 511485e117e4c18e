//! Requests out of one buffer, one or several at once, with a ring of its own where io_uring is permitted.
//!
//! The buffer is aligned for direct I/O, however the caller's pages lie. The buffer and the file are registered with
//! the ring, so that the kernel does not look them up and pin them for every request. The kernel may write to the
//! buffer from the moment at which it takes a request until it has completed the request. No function here returns in
//! between, whatever goes wrong. For one thread at a time.
//!
//! Unsafe is needed here because the kernel writes to the buffer by address while requests run, which no borrow can
//! express.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::time::Duration;

use io_uring::{IoUring, opcode, squeue, types};
use rustix::io::{Errno, pread, pwrite};

use super::{PAGE_BYTES, PageBytes, TRIES_MAX};
use crate::memory::keep_out_of_dumps;

/// Most pages of one request: as many as are swapped out together. More would hardly be faster, because disks are at
/// their best from 128 KiB on, and each lane keeps that much memory.
pub const LANE_PAGES: usize = 64;
/// Bytes of a lane's buffer.
const LANE_BYTES: usize = LANE_PAGES * PAGE_BYTES;
/// Requests that a lane makes at once. Today's disks have as many under way without letting any of them wait for long.
pub(super) const AT_ONCE_MAX: usize = 32;
/// Entries of a lane's ring.
const ENTRIES: u32 = 32;
const _: () = assert!(ENTRIES as usize == AT_ONCE_MAX);
/// Numbers of the registered file and of the registered buffer.
const FILE: types::Fixed = types::Fixed(0);
const BUFFER: u16 = 0;
/// Pause before looking again for the end of a request, if the kernel does not let us wait for it.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// How requests are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Through io_uring.
    Ring,
    /// One system call each.
    Call,
}

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
    Read,
    Write,
}

/// One request and its outcome.
#[derive(Debug)]
pub(super) struct Request {
    /// Byte of the file.
    pub(super) at: u64,
    /// Part of the buffer.
    pub(super) range: Range<usize>,
    /// Bytes moved; None until the request was made.
    pub(super) moved: Option<Result<usize, Errno>>,
}

impl Request {
    pub(super) fn new(at: u64, range: Range<usize>) -> Request {
        Request {
            at,
            range,
            moved: None,
        }
    }
}

/// Room for the pages of a lane's requests.
struct Buffer {
    /// One page longer than its use, because the used part begins at a page boundary.
    bytes: Vec<u8>,
    start: usize,
}

impl Buffer {
    fn new() -> Buffer {
        // Zeroed memory is given out only when it is first touched.
        let bytes = vec![0; LANE_BYTES + PAGE_BYTES];
        let address = bytes.as_ptr().addr();
        let start = address.next_multiple_of(PAGE_BYTES) - address;
        keep_out_of_dumps(&bytes[start..][..LANE_BYTES]);
        Buffer { bytes, start }
    }

    fn part(&mut self, range: Range<usize>) -> &mut [u8] {
        &mut self.bytes[self.start..][..LANE_BYTES][range]
    }
}

pub(super) struct Lane {
    /// Before the buffer, so that the ring is dropped first and lets go of the buffer.
    ring: Option<Ring>,
    buffer: Buffer,
}

impl Lane {
    /// A lane that goes this way, or by calls if there is no ring to be had.
    pub(super) fn new(file: &File, way: Way) -> Lane {
        let mut buffer = Buffer::new();
        let ring = match way {
            Way::Ring => Ring::new(file, &mut buffer).ok(),
            Way::Call => None,
        };
        Lane { ring, buffer }
    }

    /// The pages of the buffer.
    pub(super) fn pages(&mut self) -> impl Iterator<Item = &mut PageBytes> {
        let (pages, _) = self.buffer.part(0..LANE_BYTES).as_chunks_mut();
        pages.iter_mut()
    }

    /// Makes one request for a range of the buffer, at byte `at` of the file, in this way if possible. Returns how many
    /// bytes were moved.
    pub(super) fn request(
        &mut self,
        file: &File,
        how: (Op, Way),
        at: u64,
        range: Range<usize>,
    ) -> Result<usize, Errno> {
        let mut one = [Request::new(at, range)];
        self.request_all(file, how, &mut one);
        let [one] = one;
        one.moved.unwrap_or(Ok(0))
    }

    /// Makes requests for ranges of the buffer that do not overlap, [`AT_ONCE_MAX`] at most. All at once if possible in
    /// this way, else one after the other.
    pub(super) fn request_all(
        &mut self,
        file: &File,
        (op, way): (Op, Way),
        requests: &mut [Request],
    ) {
        if let (Some(ring), Way::Ring) = (&mut self.ring, way)
            && ring
                .request_all(op, requests, self.buffer.part(0..LANE_BYTES))
                .is_err()
        {
            self.ring = None;
        }
        // What the ring did not take was not begun. What it failed at need not be a fault of the disk: a ring that
        // finds no thread or no memory cancels a request. So only an error of a plain call is believed.
        let is_left = |one: &&mut Request| !matches!(one.moved, Some(Ok(_)));
        for request in requests.iter_mut().filter(is_left) {
            let part = self.buffer.part(request.range.clone());
            request.moved = Some(match op {
                Op::Read => pread(file, part, request.at),
                Op::Write => pwrite(file, part, request.at),
            });
        }
    }
}

/// The kernel did not take all requests from the ring, and will not.
struct Refused;

/// A ring with a file and a buffer.
struct Ring {
    uring: IoUring,
    /// Is the buffer registered? It is not if so much memory must not be locked (`ulimit -l`).
    fixed: bool,
}

impl Ring {
    fn new(file: &File, buffer: &mut Buffer) -> io::Result<Ring> {
        let uring = build()?;
        uring.submitter().register_files(&[file.as_raw_fd()])?;
        let part = buffer.part(0..LANE_BYTES);
        let part = libc::iovec {
            iov_base: part.as_mut_ptr().cast(),
            iov_len: part.len(),
        };
        // SAFETY: registered memory must stay mapped. The buffer is never reallocated, and the lane that owns both
        // drops the ring, which ends the registration, before the buffer.
        let fixed = unsafe { uring.submitter().register_buffers(&[part]) }.is_ok();
        Ok(Ring { uring, fixed })
    }

    /// Makes requests and waits until all of them have ended. After a refusal the requests that the kernel has taken
    /// have ended as well, and the ring must not be used again.
    fn request_all(
        &mut self,
        op: Op,
        requests: &mut [Request],
        buffer: &mut [u8],
    ) -> Result<(), Refused> {
        for (number, request) in requests.iter().enumerate() {
            let part = &mut buffer[request.range.clone()];
            let entry = self.entry(op, request.at, part).user_data(number as u64);
            // SAFETY: the memory that the entry names must be valid until the request has ended. It is part of
            // `buffer`, which is borrowed as long as this function runs. The function returns only when each request
            // has ended or was not taken by the kernel (then the ring is dropped with the entry in it). Nothing unwinds
            // from here on. The file is registered, so the ring itself keeps it open.
            let pushed = unsafe { self.uring.submission().push(&entry) };
            pushed.map_err(|_| Refused)?;
        }
        let (mut ended, mut tries) = (0, 0);
        loop {
            for end in self.uring.completion() {
                ended += 1;
                let number = usize::try_from(end.user_data()).unwrap_or(usize::MAX);
                if let Some(request) = requests.get_mut(number) {
                    let result = end.result();
                    let moved = usize::try_from(result);
                    request.moved = Some(moved.map_err(|_| Errno::from_raw_os_error(-result)));
                }
            }
            if ended == requests.len() {
                return Ok(());
            }
            let is_under_way = ended + self.uring.submission().len() < requests.len();
            match self.uring.submit_and_wait(requests.len() - ended) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The kernel has taken all requests. They will end, even if it cannot be waited for.
                Err(_) if is_under_way => std::thread::sleep(LOOK_AGAIN),
                Err(_) if tries == TRIES_MAX => return Err(Refused),
                Err(_) => tries += 1,
            }
        }
    }

    fn entry(&self, op: Op, at: u64, part: &mut [u8]) -> squeue::Entry {
        let start = part.as_mut_ptr();
        // A request is never longer than a lane.
        let bytes = u32::try_from(part.len()).unwrap_or(0);
        match (op, self.fixed) {
            (Op::Read, true) => opcode::ReadFixed::new(FILE, start, bytes, BUFFER)
                .offset(at)
                .build(),
            (Op::Write, true) => opcode::WriteFixed::new(FILE, start, bytes, BUFFER)
                .offset(at)
                .build(),
            (Op::Read, false) => opcode::Read::new(FILE, start, bytes).offset(at).build(),
            (Op::Write, false) => opcode::Write::new(FILE, start, bytes).offset(at).build(),
        }
    }
}

/// Unregisters the file before the ring goes. The kernel takes a ring apart later, and until then nobody else could
/// lock the file, open the device or unmount the file system.
impl Drop for Ring {
    fn drop(&mut self) {
        let _ = self.uring.submitter().unregister_files();
    }
}

/// Makes the smallest ring. The thread that made a request also waits for it, so no thread has to be interrupted for
/// its end.
fn build() -> io::Result<IoUring> {
    IoUring::builder().setup_coop_taskrun().build(ENTRIES)
}

/// May this process have rings?
pub(super) fn rings_are_permitted() -> bool {
    build().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::area_file::tests::Scratch;

    /// A file as long as two lanes, and a lane with this ring.
    fn lane(
        scratch: &Scratch,
        ring: impl FnOnce(&File, &mut Buffer) -> Option<Ring>,
    ) -> (File, Lane) {
        let path = scratch.file("file", &vec![0; 2 * LANE_BYTES]);
        let file = File::options().read(true).write(true).open(path).unwrap();
        let mut buffer = Buffer::new();
        let ring = ring(&file, &mut buffer);
        (file, Lane { ring, buffer })
    }

    /// Writes a part of the buffer and reads it into another.
    fn check(file: &File, lane: &mut Lane) {
        lane.buffer.part(4096..12_288).fill(7);
        assert_eq!(
            lane.request(file, (Op::Write, Way::Ring), 20_480, 4096..12_288),
            Ok(8192)
        );
        assert_eq!(
            lane.request(file, (Op::Read, Way::Ring), 16_384, 65_536..81_920),
            Ok(16_384)
        );
        let read = lane.buffer.part(65_536..81_920);
        assert!(
            read[..4096]
                .iter()
                .chain(&read[12_288..])
                .all(|byte| *byte == 0)
        );
        assert!(read[4096..12_288].iter().all(|byte| *byte == 7));
        let past = 2 * LANE_BYTES as u64;
        assert_eq!(
            lane.request(file, (Op::Read, Way::Ring), past, 0..4096),
            Ok(0)
        );
    }

    #[test]
    fn buffers_begin_where_pages_do() {
        let mut buffer = Buffer::new();
        let part = buffer.part(0..LANE_BYTES);
        assert!(part.as_ptr().addr().is_multiple_of(PAGE_BYTES));
        assert_eq!(part.len(), LANE_BYTES);
    }

    #[test]
    fn every_way_moves_the_same_bytes() {
        let scratch = Scratch::new();
        let (file, mut plain) = lane(&scratch, |_, _| None);
        check(&file, &mut plain);
        if !rings_are_permitted() {
            return eprintln!("SKIP: io_uring is not permitted");
        }
        for fixed in [true, false] {
            let (file, mut ringed) = lane(&scratch, |file, buffer| {
                let mut ring = Ring::new(file, buffer).unwrap();
                ring.fixed &= fixed;
                Some(ring)
            });
            check(&file, &mut ringed);
            assert!(ringed.ring.is_some());
        }
    }

    #[test]
    fn what_a_ring_fails_at_is_done_by_calls() {
        let scratch = Scratch::new();
        if !rings_are_permitted() {
            return eprintln!("SKIP: io_uring is not permitted");
        }
        let (file, mut lane) = lane(&scratch, |file, buffer| {
            let mut ring = Ring::new(file, buffer).unwrap();
            // Every request now names a buffer that the ring does not know, and fails.
            ring.uring.submitter().unregister_buffers().unwrap();
            ring.fixed = true;
            Some(ring)
        });
        let mut one = [Request::new(0, 0..4096)];
        let ring = lane.ring.as_mut().unwrap();
        let asked = ring.request_all(Op::Read, &mut one, lane.buffer.part(0..LANE_BYTES));
        assert!(asked.is_ok() && one[0].moved == Some(Err(Errno::FAULT)));
        check(&file, &mut lane);
        assert!(lane.ring.is_some());
    }

    #[test]
    fn a_ring_that_takes_nothing_is_left() {
        let scratch = Scratch::new();
        // This ring was never enabled.
        let Ok(uring) = IoUring::builder().setup_r_disabled().build(ENTRIES) else {
            return eprintln!("SKIP: io_uring is not permitted");
        };
        let ring = Ring {
            uring,
            fixed: false,
        };
        let (file, mut lane) = lane(&scratch, |_, _| Some(ring));
        check(&file, &mut lane);
        assert!(lane.ring.is_none());
    }
}
