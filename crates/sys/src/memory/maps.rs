//! /proc/PID/maps, smaps and smaps_rollup: parsers over bytes, and reading the files whole.
//!
//! The parsers are pure and never panic. A line that they do not understand is an error; they do not guess. A file that
//! is read while its process runs is a mix of moments. Each line was true once, and lines are in address order without
//! overlap; `read` checks this and reads again.

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
        let kind = matches!(self.name, Name::Anonymous | Name::Named(_) | Name::Heap);
        kind && !self.shared && self.inode == 0
    }
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
    Io(std::io::Error),
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

/// Reads /proc/`pid`/smaps whole into `buffer`. Walks all page tables, which costs far more than `read`.
///
/// # Errors
/// As `MapsError` says.
pub fn read_smaps(pid: u32, buffer: &mut Vec<u8>) -> Result<(), MapsError> {
    read_file(pid, "smaps", buffer)
}

fn read_file(pid: u32, file: &str, buffer: &mut Vec<u8>) -> Result<(), MapsError> {
    match looks::read_into(&format!("/proc/{pid}/{file}"), buffer) {
        Ok(()) if buffer.is_empty() => Err(MapsError::Gone),
        Ok(()) => Ok(()),
        Err(error) => Err(match error.raw_os_error() {
            Some(libc::ENOENT | libc::ESRCH) => MapsError::Gone,
            _ => MapsError::Io(error),
        }),
    }
}

/// A mapping's flags, from the VmFlags line of smaps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VmFlags {
    /// Start address of the mapping.
    pub start: u64,
    /// End address, exclusive.
    pub end: u64,
    /// `lo`: locked in memory.
    pub locked: bool,
    /// `ht`: huge pages of hugetlbfs.
    pub hugetlb: bool,
    /// `io` or `pf`: memory of a device.
    pub device: bool,
    /// `gd`: grows down, a stack.
    pub grows_down: bool,
    /// `um`: registered with a userfaultfd for missing pages.
    pub uffd_missing: bool,
    /// `uw`: registered with a userfaultfd for write protection.
    pub uffd_wp: bool,
    /// `dc`: not copied by fork.
    pub dont_copy: bool,
    /// `wf`: zeroed in the child by fork.
    pub wipe_on_fork: bool,
    /// `dp` or `dr`: droppable memory, or a flag name of the same meaning.
    pub droppable: bool,
    /// `sl`: sealed, its layout cannot change.
    pub sealed: bool,
    /// `ss`: a shadow stack.
    pub shadow_stack: bool,
}

/// The VmFlags of each mapping in the bytes of an smaps file, in file order.
///
/// # Errors
/// `Malformed` for a mapping line that is not one.
pub fn parse_vm_flags(bytes: &[u8]) -> Result<Vec<VmFlags>, MapsError> {
    let (mut rest, mut line, mut found) = (bytes, 0, Vec::new());
    let mut current: Option<(u64, u64)> = None;
    while let Some(mut text) = next_line(&mut rest) {
        line += 1;
        let first = field(&mut text);
        if first == b"VmFlags:" {
            let (start, end) = current.take().ok_or(MapsError::Malformed { line })?;
            found.push(vm_flags(start, end, text));
        } else if !first.ends_with(b":") {
            current = Some(range(first).ok_or(MapsError::Malformed { line })?);
        }
    }
    Ok(found)
}

fn vm_flags(start: u64, end: u64, text: &[u8]) -> VmFlags {
    let mut flags = VmFlags {
        start,
        end,
        ..VmFlags::default()
    };
    for flag in text.split(|&byte| byte == b' ') {
        match flag {
            b"lo" => flags.locked = true,
            b"ht" => flags.hugetlb = true,
            b"io" | b"pf" => flags.device = true,
            b"gd" => flags.grows_down = true,
            b"um" => flags.uffd_missing = true,
            b"uw" => flags.uffd_wp = true,
            b"dc" => flags.dont_copy = true,
            b"wf" => flags.wipe_on_fork = true,
            b"dp" | b"dr" => flags.droppable = true,
            b"sl" => flags.sealed = true,
            b"ss" => flags.shadow_stack = true,
            _ => {}
        }
    }
    flags
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
