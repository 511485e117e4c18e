//! Programs that need more memory than they get, and notice when its content changes.
//!
//! Every byte can be recomputed, so each run ends with a comparison of all of them. A run prints one line per phase,
//! `key=value` or JSON. Exit status 0 means that the content was right, 1 that it was not, 2 that the run could not be
//! done.

use std::io::Write;
use std::num::NonZeroUsize;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use vswap_arena::Arena;

use crate::content::{Content, Kind};
use crate::engine_bench;
use crate::measure::{Phase, Stage};
use crate::region::{HugePages, PAGE_BYTES, PAGE_WORDS, Region};
use crate::size::parse_bytes;

mod build;
mod device;
mod fork;
mod maps;
mod memhog;
mod phases;
mod placement;
mod prefork;
mod redis;
mod sparse;
mod usemem;
mod zipf;

use placement::{Placed, Placement, memory_line};

pub(crate) use placement::memory_in;
pub use redis::server_words as redis_server;

/// Number of pages on which the printed lz4 ratio is measured.
const RATIO_SAMPLE_PAGES: usize = 2048;
/// Number of pages on which the cost of generating content is measured.
const GENERATE_SAMPLE_PAGES: usize = 20_000;

/// A workload and its options.
#[derive(Debug, Subcommand)]
pub enum Workload {
    /// Fill memory, read it in order, read and write it at random, verify all of it.
    FillReadWrite(FillReadWrite),
    /// Fill memory, use few of its pages often and take turns with them, verify all of it.
    Zipf(Zipf),
    /// Fill memory as fast as possible, then rewrite and verify it again and again.
    Memhog(Memhog),
    /// Use few pages of a large address space, or of many mappings, and verify them.
    Sparse(Sparse),
    /// Fill memory, then map, use and unmap other memory again and again, verify all of it.
    MapUnmap(MapUnmap),
    /// Run tasks that write their memory word by word, with the options of vm-scalability's usemem.
    Usemem(usemem::Usemem),
    /// Run a large parent that forks again and again.
    Fork(fork::Fork),
    /// Fill half the memory, fork children that wait, fill the other half, verify all of it everywhere.
    Prefork(Prefork),
    /// Compile all C files of a tree, and print a checksum of the objects.
    Build(build::Build),
    /// Load a redis server, read it back in several ways, and end it.
    RedisClient(redis::RedisClient),
    /// Measure what fio gets from a disk, in order.
    Device(device::Device),
    /// Measure the engine alone.
    #[command(subcommand)]
    Engine(engine_bench::Command),
}

#[derive(Args, Debug)]
struct Common {
    /// Memory to use, such as 2G.
    #[arg(value_parser = parse_bytes)]
    size: usize,
    /// What the pages contain.
    #[arg(long, value_enum, default_value = "mixed")]
    content: Kind,
    /// Seed of content and access order.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads, each with its own share of the pages.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Transparent huge pages for the memory.
    #[arg(long, value_enum, default_value = "never")]
    hugepage: HugePages,
    /// Print one JSON object per phase instead of key=value lines.
    #[arg(long)]
    json: bool,
    /// Print how well lz4 and zstd compress the content, and what making the content costs.
    #[arg(long)]
    ratio: bool,
    /// Change one byte behind the workload's back, to see that the workload notices.
    #[arg(long, hide = true)]
    sabotage: bool,
}

/// Options of `fill-read-write`.
#[derive(Args, Debug)]
pub struct FillReadWrite {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    placement: Placement,
    /// Accesses of each random phase. Default: as many as there are pages.
    #[arg(long)]
    count: Option<usize>,
    /// Add a phase that reads from the end to the beginning.
    #[arg(long)]
    backward: bool,
    /// Add a phase with Zipf-distributed accesses of this exponent, such as 0.99.
    #[arg(long)]
    zipf: Option<f64>,
    /// Share of writes in the Zipf phase, in percent.
    #[arg(long, default_value_t = 20)]
    zipf_write_percent: usize,
}

/// Options of `zipf`.
#[derive(Args, Debug)]
pub struct Zipf {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    placement: Placement,
    /// Accesses in all. Default: as many as there are pages.
    #[arg(long)]
    count: Option<usize>,
    /// The exponent: the larger it is, the fewer pages are hot.
    #[arg(long, default_value_t = 0.99)]
    exponent: f64,
    /// Share of writes, in percent.
    #[arg(long, default_value_t = 20)]
    write_percent: usize,
    /// Pages in a set of hot pages, in percent of all. During the set's turn no other page is used.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u8).range(1..=100))]
    hot_percent: u8,
    /// Number of hot sets, used one after the other.
    #[arg(long, default_value = "4")]
    hot_sets: NonZeroUsize,
}

/// Options of `memhog`.
#[derive(Args, Debug)]
pub struct Memhog {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    placement: Placement,
    /// How long to go on after the fill, in seconds.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
}

/// Options of `sparse`. The size is that of the address space.
#[derive(Args, Debug)]
pub struct Sparse {
    #[command(flatten)]
    common: Common,
    /// Pages to use.
    #[arg(long, default_value_t = 65_536)]
    pages: usize,
    /// Bytes from one page in use to the next, from the beginning on. Default: what spreads them over all.
    #[arg(long, value_parser = parse_bytes)]
    distance: Option<usize>,
    /// Mappings that the address space is cut into.
    #[arg(long, default_value_t = 1)]
    mappings: usize,
    /// Random reads. Default: as many as there are pages in use.
    #[arg(long)]
    count: Option<usize>,
}

/// Options of `map-unmap`. The size is that of the memory that stays.
#[derive(Args, Debug)]
pub struct MapUnmap {
    #[command(flatten)]
    common: Common,
    /// How often memory is mapped and unmapped, by all threads together.
    #[arg(long, default_value_t = 20_000)]
    count: usize,
}

/// Options of `prefork`.
#[derive(Args, Debug)]
pub struct Prefork {
    #[command(flatten)]
    common: Common,
    /// Children, which share the first half of the memory with their parent.
    #[arg(long, default_value = "20")]
    children: NonZeroUsize,
}

/// Content that differs from what was written.
#[derive(Debug)]
enum Mismatch {
    Page {
        address: usize,
        page: usize,
        version: u32,
        expected: u8,
        found: u8,
    },
    /// Memory could not be had, or was not empty.
    Refused(String),
    /// A child process reports an error, or could not be made.
    Child(String),
}

impl std::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Page {
                address,
                page,
                version,
                expected,
                found,
            } => write!(
                f,
                "wrong byte at {address:#x} (page {page}, version {version}): expected {expected:#04x}, \
                 found {found:#04x}"
            ),
            Self::Child(what) | Self::Refused(what) => write!(f, "{what}"),
        }
    }
}

/// Compares page `index` with its expected content, byte for byte.
///
/// # Safety
/// No thread writes the page meanwhile.
unsafe fn check_page(
    region: &Region,
    content: &Content,
    index: usize,
    version: u32,
) -> Result<(), Mismatch> {
    let mut expected = [0u64; PAGE_WORDS];
    content.generate(index, version, &mut expected);
    // SAFETY: nobody writes the page, by the contract of this function.
    let found = unsafe { region.words(index) };
    if *found == expected {
        return Ok(());
    }
    let bytes = |words: &[u64; PAGE_WORDS]| words.map(u64::to_le_bytes);
    let (expected, found) = (bytes(&expected), bytes(found));
    let pairs = expected.as_flattened().iter().zip(found.as_flattened());
    let (offset, (&expected, &found)) = pairs
        .enumerate()
        .find(|(_, (a, b))| a != b)
        .unwrap_or((0, (&0, &0)));
    let address = region.page(index).addr() + offset;
    Err(Mismatch::Page {
        address,
        page: index,
        version,
        expected,
        found,
    })
}

/// Prints a line at once. The exit status holds the verdict, so it is no error if the reader went away.
fn print_line(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Prints phases as they end.
struct Printer {
    json: bool,
}

impl Printer {
    fn phase(&self, phase: &Phase) {
        if self.json {
            match serde_json::to_string(phase) {
                Ok(line) => print_line(&line),
                Err(error) => eprintln!("phase {}: {error}", phase.phase),
            }
        } else {
            print_line(&phase.to_string());
        }
    }

    fn ratio(&self, content: &Content) {
        let lz4 = content.lz4_ratio(RATIO_SAMPLE_PAGES);
        let zstd = content.zstd_ratio(RATIO_SAMPLE_PAGES);
        let mut page = [0u64; PAGE_WORDS];
        let start = std::time::Instant::now();
        for index in 0..GENERATE_SAMPLE_PAGES {
            content.generate(index, 0, std::hint::black_box(&mut page));
        }
        #[expect(clippy::cast_precision_loss, reason = "a constant far below 2^53")]
        let us = start.elapsed().as_secs_f64() * 1e6 / GENERATE_SAMPLE_PAGES as f64;
        if self.json {
            print_line(&format!(
                r#"{{"lz4_ratio":{lz4:.3},"zstd_ratio":{zstd:.3},"generate_us_per_page":{us:.3}}}"#
            ));
        } else {
            print_line(&format!(
                "lz4_ratio={lz4:.3} zstd_ratio={zstd:.3} generate_us_per_page={us:.3}"
            ));
        }
    }
}

/// What a workload needs to run.
struct Setup {
    region: Region,
    arena: Option<Arena>,
    content: Content,
    stage: Stage,
    printer: Printer,
}

impl Setup {
    /// Prints what the workload took, if its memory lies in an arena: nobody else can tell.
    fn print_memory(&self) -> std::io::Result<()> {
        if let Some(arena) = &self.arena {
            print_line(&memory_line(arena)?);
        }
        Ok(())
    }
}

impl Common {
    /// For a workload whose memory lies in a mapping.
    fn setup(&self) -> std::io::Result<Setup> {
        self.setup_in(&Placement::default())
    }

    fn setup_in(&self, placement: &Placement) -> std::io::Result<Setup> {
        let pages = self.size.div_ceil(PAGE_BYTES).max(self.threads).max(1);
        let Placed { region, arena } = placement.place(pages, self.hugepage)?;
        let setup = Setup {
            region,
            arena,
            content: Content::new(self.seed, self.content),
            stage: Stage::new(self.threads),
            printer: Printer { json: self.json },
        };
        if self.ratio {
            setup.printer.ratio(&setup.content);
        }
        Ok(setup)
    }

    /// Flips one bit of a page when asked to.
    ///
    /// # Safety
    /// No thread uses the region meanwhile.
    unsafe fn sabotage(&self, region: &Region) {
        if self.sabotage {
            let mut random = crate::random::Random::new(self.seed ^ 0x5ab0);
            let page = random.below(region.pages());
            // SAFETY: nobody else uses the region, by the contract of this function.
            unsafe { region.words_mut(page)[random.below(PAGE_WORDS)] ^= 1 << 40 };
        }
    }
}

impl Workload {
    /// Runs the workload to its end and prints its phases.
    #[must_use]
    pub fn run(&self) -> ExitCode {
        let result = match self {
            Self::FillReadWrite(options) => phases::run(options),
            Self::Zipf(options) => zipf::run(options),
            Self::Memhog(options) => memhog::run(options),
            Self::Sparse(options) => sparse::run(options),
            Self::MapUnmap(options) => maps::run(options),
            Self::Fork(options) => fork::run(options),
            Self::Prefork(options) => prefork::run(options),
            Self::Usemem(options) => return usemem::run_all(options),
            Self::Build(options) => return verdict(build::run(options)),
            Self::RedisClient(options) => return verdict(redis::run(options)),
            Self::Device(options) => return verdict(device::run(options)),
            Self::Engine(command) => return command.run(),
        };
        match result {
            Ok(Ok(())) => ExitCode::SUCCESS,
            Ok(Err(mismatch)) => {
                eprintln!("{mismatch}");
                ExitCode::from(1)
            }
            Err(error) => {
                eprintln!("cannot run the workload: {error}");
                ExitCode::from(2)
            }
        }
    }
}

/// The exit status of a workload with only one kind of error.
fn verdict(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(1)
        }
    }
}
