//! `record-heaps FILE`: records pages of the heaps of real programs, for `--content recorded`.
//!
//! Starts each program of `programs.rs` with an empty environment, waits until its heap is filled, stops it, and takes
//! a seeded random sample of its anonymous private pages. Stacks are left out, because they hold arguments and
//! environment, and so are pages of zeros and pages that were taken before. Programs that are not installed are an
//! error: the sample is to have all of them.

mod memory;
mod programs;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use vswap_bench::content::recorded::{self, Heap};
use vswap_bench::random::Random;

use programs::Program;

/// Records pages of the heaps of real programs: redis, Python, Java, node, sqlite and gcc.
#[derive(Parser, Debug)]
#[command(version)]
struct Options {
    /// Where to write them; the one that is built in is bench/src/content/recorded.heaps.
    file: PathBuf,
    /// Pages of each program.
    #[arg(long, default_value_t = 64)]
    pages: usize,
    /// Which of its pages.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    match record(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("record-heaps: {error}");
            ExitCode::FAILURE
        }
    }
}

fn record(options: &Options) -> Result<(), String> {
    let place = std::env::temp_dir().join(format!("heaps-{}", std::process::id()));
    std::fs::create_dir(&place).map_err(|error| format!("{}: {error}", place.display()))?;
    let heaps: Result<Vec<Heap>, String> = programs::all(&place)
        .and_then(|all| all.iter().map(|program| heap(program, options)).collect());
    // What is left there is only in the way.
    let _ = std::fs::remove_dir_all(&place);
    let file = recorded::write(&heaps?)?;
    write(&options.file, &file)
}

fn heap(program: &Program, options: &Options) -> Result<Heap, String> {
    let of = |error: String| format!("{}: {error}", program.name);
    let running = program.start().map_err(of)?;
    let mut random = Random::new(options.seed);
    let pages = memory::sample(running.pid(), options.pages, &mut random).map_err(of)?;
    println!("{}: {} pages", program.name, pages.len());
    Ok(Heap {
        name: program.name.to_owned(),
        pages,
    })
}

fn write(path: &Path, file: &[u8]) -> Result<(), String> {
    std::fs::write(path, file).map_err(|error| format!("{}: {error}", path.display()))?;
    println!("{}: {} bytes", path.display(), file.len());
    Ok(())
}
