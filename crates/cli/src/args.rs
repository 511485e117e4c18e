//! The command line, as clap reads it.

pub mod far;
pub mod advise;
pub mod codec;
pub mod metrics_address;
pub mod on_full;
pub mod park;
pub mod size;
pub mod ram;
pub mod scripts;
pub mod set;
pub mod similar;
pub mod swaps;
pub mod tiers;

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgAction, CommandFactory, FromArgMatches, Parser, Subcommand};

use uuid::Uuid;
use vswap_areas::SwapSpec;
use vswap_areas::units::parse_area_size;
use vswap_engine::GroupName;
use vswap_engine::header::Label;
use vswap_pager::TierLimit;

use crate::args::advise::{ADVISE_EXAMPLES, AdviseArgs};
use crate::args::codec::Codec;
use crate::args::far::{FAR_EXAMPLES, FarArgs, FarCommand};
use crate::args::metrics_address::MetricsAddress;
use crate::args::on_full::OnFull;
use crate::args::park::{PARK_EXAMPLES, ParkArgs, WAKE_EXAMPLES, WakeArgs, parse_idle_time};
use crate::args::ram::Ram;
use crate::args::scripts::{COMPLETIONS_EXAMPLES, CompletionsArgs, ManArgs};
use crate::args::set::{SET_EXAMPLES, SetArgs};
use crate::args::size::{PoolSize, parse_duration, parse_limit};
use crate::args::swaps::SwapOption;
use crate::args::tiers::{TierArea, all_areas, parse_tier_max};

const EXAMPLES: &str = "\
Examples:
  vswap run --ram 512M -- redis-server --port 6400
  vswap run --ram 50% -- make -j2
  vswap run --ram auto --summary run.json -- python3 job.py
  vswap run --ram 256M --swap /var/tmp:8G -- ./simulation
  vswap advise -- ./simulation
  vswap attach --ram 2G 4711
  vswap daemon --swap /var/tmp:32G
  vswap status
  vswap top
  vswap mkswap swapfile --size 2G
  vswap doctor";

const RUN_SHORT: &str = "\
SIZE is 512M or 1.5g, a share of the machine (50%), 256M..2G for as much as can be spared, or auto: what the
container has. PATH is a directory, which gets a private file, or what `vswap mkswap` has made.

All options, and what areas, groups and a full run are: vswap help run

Exit status: that of the program; 125 for vswap's own errors, 126 and 127 for a program that cannot be run.

Examples:
  vswap run --ram 512M -- redis-server --port 6400
  vswap run --ram 1.5GiB --codec zstd -- sort -S 6G big.txt -o sorted.txt
  vswap run --ram auto --quiet --summary run.json -- python3 job.py
  vswap run --ram 512M --report run.html -- ./simulation
  vswap run --ram 256M --swap /dev/vdb2,prio=5 --swap /var/tmp:8G -- ./simulation";

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
  ,tier=NAME           areas that groups can be limited in together (--tier-max); without it, the tier \"default\"
  --tier NAME=AREA     the same as --swap AREA,tier=NAME; without prio the tier named first is used first
  ,packed              in a private file: pages as they come out of the pool, several in 4 KiB; SIZE counts those
  ,discard=once|pages  tell the device what is free: all of it at the start, or each part as it becomes free
Without --swap a private file is made when memory is nearly full, in the first of $VSWAP_SWAP_DIR, $TMPDIR (no tmpfs)
and /var/tmp that can take it. It leaves 1 GiB of the file system free, or a twentieth if that is more.
  --swap none          no such file: nothing goes to disk
Pages are encrypted in all areas and files, with keys that this process alone has and forgets. The header of an area
stays as it is.
  --no-encrypt         pages go there as they are

When everything is full, memory, areas and disk, the program waits, and vswap says how to give it room as it is.
  --on-full kill[:S]   after S seconds (60) the run gets SIGTERM, ten seconds later SIGKILL, and the status is 137, as
                       if the kernel had run out of memory; this is what happens without the option
  --on-full fail[:S]   the same with 125, the status of vswap's own errors
  --on-full wait       it waits for ever
A program that is told to end while it waits may take a little more for that; told again, it is ended for good.

Figures for Prometheus: --metrics 9100 serves them at http://127.0.0.1:9100/metrics, --metrics ./v.sock at a socket.
Every user of this machine can read a port of 127.0.0.1; a socket is the owner's. Port 0 takes one that is free.

VSWAP_LOG=debug says more, VSWAP_LOG=warn less, and VSWAP_LOG=json says it as JSON; VSWAP_LOG=debug,json does both.

Groups: what a group's pages may take up beside --ram. At a limit the program waits as above.
  --group web/jobs     a group inside another one; `vswap status --groups` lists them
  --swap-max 2G        at most 2 GiB in swap areas; 0 is nothing at all
  --tier-max fast=1G   at most 1 GiB in the areas of this tier; 0 is nothing at all, and pages go past it
  --pool-max 128M      at most 128 MiB of compressed pages in the pool
  --no-writeback       never to swap areas

Exit status: that of the program, also when a signal ended it; 125 for vswap's own errors, 126 for a program that
cannot be run, or cannot be run under vswap; 127 for one that is not found.

Examples:
  vswap run --ram 512M -- redis-server --port 6400
  vswap run --ram 1.5GiB --codec zstd -- sort -S 6G big.txt -o sorted.txt
  vswap run --ram auto --quiet --summary run.json -- python3 job.py
  vswap run --ram 256M..50% -- ./simulation
  vswap run --ram 512M --report run.html -- ./simulation
  vswap run --ram 256M --swap /dev/vdb2,prio=5 --swap /var/tmp:8G -- ./simulation
  vswap run --ram 256M --swap /var/tmp --group jobs --swap-max 2G -- ./simulation";

const ATTACH_EXAMPLES: &str = "\
It stays in the foreground for as long as the program runs. Options are those of `vswap run`; see `vswap help run`.

Ctrl-C, SIGTERM and `vswap detach PID` let go of the program: what it has in swap comes back to memory, and it runs on
as before. Where memory may not suffice for that, it is said, and the second signal does it all the same.
Never kill it with SIGKILL: the program would be ended too, because what it has in swap would be gone.

The program must be yours and permit to be traced, as for gdb -p; root may attach to any. Its exit status goes to its
own parent.

Exit status: 0 when the program has ended or was let go of; 125 for vswap's own errors. A program that cannot be managed
runs on as before.

Examples:
  vswap attach --ram 2G 4711
  vswap attach --ram 512M --swap /var/tmp:8G $(pidof redis-server)";

const DETACH_EXAMPLES: &str = "\
A program that `vswap attach` has is left alone, and its children with it; `vswap attach` then ends. The filter for
system calls cannot be taken off a program, so a small process (vswap-guard) stays until the last of them has ended; do
not kill it. A program that vswap has let go of cannot be attached to again.

A process of `vswap run` stays in its run, without swap and without a limit.

Examples:
  vswap detach 4711";

const DAEMON_EXAMPLES: &str = "\
It runs in the foreground. `vswap run` of the same user joins it when it is there, each run with its own --ram and, in
the daemon, a group of its own; `vswap run --no-daemon` does not. The pool's memory counts against the --ram of the
runs whose pages are in it. Areas can be added and taken away with `vswap swapon` and `vswap swapoff`.

VSWAP_LOG=debug says more, VSWAP_LOG=warn less, and VSWAP_LOG=json says it as JSON. Where standard error is the
journal's, lines have priorities.

SIGTERM or Ctrl-C takes no more runs and waits for those that are there; a second one ends these. If the daemon is
killed, its runs are ended.

Examples:
  vswap daemon --swap /var/tmp:32G
  vswap daemon --swap /dev/vdb2,prio=5 --pool 4G --codec zstd
  vswap daemon --swap /var/tmp:32G --metrics 127.0.0.1:9100";

const STATUS_EXAMPLES: &str = "\
STATE: running; thrashing, when more than half of the last ten seconds was spent waiting for pages and nothing else;
full, when nothing more can be stored and the program waits; stopped, when all its processes are (SIGSTOP, Ctrl-Z);
parked, by `vswap park`.

--pressure shows hundredths of the last 10, 60 and 300 seconds: SOME, in which a thread waited for a page, and FULL, in
which one waited and none worked. STALLED is the time of FULL since the start.

--watch goes on until Ctrl-C, or until no run is left. OUT/s and IN/s are what went out and came back, LOST the part of
the time in which a thread waited for a page and none worked. Into a pipe it prints one table after the other.

Examples:
  vswap status
  vswap status --pressure
  vswap status --watch 5 --run 4711
  vswap status --watch --json | jq '.runs[].rates'
  vswap status --groups --json";

const TOP_EXAMPLES: &str = "\
Keys: arrows choose a run, Enter shows its processes and Esc goes back; / filters, s sorts, f freezes; l gives the run
another limit, k ends it (SIGTERM), K kills it (SIGKILL), each after a question; h helps, q quits.

It wants a terminal of 40 columns and 10 lines or more; 80 by 24 show everything about one run. NO_COLOR=1 does without
colours. Where there is no terminal: `vswap status --watch`.

Examples:
  vswap top
  vswap top --every 0.5";

const SWAPON_EXAMPLES: &str = "\
Areas are described as after --swap of `vswap run`; see `vswap help run`.

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
  vswap bench fill-read-write --on arena,zram --threads 2
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
        after_help = RUN_SHORT,
        after_long_help = RUN_EXAMPLES,
        override_usage = "vswap run --ram <SIZE> [OPTIONS] -- <CMD> [ARG]..."
    )]
    Run(RunArgs),
    /// Run a program and say how much RAM it needs: what each size would cost in time.
    #[command(
        after_help = ADVISE_EXAMPLES,
        override_usage = "vswap advise [OPTIONS] -- <CMD> [ARG]..."
    )]
    Advise(AdviseArgs),
    /// Manage the memory of a program that runs already, and of its children.
    #[command(
        after_help = ATTACH_EXAMPLES,
        override_usage = "vswap attach --ram <SIZE> [OPTIONS] <PID>"
    )]
    Attach(AttachArgs),
    /// Let go of a program: all of it comes back to memory, and it runs on without vswap.
    #[command(after_help = DETACH_EXAMPLES)]
    Detach(DetachArgs),
    /// Keep areas, pool and groups for several runs, which join by themselves; one daemon for each user.
    #[command(after_help = DAEMON_EXAMPLES)]
    Daemon(DaemonArgs),
    /// List your living runs with their current figures.
    #[command(after_help = STATUS_EXAMPLES)]
    Status(StatusArgs),
    /// Show your living runs on a whole screen, live; change their limits and end them.
    #[command(after_help = TOP_EXAMPLES)]
    Top(TopArgs),
    /// Give a living run, or a group, other limits.
    #[command(after_help = SET_EXAMPLES)]
    Set(SetArgs),
    /// Stop a run, and move all of its memory to its areas until somebody wakes it.
    #[command(after_help = PARK_EXAMPLES)]
    Park(ParkArgs),
    /// Have a parked run go on.
    #[command(after_help = WAKE_EXAMPLES)]
    Wake(WakeArgs),
    /// Make the daemon, or a living run, use more swap areas.
    #[command(after_help = SWAPON_EXAMPLES)]
    Swapon(SwapOnArgs),
    /// Make the daemon, or a living run, give up swap areas.
    #[command(after_help = SWAPOFF_EXAMPLES)]
    Swapoff(SwapOffArgs),
    /// Make a swap area in a file or block device.
    #[command(after_help = MKSWAP_EXAMPLES)]
    Mkswap(MkswapArgs),
    /// Compare vswap with the kernel's own swap: run workloads on both with the same memory.
    #[command(after_help = BENCH_EXAMPLES)]
    Bench(Box<vswap_bench::compare::Options>),
    /// Run one of the workloads of `bench` by itself.
    #[command(subcommand, hide = true)]
    BenchWorkload(vswap_bench::workload::Workload),
    /// Look at a store that is to hold pages: is it fit, and what was left in it?
    #[command(subcommand, after_help = FAR_EXAMPLES)]
    Far(FarCommand),
    /// Say what this machine and user permit, and what to do about each missing thing.
    #[command(after_help = "Exit status: 0 when `vswap run` can work here, 1 when not.")]
    Doctor,
    /// Print a script that has a shell complete commands and options.
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions(CompletionsArgs),
    /// Write a man page for vswap and one for each command.
    #[command(hide = true)]
    Man(ManArgs),
}

impl Args {
    /// The command line. `--help` fits a screen, as `-h` does, and `vswap help VERB` tells all.
    pub fn command_line() -> clap::Command {
        let mut line = Args::command();
        let verbs: Vec<String> = line
            .get_subcommands()
            .map(|verb| verb.get_name().to_owned())
            .collect();
        for verb in verbs {
            line = line.mut_subcommand(verb, |verb| verb.disable_help_flag(true).arg(short_help()));
        }
        line
    }

    /// Reads this process's command line.
    ///
    /// # Errors
    /// It makes no sense, or asks for help.
    pub fn read() -> Result<Args, clap::Error> {
        let mut line = Args::command_line();
        let mut found = line.try_get_matches_from_mut(std::env::args_os())?;
        Args::from_arg_matches_mut(&mut found).map_err(|error| error.format(&mut line))
    }
}

fn short_help() -> Arg {
    Arg::new("help")
        .short('h')
        .long("help")
        .action(ArgAction::HelpShort)
        .help("Print help; `vswap help COMMAND` prints all of it")
}

impl Command {
    /// Has this command to do with the pages of programs? `doctor` has, and asks about them itself.
    pub fn needs_pages(&self) -> bool {
        !matches!(
            self,
            Command::Doctor | Command::Completions(_) | Command::Man(_)
        )
    }
}

/// How the memory of a run is managed.
#[derive(Debug, clap::Args)]
pub struct ManageArgs {
    /// RAM for the program, its children and vswap together.
    #[arg(long, value_name = "SIZE[..MAX]")]
    pub ram: Ram,
    /// How pages are compressed: auto, lz4, zstd or none.
    ///
    /// lz4 is fast, zstd dense, auto (default) takes what costs less time, none keeps pages as they are. zstd:LEVEL is
    /// zstd with a level from -7 to 19; plain zstd has 1.
    #[arg(long, value_parser = Codec::parser(), hide_possible_values = true)]
    pub codec: Option<Codec>,
    /// A file, device, directory or store behind the pool.
    ///
    /// May be given again and again. A store is valkey://HOST:PORT:SIZE or nbd://HOST:PORT/EXPORT. Without this a
    /// private file on disk is used when memory is nearly full; `none` does without.
    #[arg(long, value_name = "PATH[:SIZE][,prio=N]|none", group = "areas_named")]
    pub swap: Vec<SwapOption>,
    #[command(flatten)]
    pub far: FarArgs,
    /// Use a swap area of a tier; may be given again and again. The tier that is named first is used first.
    #[arg(
        long,
        value_name = "NAME=PATH[:SIZE][,prio=N]",
        group = "areas_named",
        hide_short_help = true
    )]
    pub tier: Vec<TierArea>,
    /// Write pages to areas and private files as they are, not encrypted: to compare, or on a disk that is encrypted.
    #[arg(long, hide_short_help = true)]
    pub no_encrypt: bool,
    /// When nothing has room any more (default: kill:60).
    ///
    /// All of it is full and the program waits for memory: end the run after 60 seconds (kill), with status 125 (fail),
    /// or never (wait).
    #[arg(
        long,
        value_name = "wait|kill[:S]|fail[:S]",
        default_value = "kill:60",
        hide_default_value = true
    )]
    pub on_full: OnFull,
    /// RAM for compressed pages: a size, a share, or off.
    ///
    /// A share is one of --ram. Without this it is half of it where there are areas.
    #[arg(long, value_name = "SIZE")]
    pub pool: Option<PoolSize>,
    /// Let page tables name slots of the swap areas directly, without virtual swap space. Then every swapped page takes
    /// a slot, even if it is zero or compressed, and swapoff walks all page tables.
    #[arg(long, requires = "areas_named", hide_short_help = true)]
    pub no_virtual: bool,
    /// Charge the run's pages to a group; the options below limit it.
    #[arg(long, value_name = "NAME[/SUB...]", hide_short_help = true)]
    pub group: Option<GroupName>,
    /// How much the group may have in swap areas.
    #[arg(
        long,
        value_name = "SIZE",
        requires = "group",
        value_parser = parse_limit,
        hide_short_help = true
    )]
    pub swap_max: Option<u64>,
    /// How much the group may have in the areas of a tier, 0 for nothing at all; may be given again and again.
    #[arg(
        long,
        value_name = "NAME=SIZE|max",
        requires = "group",
        value_parser = parse_tier_max,
        hide_short_help = true
    )]
    pub tier_max: Vec<TierLimit>,
    /// How much the group may have in the compressed pool.
    #[arg(
        long,
        value_name = "SIZE",
        requires = "group",
        value_parser = parse_limit,
        hide_short_help = true
    )]
    pub pool_max: Option<u64>,
    /// Keep the group's pages in memory and pool, never in swap areas.
    #[arg(long, requires = "group", hide_short_help = true)]
    pub no_writeback: bool,
    /// Park the run when it has been idle so long: 10m, 2h.
    ///
    /// A connection, input or a signal wakes it.
    #[arg(long, value_name = "TIME", value_parser = parse_idle_time)]
    pub park_after: Option<Duration>,
    /// Write the figures to FILE as JSON; - is stdout.
    #[arg(long, value_name = "FILE")]
    pub summary: Option<PathBuf>,
    /// Write a page with plots to FILE, for a browser.
    ///
    /// It is HTML, written when the run is over; - is standard output. A file that is there is replaced.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Serve figures to Prometheus: a port, or a socket.
    ///
    /// They can be read at ADDR, a TCP address or a port of 127.0.0.1, or at a unix socket that is made there: HTTP,
    /// GET /metrics, OpenMetrics.
    #[arg(long, value_name = "ADDR|SOCKET")]
    pub metrics: Option<MetricsAddress>,
    /// Print no summary and no notices, only errors.
    #[arg(long, short)]
    pub quiet: bool,
    /// Debugging: evict everything again and again with this pause in between.
    #[arg(long, value_name = "PAUSE", value_parser = parse_duration, hide = true)]
    pub debug_evict_every: Option<Duration>,
    /// Debugging: read this file for the kernel's /proc/pressure/memory.
    #[arg(long, value_name = "FILE", hide = true)]
    pub debug_pressure: Option<PathBuf>,
    /// Debugging: verify the checksum of every page that comes back.
    #[arg(long, hide = true)]
    pub debug_checksums: bool,
}

impl ManageArgs {
    /// All areas that were named, those of tiers as well.
    pub fn areas(&self) -> Vec<SwapOption> {
        all_areas(&self.swap, &self.tier)
    }
}

#[derive(Debug, clap::Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub manage: ManageArgs,
    /// End the run with status 125 if one of its processes cannot be managed. Without this, that is said, and the
    /// process runs on without a limit.
    #[arg(long, hide_short_help = true)]
    pub require_managed: bool,
    /// Do not join the daemon.
    ///
    /// The run has its own areas, pool and groups.
    #[arg(long)]
    pub no_daemon: bool,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
pub struct AttachArgs {
    #[command(flatten)]
    pub manage: ManageArgs,
    /// The process. Its children belong to it, those that it has and those that it will have.
    #[arg(value_name = "PID")]
    pub pid: u32,
}

#[derive(Debug, clap::Args)]
pub struct DetachArgs {
    /// The process, or the `vswap attach` that has it.
    #[arg(value_name = "PID")]
    pub pid: u32,
    /// Also where memory may not suffice for what comes back.
    #[arg(long)]
    pub force: bool,
}

#[derive(Debug, clap::Args)]
pub struct DaemonArgs {
    /// A file, device, directory or store behind the pool.
    ///
    /// May be given again and again. A store is valkey://HOST:PORT:SIZE or nbd://HOST:PORT/EXPORT. Without this a
    /// private file on disk is used when memory is nearly full; `none` does without.
    #[arg(long, value_name = "PATH[:SIZE][,prio=N]|none")]
    pub swap: Vec<SwapOption>,
    #[command(flatten)]
    pub far: FarArgs,
    /// Use a swap area of a tier; may be given again and again. The tier that is named first is used first.
    #[arg(long, value_name = "NAME=PATH[:SIZE][,prio=N]", hide_short_help = true)]
    pub tier: Vec<TierArea>,
    /// Write pages to areas and private files as they are, not encrypted: to compare, or on a disk that is encrypted.
    #[arg(long, hide_short_help = true)]
    pub no_encrypt: bool,
    /// RAM for compressed pages: a size, a share, or off.
    ///
    /// It is for all runs together, and a share is one of the machine.
    #[arg(long, value_name = "SIZE")]
    pub pool: Option<PoolSize>,
    /// How pages are compressed: auto, lz4, zstd or none.
    ///
    /// lz4 is fast, zstd dense, auto takes what costs less time, none keeps pages as they are. zstd:LEVEL is zstd with
    /// a level from -7 to 19; plain zstd has 1.
    #[arg(
        long,
        value_parser = Codec::parser(),
        default_value = "auto",
        hide_default_value = true,
        hide_possible_values = true
    )]
    pub codec: Codec,
    /// Serve figures to Prometheus: a port, or a socket.
    ///
    /// They can be read at ADDR, a TCP address or a port of 127.0.0.1, or at a unix socket that is made there: HTTP,
    /// GET /metrics, OpenMetrics.
    #[arg(long, value_name = "ADDR|SOCKET")]
    pub metrics: Option<MetricsAddress>,
    /// Print no notices, only errors.
    #[arg(long, short)]
    pub quiet: bool,
    /// Debugging: verify the checksum of every page that comes back.
    #[arg(long, hide = true)]
    pub debug_checksums: bool,
}

impl DaemonArgs {
    /// All areas that were named, those of tiers as well.
    pub fn areas(&self) -> Vec<SwapOption> {
        all_areas(&self.swap, &self.tier)
    }
}

#[derive(Debug, clap::Args)]
pub struct StatusArgs {
    /// Print everything known about each run, as a JSON array.
    #[arg(long)]
    pub json: bool,
    /// Print the swap areas of each run instead of its figures.
    #[arg(long)]
    pub areas: bool,
    /// Print the groups of each run instead of its figures.
    #[arg(long, conflicts_with = "areas")]
    pub groups: bool,
    /// Print the tiers of each run's areas instead of its figures, with what goes down to them and comes up by the
    /// second: since the look before, or since the start if there was none.
    #[arg(long, conflicts_with_all = ["areas", "groups"])]
    pub tiers: bool,
    /// Print the areas on other machines and their servers instead of its figures: how each server is, what went there
    /// and came back, pages that were lost.
    #[arg(long, conflicts_with_all = ["areas", "groups", "tiers"])]
    pub far: bool,
    /// Only the run of this process id, or the daemon.
    #[arg(long, value_name = "PID")]
    pub run: Option<u32>,
    /// Again and again, every 2 seconds or as often as said, with rates by the second; with --json one object a line.
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        default_missing_value = "2",
        value_parser = parse_watch
    )]
    pub watch: Option<Duration>,
    /// What each run loses to paging instead of its figures.
    #[arg(long, conflicts_with_all = ["areas", "groups", "tiers", "far"])]
    pub pressure: bool,
}

#[derive(Debug, clap::Args)]
pub struct TopArgs {
    /// Seconds between two looks.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = parse_watch)]
    pub every: Duration,
    /// Debugging: panic after the first look.
    #[arg(long, hide = true)]
    pub debug_panic: bool,
}

#[derive(Debug, clap::Args)]
pub struct SwapOnArgs {
    /// The areas, written as for --swap.
    #[arg(required = true, value_name = "PATH[:SIZE][,prio=N]")]
    pub areas: Vec<SwapSpec>,
    /// The process id of the run, if there are several and no daemon.
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
    /// The process id of the run, if there are several and no daemon.
    #[arg(long, value_name = "PID")]
    pub run: Option<u32>,
}

#[derive(Debug, clap::Args)]
pub struct MkswapArgs {
    /// The file or block device.
    #[arg(value_name = "FILE|DEV")]
    pub path: PathBuf,
    /// Make the file with this size, or grow it to this size; its blocks are reserved. The file never shrinks.
    #[arg(long, value_name = "SIZE", value_parser = parse_area_size)]
    pub size: Option<u64>,
    /// A name for the area, at most 15 bytes.
    #[arg(long, value_name = "LABEL")]
    pub label: Option<Label>,
    /// The UUID of the area; random by default.
    #[arg(long, value_name = "UUID", value_parser = parse_uuid)]
    pub uuid: Option<Uuid>,
    /// Overwrite whatever is there.
    #[arg(long)]
    pub force: bool,
}

/// The least and the most seconds between two looks. A look costs each run a few milliseconds.
const WATCH_SECONDS: RangeInclusive<f64> = 0.1..=86_400.0;

fn parse_watch(text: &str) -> Result<Duration, String> {
    let seconds = text.trim().parse().ok();
    let seconds = seconds.filter(|seconds| WATCH_SECONDS.contains(seconds));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "expected seconds from 0.1 to 86400; for example: 2, 0.5".to_owned())
}

fn parse_uuid(text: &str) -> Result<Uuid, String> {
    Uuid::try_parse(text).map_err(|error| {
        format!("{error}; expected a UUID, for example: 3f0a8b62-1f0e-4d4c-9a55-0c6d6f2e7b10")
    })
}
