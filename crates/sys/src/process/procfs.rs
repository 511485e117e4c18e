//! Processes and memory sizes, from /proc.
//!
//! The parsers are pure and never panic. What is read about a process may be out of date when it is returned. A pid
//! together with its start time names a process for good.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::looks;
use crate::memory::pagemap::PAGE_BYTES;
use crate::process::ExitCode;

/// The pid that `descendants` leaves out; 0 for none.
static LEFT_OUT: AtomicU32 = AtomicU32::new(0);

/// Why a file of /proc could not be used.
#[derive(Debug, thiserror::Error)]
pub enum ProcError {
    /// No such process.
    #[error("the process has exited: forget it")]
    Gone,
    /// The text does not have the kernel's form.
    #[error("/proc/{file} is not of the form that Linux documents: is /proc a real procfs?")]
    Malformed {
        /// Name of the file.
        file: &'static str,
    },
    /// Reading failed.
    #[error("/proc cannot be read: {0}")]
    Io(std::io::Error),
}

impl From<std::io::Error> for ProcError {
    fn from(error: std::io::Error) -> ProcError {
        if error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH) {
            ProcError::Gone
        } else {
            ProcError::Io(error)
        }
    }
}

impl From<Errno> for ProcError {
    fn from(errno: Errno) -> ProcError {
        std::io::Error::from(errno).into()
    }
}

/// Sizes of a process, bytes. The kernel keeps them per CPU and adds them up loosely. On many CPUs they may be off by
/// some hundred pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Virtual.
    pub virtual_bytes: u64,
    /// Resident: anonymous, file and shared memory.
    pub resident_bytes: u64,
    /// The file and shared memory part of the resident memory.
    pub shared_bytes: u64,
}

impl Sizes {
    /// Resident private anonymous memory.
    pub fn anonymous_bytes(&self) -> u64 {
        self.resident_bytes.saturating_sub(self.shared_bytes)
    }
}

/// Sizes from the text of statm.
///
/// # Errors
/// `Malformed`.
pub fn parse_statm(text: &[u8]) -> Result<Sizes, ProcError> {
    let malformed = ProcError::Malformed { file: "PID/statm" };
    let mut fields = text.split(u8::is_ascii_whitespace).map(decimal);
    match (
        fields.next().flatten(),
        fields.next().flatten(),
        fields.next().flatten(),
    ) {
        (Some(size), Some(resident), Some(shared)) => Ok(Sizes {
            virtual_bytes: size.saturating_mul(PAGE_BYTES),
            resident_bytes: resident.saturating_mul(PAGE_BYTES),
            shared_bytes: shared.saturating_mul(PAGE_BYTES),
        }),
        _ => Err(malformed),
    }
}

fn decimal(digits: &[u8]) -> Option<u64> {
    if !digits.first()?.is_ascii_digit() {
        return None;
    }
    core::str::from_utf8(digits).ok()?.parse().ok()
}

/// The statm file of a process, kept open. It follows the process through exec.
#[derive(Debug)]
pub struct Statm {
    fd: OwnedFd,
}

impl Statm {
    /// Opens /proc/`pid`/statm.
    ///
    /// # Errors
    /// `Gone`, `Io`.
    pub fn open(pid: u32) -> Result<Statm, ProcError> {
        let path = format!("/proc/{pid}/statm");
        let fd = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Statm { fd })
    }

    /// The sizes now; all 0 for a zombie. One system call, no allocation.
    ///
    /// # Errors
    /// `Gone` once the process has been reaped.
    pub fn sizes(&self) -> Result<Sizes, ProcError> {
        /// Seven numbers of at most 20 digits with blanks between.
        const TEXT_BYTES_MAX: usize = 7 * 21;
        let mut text = [0u8; TEXT_BYTES_MAX];
        let read = rustix::io::pread(&self.fd, &mut text, 0)?;
        parse_statm(&text[..read])
    }
}

/// Resident bytes of this process.
///
/// # Errors
/// As `ProcError` says.
pub fn own_resident_bytes() -> Result<u64, ProcError> {
    Ok(parse_statm(&looks::read("/proc/self/statm")?)?.resident_bytes)
}

/// In the flags of a thread: it has begun to exit (linux/sched.h).
const PF_EXITING: u64 = 0x4;

/// What stat says about a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// Process id.
    pub pid: u32,
    /// Name of the main thread, at most 15 bytes.
    pub comm: String,
    /// State letter: R, S, D, T, t, Z, X, I.
    pub state: u8,
    /// Parent's process id.
    pub parent: u32,
    /// Its main thread is ending, and may have no memory any more. Such a thread still has the state R, S or D.
    pub is_exiting: bool,
    /// Faults of all its threads that were served without reading from a device.
    pub minor_faults: u64,
    /// CPU time of the process, in clock ticks.
    pub cpu_ticks: u64,
    /// CPU time of children that it has waited for, and of theirs, in clock ticks.
    pub children_cpu_ticks: u64,
    /// Threads.
    pub threads: u32,
    /// Start time in clock ticks since boot.
    pub start_ticks: u64,
}

impl Stat {
    /// Does it still run? False for a zombie and for a dead process.
    pub fn alive(&self) -> bool {
        !matches!(self.state, b'Z' | b'X' | b'x')
    }

    /// Whether it was stopped, by a signal or a debugger.
    pub fn stopped(&self) -> bool {
        matches!(self.state, b'T' | b't')
    }
}

/// A process from the text of stat. The name may hold any bytes, brackets and line ends included.
///
/// # Errors
/// `Malformed`.
pub fn parse_stat(text: &[u8]) -> Result<Stat, ProcError> {
    stat_fields(text).ok_or(ProcError::Malformed { file: "PID/stat" })
}

fn stat_fields(text: &[u8]) -> Option<Stat> {
    let open = text.iter().position(|&byte| byte == b'(')?;
    let close = text
        .iter()
        .rposition(|&byte| byte == b')')
        .filter(|&close| close > open)?;
    let pid = u32::try_from(decimal(text[..open].trim_ascii())?).ok()?;
    // After the name, field 3 of proc(5) comes first.
    let fields: Vec<&[u8]> = text[close + 1..]
        .split(u8::is_ascii_whitespace)
        .filter(|f| !f.is_empty())
        .collect();
    let field = |number: usize| fields.get(number - 3).copied();
    // In user mode, and in the kernel.
    let ticks = |number| decimal(field(number)?)?.checked_add(decimal(field(number + 1)?)?);
    Some(Stat {
        pid,
        comm: String::from_utf8_lossy(&text[open + 1..close]).into_owned(),
        state: *field(3)?.first()?,
        parent: u32::try_from(decimal(field(4)?)?).ok()?,
        is_exiting: decimal(field(9)?)? & PF_EXITING != 0,
        minor_faults: decimal(field(10)?)?,
        cpu_ticks: ticks(14)?,
        children_cpu_ticks: ticks(16)?,
        threads: u32::try_from(decimal(field(20)?)?).ok()?,
        start_ticks: decimal(field(22)?)?,
    })
}

/// The ids of the threads of a process. The leader stays among them after it has ended.
///
/// # Errors
/// `Gone`, `Io`.
pub fn threads(pid: u32) -> Result<Vec<u32>, ProcError> {
    let mut found = Vec::new();
    for name in looks::names(&format!("/proc/{pid}/task"))? {
        let tid = decimal(name.as_encoded_bytes());
        found.extend(tid.and_then(|tid| u32::try_from(tid).ok()));
    }
    Ok(found)
}

/// The id of a thread in its innermost pid namespace.
///
/// # Errors
/// `Gone`, `Malformed`, `Io`.
pub fn innermost_tid(pid: u32, tid: u32) -> Result<u32, ProcError> {
    let text = looks::read(&format!("/proc/{pid}/task/{tid}/status"))?;
    let id = text
        .split(|&byte| byte == b'\n')
        .find_map(|line| line.strip_prefix(b"NSpid:"))
        .and_then(|ids| ids.trim_ascii().rsplit(u8::is_ascii_whitespace).next())
        .and_then(decimal);
    id.and_then(|id| u32::try_from(id).ok())
        .ok_or(ProcError::Malformed {
            file: "task/status",
        })
}

/// How the main thread of a process has ended. None while it runs.
///
/// # Errors
/// `Gone`, `Malformed`, `Io`.
pub fn leader_exit_code(pid: u32) -> Result<Option<ExitCode>, ProcError> {
    /// Index behind the name. proc(5) counts from 1, and the state, which is the first behind the name, is field 3.
    const EXIT_CODE: usize = 52 - 3;
    let malformed = || ProcError::Malformed { file: "task/stat" };
    let text = looks::read(&format!("/proc/{pid}/task/{pid}/stat"))?;
    let close = text.iter().rposition(|&byte| byte == b')');
    let behind = &text[close.ok_or_else(malformed)? + 1..];
    let fields: Vec<&[u8]> = behind
        .split(u8::is_ascii_whitespace)
        .filter(|field| !field.is_empty())
        .collect();
    let code = fields.get(EXIT_CODE).and_then(|code| decimal(code));
    let code = code.and_then(|code| u32::try_from(code).ok());
    let has_ended = matches!(fields.first(), Some(&b"Z" | &b"X"));
    let code = ExitCode::of(code.ok_or_else(malformed)?);
    Ok(has_ended.then_some(code))
}

/// stat of one process.
///
/// # Errors
/// `Gone`, `Malformed`, `Io`.
pub fn stat(pid: u32) -> Result<Stat, ProcError> {
    parse_stat(&looks::read(&format!("/proc/{pid}/stat"))?)
}

/// stat of one thread of a process.
///
/// # Errors
/// `Gone`, `Malformed`, `Io`.
pub fn thread_stat(pid: u32, tid: u32) -> Result<Stat, ProcError> {
    parse_stat(&looks::read(&format!("/proc/{pid}/task/{tid}/stat"))?)
}

/// Is every thread of a process stopped, by a signal or a debugger, or ended? False of a process that has gone.
pub fn is_stopped(pid: u32) -> bool {
    let rests = |tid| thread_stat(pid, tid).is_ok_and(|stat| stat.stopped() || !stat.alive());
    threads(pid).is_ok_and(|tids| !tids.is_empty() && tids.into_iter().all(rests))
}

/// How long so many clock ticks are, as `Stat` has them.
pub fn duration_of_ticks(ticks: u64) -> Duration {
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    Duration::from_secs(ticks / per_second)
        + Duration::from_nanos(ticks % per_second * 1_000_000_000 / per_second)
}

/// Does `pid` run, and is it the process that started at `start_ticks` (if given)?
pub fn is_alive(pid: u32, start_ticks: Option<u64>) -> bool {
    stat(pid)
        .is_ok_and(|stat| stat.alive() && start_ticks.is_none_or(|ticks| ticks == stat.start_ticks))
}

/// The stat of every process that can be seen, zombies included. Reads one file per process of the machine.
///
/// # Errors
/// `Io` when /proc cannot be listed.
pub fn processes() -> Result<Vec<Stat>, ProcError> {
    let mut found = Vec::new();
    for name in looks::names("/proc")? {
        let Some(pid) = decimal(name.as_encoded_bytes()).and_then(|pid| u32::try_from(pid).ok())
        else {
            continue;
        };
        // Leaves out a process that has exited since the listing.
        found.extend(stat(pid).ok());
    }
    Ok(found)
}

/// Children of `pid`, zombies included. Children that were handed to another parent are not among them.
///
/// # Errors
/// `Io`.
pub fn children(pid: u32) -> Result<Vec<u32>, ProcError> {
    Ok(processes()?
        .iter()
        .filter(|stat| stat.parent == pid)
        .map(|stat| stat.pid)
        .collect())
}

/// All descendants of `pid`, parents before children, without `pid` itself and without the process that is left out. If
/// its parent has exited, a process belongs to init or to a subreaper: make the caller a subreaper to keep them
/// together.
///
/// # Errors
/// `Io`.
pub fn descendants(pid: u32) -> Result<Vec<u32>, ProcError> {
    descendants_of(&[pid])
}

/// The same for several processes. One of them that descends from another is left out too.
///
/// # Errors
/// `Io`.
pub fn descendants_of(pids: &[u32]) -> Result<Vec<u32>, ProcError> {
    Ok(descendants_in(&processes()?, pids))
}

/// The same among processes that are listed already.
pub(crate) fn descendants_in(all: &[Stat], pids: &[u32]) -> Vec<u32> {
    let mut found = descendants_among(all, pids);
    let left_out = LEFT_OUT.load(Ordering::Relaxed);
    found.retain(|pid| *pid != left_out);
    found
}

/// As [`descendants`], from the lists of children that the kernel keeps for each thread. This costs a run of a few
/// processes next to nothing, however many others there are. But while a child ends, others may be missing: for whoever
/// looks again soon.
///
/// # Errors
/// `Io`; a kernel without these lists (CONFIG_PROC_CHILDREN).
pub fn descendants_listed(pid: u32) -> Result<Vec<u32>, ProcError> {
    let mut found = descendants_by(pid, children_listed)?;
    let left_out = LEFT_OUT.load(Ordering::Relaxed);
    found.retain(|pid| *pid != left_out);
    Ok(found)
}

/// The descendants that `children` names, parents before children.
fn descendants_by(
    pid: u32,
    mut children: impl FnMut(u32) -> Result<Vec<u32>, ProcError>,
) -> Result<Vec<u32>, ProcError> {
    let mut found = children(pid)?;
    let mut known: HashSet<u32> = found.iter().copied().collect();
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        // It may have gone.
        let born = children(parent).unwrap_or_default();
        found.extend(born.into_iter().filter(|child| known.insert(*child)));
        next += 1;
    }
    Ok(found)
}

/// The children of a process, from the same lists.
///
/// # Errors
/// As for [`descendants_listed`].
pub fn children_listed(pid: u32) -> Result<Vec<u32>, ProcError> {
    let mut children = Vec::new();
    for tid in threads(pid)? {
        let list = looks::read_text(&format!("/proc/{pid}/task/{tid}/children"))?;
        children.extend(
            list.split_ascii_whitespace()
                .filter_map(|child| child.parse::<u32>().ok()),
        );
    }
    Ok(children)
}

/// Leaves out a child of this process that is not one of a run: its guardian. None leaves nothing out.
#[cfg(feature = "supervisor")]
pub(crate) fn leave_out(pid: Option<u32>) {
    LEFT_OUT.store(pid.unwrap_or(0), Ordering::Relaxed);
}

fn descendants_among(all: &[Stat], pids: &[u32]) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for stat in all {
        children.entry(stat.parent).or_default().push(stat.pid);
    }
    let mut known: HashSet<u32> = pids.iter().copied().collect();
    let mut found = pids.to_vec();
    let mut next = 0;
    while let Some(parent) = found.get(next) {
        let born = children.remove(parent).unwrap_or_default();
        found.extend(born.into_iter().filter(|pid| known.insert(*pid)));
        next += 1;
    }
    found.drain(..pids.len());
    found
}

/// Real, effective, saved and file-system user ids of `pid`.
///
/// # Errors
/// `Gone`, `Malformed`, `Io`.
pub fn uids(pid: u32) -> Result<[u32; 4], ProcError> {
    let text = looks::read(&format!("/proc/{pid}/status"))?;
    parse_ids(&text, b"Uid:").ok_or(ProcError::Malformed { file: "PID/status" })
}

fn parse_ids(text: &[u8], key: &[u8]) -> Option<[u32; 4]> {
    let line = text
        .split(|&byte| byte == b'\n')
        .find_map(|line| line.strip_prefix(key))?;
    let mut ids = line
        .split(u8::is_ascii_whitespace)
        .filter(|id| !id.is_empty());
    let mut next = || u32::try_from(decimal(ids.next()?)?).ok();
    Some([next()?, next()?, next()?, next()?])
}

/// Memory of the machine, bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemInfo {
    /// MemTotal.
    pub total_bytes: u64,
    /// MemAvailable.
    pub available_bytes: u64,
    /// SwapTotal of the kernel's own swap.
    pub swap_total_bytes: u64,
}

/// Memory of the machine from the text of meminfo.
///
/// # Errors
/// `Malformed` without MemTotal.
pub fn parse_meminfo(text: &[u8]) -> Result<MemInfo, ProcError> {
    let value = |key: &[u8]| {
        let line = text
            .split(|&byte| byte == b'\n')
            .find_map(|line| line.strip_prefix(key))?;
        let digits = line.trim_ascii_start().split(|&byte| byte == b' ').next()?;
        Some(decimal(digits)?.saturating_mul(1024))
    };
    Ok(MemInfo {
        total_bytes: value(b"MemTotal:").ok_or(ProcError::Malformed { file: "meminfo" })?,
        available_bytes: value(b"MemAvailable:").unwrap_or(0),
        swap_total_bytes: value(b"SwapTotal:").unwrap_or(0),
    })
}

/// Memory of the machine.
///
/// # Errors
/// `Malformed`, `Io`.
pub fn meminfo() -> Result<MemInfo, ProcError> {
    parse_meminfo(&looks::read("/proc/meminfo")?)
}

/// The id that was given out last in this pid namespace, from the text of loadavg.
///
/// # Errors
/// `Malformed`.
pub fn parse_last_pid(text: &[u8]) -> Result<u32, ProcError> {
    let malformed = ProcError::Malformed { file: "loadavg" };
    let mut fields = text
        .split(u8::is_ascii_whitespace)
        .filter(|field| !field.is_empty());
    let pid = fields
        .nth(4)
        .and_then(decimal)
        .and_then(|pid| u32::try_from(pid).ok());
    pid.filter(|_| fields.next().is_none()).ok_or(malformed)
}

/// Tells whether a process or a thread was started in this pid namespace, or in one within it, since it was last asked.
#[derive(Debug, Default)]
pub struct Births {
    last_pid: Option<u32>,
}

impl Births {
    /// Was one started? True the first time, and where the kernel does not tell. Reads one short file.
    pub fn any(&mut self) -> bool {
        let text = looks::read("/proc/loadavg").ok();
        let last_pid = text.and_then(|text| parse_last_pid(&text).ok());
        let before = std::mem::replace(&mut self.last_pid, last_pid);
        last_pid.is_none() || last_pid != before
    }
}

/// Paths of the kernel's active swap areas, from the text of swaps. The path of a deleted file ends in ` (deleted)`.
///
/// # Errors
/// `Malformed`.
pub fn parse_swaps(text: &[u8]) -> Result<Vec<PathBuf>, ProcError> {
    /// Path, kind, size, used size and priority.
    const FIELDS: usize = 5;
    let malformed = || ProcError::Malformed { file: "swaps" };
    let mut lines = text.split(|&byte| byte == b'\n');
    if !lines
        .next()
        .is_some_and(|line| line.starts_with(b"Filename"))
    {
        return Err(malformed());
    }
    let mut paths = Vec::new();
    for line in lines.filter(|line| !line.is_empty()) {
        let fields: Vec<&[u8]> = line
            .split(|byte| matches!(byte, b' ' | b'\t'))
            .filter(|field| !field.is_empty())
            .collect();
        match fields.first() {
            Some(path) if fields.len() == FIELDS => paths.push(unescape(path)),
            _ => return Err(malformed()),
        }
    }
    Ok(paths)
}

/// Paths of the kernel's active swap areas, as they were when swapping to them began; empty if the kernel has no swap.
///
/// # Errors
/// `Malformed`, `Io`.
pub fn swaps() -> Result<Vec<PathBuf>, ProcError> {
    match looks::read("/proc/swaps") {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        text => parse_swaps(&text?),
    }
}

/// A path from the form of /proc files, in which each blank and backslash is a backslash and three octal digits.
pub(crate) fn unescape(text: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        let octal = tail
            .first_chunk::<3>()
            .filter(|_| first == b'\\')
            .and_then(|digits| u8::from_str_radix(core::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(octal.unwrap_or(first));
        if octal.is_some() {
            rest = &tail[3..];
        }
    }
    path_of(bytes)
}

/// The path with these bytes.
pub(crate) fn path_of(bytes: Vec<u8>) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
#[path = "procfs_tests.rs"]
mod tests;
