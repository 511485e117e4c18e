//! A descriptor that is kept for the moment at which there is no other.
//!
//! Much of what is known of a process is read from /proc, where every look takes a descriptor for a moment. A look that
//! fails for want of one says nothing about the process: whoever takes it for "there is no such thread" answers calls
//! of it wrongly. So [`with_descriptor`] gives the spare one up for the look and takes it back. Looks that need it wait
//! for one another. What looks takes no descriptor that outlives the look.

use std::fs::File;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The spare descriptor, of nothing in particular. Innermost lock; held for one look.
static SPARE: Mutex<Option<File>> = Mutex::new(None);

/// Pause before a look is tried again whose descriptor somebody else was quicker to take.
const PACE: Duration = Duration::from_millis(1);

/// Begin to keep one. Until then looks fail as they do without.
///
/// # Errors
/// There is none left.
pub fn keep() -> io::Result<()> {
    *lock() = Some(nothing()?);
    Ok(())
}

/// A look that takes one descriptor at a time. As long as there is none it is tried again, so it may be made several
/// times.
///
/// # Errors
/// Those of the look, but for a want of descriptors only while none is kept.
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
            // Taken by another thread between closing and opening. It gives it back, or others give theirs back.
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
