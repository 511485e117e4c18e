//! What went wrong: codes, the text of a thread's last error, errno, and the end for misuse of memory.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};

use vswap_arena::ArenaError;

/// Codes, as in the header.
pub const OK: c_int = 0;
const ARGUMENT: c_int = 1;
const TOO_LITTLE_RAM: c_int = 2;
const SYSTEM: c_int = 3;
const SWAP: c_int = 4;
const NO_ADDRESSES: c_int = 5;
const FULL: c_int = 6;
const PIN_LIMIT: c_int = 7;
const NOT_OURS: c_int = 8;
const NOT_ALLOCATED: c_int = 9;
const PINNED: c_int = 10;
const NOT_PINNED: c_int = 11;
const LOST: c_int = 12;
const FORKED: c_int = 13;

/// An error, as C hears of it.
#[derive(Debug)]
pub struct Failure {
    pub code: c_int,
    pub text: String,
}

impl Failure {
    /// The caller passed what cannot be.
    pub fn argument(text: impl Into<String>) -> Failure {
        Failure {
            code: ARGUMENT,
            text: text.into(),
        }
    }

    /// More bytes than there are addresses for.
    pub fn too_large(bytes: impl std::fmt::Display) -> Failure {
        Failure {
            code: NO_ADDRESSES,
            text: format!("{bytes} bytes are more than any arena has: ask for less"),
        }
    }

    /// The errno of a call that returns -1 for this.
    pub fn errno(&self) -> c_int {
        match self.code {
            ARGUMENT => libc::EINVAL,
            LOST => libc::EIO,
            FORKED => libc::EFAULT,
            _ => libc::ENOMEM,
        }
    }

    /// Can less memory at a time help?
    pub fn is_pin_limit(&self) -> bool {
        self.code == PIN_LIMIT
    }

    /// Does it say that an address is none that can be freed?
    pub fn is_misuse(&self) -> bool {
        matches!(self.code, NOT_OURS | NOT_ALLOCATED)
    }
}

impl From<ArenaError> for Failure {
    fn from(error: ArenaError) -> Failure {
        let code = match &error {
            ArenaError::Size(_)
            | ArenaError::Empty
            | ArenaError::AreaName(_)
            | ArenaError::UnknownTier { .. }
            | ArenaError::GroupName(_)
            | ArenaError::TierName(_)
            | ArenaError::Group(_)
            | ArenaError::TooManyGroups { .. }
            | ArenaError::Limit { .. } => ARGUMENT,
            ArenaError::TooLittleRam { .. } => TOO_LITTLE_RAM,
            ArenaError::Pages(_)
            | ArenaError::Watch(_)
            | ArenaError::Memory(_)
            | ArenaError::Engine(_)
            | ArenaError::TooManyArenas { .. }
            | ArenaError::KernelRefuses
            | ArenaError::System { .. } => SYSTEM,
            ArenaError::Area(_) | ArenaError::SwapOn { .. } | ArenaError::TooManyTiers => SWAP,
            ArenaError::NoAddresses { .. } => NO_ADDRESSES,
            ArenaError::Full => FULL,
            ArenaError::TooMuchPinned { .. } => PIN_LIMIT,
            ArenaError::NotOurs => NOT_OURS,
            ArenaError::NotAllocated => NOT_ALLOCATED,
            ArenaError::Pinned => PINNED,
            ArenaError::NotPinned => NOT_PINNED,
            ArenaError::Lost => LOST,
            ArenaError::Forked => FORKED,
        };
        Failure {
            code,
            text: error.to_string(),
        }
    }
}

thread_local! {
    static LAST: RefCell<(c_int, CString)> = RefCell::default();
}

/// Notes an error for the thread, and returns its code.
pub fn note(failure: Failure) -> c_int {
    let Failure { code, text } = failure;
    // No text of ours has a zero in it; a directory's name cannot.
    let text = CString::new(text.replace('\0', "?")).unwrap_or_default();
    // A thread that is ending has no last error.
    let _ = LAST.try_with(|last| {
        if let Ok(mut last) = last.try_borrow_mut() {
            *last = (code, text);
        }
    });
    code
}

/// The code of what a call came to.
pub fn code_of(result: Result<(), Failure>) -> c_int {
    result.map_or_else(note, |()| OK)
}

/// Sets errno.
pub fn set_errno(errno: c_int) {
    // SAFETY: the C library's errno of this thread is always there to be written.
    unsafe { *libc::__errno_location() = errno };
}

/// The errno that the last call of the system has left.
pub fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Ends the process: what the program believes of its memory is wrong.
pub fn end(call: &str, address: usize, failure: &Failure) -> ! {
    let text = format!(
        "vswap: {call}({address:#x}): {}. The program is ended here, before its memory is damaged.\n",
        failure.text
    );
    // SAFETY: the text lives here, and so many bytes of it are read.
    let _ = unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
    std::process::abort()
}

/// Code of the last error of the calling thread.
#[unsafe(no_mangle)]
pub extern "C" fn vswap_error_code() -> c_int {
    LAST.try_with(|last| last.try_borrow().map_or(OK, |last| last.0))
        .unwrap_or(OK)
}

/// Text of the last error of the calling thread. It stays until the next error of that thread.
#[unsafe(no_mangle)]
pub extern "C" fn vswap_error_text() -> *const c_char {
    let text = |last: &RefCell<(c_int, CString)>| {
        let last = last.try_borrow();
        last.map_or(c"".as_ptr(), |last| last.1.as_ptr())
    };
    LAST.try_with(text).unwrap_or(c"".as_ptr())
}

/// The version of the library.
#[unsafe(no_mangle)]
pub extern "C" fn vswap_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
