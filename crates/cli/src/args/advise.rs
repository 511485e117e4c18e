//! The options of `vswap advise`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::args::ManageArgs;
use crate::args::far::FarArgs;
use crate::args::on_full::OnFull;
use crate::args::park::parse_idle_time;
use crate::args::ram::Ram;
use crate::args::size::parse_duration;

pub const ADVISE_EXAMPLES: &str = "\
The program runs once, with as much RAM as it wants, and a few of its pages are moved out again and again to see when
they are touched next. That costs it a few per cent. At its end vswap says on standard error what `vswap run --ram`
would cost it, and why that may be wrong. Give it work as it will have it: what is not used now counts as unused.

--ram is what it may use meanwhile: all that the machine can spare if it is left out.

--area asks what a swap area in place of the compressed pool would do, whose requests take so long: 100us for an SSD,
10ms for a disk. It can be given several times.

--run PID joins a run that is under way, of `vswap run` or `vswap attach`, and watches it for a minute, or as long as
--for says. Ctrl-C ends that early, with the advice. The run goes on with its limit, and does not wait for the answer.

Exit status: that of the program, 0 with --run; 125 for vswap's own errors, as for `vswap run`.

Examples:
  vswap advise -- python3 job.py
  vswap advise --json advice.json --report advice.html -- make -j2
  vswap advise --area 100us --area 5ms -- ./simulation
  vswap advise --run 4711 --for 5m";

#[derive(Debug, clap::Args)]
pub struct AdviseArgs {
    /// Watch a run that is under way, by its process id, instead of running a program.
    #[arg(long, value_name = "PID", conflicts_with_all = ["ram", "command"])]
    pub run: Option<u32>,
    /// How long to watch it, such as 90s or 10m.
    #[arg(
        long = "for",
        value_name = "TIME",
        value_parser = parse_idle_time,
        default_value = "60s",
        conflicts_with = "command"
    )]
    pub time: Duration,
    /// RAM that the program may use meanwhile.
    #[arg(long, value_name = "SIZE", default_value = "auto")]
    pub ram: Ram,
    /// Say also what a swap area would do whose requests take so long.
    #[arg(long, value_name = "LATENCY", value_parser = parse_duration, default_values = ["100us", "5ms"])]
    pub area: Vec<Duration>,
    /// Write all figures to FILE as JSON; - is standard output.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the advice to FILE as a page for a browser, with the curve; - is standard output.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Print no advice on standard error: with --json or --report.
    #[arg(long, short)]
    pub quiet: bool,
    /// The program and its arguments.
    #[arg(
        required_unless_present = "run",
        trailing_var_arg = true,
        value_name = "CMD"
    )]
    pub command: Vec<OsString>,
}

impl AdviseArgs {
    /// How the memory of the run is managed: like that of any other, in this process.
    pub fn manage(&self) -> ManageArgs {
        ManageArgs {
            park_after: None,
            ram: self.ram,
            codec: None,
            swap: Vec::new(),
            far: FarArgs::default(),
            tier: Vec::new(),
            no_encrypt: false,
            on_full: OnFull::default(),
            pool: None,
            no_virtual: false,
            group: None,
            swap_max: None,
            tier_max: Vec::new(),
            pool_max: None,
            no_writeback: false,
            summary: None,
            report: None,
            metrics: None,
            quiet: true,
            debug_evict_every: None,
            debug_pressure: None,
            debug_checksums: false,
        }
    }
}
