//! Which mappings a process has in a range, without reading all of /proc/PID/maps (PROCMAP_QUERY, Linux 6.11).
//!
//! One descriptor per process, kept open. Calls may run concurrently. An answer is true only of the moment of each
//! query. On older kernels each call reads the whole file.

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};

use linux_raw_sys::general as raw;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, opcode};

use crate::looks;
use crate::memory::maps::{self, Mapping, MapsError};

const QUERY: Opcode = opcode::read_write::<raw::procmap_query>(b'f', 17);
const _: () = assert!(QUERY == 0xc068_6611);

const WRITABLE: u64 = raw::procmap_query_flags::PROCMAP_QUERY_VMA_WRITABLE as u64;
const EXECUTABLE: u64 = raw::procmap_query_flags::PROCMAP_QUERY_VMA_EXECUTABLE as u64;
const SHARED: u64 = raw::procmap_query_flags::PROCMAP_QUERY_VMA_SHARED as u64;
const COVERING_OR_NEXT: u64 = raw::procmap_query_flags::PROCMAP_QUERY_COVERING_OR_NEXT_VMA as u64;

/// Room for the name of memory without a file: `[anon:` and 80 bytes that the program chose.
const NAME_BYTES: usize = 128;

/// A mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vma {
    /// First address.
    pub start: u64,
    /// End, exclusive.
    pub end: u64,
    /// May be written.
    pub writable: bool,
    /// May be executed.
    pub executable: bool,
    /// Private, and without a file.
    pub anonymous: bool,
}

/// Names a file, as long as anybody has it open or mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileId {
    device: (u32, u32),
    inode: u64,
}

impl FileId {
    /// The file behind a descriptor.
    ///
    /// # Errors
    /// The errno of fstat.
    pub fn of(descriptor: impl AsFd) -> Result<FileId, Errno> {
        let stat = rustix::fs::fstat(descriptor)?;
        let device = (
            rustix::fs::major(stat.st_dev),
            rustix::fs::minor(stat.st_dev),
        );
        Ok(FileId {
            device,
            inode: stat.st_ino,
        })
    }
}

/// The mappings of one process image. After an exec it still names the old image, which is gone.
#[derive(Debug)]
pub struct ProcMap {
    fd: OwnedFd,
    pid: u32,
}

impl ProcMap {
    /// Opens the mappings of `pid`.
    ///
    /// # Errors
    /// As `MapsError` says.
    pub fn open(pid: u32) -> Result<ProcMap, MapsError> {
        let path = format!("/proc/{pid}/maps");
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(meaning)?;
        Ok(ProcMap { fd, pid })
    }

    /// The parts of [start, end) that are mapped, one for each mapping, in address order.
    ///
    /// # Errors
    /// As `MapsError` says; `Gone` when the process has no memory any more.
    pub fn mapped(&self, start: u64, end: u64) -> Result<Vec<Range<u64>>, MapsError> {
        let parts = self.parts(start, end)?;
        Ok(parts.into_iter().map(|(range, _)| range).collect())
    }

    /// Those mapped parts that are shared or have a file; /dev/zero counts as a file.
    ///
    /// # Errors
    /// As `MapsError` says; `Gone` when the process has no memory any more.
    pub fn not_anonymous(&self, start: u64, end: u64) -> Result<Vec<Range<u64>>, MapsError> {
        let parts = self.parts(start, end)?;
        let others = parts.into_iter().filter(|(_, anonymous)| !anonymous);
        Ok(others.map(|(range, _)| range).collect())
    }

    /// The private mappings without a file, from the one that holds `from` or the next one on, in address order. The
    /// main stack and the kernel's own mappings are not among them. There are `most` of them, or fewer if there are no
    /// more; before Linux 6.11 always all. Two system calls for each, no lock of the process for longer than one.
    ///
    /// # Errors
    /// As `MapsError` says; `Gone` when the process has no memory any more.
    pub fn private_anonymous(&self, from: u64, most: usize) -> Result<Vec<Range<u64>>, MapsError> {
        let (mut found, mut at) = (Vec::new(), from);
        while found.len() < most {
            let mapping = match self.query(at, COVERING_OR_NEXT) {
                Ok(mapping) => mapping,
                Err(Errno::NOENT) => break,
                Err(Errno::NOTTY) => return self.private_anonymous_by_text(from),
                Err(errno) => return Err(meaning(errno)),
            };
            at = mapping.end;
            if mapping.anonymous && self.is_named_as_memory(mapping.start)? {
                found.push(mapping.start..mapping.end);
            }
        }
        Ok(found)
    }

    /// Does a private mapping without a file have the name of ordinary memory? It may have changed since it was found:
    /// whatever is there now is told apart later.
    fn is_named_as_memory(&self, start: u64) -> Result<bool, MapsError> {
        let mut name = [0; NAME_BYTES];
        match self.ask(start, 0, &mut name) {
            Ok(query) => {
                // Without its end. No name at all has length 0.
                let bytes = (query.vma_name_size as usize).saturating_sub(1);
                Ok(maps::is_name_of_memory(&name[..bytes.min(NAME_BYTES)]))
            }
            // No other mapping without a file has such a long name.
            Err(Errno::NAMETOOLONG) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(meaning(errno)),
        }
    }

    fn private_anonymous_by_text(&self, from: u64) -> Result<Vec<Range<u64>>, MapsError> {
        let mut text = Vec::new();
        maps::read(self.pid, &mut text)?;
        Ok(maps::parse(&text)
            .filter_map(Result::ok)
            .filter(|mapping| mapping.end > from && mapping.private_anonymous())
            .map(|mapping| mapping.start..mapping.end)
            .collect())
    }

    /// Each mapped part. True if it is private and without a file.
    fn parts(&self, start: u64, end: u64) -> Result<Vec<(Range<u64>, bool)>, MapsError> {
        let (mut found, mut at) = (Vec::new(), start);
        while at < end {
            match self.query(at, COVERING_OR_NEXT) {
                Ok(mapping) if mapping.start >= end => break,
                Ok(mapping) => {
                    let range = mapping.start.max(at)..mapping.end.min(end);
                    found.push((range, mapping.anonymous));
                    at = mapping.end;
                }
                Err(Errno::NOENT) => break,
                Err(Errno::NOTTY) => return self.parts_by_text(start, end),
                Err(errno) => return Err(meaning(errno)),
            }
        }
        Ok(found)
    }

    /// The mapping that holds `address`. None if there is none, or before Linux 6.11.
    pub fn at(&self, address: u64) -> Option<Vma> {
        self.query(address, 0).ok()
    }

    /// Is anything mapped at `address`? None before Linux 6.11.
    ///
    /// # Errors
    /// As `MapsError` says; `Gone` when the process has no memory any more.
    pub fn is_mapped(&self, address: u64) -> Result<Option<bool>, MapsError> {
        match self.query(address, 0) {
            Ok(_) => Ok(Some(true)),
            Err(Errno::NOENT) => Ok(Some(false)),
            Err(Errno::NOTTY) => Ok(None),
            Err(errno) => Err(meaning(errno)),
        }
    }

    /// The file that is mapped at `address`. None if there is no mapping, or one without a file. Touches no memory of
    /// the process.
    pub fn file_at(&self, address: u64) -> Option<FileId> {
        match self.ask(address, 0, &mut []) {
            Ok(query) => (query.inode != 0).then_some(FileId {
                device: (query.dev_major, query.dev_minor),
                inode: query.inode,
            }),
            Err(Errno::NOTTY) => self.file_at_by_text(address),
            Err(_) => None,
        }
    }

    fn query(&self, address: u64, flags: u64) -> Result<Vma, Errno> {
        let query = self.ask(address, flags, &mut [])?;
        Ok(Vma {
            start: query.vma_start,
            end: query.vma_end,
            writable: query.vma_flags & WRITABLE != 0,
            executable: query.vma_flags & EXECUTABLE != 0,
            anonymous: query.vma_flags & SHARED == 0 && query.inode == 0,
        })
    }

    /// Asks for the mapping at an address, and for its name if there is room for one.
    fn ask(&self, address: u64, flags: u64, name: &mut [u8]) -> Result<raw::procmap_query, Errno> {
        let name_size = u32::try_from(name.len()).unwrap_or(u32::MAX);
        let name_addr = match name_size {
            0 => 0,
            _ => name.as_mut_ptr().expose_provenance() as u64,
        };
        let mut query = raw::procmap_query {
            size: size_of::<raw::procmap_query>() as u64,
            query_flags: flags,
            query_addr: address,
            vma_start: 0,
            vma_end: 0,
            vma_flags: 0,
            vma_page_size: 0,
            vma_offset: 0,
            inode: 0,
            dev_major: 0,
            dev_minor: 0,
            vma_name_size: name_size,
            build_id_size: 0,
            vma_name_addr: name_addr,
            build_id_addr: 0,
        };
        // SAFETY: the ioctl reads and writes one procmap_query, which asks for no build id. The kernel writes nothing
        // else but the name, and of that no more than `name` has room for. rustix has no wrapper for it.
        unsafe { rustix::ioctl::ioctl(&self.fd, Updater::<QUERY, _>::new(&mut query)) }?;
        Ok(query)
    }

    fn file_at_by_text(&self, address: u64) -> Option<FileId> {
        let mut text = Vec::new();
        maps::read(self.pid, &mut text).ok()?;
        let mut mappings = maps::parse(&text).filter_map(Result::ok);
        let mapping = mappings.find(|mapping| (mapping.start..mapping.end).contains(&address))?;
        (mapping.inode != 0).then_some(FileId {
            device: mapping.device,
            inode: mapping.inode,
        })
    }

    fn parts_by_text(&self, start: u64, end: u64) -> Result<Vec<(Range<u64>, bool)>, MapsError> {
        let mut text = Vec::new();
        maps::read(self.pid, &mut text)?;
        let mappings = maps::parse(&text).filter_map(Result::ok);
        let part = |mapping: Mapping| {
            let range = mapping.start.max(start)..mapping.end.min(end);
            (range, !mapping.shared && mapping.inode == 0)
        };
        Ok(mappings
            .filter(|mapping| mapping.start < end && start < mapping.end)
            .map(part)
            .collect())
    }
}

fn meaning(errno: Errno) -> MapsError {
    match errno {
        Errno::NOENT | Errno::SRCH => MapsError::Gone,
        other => MapsError::Io(other.into()),
    }
}

/// Does `pid` have memory that is locked, or pinned for I/O for an unbounded time? Also true if that is not known.
pub fn holds_memory(pid: u32) -> bool {
    let status = looks::read_text(&format!("/proc/{pid}/status"));
    status.map_or(true, |text| parse_holds_memory(&text))
}

fn parse_holds_memory(status: &str) -> bool {
    let is_zero = |name| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.is_some_and(|kibibytes| kibibytes.split_whitespace().next() == Some("0"))
    };
    !(is_zero("VmLck:") && is_zero("VmPin:"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{HugePages, Mapping};

    const PAGE: u64 = 4096;

    #[test]
    fn a_query_finds_what_the_file_says() {
        let mapping = Mapping::anonymous(16 * 4096, HugePages::Never).unwrap();
        let start = mapping.address();
        let map = ProcMap::open(std::process::id()).unwrap();
        let end = start + 16 * PAGE;
        let pages = |from: u64, to: u64| start + from * PAGE..start + to * PAGE;
        // The mapping may have merged with a neighbour. Within the range asked for it is still one part.
        assert_eq!(map.mapped(start, end).unwrap(), [pages(0, 16)]);
        assert_eq!(
            map.mapped(start + PAGE, end - PAGE).unwrap(),
            [pages(1, 15)]
        );
        assert_eq!(map.mapped(start, start).unwrap(), []);
        assert_eq!(
            map.parts(start, end).unwrap(),
            map.parts_by_text(start, end).unwrap()
        );
        assert_eq!(map.not_anonymous(start, end).unwrap(), []);
        // Nothing is ever mapped in the first page.
        assert_eq!(map.mapped(0, PAGE).unwrap(), []);
    }

    #[test]
    fn private_memory_is_found_from_any_address_on_as_the_file_says() {
        let mapping = Mapping::anonymous(4 * 4096, HugePages::Never).unwrap();
        let map = ProcMap::open(std::process::id()).unwrap();
        // Other tests map and unmap meanwhile: what neither list has changed is in both.
        let all = map.private_anonymous(0, usize::MAX).unwrap();
        let by_text = map.private_anonymous_by_text(0).unwrap();
        let own = |all: &[Range<u64>]| {
            all.iter()
                .filter(|range| range.contains(&mapping.address()))
                .count()
        };
        assert_eq!((own(&all), own(&by_text)), (1, 1));
        let on_the_stack = 0_u8;
        let stack = (&raw const on_the_stack).addr() as u64;
        assert!(map.at(stack).is_some());
        let from = mapping.address() + PAGE;
        let next = map.private_anonymous(from, 1).unwrap();
        assert!(next.len() == 1 && next[0].contains(&from), "{next:?}");
        let mut text = Vec::new();
        maps::read(std::process::id(), &mut text).unwrap();
        let special = maps::parse(&text)
            .filter_map(Result::ok)
            .filter(|mapping| !mapping.private_anonymous());
        for mapping in special {
            assert!(
                !all.iter()
                    .any(|range| range.start == mapping.start && range.end == mapping.end),
                "{mapping:?}"
            );
        }
    }

    #[test]
    fn private_memory_of_a_file_is_not_anonymous() {
        let map = ProcMap::open(std::process::id()).unwrap();
        let code = private_memory_of_a_file_is_not_anonymous as fn() as usize as u64;
        let page = code / PAGE * PAGE;
        assert_eq!(
            map.not_anonymous(page, page + PAGE).unwrap(),
            vec![page..page + PAGE; 1]
        );
        let parts = map.parts_by_text(page, page + PAGE).unwrap();
        assert_eq!(parts, [(page..page + PAGE, false)]);
    }

    #[test]
    fn the_file_of_a_mapping_is_named_as_its_descriptor_names_it() {
        let file = crate::memory::memory_file("named", 4096).unwrap();
        let mapping = Mapping::shared(file.as_fd(), 4096).unwrap();
        let map = ProcMap::open(std::process::id()).unwrap();
        let named = FileId::of(&file).unwrap();
        assert_eq!(map.file_at(mapping.address()), Some(named));
        assert_eq!(map.file_at_by_text(mapping.address()), Some(named));
        let other = crate::memory::memory_file("named", 4096).unwrap();
        assert_ne!(FileId::of(&other).unwrap(), named);
        let anonymous = Mapping::anonymous(4096, HugePages::Never).unwrap();
        assert_eq!(map.file_at(anonymous.address()), None);
        assert_eq!(map.file_at_by_text(anonymous.address()), None);
    }

    #[test]
    fn a_process_that_does_not_exist_is_gone() {
        assert!(matches!(ProcMap::open(u32::MAX / 2), Err(MapsError::Gone)));
    }

    #[test]
    fn a_mapping_is_found_by_an_address_in_it() {
        let map = ProcMap::open(std::process::id()).unwrap();
        let on_the_stack = 0_u8;
        let address = (&raw const on_the_stack).addr() as u64;
        // Before Linux 6.11 there is no answer.
        let Some(vma) = map.at(address) else { return };
        assert!(vma.start <= address && address < vma.end);
        assert!(vma.writable && !vma.executable);
        let code = a_mapping_is_found_by_an_address_in_it as fn() as usize as u64;
        let vma = map.at(code).unwrap();
        assert!(vma.executable && !vma.writable);
        assert_eq!(map.at(0), None);
        let is_mapped = |address| map.is_mapped(address).unwrap();
        assert_eq!([code, 0].map(is_mapped), [Some(true), Some(false)]);
    }

    #[test]
    fn locked_and_pinned_memory_is_noticed() {
        let status = |locked: &str, pinned: &str| {
            format!("Name:\tx\nVmLck:\t{locked} kB\nVmPin:\t       {pinned} kB\nVmHWM:\t 9 kB\n")
        };
        assert!(!parse_holds_memory(&status("0", "0")));
        assert!(parse_holds_memory(&status("4", "0")));
        assert!(parse_holds_memory(&status("0", "64")));
        assert!(parse_holds_memory("Name:\tkthreadd\n"));
    }
}
