//! Looks at /proc for the moment at which there is no descriptor.
//!
//! Much of what is known of a process is read from /proc, and every look there takes a descriptor for a moment. If a
//! look fails for want of a descriptor, that says nothing about the process. Who takes it for "there is no such thread"
//! answers calls of that thread wrongly. So a thread with a table of descriptors of its own, which is empty, makes such
//! looks. To close one descriptor for a look and to open it again afterwards does not do: another thread takes it
//! meanwhile, and keeps it.
//!
//! Unsafe is needed here because rustix has no close_range.

use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, PoisonError};
use std::thread::Builder;

/// The way to the thread that looks. Innermost lock, held for a moment.
static LOOKS: Mutex<Option<Sender<Look>>> = Mutex::new(None);

/// What a short file has less than.
const SHORT_BYTES: usize = 4 << 10;
/// How much of a long file is read at once.
const PIECE_BYTES: usize = 64 << 10;

type Look = Box<dyn FnOnce() + Send>;

/// Begins to keep a thread for looks. Until then they fail as they would without this module.
///
/// # Errors
/// There is no thread, or the system has no memory for a table of descriptors.
pub fn keep() -> io::Result<()> {
    let (sender, looks) = mpsc::channel::<Look>();
    let (begin, begun) = mpsc::channel();
    let work = move || {
        let own = own_descriptors();
        let is_own = own.is_ok();
        // Whoever waits for this wants to know.
        let _ = begin.send(own);
        if is_own {
            looks.into_iter().for_each(|look| look());
        }
    };
    let mut known = LOOKS.lock().unwrap_or_else(PoisonError::into_inner);
    if known.is_some() {
        return Ok(());
    }
    Builder::new().name("looks".to_owned()).spawn(work)?;
    begun.recv().map_err(io::Error::other)??;
    *known = Some(sender);
    Ok(())
}

/// Gives the calling thread an empty table of descriptors of its own.
fn own_descriptors() -> io::Result<()> {
    // SAFETY: with this flag the call closes descriptors of a copy of the table, which only the calling thread has. It
    // uses none that it has not opened itself.
    let done = unsafe { libc::close_range(0, libc::c_uint::MAX, CLOSE_RANGE_UNSHARE) };
    (done == 0)
        .then_some(())
        .ok_or_else(io::Error::last_os_error)
}

/// From linux/close_range.h.
const CLOSE_RANGE_UNSHARE: libc::c_int = 2;

/// Looks here, or, for want of a descriptor, by the thread that is kept.
fn look<R: Send + 'static>(
    path: &str,
    mut look: impl FnMut(&str) -> io::Result<R> + Send + 'static,
) -> io::Result<R> {
    match look(path) {
        Err(error) if error.raw_os_error() == Some(libc::EMFILE) => {}
        done => return done,
    }
    let known = LOOKS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let Some(looks) = known else {
        return look(path);
    };
    let (answer, answered) = mpsc::channel();
    let path = path.to_owned();
    let job = Box::new(move || drop(answer.send(look(&path))));
    let is_sent = looks.send(job).is_ok();
    debug_assert!(is_sent, "the thread does not end");
    answered.recv().map_err(io::Error::other)?
}

/// The whole content of a file of /proc. It must be one that answers at once: all looks wait for each other.
///
/// # Errors
/// Those of opening and reading. Want of descriptors is among them only while no thread is kept.
pub fn read(path: &str) -> io::Result<Vec<u8>> {
    look(path, |path| {
        let mut content = Vec::new();
        read_whole(path, &mut content)?;
        Ok(content)
    })
}

/// Reads a file to its end, behind what is in the buffer. Nearly all files of /proc are shorter than a page, so two
/// reads will do. The file's size is not asked for, because it is 0.
fn read_whole(path: &str, content: &mut Vec<u8>) -> io::Result<()> {
    content.reserve(SHORT_BYTES);
    // A limit hides the file, of which the library would ask the size.
    fs::File::open(path)?.take(u64::MAX).read_to_end(content)?;
    Ok(())
}

/// As [`read`], into a buffer that is used again.
///
/// # Errors
/// As for [`read`].
pub fn read_into(path: &str, buffer: &mut Vec<u8>) -> io::Result<()> {
    buffer.clear();
    let mut own = std::mem::take(buffer);
    *buffer = look(path, move |path| {
        own.clear();
        read_whole(path, &mut own)?;
        Ok(std::mem::take(&mut own))
    })?;
    Ok(())
}

/// Takes the lines of a file of /proc in, one after the other, without their ends. Begins anew if it has to.
///
/// # Errors
/// As for [`read`].
pub fn fold_lines<S: Send + 'static>(
    path: &str,
    begin: impl Fn() -> S + Send + 'static,
    take: impl Fn(&mut S, &[u8]) + Send + 'static,
) -> io::Result<S> {
    look(path, move |path| {
        let mut file = BufReader::with_capacity(PIECE_BYTES, fs::File::open(path)?);
        let (mut folded, mut line) = (begin(), Vec::new());
        while file.read_until(b'\n', &mut line)? > 0 {
            take(&mut folded, line.strip_suffix(b"\n").unwrap_or(&line));
            line.clear();
        }
        Ok(folded)
    })
}

/// As [`read`], for text.
///
/// # Errors
/// As for [`read`].
pub fn read_text(path: &str) -> io::Result<String> {
    String::from_utf8(read(path)?).map_err(io::Error::other)
}

/// The names in a directory of /proc.
///
/// # Errors
/// As for [`read`].
pub fn names(path: &str) -> io::Result<Vec<OsString>> {
    look(path, |path| {
        fs::read_dir(path)?
            .map(|entry| Ok(entry?.file_name()))
            .collect()
    })
}
