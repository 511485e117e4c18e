//! /proc/PID/maps, smaps and smaps_rollup: parsers over bytes, and reading the files whole.
//!
//! The parsers are pure and never panic. A line that they do not understand is an error; they do not guess. A file that
//! is read while its process runs is a mix of moments. Each line was true once, and lines are in address order without
//! overlap; `read` checks this and reads again.

use std::io;
use std::ops::Range;

use crate::looks;

/// What a mapping is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name<'a> {
    /// No name: private or shared anonymous memory.
    Anonymous,
    /// `[anon:...]`: private memory that the program named.
    Named(&'a [u8]),
    /// `[heap]`.
    Heap,
    /// `[stack]`, the main thread's.
    Stack,
    /// Any other bracketed name, without the brackets: vdso, vvar, vsyscall, uprobes, anon_shmem:...
    Special(&'a [u8]),
    /// A path, with the kernel's escapes and ` (deleted)` as they are.
    File(&'a [u8]),
}

/// One line of maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapping<'a> {
    /// First address.
    pub start: u64,
    /// End, exclusive.
    pub end: u64,
    /// Readable.
    pub read: bool,
    /// Writable.
    pub write: bool,
    /// Executable.
    pub execute: bool,
    /// Shared (`s`), not private (`p`).
    pub shared: bool,
    /// Offset in the file, bytes; for anonymous memory a number without meaning.
    pub offset: u64,
    /// Device of the file, major and minor number.
    pub device: (u32, u32),
    /// Inode, 0 where there is no file.
    pub inode: u64,
    /// Name.
    pub name: Name<'a>,
}

impl Mapping<'_> {
    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        self.end - self.start
    }

    /// Is it private memory without a file, and neither the main stack nor the kernel's own?
    pub fn private_anonymous(&self) -> bool {
        self.name.is_of_memory() && !self.shared && self.inode == 0
    }
}

impl Name<'_> {
    /// Is it what memory without a file is called, if it is not the main stack?
    fn is_of_memory(self) -> bool {
        matches!(self, Name::Anonymous | Name::Named(_) | Name::Heap)
    }
}

/// Is this what memory without a file is called, if it is not the main stack? As the kernel writes it in maps.
pub fn is_name_of_memory(text: &[u8]) -> bool {
    name(text).is_of_memory()
}

/// Why a file of /proc could not be understood or read.
#[derive(Debug, thiserror::Error)]
pub enum MapsError {
    /// The process has no memory any more.
    #[error("the process has exited: forget it")]
    Gone,
    /// A line is not of the kernel's form.
    #[error("line {line} of the mappings is not `start-end perms offset dev inode [name]`")]
    Malformed {
        /// Line number from 1.
        line: usize,
    },
    /// Lines overlapped in every attempt.
    #[error("mappings changed during each of {attempts} reads: try again later")]
    Torn {
        /// Reads done.
        attempts: usize,
    },
    /// Reading failed.
    #[error("mappings of the process cannot be read: {0}")]
    Io(io::Error),
}

/// Iterates over the lines of a maps file.
#[derive(Debug, Clone)]
pub struct Mappings<'a> {
    rest: &'a [u8],
    line: usize,
}

/// The mappings in the bytes of a maps file. Ends after the first malformed line.
pub fn parse(bytes: &[u8]) -> Mappings<'_> {
    Mappings {
        rest: bytes,
        line: 0,
    }
}

impl<'a> Iterator for Mappings<'a> {
    type Item = Result<Mapping<'a>, MapsError>;

    fn next(&mut self) -> Option<Result<Mapping<'a>, MapsError>> {
        let line = next_line(&mut self.rest)?;
        self.line += 1;
        let mapping = mapping(line);
        if mapping.is_none() {
            self.rest = &[];
        }
        Some(mapping.ok_or(MapsError::Malformed { line: self.line }))
    }
}

fn next_line<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    if rest.is_empty() {
        return None;
    }
    let end = rest.iter().position(|&byte| byte == b'\n');
    let line = &rest[..end.unwrap_or(rest.len())];
    *rest = end.map_or(&[], |end| &rest[end + 1..]);
    Some(line)
}

/// The next field, up to a blank. `text` then starts after the blanks.
fn field<'a>(text: &mut &'a [u8]) -> &'a [u8] {
    let end = text
        .iter()
        .position(|&byte| byte == b' ')
        .unwrap_or(text.len());
    let (field, rest) = text.split_at(end);
    *text = rest.trim_ascii_start();
    field
}

fn number(digits: &[u8], radix: u32) -> Option<u64> {
    // from_str_radix would also take a sign.
    if digits.first()?.is_ascii_alphanumeric() {
        u64::from_str_radix(core::str::from_utf8(digits).ok()?, radix).ok()
    } else {
        None
    }
}

/// `start-end` in hexadecimal, not empty.
fn range(text: &[u8]) -> Option<(u64, u64)> {
    let dash = text.iter().position(|&byte| byte == b'-')?;
    let (start, end) = (number(&text[..dash], 16)?, number(&text[dash + 1..], 16)?);
    (start < end).then_some((start, end))
}

/// One line of maps without its line end.
fn mapping(mut line: &[u8]) -> Option<Mapping<'_>> {
    let (start, end) = range(field(&mut line))?;
    let &[read, write, execute, shared] = field(&mut line) else {
        return None;
    };
    let flag = |byte: u8, yes: u8, no: u8| match byte {
        byte if byte == yes => Some(true),
        byte if byte == no => Some(false),
        _ => None,
    };
    let offset = number(field(&mut line), 16)?;
    let mut device = field(&mut line).splitn(2, |byte| *byte == b':');
    let mut half = || u32::try_from(number(device.next()?, 16)?).ok();
    let device = (half()?, half()?);
    let inode = number(field(&mut line), 10)?;
    Some(Mapping {
        start,
        end,
        read: flag(read, b'r', b'-')?,
        write: flag(write, b'w', b'-')?,
        execute: flag(execute, b'x', b'-')?,
        shared: flag(shared, b's', b'p')?,
        offset,
        device,
        inode,
        name: name(line),
    })
}

fn name(text: &[u8]) -> Name<'_> {
    match text {
        b"" => Name::Anonymous,
        b"[heap]" => Name::Heap,
        b"[stack]" => Name::Stack,
        [b'[', inner @ .., b']'] => match inner.strip_prefix(b"anon:") {
            Some(given) => Name::Named(given),
            None => Name::Special(inner),
        },
        path => Name::File(path),
    }
}

/// Are all mappings well formed, in order and without overlap?
fn consistent(bytes: &[u8]) -> Result<bool, MapsError> {
    let mut end = 0;
    for mapping in parse(bytes) {
        let mapping = mapping?;
        if mapping.start < end {
            return Ok(false);
        }
        end = mapping.end;
    }
    Ok(true)
}

/// Reads /proc/`pid`/maps whole into `buffer`, whose memory is reused from call to call.
///
/// A process that has exited or is a zombie has no mappings: `Gone`.
///
/// # Errors
/// As `MapsError` says.
pub fn read(pid: u32, buffer: &mut Vec<u8>) -> Result<(), MapsError> {
    /// A change during one read is rare. Five in a row mean a storm of layout changes.
    const ATTEMPTS_MAX: usize = 5;
    for _ in 0..ATTEMPTS_MAX {
        read_file(pid, "maps", buffer)?;
        if consistent(buffer)? {
            return Ok(());
        }
    }
    Err(MapsError::Torn {
        attempts: ATTEMPTS_MAX,
    })
}

fn read_file(pid: u32, file: &str, buffer: &mut Vec<u8>) -> Result<(), MapsError> {
    match looks::read_into(&format!("/proc/{pid}/{file}"), buffer) {
        Ok(()) if buffer.is_empty() => Err(MapsError::Gone),
        Ok(()) => Ok(()),
        Err(error) => Err(meaning(error)),
    }
}

fn meaning(error: io::Error) -> MapsError {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ESRCH) => MapsError::Gone,
        _ => MapsError::Io(error),
    }
}

/// The mappings of `pid` that have one of these flags in their VmFlags line of smaps, such as `wf` (zeroed in the child
/// by fork), in address order. Walks all page tables. Reads the file piece by piece: it has 700 bytes a mapping.
///
/// # Errors
/// As `MapsError` says.
pub fn flagged(pid: u32, flags: &'static [&'static str]) -> Result<Vec<Range<u64>>, MapsError> {
    let path = format!("/proc/{pid}/smaps");
    let read = looks::fold_lines(&path, move || Flagged::new(flags), Flagged::take);
    let read = read.map_err(meaning)?;
    match read.malformed {
        Some(line) => Err(MapsError::Malformed { line }),
        None if read.lines == 0 => Err(MapsError::Gone),
        None => Ok(read.found),
    }
}

/// Finds mappings by their flags, line by line.
#[derive(Debug)]
struct Flagged {
    flags: &'static [&'static str],
    /// The mapping whose lines these are.
    mapping: Option<Range<u64>>,
    lines: usize,
    /// The first line that is not one.
    malformed: Option<usize>,
    found: Vec<Range<u64>>,
}

impl Flagged {
    fn new(flags: &'static [&'static str]) -> Flagged {
        Flagged {
            flags,
            mapping: None,
            lines: 0,
            malformed: None,
            found: Vec::new(),
        }
    }

    fn take(&mut self, mut line: &[u8]) {
        self.lines += 1;
        let first = field(&mut line);
        let is_known = if first == b"VmFlags:" {
            self.take_flags(line)
        } else if first.ends_with(b":") {
            true
        } else {
            self.mapping = range(first).map(|(start, end)| start..end);
            self.mapping.is_some()
        };
        if !is_known {
            self.malformed.get_or_insert(self.lines);
        }
    }

    /// False if no mapping has these flags.
    fn take_flags(&mut self, line: &[u8]) -> bool {
        let Some(mapping) = self.mapping.take() else {
            return false;
        };
        let mut has = line.split(|&byte| byte == b' ');
        if has.any(|flag| self.flags.iter().any(|wanted| wanted.as_bytes() == flag)) {
            self.found.push(mapping);
        }
        true
    }
}

/// Sums over all mappings of a process, from smaps_rollup; bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rollup {
    /// Resident pages.
    pub rss_bytes: u64,
    /// Resident pages, each divided by the processes that share it.
    pub pss_bytes: u64,
    /// The anonymous part of `pss_bytes`.
    pub pss_anonymous_bytes: u64,
    /// Anonymous resident pages.
    pub anonymous_bytes: u64,
    /// Pages that MADV_FREE marked and the kernel has not taken yet.
    pub lazy_free_bytes: u64,
    /// Pages in the kernel's own swap.
    pub swap_bytes: u64,
}

/// Sums from the bytes of smaps_rollup. Fields that a kernel does not have stay 0.
///
/// # Errors
/// `Malformed` for a known field whose value is not a number of kB.
pub fn parse_rollup(bytes: &[u8]) -> Result<Rollup, MapsError> {
    let (mut rest, mut line, mut sums) = (bytes, 0, Rollup::default());
    while let Some(mut text) = next_line(&mut rest) {
        line += 1;
        let sum = match field(&mut text) {
            b"Rss:" => &mut sums.rss_bytes,
            b"Pss:" => &mut sums.pss_bytes,
            b"Pss_Anon:" => &mut sums.pss_anonymous_bytes,
            b"Anonymous:" => &mut sums.anonymous_bytes,
            b"LazyFree:" => &mut sums.lazy_free_bytes,
            b"Swap:" => &mut sums.swap_bytes,
            _ => continue,
        };
        let kib = number(field(&mut text), 10).ok_or(MapsError::Malformed { line })?;
        *sum = kib.saturating_mul(1024);
    }
    Ok(sums)
}

/// Reads and sums /proc/`pid`/smaps_rollup. Walks all page tables of the process.
///
/// # Errors
/// As `MapsError` says.
pub fn rollup(pid: u32) -> Result<Rollup, MapsError> {
    let mut buffer = Vec::new();
    read_file(pid, "smaps_rollup", &mut buffer)?;
    parse_rollup(&buffer)
}

#[cfg(test)]
#[path = "maps_tests.rs"]
mod tests;
