//! Puts the agent into a program from outside, by ptrace, for programs whose loader does not.
//!
//! One thread of the program is stopped. It makes one mapping for image, stack and the agent's own memory; the image
//! (`image.rs`) is written there; the thread runs the agent's entry, which starts the agent's bare thread and says so;
//! and the thread goes on where it was, with every register and its signal mask as before (`tracee.rs`). The program
//! is stopped for less than a millisecond, and traced no longer than that: debuggers find it free.
//!
//! All calls for one process are made by one thread, because ptrace knows its tracer by thread. The tracer must be an
//! ancestor of the program or have CAP_SYS_PTRACE (Yama), and of the same user. Rust's usual crates for ptrace (nix)
//! lack the calls for extended registers and signal masks, so the few that are needed are made through libc.

mod budget;
mod forking;
mod image;
mod registers;
mod request;
mod tracee;

use std::io;
use std::mem::offset_of;

pub use forking::{Forking, Seen};
pub use image::{Image, ImageError};
pub use tracee::{Stopped, Tracee};

use crate::machine;
use crate::memory::pagemap::PAGE_BYTES;
use crate::ring::{ATTACHED_CALL, Parameters, RESERVATION_BYTES, SOCKET_PATH_BYTES_MAX, origin};

/// Stack for the agent's entry, between the image and the agent's own memory.
const STACK_BYTES: u64 = 4 * PAGE_BYTES;
/// Why no agent could be put into a process. The process goes on as if nobody had tried.
#[derive(Debug, thiserror::Error)]
pub enum InjectError {
    /// It has ended, or its image was replaced.
    #[error("it has ended")]
    Gone,
    /// It did not do what it was told, and was killed.
    #[error("it was killed in the middle of it, because it {0}")]
    GivenUp(&'static str),
    /// The kernel does not let vswap trace it.
    #[error("vswap may not trace it (ptrace: {0})")]
    NotPermitted(#[source] io::Error),
    /// A debugger has it, or it is stopped, or it does not answer: to be tried again.
    #[error("it is stopped or being traced")]
    Busy,
    /// It runs 32-bit code.
    #[error("it is not a 64-bit {} program", machine::NAME)]
    OtherMachine,
    /// There is no instruction to make system calls with.
    #[error("it has no vdso to make system calls with")]
    NoVdso,
    /// A call that it made for the agent failed.
    #[error("{call} failed in it: {error}")]
    Refused {
        /// The call.
        call: &'static str,
        /// Its errno.
        error: io::Error,
    },
    /// Another ptrace request failed.
    #[error("ptrace failed: {0}")]
    Ptrace(#[source] io::Error),
}

/// What the agent is told.
#[derive(Debug, Clone, Copy)]
pub struct Order<'a> {
    /// The agent.
    pub image: &'a Image,
    /// Path of the pager's socket.
    pub socket: &'a str,
    /// `origin::EXEC`, or FORKED.
    pub origin: usize,
}

/// Puts the agent into a stopped process and lets the process go on.
///
/// # Errors
/// [`InjectError`]; the process goes on unchanged then, but for an unused mapping where a late step failed.
pub fn inject(mut stopped: Stopped, order: &Order<'_>) -> Result<(), InjectError> {
    let outcome = attach(&mut stopped, order);
    // A process that ended meanwhile is reported as that.
    stopped.release().and(outcome)
}

fn attach(stopped: &mut Stopped, order: &Order<'_>) -> Result<(), InjectError> {
    let image_bytes = order.image.bytes();
    let whole = image_bytes + STACK_BYTES + RESERVATION_BYTES as u64;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let none = u64::from(libc::PROT_NONE.unsigned_abs());
    let start = stopped.call(
        "mmap",
        libc::SYS_mmap,
        [0, whole, none, u64::from(flags.unsigned_abs()), u64::MAX, 0],
    )?;
    let base = start + image_bytes + STACK_BYTES;
    let writable = u64::from((libc::PROT_READ | libc::PROT_WRITE).unsigned_abs());
    protect(stopped, start, image_bytes + STACK_BYTES, writable)?;
    stopped.write(start, &order.image.at(start))?;
    let parameters = [
        (offset_of!(Parameters, base), base),
        (offset_of!(Parameters, origin), order.origin as u64),
        (
            offset_of!(Parameters, image_bytes),
            image_bytes + STACK_BYTES,
        ),
    ];
    let parameters = written(&parameters, order.socket)?;
    let place = place_of(&parameters, base);
    stopped.write(place, &parameters)?;
    for (range, protection) in order.image.segments() {
        protect(
            stopped,
            start + range.start,
            range.end - range.start,
            protection,
        )?;
    }
    start_agent(stopped, order.image.entry(start), place)
}

/// What the child of a fork is told.
#[derive(Debug, Clone, Copy)]
pub struct Kin {
    /// Where the agent begins, see `Hello::entry`.
    pub entry: u64,
    /// Where the stack for that ends, see `Hello::entry_stack`.
    pub stack: u64,
    /// One of `origin::*`, but EXEC.
    pub origin: usize,
    /// The fork's token.
    pub fork: u64,
}

/// Has a forked child, which stands still since it was made, start the agent of which it has a copy. Then lets it go
/// on.
///
/// # Errors
/// [`InjectError`]; the child goes on without an agent then. One that is COPIED would read zeros, and is killed.
pub fn adopt(mut child: Stopped, kin: &Kin) -> Result<(), InjectError> {
    let outcome = begin(&mut child, kin);
    if outcome.is_err() && kin.origin == origin::COPIED {
        child.end();
        return outcome;
    }
    child.release().and(outcome)
}

fn begin(child: &mut Stopped, kin: &Kin) -> Result<(), InjectError> {
    let parameters = [
        (offset_of!(Parameters, origin), kin.origin as u64),
        (offset_of!(Parameters, fork), kin.fork),
    ];
    let parameters = written(&parameters, "")?;
    let place = place_of(&parameters, kin.stack);
    child.write(place, &parameters)?;
    start_agent(child, kin.entry, place)
}

fn start_agent(stopped: &mut Stopped, entry: u64, parameters: u64) -> Result<(), InjectError> {
    let errno = stopped.run_until(entry, parameters, ATTACHED_CALL as u64)?;
    match i32::try_from(errno) {
        Ok(0) => Ok(()),
        errno => Err(InjectError::Refused {
            call: "starting the agent",
            error: io::Error::from_raw_os_error(errno.unwrap_or(libc::EINVAL)),
        }),
    }
}

/// Where the parameters lie: at the end of the stack of the agent's entry.
fn place_of(parameters: &[u8], stack_end: u64) -> u64 {
    stack_end.saturating_sub((parameters.len() as u64).next_multiple_of(64))
}

/// The bytes of the entry's `Parameters`: words at their offsets, all others 0, and the path of the socket.
fn written(words: &[(usize, u64)], socket: &str) -> Result<Vec<u8>, InjectError> {
    let mut bytes = vec![0; size_of::<Parameters>()];
    let path = offset_of!(Parameters, path);
    let length = (offset_of!(Parameters, path_bytes), socket.len() as u64);
    for (at, word) in words.iter().chain([&length]) {
        bytes[*at..*at + size_of::<u64>()].copy_from_slice(&word.to_ne_bytes());
    }
    if socket.len() > SOCKET_PATH_BYTES_MAX {
        return Err(InjectError::Refused {
            call: "naming the socket",
            error: io::ErrorKind::InvalidInput.into(),
        });
    }
    bytes[path..path + socket.len()].copy_from_slice(socket.as_bytes());
    Ok(bytes)
}

fn protect(
    stopped: &mut Stopped,
    start: u64,
    bytes: u64,
    protection: u64,
) -> Result<(), InjectError> {
    stopped
        .call(
            "mprotect",
            libc::SYS_mprotect,
            [start, bytes, protection, 0, 0, 0],
        )
        .map(|_| ())
}
