//! Why a userfaultfd call did not do all of its work.

use rustix::io::Errno;

/// Why a userfaultfd call stopped, and how many bytes it had done.
///
/// The kernel reports partial work as EAGAIN, whatever stopped it. `Again` with `done_bytes` above 0 means: call again
/// from there to learn the reason. All other variants come with 0 bytes done on the kernels known so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UffdError {
    /// With 0 bytes done: a layout event is unread (EAGAIN from `mmap_changing`); read events before retrying. Else the
    /// call stopped early, for a reason that the next call tells.
    #[error(
        "stopped after {done_bytes} bytes (EAGAIN): read pending events, then retry from there"
    )]
    Again {
        /// Bytes done from the start of the range.
        done_bytes: u64,
    },
    /// A page is there already (EEXIST): someone else filled it; wake the waiters.
    #[error("page already present after {done_bytes} bytes (EEXIST): wake its waiters")]
    Exists {
        /// Bytes done from the start of the range.
        done_bytes: u64,
    },
    /// The address space is gone (ESRCH): its process has exited or replaced its image.
    #[error("the address space no longer exists (ESRCH): forget it")]
    Gone,
    /// No mapping registered here, or a hole in the source of a move (ENOENT).
    #[error(
        "no registered mapping or no page after {done_bytes} bytes (ENOENT): look at the mappings again"
    )]
    NoEntry {
        /// Bytes done from the start of the range.
        done_bytes: u64,
    },
    /// The page cannot be taken now: shared after a fork, or pinned for I/O (EBUSY).
    #[error("page is shared or pinned after {done_bytes} bytes (EBUSY): leave it where it is")]
    Busy {
        /// Bytes done from the start of the range.
        done_bytes: u64,
    },
    /// The kernel refuses the arguments or the kind of mapping (EINVAL).
    #[error(
        "range, mode or kind of mapping refused after {done_bytes} bytes (EINVAL): retry page by page or skip"
    )]
    Invalid {
        /// Bytes done from the start of the range.
        done_bytes: u64,
    },
    /// The kernel has no memory for pages or page tables (ENOMEM).
    #[error("the kernel is out of memory after {done_bytes} bytes (ENOMEM): free some, then retry")]
    NoMemory {
        /// Bytes done from the start of the range.
        done_bytes: u64,
    },
    /// Any other errno.
    #[error("userfaultfd call failed after {done_bytes} bytes with errno {errno}")]
    Other {
        /// The errno.
        errno: i32,
        /// Bytes done from the start of the range.
        done_bytes: u64,
    },
}

impl UffdError {
    /// The meaning of `errno`, given the result field of the call, which holds bytes done or a negative errno.
    #[inline]
    pub fn new(errno: Errno, result: i64) -> UffdError {
        let done_bytes = u64::try_from(result).unwrap_or(0);
        match errno {
            Errno::AGAIN => UffdError::Again { done_bytes },
            Errno::EXIST => UffdError::Exists { done_bytes },
            Errno::SRCH => UffdError::Gone,
            Errno::NOENT => UffdError::NoEntry { done_bytes },
            Errno::BUSY => UffdError::Busy { done_bytes },
            Errno::INVAL => UffdError::Invalid { done_bytes },
            Errno::NOMEM => UffdError::NoMemory { done_bytes },
            other => UffdError::Other {
                errno: other.raw_os_error(),
                done_bytes,
            },
        }
    }

    /// Bytes done before the call stopped.
    #[inline]
    pub fn done_bytes(&self) -> u64 {
        match *self {
            UffdError::Again { done_bytes }
            | UffdError::Exists { done_bytes }
            | UffdError::NoEntry { done_bytes }
            | UffdError::Busy { done_bytes }
            | UffdError::Invalid { done_bytes }
            | UffdError::NoMemory { done_bytes }
            | UffdError::Other { done_bytes, .. } => done_bytes,
            UffdError::Gone => 0,
        }
    }

    /// The errno behind the meaning.
    #[inline]
    pub fn errno(&self) -> i32 {
        let errno = match *self {
            UffdError::Again { .. } => Errno::AGAIN,
            UffdError::Exists { .. } => Errno::EXIST,
            UffdError::Gone => Errno::SRCH,
            UffdError::NoEntry { .. } => Errno::NOENT,
            UffdError::Busy { .. } => Errno::BUSY,
            UffdError::Invalid { .. } => Errno::INVAL,
            UffdError::NoMemory { .. } => Errno::NOMEM,
            UffdError::Other { errno, .. } => return errno,
        };
        errno.raw_os_error()
    }
}

/// Why no message could be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("messages of a userfaultfd cannot be read: {0}")]
pub struct ReadError(pub(crate) Errno);

impl ReadError {
    /// Did the read fail because a fork message could not get its descriptor just now?
    pub fn is_for_want_of_descriptors(self) -> bool {
        matches!(self.0, Errno::MFILE | Errno::NFILE | Errno::NOMEM)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meaning_and_errno_agree() {
        for raw in 1..134 {
            let error = UffdError::new(Errno::from_raw_os_error(raw), 8192);
            assert_eq!(error.errno(), raw);
            if error != UffdError::Gone {
                assert_eq!(error.done_bytes(), 8192);
            }
        }
    }

    #[test]
    fn a_negative_result_is_no_bytes_done() {
        let again = i64::from(Errno::AGAIN.raw_os_error());
        assert_eq!(
            UffdError::new(Errno::AGAIN, -again),
            UffdError::Again { done_bytes: 0 }
        );
        assert_eq!(
            UffdError::new(Errno::AGAIN, 4096),
            UffdError::Again { done_bytes: 4096 }
        );
        assert_eq!(UffdError::new(Errno::AGAIN, i64::MIN).done_bytes(), 0);
    }
}
