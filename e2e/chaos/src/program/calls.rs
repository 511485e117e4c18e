//! System calls as the generated programs make them. An answer is the result, and the error's number if there is one.
//!
//! Nothing here allocates. Unsafe is needed because these calls change mappings by address, and no safe wrapper can
//! check what that does to the rest of the program.

use std::ffi::c_void;

use crate::step::{Advice, Door};

pub(crate) const PAGE_BYTES: usize = 4096;

/// Result and `errno`, which is 0 if the call succeeded.
pub(crate) type Answer = (i64, i32);

pub(crate) fn errno() -> i32 {
    // SAFETY: the address of this thread's `errno` in the C library is always valid.
    unsafe { *libc::__errno_location() }
}

/// The answer of a call that returns -1 if it fails.
pub(crate) fn answer(result: i64) -> Answer {
    if result == -1 {
        (-1, errno())
    } else {
        (result, 0)
    }
}

/// A range of memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) bytes: usize,
}

impl Span {
    fn pointer(self) -> *mut c_void {
        std::ptr::without_provenance_mut(self.start)
    }

    pub(crate) fn vector(self) -> libc::iovec {
        libc::iovec {
            iov_base: self.pointer(),
            iov_len: self.bytes,
        }
    }
}

/// The range is in the caller's own arena, and the model will know what became of it. Every unsafe block below relies
/// on that promise.
pub(crate) fn map(span: Span, prot: u8, flags: i32, fd: i32, offset: usize) -> Answer {
    let (prot, offset) = (i32::from(prot), offset as i64);
    // SAFETY: see above.
    let base = unsafe { libc::mmap(span.pointer(), span.bytes, prot, flags, fd, offset) };
    answer(base.addr() as i64)
}

pub(crate) fn unmap(span: Span) -> Answer {
    // SAFETY: see `map`.
    answer(unsafe { libc::munmap(span.pointer(), span.bytes) }.into())
}

pub(crate) fn remap(span: Span, new_bytes: usize, flags: i32, to: usize) -> Answer {
    let to = std::ptr::without_provenance_mut::<c_void>(to);
    // SAFETY: see `map`.
    let base = unsafe { libc::mremap(span.pointer(), span.bytes, new_bytes, flags, to) };
    answer(base.addr() as i64)
}

pub(crate) fn protect(span: Span, prot: u8, pkey: bool) -> Answer {
    let prot = i32::from(prot);
    // SAFETY: see `map`.
    answer(unsafe {
        if pkey {
            libc::syscall(libc::SYS_pkey_mprotect, span.start, span.bytes, prot, -1)
        } else {
            libc::mprotect(span.pointer(), span.bytes, prot).into()
        }
    })
}

pub(crate) fn lock(span: Span, on_fault: bool) -> Answer {
    // SAFETY: see `map`.
    answer(unsafe {
        if on_fault {
            libc::syscall(libc::SYS_mlock2, span.start, span.bytes, 1)
        } else {
            libc::mlock(span.pointer(), span.bytes).into()
        }
    })
}

pub(crate) fn unlock(span: Span) -> Answer {
    // SAFETY: see `map`.
    answer(unsafe { libc::munlock(span.pointer(), span.bytes) }.into())
}

pub(crate) fn lock_all(on: bool, future: bool) -> Answer {
    let flags = libc::MCL_CURRENT | if future { libc::MCL_FUTURE } else { 0 };
    // SAFETY: locking and unlocking change no content.
    answer(unsafe {
        if on {
            libc::mlockall(flags).into()
        } else {
            libc::munlockall().into()
        }
    })
}

pub(crate) fn seal(span: Span) -> Answer {
    const MSEAL: i64 = 462;
    // SAFETY: see `map`.
    answer(unsafe { libc::syscall(MSEAL, span.start, span.bytes, 0) })
}

/// Is something mapped there?
pub(crate) fn is_mapped(span: Span) -> bool {
    let mut resident = [0_u8; 1];
    // SAFETY: the answer for one page takes one byte.
    let result = unsafe { libc::mincore(span.pointer(), PAGE_BYTES, resident.as_mut_ptr()) };
    result == 0
}

/// Gives the advice by this door.
pub(crate) fn advise(span: Span, advice: Advice, door: Door) -> Answer {
    let advice = advice as i32;
    match door {
        Door::Madvise => {
            // SAFETY: see `map`.
            answer(unsafe { libc::madvise(span.pointer(), span.bytes, advice) }.into())
        }
        Door::ProcessMadvise => by_process_madvise(span, advice),
        Door::IoUring => by_io_uring(span, advice),
    }
}

fn by_process_madvise(span: Span, advice: i32) -> Answer {
    let vector = span.vector();
    // SAFETY: see `map`. The descriptor is closed here.
    unsafe {
        let process = libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0);
        if process < 0 {
            return answer(process);
        }
        let call = libc::SYS_process_madvise;
        let result = answer(libc::syscall(
            call,
            process,
            &raw const vector,
            1,
            advice,
            0,
        ));
        libc::syscall(libc::SYS_close, process);
        result
    }
}

/// Makes a new ring each time, because rings are not inherited.
fn by_io_uring(span: Span, advice: i32) -> Answer {
    let Ok(mut ring) = io_uring::IoUring::new(2) else {
        return (-1, libc::ENOSYS);
    };
    let length = span.bytes as i64;
    let entry = io_uring::opcode::Madvise::new(span.pointer(), length, advice).build();
    // SAFETY: see `map`. The kernel works on the range until the completion, which is waited for.
    let pushed = unsafe { ring.submission().push(&entry) };
    submit(&mut ring, pushed.is_ok())
}

/// Waits for the one entry that was pushed.
pub(crate) fn submit(ring: &mut io_uring::IoUring, pushed: bool) -> Answer {
    if !pushed {
        return (-1, libc::EIO);
    }
    loop {
        match ring.submit_and_wait(1) {
            Ok(_) => {}
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => continue,
            Err(error) => return (-1, error.raw_os_error().unwrap_or(libc::EIO)),
        }
        if let Some(entry) = ring.completion().next() {
            let result = entry.result();
            let failed = result < 0;
            return if failed {
                (-1, -result)
            } else {
                (result.into(), 0)
            };
        }
    }
}

pub(crate) fn sleep_ms(ms: u32) {
    let time = libc::timespec {
        tv_sec: i64::from(ms / 1000),
        tv_nsec: i64::from(ms % 1000) * 1_000_000,
    };
    // SAFETY: the structure lives here, and nobody needs the remaining time.
    unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) };
}
