//! The calls by which advice on memory is given.

use io_uring::{IoUring, opcode};

use crate::wrong::{Checked, Wrong, call, call_len};

/// `process_madvise` on `x86_64`.
const SYS_PROCESS_MADVISE: i64 = 440;

/// One of the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    Madvise,
    ProcessMadvise,
    Ring,
}

impl Door {
    pub(crate) const ALL: [Self; 3] = [Self::Madvise, Self::ProcessMadvise, Self::Ring];
}

/// Gives advice on a range of this process.
pub(crate) fn advise(door: Door, start: *mut u8, bytes: usize, advice: i32) -> Checked {
    match door {
        // SAFETY: the range belongs to the caller, who knows what the advice does.
        Door::Madvise => call("madvise", unsafe {
            libc::madvise(start.cast(), bytes, advice)
        })
        .map(drop),
        Door::ProcessMadvise => advise_own_process(start, bytes, advice),
        Door::Ring => match IoUring::new(1) {
            Ok(ring) => advise_by_ring(ring, start, bytes, advice),
            // Rings are not permitted everywhere.
            Err(_) => advise(Door::Madvise, start, bytes, advice),
        },
    }
}

fn advise_by_ring(mut ring: IoUring, start: *mut u8, bytes: usize, advice: i32) -> Checked {
    let error = |error| Wrong::Call {
        what: "IORING_OP_MADVISE",
        error,
    };
    let length = i64::try_from(bytes).unwrap_or(-1);
    let entry = opcode::Madvise::new(start.cast(), length, advice).build();
    // SAFETY: the range belongs to the caller, who knows what the advice does. The ring is empty.
    let pushed = unsafe { ring.submission().push(&entry) };
    pushed.map_err(|_| error(std::io::ErrorKind::OutOfMemory.into()))?;
    ring.submit_and_wait(1).map_err(error)?;
    let result = ring.completion().next().map_or(-1, |done| done.result());
    if result < 0 {
        return Err(error(std::io::Error::from_raw_os_error(-result)));
    }
    Ok(())
}

/// Gives the advice in two pieces, so that more than one is looked at.
fn advise_own_process(start: *mut u8, bytes: usize, advice: i32) -> Checked {
    let half = bytes / 2 / 4096 * 4096;
    let vectors = [
        libc::iovec {
            iov_base: start.cast(),
            iov_len: half,
        },
        libc::iovec {
            iov_base: start.wrapping_add(half).cast(),
            iov_len: bytes - half,
        },
    ];
    // SAFETY: the vectors live until the calls return. The range belongs to the caller, who knows what the advice does.
    unsafe {
        let own = libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0);
        let own = i32::try_from(own).unwrap_or(-1);
        if own < 0 {
            return Err(Wrong::last("pidfd_open"));
        }
        let done = libc::syscall(SYS_PROCESS_MADVISE, own, vectors.as_ptr(), 2, advice, 0);
        let checked = call_len(
            "process_madvise",
            isize::try_from(done).unwrap_or(-1),
            bytes,
        );
        libc::close(own);
        checked
    }
}
