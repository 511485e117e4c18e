//! The command line, as clap reads it.

pub mod size;
pub mod ram;
pub mod set;
pub mod swap_spec;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};

use uuid::Uuid;
use vswap_engine::GroupName;
use vswap_engine::header::Label;

use crate::args::ram::Ram;
use crate::args::set::{SET_EXAMPLES, SetArgs};
use crate::args::size::{PoolSize, parse_area_size, parse_duration, parse_limit};
use crate::args::swap_spec::SwapSpec;

const EXAMPLES: &str = "\
Examples:
  vswap run --ram 512M -- redis-server --port 6400
  vswap run --ram 50% -- make -j2
  vswap run --ram auto --summary run.json -- python3 job.py
  vswap run --ram 256M --swap /var/tmp:8G -- ./simulation
  vswap daemon --swap /var/tmp:32G
  vswap status
  vswap mkswap swapfile --size 2G
  vswap doctor";

const RUN_EXAMPLES: &str = "\
Sizes: 512M and 512MiB are 512 x 1024 x 1024 bytes, 512MB is 512 x 1000 x 1000; fractions and
lower case are fine (1.5g).
  50%   is a share of the machine's RAM, or of the container's limit where that is smaller.
  512M..2G  is at least 512 MiB and at most 2 GiB: as much as the machine or the container can spare at the moment.
  auto  is the container's limit (or the machine's RAM) less what the kernel itself needs for the run.

Swap areas: what the compressed pool has no room for goes to them, the highest prio first, equals in turn.
  --swap FILE|DEV      an area that `vswap mkswap` or mkswap has made
  --swap DIR[:SIZE]    a private file in DIR that nobody sees, grows as it is needed and is gone at the end
  --swap PATH:SIZE     the same for a PATH that does not exist
  ,prio=N              0 to 32767; without it an area comes after all that have one
  ,discard=once|pages  tell the device what is free: all of it at the start, or each part as it becomes free

Groups: what a group's pages may take up beside --ram. At a limit the program waits; nobody is killed.
  --group web/jobs     a group inside another one; `vswap status --groups` lists them
  --swap-max 2G        at most 2 GiB in swap areas; 0 is nothing at all
  --pool-max 128M      at most 128 MiB of compressed pages in the pool
  --no-writeback       never to swap areas

Exit status: that of the program, also when a signal ended it; 125 for vswap's own errors, 126 for a program that
cannot be run, or cannot be run under vswap; 127 for one that is not found.

Examples:
  vswap run --ram 512M -- redis-server --port 6400
  vswap run --ram 1.5GiB --codec zstd -- sort -S 6G big.txt -o sorted.txt
  vswap run --ram auto --quiet --summary run.json -- python3 job.py
  vswap run --ram 256M..50% -- ./simulation
  vswap run --ram 256M --swap /dev/vdb2,prio=5 --swap /var/tmp:8G -- ./simulation
  vswap run --ram 256M --swap /var/tmp --group jobs --swap-max 2G -- ./simulation";

const DAEMON_EXAMPLES: &str = "\
It runs in the foreground. `vswap run` of the same user joins it when it is there, each run with its own --ram and, in
the daemon, a group of its own; `vswap run --no-daemon` does not. The pool's memory counts against the --ram of the
runs whose pages are in it. Areas can be added and taken away with `vswap swapon` and `vswap swapoff`.

SIGTERM or Ctrl-C takes no more runs and waits for those that are there; a second one ends these. If the daemon is
killed, its runs are ended.

Examples:
  vswap daemon --swap /var/tmp:32G
  vswap daemon --swap /dev/vdb2,prio=5 --pool 4G --codec zstd";

const STATUS_EXAMPLES: &str = "\
STATE: running; thrashing, when more than half of the last ten seconds was spent waiting for pages and nothing else;
full, when nothing more can be stored and the program waits; stopped, when all its processes are (SIGSTOP, Ctrl-Z).

--pressure shows hundredths of the last 10, 60 and 300 seconds: SOME, in which a thread waited for a page, and FULL, in
which one waited and none worked. STALLED is the time of FULL since the start.

Examples:
  vswap status
  vswap status --pressure
  vswap status --groups --json";

const SWAPON_EXAMPLES: &str = "\
Areas are described as after --swap of `vswap run`; see `vswap run --help`.

Examples:
  vswap swapon /var/tmp:8G
  vswap swapon /dev/vdb2,prio=5 --run 4711";

const SWAPOFF_EXAMPLES: &str = "\
The program goes on running. Each page of the area comes back to the pool or goes to another area; if they have no
room for it, the area stays in use. Ctrl-C gives up, and the area stays in use as well.

Examples:
  vswap swapoff /dev/vdb2
  vswap swapoff --all --run 4711";

const MKSWAP_EXAMPLES: &str = "\
The header is the one of util-linux: blkid, swaplabel and file read it. What is in use by the kernel, mounted or
swapped to, is always refused. Without --size the file or device must exist, and all of it is used.

Examples:
  vswap mkswap swapfile --size 2G --label spare
  vswap mkswap /dev/vdb2";

const BENCH_EXAMPLES: &str = "\
Each round runs every side once, in alternation. Sides of the kernel need root, and that no swap is on; one that
cannot be run is left out, and the reason is printed. vswap gets as much memory as the kernel's side took in all.

Exit status: 0 when every run ended well, 1 when one failed or found a wrong byte.

Examples:
  vswap bench --all --html report.html
  vswap bench zipf usemem-2 --on vswap,zram,native --json samples.json
  vswap bench --quick fill-read-write
  vswap bench --ram 512M -- sort -S 2G big.txt -o sorted.txt
  vswap bench fill-read-write --other-option --codec=zstd";

/// Swap for any Linux program, from user space.
#[derive(Debug, Parser)]
#[command(name = "vswap", version, after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a program in less RAM than it needs.
    #[command(
        after_help = RUN_EXAMPLES,
        override_usage = "vswap run --ram <SIZE> [OPTIONS] -- <CMD> [ARG]..."
    )]
    Run(RunArgs),
    /// Hold areas, pool and groups for several runs, which join by themselves; one for each user.
    #[command(after_help = DAEMON_EXAMPLES)]
    Daemon(DaemonArgs),
    /// List your runs that are alive, with current figures.
    #[command(after_help = STATUS_EXAMPLES)]
    Status(StatusArgs),
    /// Give a run that is alive, or a group, other limits.
    #[command(after_help = SET_EXAMPLES)]
    Set(SetArgs),
    /// Have the daemon, or a run that is alive, use more swap areas.
    #[command(after_help = SWAPON_EXAMPLES)]
    Swapon(SwapOnArgs),
    /// Have the daemon, or a run that is alive, give swap areas up.
    #[command(after_help = SWAPOFF_EXAMPLES)]
    Swapoff(SwapOffArgs),
    /// Make a swap area in a file or block device.
    #[command(after_help = MKSWAP_EXAMPLES)]
    Mkswap(MkswapArgs),
    /// Run workloads on vswap and on the kernel's own swap, with the same memory in all, and compare them.
    #[command(after_help = BENCH_EXAMPLES)]
    Bench(Box<vswap_bench::compare::Options>),
    /// One of the workloads that `bench` runs, by itself.
    #[command(subcommand, hide = true)]
    BenchWorkload(vswap_bench::workload::Workload),
    /// Say what this machine and user are permitted, and what to do about each thing missing.
    #[command(after_help = "Exit status: 0 when `vswap run` can work here, 1 when not.")]
    Doctor,
}

#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// RAM that the program and all its children may use together, vswap's own memory included.
    #[arg(long, value_name = "SIZE[..MAX]")]
    pub ram: Ram,
    /// How pages are compressed: lz4, the default, is fast, zstd dense, none keeps them as they are.
    #[arg(long, value_enum)]
    pub codec: Option<Codec>,
    /// Use a swap area behind the compressed pool; may be given again and again.
    #[arg(long, value_name = "PATH[:SIZE][,prio=N]")]
    pub swap: Vec<SwapSpec>,
    /// RAM that the compressed pool may take: a size, a share of --ram, or off. Half of it where there are areas.
    #[arg(long, value_name = "SIZE")]
    pub pool: Option<PoolSize>,
    /// Page tables name slots of the swap areas themselves, as without virtual swap space. What is out takes a slot,
    /// zeros and compressed pages too, and swapoff looks through all page tables.
    #[arg(long, requires = "swap")]
    pub no_virtual: bool,
    /// Count what the run's pages take up to a group, which the options below limit.
    #[arg(long, value_name = "NAME[/SUB...]")]
    pub group: Option<GroupName>,
    /// Most that the group may have in swap areas.
    #[arg(long, value_name = "SIZE", requires = "group", value_parser = parse_limit)]
    pub swap_max: Option<u64>,
    /// Most that the group may have in the compressed pool.
    #[arg(long, value_name = "SIZE", requires = "group", value_parser = parse_limit)]
    pub pool_max: Option<u64>,
    /// The group's pages stay in memory and pool, and never go to swap areas.
    #[arg(long, requires = "group")]
    pub no_writeback: bool,
    /// Do not join the daemon: the run has areas, pool and groups of its own.
    #[arg(long)]
    pub no_daemon: bool,
    /// Write the figures of the run to FILE, as JSON; - is standard output.
    #[arg(long, value_name = "FILE")]
    pub summary: Option<PathBuf>,
    /// No summary line and no notices, only errors.
    #[arg(long, short)]
    pub quiet: bool,
    /// Debugging: evict everything again and again with this pause.
    #[arg(long, value_name = "PAUSE", value_parser = parse_duration, hide = true)]
    pub debug_evict_every: Option<Duration>,
    /// Debugging: read this file for the kernel's /proc/pressure/memory.
    #[arg(long, value_name = "FILE", hide = true)]
    pub debug_pressure: Option<PathBuf>,
    /// Debugging: check every page that comes back against a checksum.
    #[arg(long, hide = true)]
    pub debug_checksums: bool,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
pub struct DaemonArgs {
    /// Use a swap area behind the compressed pool; may be given again and again.
    #[arg(long, value_name = "PATH[:SIZE][,prio=N]")]
    pub swap: Vec<SwapSpec>,
    /// RAM that the pool may take for all runs together: a size, a share of the machine, or off.
    #[arg(long, value_name = "SIZE")]
    pub pool: Option<PoolSize>,
    /// How pages are compressed: lz4 is fast, zstd dense, none keeps them as they are.
    #[arg(long, value_enum, default_value = "lz4")]
    pub codec: Codec,
    /// No notices, only errors.
    #[arg(long, short)]
    pub quiet: bool,
    /// Debugging: check every page that comes back against a checksum.
    #[arg(long, hide = true)]
    pub debug_checksums: bool,
}

#[derive(Debug, clap::Args)]
pub struct StatusArgs {
    /// Everything known of each run, as a JSON array.
    #[arg(long)]
    pub json: bool,
    /// The swap areas of each run instead of its figures.
    #[arg(long)]
    pub areas: bool,
    /// The groups of each run instead of its figures.
    #[arg(long, conflicts_with = "areas")]
    pub groups: bool,
    /// What each run loses to paging instead of its figures.
    #[arg(long, conflicts_with_all = ["areas", "groups"])]
    pub pressure: bool,
}

#[derive(Debug, clap::Args)]
pub struct SwapOnArgs {
    /// The areas, as after --swap.
    #[arg(required = true, value_name = "PATH[:SIZE][,prio=N]")]
    pub areas: Vec<SwapSpec>,
    /// The process id of the run, where there are several and no daemon.
    #[arg(long, value_name = "PID")]
    pub run: Option<u32>,
}

#[derive(Debug, clap::Args)]
pub struct SwapOffArgs {
    /// The areas, as `vswap status --areas` names them.
    #[arg(
        required_unless_present = "all",
        conflicts_with = "all",
        value_name = "PATH"
    )]
    pub areas: Vec<PathBuf>,
    /// All areas of the run.
    #[arg(long, short)]
    pub all: bool,
    /// The process id of the run, where there are several and no daemon.
    #[arg(long, value_name = "PID")]
    pub run: Option<u32>,
}

#[derive(Debug, clap::Args)]
pub struct MkswapArgs {
    /// The file or block device.
    #[arg(value_name = "FILE|DEV")]
    pub path: PathBuf,
    /// Make the file with this size, or make it longer; its blocks are reserved. It is never made shorter.
    #[arg(long, value_name = "SIZE", value_parser = parse_area_size)]
    pub size: Option<u64>,
    /// A name for the area, at most 15 bytes.
    #[arg(long, value_name = "LABEL")]
    pub label: Option<Label>,
    /// The UUID of the area; one at random, unless told otherwise.
    #[arg(long, value_name = "UUID", value_parser = parse_uuid)]
    pub uuid: Option<Uuid>,
    /// Overwrite whatever is there.
    #[arg(long)]
    pub force: bool,
}

fn parse_uuid(text: &str) -> Result<Uuid, String> {
    Uuid::try_parse(text).map_err(|error| {
        format!("{error}; expected a UUID, for example: 3f0a8b62-1f0e-4d4c-9a55-0c6d6f2e7b10")
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Codec {
    #[default]
    Lz4,
    Zstd,
    None,
}

impl From<Codec> for vswap_pager::config::Codec {
    fn from(codec: Codec) -> Self {
        match codec {
            Codec::Lz4 => Self::Lz4,
            Codec::Zstd => Self::Zstd,
            Codec::None => Self::None,
        }
    }
}
