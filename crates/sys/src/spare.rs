//! A descriptor that is kept for the moment at which there is no other.
//!
//! Much of what is known of a process is read from /proc, and every look there takes a descriptor for a moment. If a
//! look fails for want of a descriptor, that says nothing about the process. Who takes it for "there is no such thread"
//! answers calls of that thread wrongly. So [`with_descriptor`] closes the spare descriptor for the look and opens it
//! again afterwards. Looks that need the spare one wait for each other. A look takes no descriptor that outlives it.

use std::fs::File;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The spare descriptor, of nothing in particular. Innermost lock; held for one look.
static SPARE: Mutex<Option<File>> = Mutex::new(None);

/// Pause before a look is repeated because another thread took the descriptor first.
const PACE: Duration = Duration::from_millis(1);

/// Begins to keep a spare descriptor. Until then looks fail as they would without this module.
///
/// # Errors
/// There is none left.
pub fn keep() -> io::Result<()> {
    *lock() = Some(nothing()?);
    Ok(())
}

/// Makes a look, which takes one descriptor at a time. While there is no descriptor the look is repeated, so it may be
/// made several times.
///
/// # Errors
/// Those of the look. Want of descriptors is among them only while no spare one is kept.
pub fn with_descriptor<R>(mut look: impl FnMut() -> io::Result<R>) -> io::Result<R> {
    match look() {
        Err(error) if is_for_want_of_descriptors(&error) => {}
        done => return done,
    }
    let mut spare = lock();
    if spare.is_none() {
        return look();
    }
    *spare = None;
    loop {
        match look() {
            // Another thread took it between closing and opening. That thread gives it back, or others give theirs
            // back.
            Err(error) if is_for_want_of_descriptors(&error) => std::thread::sleep(PACE),
            done => {
                take_back(&mut spare);
                return done;
            }
        }
    }
}

fn take_back(spare: &mut Option<File>) {
    loop {
        match nothing() {
            Err(error) if is_for_want_of_descriptors(&error) => std::thread::sleep(PACE),
            opened => {
                *spare = opened.ok();
                return;
            }
        }
    }
}

fn nothing() -> io::Result<File> {
    File::open("/dev/null")
}

fn lock() -> std::sync::MutexGuard<'static, Option<File>> {
    SPARE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_for_want_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// The whole content of a file of /proc.
///
/// # Errors
/// Those of opening and reading.
pub fn read(path: &str) -> io::Result<Vec<u8>> {
    with_descriptor(|| std::fs::read(path))
}

/// As [`read`], for text.
///
/// # Errors
/// Those of opening and reading.
pub fn read_text(path: &str) -> io::Result<String> {
    with_descriptor(|| std::fs::read_to_string(path))
}

/// The names in a directory of /proc.
///
/// # Errors
/// Those of opening and reading.
pub fn names(path: &str) -> io::Result<Vec<std::ffi::OsString>> {
    with_descriptor(|| {
        std::fs::read_dir(path)?
            .map(|entry| Ok(entry?.file_name()))
            .collect()
    })
}
