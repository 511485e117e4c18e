//! Rounds: a seed gives a plan, options and a fault. The plan runs natively and then under vswap. A plan that fails is
//! shrunk, written to a file and printed.

mod attempt;
mod companion;
mod daemon;
mod ended;
mod faults;
mod shortage;
mod shrink;
mod sick_disk;
mod verdict;
mod watch;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use attempt::{Bench, Way};
use daemon::Daemon;
use faults::{Fault, Kind};
use sick_disk::SickDisk;
use tempfile::TempDir;
use verdict::Failure;
use vswap_drive::random::Random;
use vswap_drive::{processes, runtime};

use crate::generate;
use crate::plan::Plan;

/// A plan that failed once is run this many times before the failure counts as one that does not come again.
const TRIES: u32 = 3;
/// The longest time for shrinking.
const SHRINK_TIME: Duration = Duration::from_secs(150);
/// The pause between evictions of everything that can go.
const EVICT_EVERY: &str = "3ms";
/// The limit of most rounds, in which nothing is short. The other is less than a plan's memory and vswap's own
/// together.
const RAM: &str = "1G";
const TIGHT_RAM: &str = "40M";
/// Ends the name of an area that is too small for all that is evicted. With a tight limit a program might be full for
/// good, so the two do not come together.
const SMALL: &str = ":1M";
/// Size of the area that comes and goes.
const AREA_SIZE: &str = "64M";

/// What the user asked for.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Wishes {
    /// The vswap to test.
    #[arg(long, default_value = "target/release/vswap")]
    vswap: PathBuf,
    /// How long to go on.
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// Seed of the first round; each further round takes the next number.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run only natively; checks chaos itself.
    #[arg(long)]
    native: bool,
    /// Run this plan instead of generated ones, with the options and the fault that its seed chooses.
    #[arg(long)]
    replay: Option<PathBuf>,
    /// Only generate programs of these topics.
    #[arg(long, value_delimiter = ',')]
    topics: Vec<generate::Topic>,
    /// Go on after a failure.
    #[arg(long)]
    keep_going: bool,
    /// Leave the plan that failed as it is.
    #[arg(long)]
    no_shrink: bool,
    /// No faults, and the same options in all rounds.
    #[arg(long)]
    plain: bool,
    /// Let all runs share the store of a daemon, which must be empty after each round.
    #[arg(long)]
    daemon: bool,
    /// Start programs with an empty environment: their agent does not come with the loader, it is attached.
    #[arg(long)]
    attached: bool,
    /// Attach vswap to programs that run already, and let go of most of them before they end. No faults.
    #[arg(long, conflicts_with_all = ["daemon", "attached", "fault", "no_capability"])]
    late: bool,
    /// Run vswap without CAP_SYS_PTRACE, so that the kernel tells of no forks. Needs setpriv.
    #[arg(long, conflicts_with = "daemon")]
    no_capability: bool,
    /// Let pages of all rounds go to this area and not to the pool, such as valkey://127.0.0.1:6379:8G. Rounds with a
    /// disk that fails have that.
    #[arg(long, conflicts_with = "daemon")]
    area: Option<String>,
    /// Use this fault in all rounds.
    #[arg(long)]
    fault: Option<Kind>,
    /// Seconds without progress that count as a hang.
    #[arg(long, default_value_t = 30)]
    patience: u64,
    /// Directory for failed plans and for files of runs.
    #[arg(long, default_value = "target/chaos")]
    place: PathBuf,
}

/// Runs rounds until the time is over. `Ok(false)`: something failed.
///
/// # Errors
/// The driver could not begin.
pub(crate) fn drive(wishes: &Wishes) -> Result<bool, String> {
    let mut driver = Driver::new(wishes)?;
    let until = Instant::now() + Duration::from_secs(wishes.minutes * 60);
    if let Some(path) = &wishes.replay {
        let text = fs::read_to_string(path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        let plan = Plan::parse(&text)?;
        let good = driver.round(plan.head.seed, &plan)?;
        if good {
            println!("chaos: {} passed", path.display());
        }
        return Ok(good);
    }
    let mut rounds = 0;
    let mut seed = wishes.seed;
    while Instant::now() < until {
        rounds += 1;
        let good = driver.round(seed, &generate::plan(seed, &wishes.topics))?;
        seed += 1;
        if !good && !wishes.keep_going {
            break;
        }
    }
    println!(
        "chaos: {rounds} programs, seeds {} to {}, {} failed",
        wishes.seed,
        seed.saturating_sub(1).max(wishes.seed),
        driver.failed.len()
    );
    for failure in &driver.failed {
        println!("  {failure}");
    }
    Ok(driver.failed.is_empty())
}

struct Driver<'a> {
    wishes: &'a Wishes,
    vswap: PathBuf,
    bench: Bench,
    daemon: Option<Daemon>,
    /// Removes the directory of runs when the driver ends.
    _runtime: TempDir,
    /// `None` if it cannot be mounted.
    sick_disk: Option<SickDisk>,
    began: Instant,
    /// Each round that failed, in a line.
    failed: Vec<String>,
}

impl<'a> Driver<'a> {
    fn new(wishes: &'a Wishes) -> Result<Self, String> {
        let whole = |path: &Path| {
            fs::canonicalize(path).map_err(|error| format!("no {}: {error}", path.display()))
        };
        let place = wishes.place.join(std::process::id().to_string());
        fs::create_dir_all(&place)
            .map_err(|error| format!("cannot make {}: {error}", place.display()))?;
        let place = whole(&place)?;
        let vswap = if wishes.native {
            PathBuf::new()
        } else {
            whole(&wishes.vswap)?
        };
        let mut sick_disk = None;
        if !wishes.native {
            make_area(&vswap, &place.join("area"))?;
            sick_disk = make_sick_disk(&vswap, &place)
                .inspect_err(|error| println!("SKIP: rounds with a disk that fails: {error}"))
                .ok();
        }
        processes::become_reaper();
        let runtime = runtime::directory()?;
        let run_dir = runtime.path().join("run");
        let daemon = if wishes.daemon && !wishes.native {
            Some(Daemon::start(&vswap, &place, &run_dir)?)
        } else {
            None
        };
        Ok(Self {
            wishes,
            vswap,
            bench: Bench {
                place,
                run_dir,
                patience: Duration::from_secs(wishes.patience),
                has_daemon: daemon.is_some(),
                is_attached: wishes.attached,
                has_capability: !wishes.no_capability,
            },
            daemon,
            _runtime: runtime,
            sick_disk,
            began: Instant::now(),
            failed: Vec::new(),
        })
    }

    /// Runs one plan. False if it failed.
    fn round(&mut self, seed: u64, plan: &Plan) -> Result<bool, String> {
        let way = self.way(seed);
        let Some(failure) = self.failure(plan, &way)? else {
            return Ok(true);
        };
        let first = failure.text.lines().next().unwrap_or_default();
        self.failed
            .push(format!("seed {seed}: {}: {first}", failure.kind));
        println!(
            "chaos: seed {seed} failed after {} s: {}\n{}",
            self.began.elapsed().as_secs(),
            failure.kind,
            failure.text
        );
        if let Way::Under { options, fault, .. } = &way {
            println!("options {}, fault {fault:?}", options.join(" "));
        }
        let small = if self.wishes.no_shrink {
            plan.clone()
        } else {
            shrink::shrink(plan, SHRINK_TIME, |plan| {
                (0..TRIES).any(|_| {
                    let again = self.failure(plan, &way);
                    again.is_ok_and(|again| again.is_some_and(|again| again.kind == failure.kind))
                })
            })
        };
        let path = self.wishes.place.join(format!("{seed}.plan"));
        fs::write(&path, small.text())
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        println!(
            "{} of {} lines are enough; again: cargo xtask chaos --replay {}\n{}",
            small.lines.len(),
            plan.lines.len(),
            path.display(),
            small.text()
        );
        Ok(false)
    }

    /// Runs the plan natively and under vswap, and returns the failure if there is one.
    fn failure(&mut self, plan: &Plan, way: &Way) -> Result<Option<Failure>, String> {
        let native = self.bench.run(plan, &Way::Native)?;
        if let Some(failure) = verdict::of_native(&native) {
            let kind = format!("natively: {}", failure.kind);
            return Ok(Some(Failure { kind, ..failure }));
        }
        let Way::Under { fault, .. } = way else {
            return Ok(None);
        };
        if let Some(disk) = &self.sick_disk {
            disk.fall_ill(*fault);
        }
        let limited = self.bench.run(plan, way)?;
        let mut differs = false;
        let failure = verdict::of_limited(plan, &native, &limited, *fault, || {
            differs = true;
            self.bench.run(plan, &Way::Native)
        })?;
        if differs && failure.is_none() {
            let seed = plan.head.seed;
            println!("chaos: seed {seed} has several answers, also natively");
        }
        let leak = self.daemon.as_mut().and_then(Daemon::leak);
        Ok(failure.or_else(|| {
            let kind = "leak in the daemon".to_owned();
            leak.map(|text| Failure { kind, text })
        }))
    }

    /// Options and fault of a round.
    fn way(&self, seed: u64) -> Way {
        if self.wishes.native {
            return Way::Native;
        }
        let mut random = Random::new(seed ^ 0x0b57_ac1e);
        let mut backing = Vec::new();
        let mut fault = Fault::NONE;
        if !self.wishes.plain && !self.wishes.daemon {
            backing = self.backing(&mut random);
            fault = Fault::choose(&mut random);
        }
        if let Some(area) = &self.wishes.area {
            backing = swap_alone(area);
        }
        let late = self.wishes.late.then(|| random.next());
        if late.is_some() {
            fault = Fault::NONE;
        }
        if let Some(kind) = self.wishes.fault {
            fault = Fault {
                kind,
                seed: random.next(),
            };
        }
        if matches!(fault.kind, Kind::FailingWrites | Kind::FailingReads) {
            match &self.sick_disk {
                Some(disk) => backing = swap_alone(&disk.area().display()),
                None => fault = Fault::NONE,
            }
        }
        let is_small = backing.iter().any(|option| option.ends_with(SMALL));
        let ram = if random.below(8) == 0 && !self.wishes.plain && !is_small {
            TIGHT_RAM
        } else {
            RAM
        };
        let evict = ["--quiet", "--ram", ram, "--debug-evict-every", EVICT_EVERY];
        Way::Under {
            vswap: self.vswap.clone(),
            options: evict.map(String::from).into_iter().chain(backing).collect(),
            fault,
            late,
        }
    }

    /// Options that say where pages go in a round.
    fn backing(&self, random: &mut Random) -> Vec<String> {
        let place = self.bench.place.display();
        match random.below(12) {
            0 => swap_alone(&format!("{place}:2G")),
            // Pages that find no room stay in memory.
            1 => swap_alone(&format!("{place}{SMALL}")),
            2 => vec![
                "--no-virtual".into(),
                "--swap".into(),
                format!("{place}:2G"),
            ],
            3 => vec!["--codec".into(), "zstd".into()],
            4 => vec!["--codec".into(), "none".into()],
            _ => Vec::new(),
        }
    }
}

/// Pages go to this area and not to the pool.
fn swap_alone(area: &dyn std::fmt::Display) -> Vec<String> {
    ["--pool", "off", "--swap", &area.to_string()]
        .map(String::from)
        .to_vec()
}

impl Drop for Driver<'_> {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.bench.place);
    }
}

/// Makes an area for rounds in which one comes and goes.
fn make_area(vswap: &Path, area: &Path) -> Result<(), String> {
    let status = Command::new(vswap)
        .arg("mkswap")
        .arg(area)
        .args(["--size", AREA_SIZE])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        other => Err(format!(
            "cannot make an area in {}: {other:?}",
            area.display()
        )),
    }
}

/// Makes a disk that fails, with an area on it.
fn make_sick_disk(vswap: &Path, place: &Path) -> Result<SickDisk, String> {
    sick_disk::keep_mounts_to_ourselves()?;
    let real = place.join("real-area");
    make_area(vswap, &real)?;
    SickDisk::mount(place.join("sick"), &real)
}
