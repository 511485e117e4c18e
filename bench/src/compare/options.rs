//! The command line of `vswap bench`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::content::Kind;
use crate::kernel_swap::Backing;
use crate::size::parse_bytes;

use super::side::Side;

/// Default limit of the kernel's group, and default memory of workloads.
const RAM_BYTES: usize = 512 << 20;
const SIZE_BYTES: usize = 2 << 30;
/// The same for a quick run: as little as still swaps.
const RAM_BYTES_QUICK: usize = 80 << 20;
const SIZE_BYTES_QUICK: usize = 128 << 20;
/// Default number of rounds: the fewest with a median that one bad round cannot move.
const ROUNDS: usize = 5;

/// What to run, on which sides, and where the results go.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Workloads, or families of them such as zipf; see --list.
    #[arg(value_name = "WORKLOAD", required_unless_present_any = ["all", "list", "command"])]
    pub workloads: Vec<String>,
    /// Run every workload.
    #[arg(long, conflicts_with_all = ["workloads", "command"])]
    pub all: bool,
    /// List the workloads.
    #[arg(long, conflicts_with_all = ["all", "workloads", "command"])]
    pub list: bool,
    /// Sides to use instead of the workload's own, which are mostly vswap and zram, and vswap and file for disks.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "SIDE")]
    pub on: Vec<On>,
    /// Limit of the kernel's group; vswap gets the total that the kernel's side then takes. Default: 512M.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    ram: Option<usize>,
    /// Memory that a workload uses. Default: 2G.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    size: Option<usize>,
    /// Threads of the workloads that can share out their memory; see --list. Default: 1.
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,
    /// What pages contain; mixed compresses 2 to 3 times, as heaps do.
    #[arg(long, value_enum, default_value = "mixed")]
    pub content: Kind,
    /// How often each side is run, in alternation. Default: 5.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,
    /// Run one round with small sizes, to see that everything works.
    #[arg(long)]
    pub quick: bool,
    /// Seconds that one run may take.
    #[arg(long, default_value_t = 900, value_name = "SECONDS")]
    pub timeout: u64,
    /// Directory for swap files and areas.
    #[arg(long, default_value = "/var/tmp", value_name = "DIR")]
    pub swap_dir: PathBuf,
    /// C sources that build compiles. Default: those of zstd that cargo has fetched.
    #[arg(long, value_name = "DIR")]
    pub build_tree: Option<PathBuf>,
    /// An option for `vswap run`, such as --codec=zstd; may be given several times.
    #[arg(
        long = "vswap-option",
        allow_hyphen_values = true,
        value_name = "OPTION"
    )]
    pub vswap_options: Vec<String>,
    /// Another vswap program, as an additional side.
    #[arg(long, value_name = "PROGRAM")]
    pub other: Option<PathBuf>,
    /// An option for `vswap run` of an additional side only, such as --no-virtual; may be given several times.
    #[arg(
        long = "other-option",
        allow_hyphen_values = true,
        value_name = "OPTION"
    )]
    pub other_options: Vec<String>,
    /// Write all samples to FILE.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a page with tables and plots to FILE.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// A command to run instead of a workload.
    #[arg(last = true, conflicts_with = "workloads")]
    pub command: Vec<String>,
}

/// A side, as `--on` names it. vswap runs once for each side of the kernel, with that side's total memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum On {
    /// vswap.
    Vswap,
    /// Without any limit.
    Native,
    /// The kernel's swap on zram with lz4.
    Zram,
    /// The kernel's zswap in front of a swap file. The vswap beside it has a pool and an area.
    Zswap,
    /// The kernel's swap file. The vswap beside it has an area and no pool.
    File,
    /// vswap's library: the workload's memory lies in an arena without a swap area. Compared with zram, whose total the
    /// whole process gets.
    Arena,
    /// The workload's memory is a mapping of a file in the directory for swap files, in a group without swap that may
    /// take zram's total. The arena is compared with it.
    Mmap,
}

impl Options {
    /// Limit of the kernel's group.
    #[must_use]
    pub fn ram(&self) -> usize {
        let default = if self.quick {
            RAM_BYTES_QUICK
        } else {
            RAM_BYTES
        };
        self.ram.unwrap_or(default)
    }

    /// The limit, if the user gave one.
    #[must_use]
    pub const fn ram_told(&self) -> Option<usize> {
        self.ram
    }

    /// Memory that a workload uses.
    #[must_use]
    pub fn size(&self) -> usize {
        let default = if self.quick {
            SIZE_BYTES_QUICK
        } else {
            SIZE_BYTES
        };
        self.size.unwrap_or(default)
    }

    /// How often each side is run.
    #[must_use]
    pub fn rounds(&self) -> usize {
        let default = if self.quick { 1 } else { ROUNDS };
        self.rounds.map_or(default, usize::from)
    }

    /// The sides of a workload whose own are `default`. Each side of the kernel comes before the vswap that gets its
    /// total.
    pub(super) fn sides(&self, default: &[On]) -> Vec<Side> {
        let on = if self.on.is_empty() {
            default
        } else {
            &self.on
        };
        let backings = [
            (On::Zram, Backing::Zram),
            (On::Zswap, Backing::Zswap),
            (On::File, Backing::File),
        ];
        let mut backings: Vec<Backing> = backings
            .into_iter()
            .filter_map(|(side, backing)| on.contains(&side).then_some(backing))
            .collect();
        let kernels = backings.clone();
        if backings.is_empty() {
            backings.push(Backing::Zram);
        }
        let mut sides = Vec::new();
        if on.contains(&On::Native) {
            sides.push(Side::Native);
        }
        for &backing in &backings {
            if kernels.contains(&backing) {
                sides.push(Side::Kernel(backing));
            }
            if on.contains(&On::Vswap) {
                sides.push(Side::Vswap(backing));
            }
        }
        if on.contains(&On::Mmap) {
            sides.push(Side::Mapped);
        }
        if on.contains(&On::Arena) {
            sides.push(Side::Arena);
        }
        if self.other.is_some() || !self.other_options.is_empty() {
            sides.push(Side::Other(backings[0]));
        }
        sides
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn parse(words: &str) -> Result<Options, String> {
        let words = std::iter::once("bench").chain(words.split_whitespace());
        Line::try_parse_from(words)
            .map(|line| line.options)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_quick_run_is_small_unless_told_otherwise() {
        let quick = parse("--quick --all").unwrap();
        assert_eq!((quick.rounds(), quick.size()), (1, SIZE_BYTES_QUICK));
        let told = parse("--quick --rounds 3 --size 1G --ram 0.5G zipf").unwrap();
        assert_eq!(
            (told.rounds(), told.size(), told.ram()),
            (3, 1 << 30, 1 << 29)
        );
        assert_eq!(parse("zipf").unwrap().rounds(), ROUNDS);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert!(parse("").unwrap_err().contains("WORKLOAD"));
        assert!(parse("--all zipf").unwrap_err().contains("cannot be used"));
        assert!(
            parse("zipf -- true")
                .unwrap_err()
                .contains("cannot be used")
        );
        assert!(parse("zipf --rounds 0").unwrap_err().contains("0"));
        assert!(parse("zipf --on disk").unwrap_err().contains("zswap"));
        assert!(parse("zipf --ram much").unwrap_err().contains("512M"));
        assert!(parse("zipf --content lead").unwrap_err().contains("heap"));
    }

    #[test]
    fn every_side_of_the_kernel_has_a_vswap_after_it() {
        let sides = |words: &str| parse(words).unwrap().sides(&[On::Vswap, On::Zram]);
        let zram = [Side::Kernel(Backing::Zram), Side::Vswap(Backing::Zram)];
        assert_eq!(sides("zipf"), zram);
        assert_eq!(
            sides("zipf --on file,native,vswap"),
            [
                Side::Native,
                Side::Kernel(Backing::File),
                Side::Vswap(Backing::File)
            ]
        );
        assert_eq!(
            sides("zipf --on vswap --other-option --codec=zstd"),
            [Side::Vswap(Backing::Zram), Side::Other(Backing::Zram)]
        );
    }

    #[test]
    fn an_arena_comes_after_the_zram_whose_total_it_gets() {
        let sides = |words: &str| parse(words).unwrap().sides(&[On::Vswap, On::Zram]);
        let zram = Side::Kernel(Backing::Zram);
        assert_eq!(sides("zipf --on arena,zram"), [zram, Side::Arena]);
        assert_eq!(
            sides("zipf --on vswap,arena,zram"),
            [zram, Side::Vswap(Backing::Zram), Side::Arena]
        );
        assert_eq!(
            sides("zipf --on arena,mmap,zram"),
            [zram, Side::Mapped, Side::Arena]
        );
        assert_eq!(sides("zipf --on arena"), [Side::Arena]);
        assert_eq!(Side::Arena.backing(), Some(Backing::Zram));
        assert!(Side::Arena.is_measured_against(zram));
        assert!(Side::Arena.is_measured_against(Side::Mapped));
        assert!(!Side::Mapped.is_measured_against(zram));
        assert!(!Side::Arena.is_measured_against(Side::Kernel(Backing::File)));
        assert!(!Side::Vswap(Backing::Zram).is_measured_against(Side::Arena));
    }
}
