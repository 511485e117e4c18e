//! Where the memory of a workload lies: in a mapping of its own, in one of a file, or in an arena inside of a limit on
//! the whole process.
//!
//! That limit counts all that is resident in the process, program text and stacks too, and its page tables. So the
//! arena gets what is left of it when the rest has been counted.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use rustix::fs::{Mode, OFlags};
use vswap_arena::{Arena, Stats};

use crate::region::{HugePages, PAGE_BYTES, Region};
use crate::size::parse_bytes;

/// What the process takes for each page of the workload beside the arena: the version, and the kernel's entry in a page
/// table.
const BESIDE_PAGE_BYTES: usize = size_of::<u32>() + size_of::<u64>();
/// What it takes later than it is counted: program text that has not run yet, stacks, buffers, histograms. Of this the
/// program took 2.4 MiB.
const LATER_BYTES: usize = 4 << 20;
/// The names under which the figures of memory are printed.
const PEAK: &str = "peak_total_bytes";

/// Options of workloads whose memory may lie in an arena.
#[derive(Args, Debug, Default)]
pub struct Placement {
    /// Put the memory into an arena of vswap's library. The whole process may take this much RAM.
    #[arg(long, value_name = "RAM", value_parser = parse_bytes, conflicts_with = "hugepage")]
    arena: Option<usize>,
    /// Let the memory be a shared mapping of a file without a name in this directory.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["hugepage", "arena"])]
    mmap: Option<PathBuf>,
}

/// Memory of a workload, and the arena that it lies in if it does.
pub(super) struct Placed {
    pub(super) region: Region,
    pub(super) arena: Option<Arena>,
}

impl Placement {
    /// Takes the memory.
    ///
    /// # Errors
    /// The mapping, its file or the arena cannot be made.
    pub(super) fn place(&self, pages: usize, huge: HugePages) -> io::Result<Placed> {
        let Some(total) = self.arena else {
            let region = match &self.mmap {
                Some(directory) => Region::of_file(pages, &unnamed_file(directory)?)?,
                None => Region::new(pages, huge)?,
            };
            return Ok(Placed {
                region,
                arena: None,
            });
        };
        let beside = Memory::now()?.total_bytes() + LATER_BYTES + pages * BESIDE_PAGE_BYTES;
        let arena = Arena::builder()
            .ram(total.saturating_sub(beside) as u64)
            .capacity((pages * PAGE_BYTES) as u64)
            .build()
            .map_err(io::Error::other)?;
        Ok(Placed {
            region: Region::in_arena(&arena, pages).map_err(io::Error::other)?,
            arena: Some(arena),
        })
    }
}

fn unnamed_file(directory: &Path) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR)?;
    Ok(File::from(file))
}

/// A line of JSON with what a process took at its peak, and what its arena has done.
///
/// # Errors
/// The kernel does not say it.
pub(super) fn memory_line(arena: &Arena) -> io::Result<String> {
    let Stats {
        ram_bytes,
        used_bytes,
        pool_bytes,
        evicted_pages,
        clean_drops,
        pool_faults,
        ..
    } = arena.stats();
    let line = serde_json::json!({
        PEAK: Memory::peak()?.total_bytes(),
        "arena_ram_bytes": ram_bytes,
        "arena_used_bytes": used_bytes,
        "arena_pool_bytes": pool_bytes,
        "evicted_pages": evicted_pages,
        "clean_drops": clean_drops,
        "pool_faults": pool_faults,
    });
    Ok(line.to_string())
}

/// The object of [`memory_line`] in the output of a workload.
pub(crate) fn memory_in(stdout: &str) -> Option<serde_json::Value> {
    let mut lines = stdout.lines().filter(|line| line.starts_with('{'));
    lines.find_map(|line| {
        let object: serde_json::Value = serde_json::from_str(line).ok()?;
        object.get(PEAK).is_some().then_some(object)
    })
}

/// Memory of this process, as the kernel counts it.
#[derive(Debug, PartialEq)]
struct Memory {
    resident_bytes: usize,
    page_table_bytes: usize,
}

impl Memory {
    fn now() -> io::Result<Memory> {
        Memory::read("VmRSS:")
    }

    /// Page tables are freed when their memory is, so at the end of a workload they are at their peak too.
    fn peak() -> io::Result<Memory> {
        Memory::read("VmHWM:")
    }

    fn read(resident: &str) -> io::Result<Memory> {
        let status = std::fs::read_to_string("/proc/self/status")?;
        let missing = || io::Error::other("/proc/self/status does not say how much memory is used");
        Memory::parse(&status, resident).ok_or_else(missing)
    }

    fn parse(status: &str, resident: &str) -> Option<Memory> {
        let bytes = |name: &str| -> Option<usize> {
            let rest = status.lines().find_map(|line| line.strip_prefix(name))?;
            let kib: usize = rest.trim().strip_suffix(" kB")?.parse().ok()?;
            Some(kib << 10)
        };
        Some(Memory {
            resident_bytes: bytes(resident)?,
            page_table_bytes: bytes("VmPTE:")?,
        })
    }

    const fn total_bytes(&self) -> usize {
        self.resident_bytes + self.page_table_bytes
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::{FillReadWrite, Mismatch, Setup, phases::Run};
    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: FillReadWrite,
    }

    /// Content, and what the process of the test may take beside what it has already: the content does not fit.
    const CONTENT: &str = "64M";
    const MORE_BYTES: usize = 40 << 20;

    fn run(words: &[&str]) -> (Setup, Result<(), Mismatch>) {
        let total = Memory::now().unwrap().total_bytes() + MORE_BYTES;
        let total = total.to_string();
        let words = [&["fill-read-write", CONTENT, "--arena", &total], words].concat();
        let options = Line::parse_from(words).options;
        let setup = options.common.setup_in(&options.placement).unwrap();
        let result = Run::new(&setup, options.common.seed).all(&options);
        (setup, result)
    }

    #[test]
    fn content_that_an_arena_has_no_ram_for_is_all_there() {
        let (setup, result) = run(&["--threads", "2"]);
        assert!(result.is_ok(), "{}", result.unwrap_err());
        let stats = setup.arena.as_ref().unwrap().stats();
        assert!(stats.ram_bytes < MORE_BYTES as u64, "{stats:?}");
        assert!(
            stats.pool_faults > 0 && stats.evicted_pages > 0,
            "{stats:?}"
        );
        let line = memory_line(setup.arena.as_ref().unwrap()).unwrap();
        assert!(memory_in(&line).unwrap()[PEAK].as_u64().unwrap() > stats.pool_bytes);
    }

    #[test]
    fn a_byte_that_was_changed_in_an_arena_is_found() {
        let (_setup, result) = run(&["--sabotage"]);
        let error = result.expect_err("a changed byte");
        assert!(error.to_string().contains("wrong byte"), "{error}");
    }

    #[test]
    fn content_in_a_file_is_all_there_and_a_changed_byte_is_found() {
        let run = |words: &[&str]| {
            let words = [&["fill-read-write", "8M", "--mmap", "."], words].concat();
            let options = Line::parse_from(words).options;
            let setup = options.common.setup_in(&options.placement).unwrap();
            Run::new(&setup, options.common.seed).all(&options)
        };
        assert!(run(&[]).is_ok());
        assert!(run(&["--sabotage"]).is_err());
    }

    #[test]
    fn an_arena_has_no_huge_pages() {
        let words = ["x", "1M", "--arena", "64M", "--hugepage", "always"];
        assert!(Line::try_parse_from(words).is_err());
    }

    #[test]
    fn memory_is_what_is_resident_and_page_tables() {
        let status = "Name:\tx\nVmHWM:\t    300 kB\nVmRSS:\t     20 kB\nVmPTE:\t 4 kB\n";
        let peak = Memory::parse(status, "VmHWM:").unwrap();
        assert_eq!(peak.total_bytes(), 304 << 10);
        assert_eq!(Memory::parse("VmRSS:\t20 kB\n", "VmRSS:"), None);
    }

    #[test]
    fn the_line_is_found_among_those_of_phases() {
        let stdout = "{\"phase\":\"fill\"}\n{\"peak_total_bytes\":7,\"pool_faults\":1}\n";
        assert_eq!(memory_in(stdout).unwrap()["peak_total_bytes"], 7);
        assert_eq!(memory_in("{\"phase\":\"fill\"}\nnoise\n"), None);
    }

    #[test]
    fn a_limit_that_leaves_nothing_for_an_arena_is_an_error() {
        let placement = Placement {
            arena: Some(1 << 20),
            mmap: None,
        };
        let error = placement
            .place(1, HugePages::Never)
            .err()
            .expect("too little");
        assert!(error.to_string().contains("8"), "{error}");
    }
}
