//! Rounds: a seed gives a run, or a daemon with two, in which liars and honest programs live side by side. A round
//! passes if the honest ones notice nothing and vswap is afterwards what it was before.

mod figures;
mod run;
mod round;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use round::Round;
use vswap_drive::{processes, runtime};

/// What the user asked for.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Wishes {
    /// The vswap to test.
    #[arg(long, default_value = "target/release/vswap")]
    vswap: PathBuf,
    /// How long to go on.
    #[arg(long, default_value_t = 5)]
    minutes: u64,
    /// Not more rounds than this.
    #[arg(long)]
    rounds: Option<u64>,
    /// Seed of the first round; each further round takes the next number.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Liars in one run and honest programs in another, on the store of a daemon.
    #[arg(long)]
    daemon: bool,
    /// Only these lies; `vswap-hostile lies` names all.
    #[arg(long)]
    lie: Vec<String>,
    /// How many liars live at once; 0 checks the instrument itself.
    #[arg(long, default_value_t = 5)]
    liars: u32,
    /// Seconds of lies in a round.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Go on after a failure.
    #[arg(long)]
    keep_going: bool,
    /// Directory for files of runs.
    #[arg(long, default_value = "target/hostile")]
    place: PathBuf,
}

/// Runs rounds until the time is over. `Ok(false)`: something failed.
///
/// # Errors
/// The driver could not begin.
pub(crate) fn drive(wishes: &Wishes) -> Result<bool, String> {
    let vswap = fs::canonicalize(&wishes.vswap)
        .map_err(|error| format!("no {}: {error}", wishes.vswap.display()))?;
    let place = wishes.place.join(std::process::id().to_string());
    fs::create_dir_all(&place)
        .map_err(|error| format!("cannot make {}: {error}", place.display()))?;
    let place = fs::canonicalize(&place).map_err(|error| error.to_string())?;
    let runtime = runtime::directory()?;
    let run_dir = runtime.path().join("run");
    processes::become_reaper();
    let until = Instant::now() + Duration::from_secs(wishes.minutes * 60);
    let mut rounds = 0;
    let mut failed: Vec<String> = Vec::new();
    while Instant::now() < until && wishes.rounds.is_none_or(|most| rounds < most) {
        let seed = wishes.seed + rounds;
        rounds += 1;
        let round = Round {
            wishes,
            vswap: &vswap,
            place: &place,
            run_dir: &run_dir,
            seed,
        };
        let Err(failure) = round.run() else {
            continue;
        };
        println!(
            "hostile: seed {seed} failed: {failure}\nthe newest lies:\n{}again: cargo xtask hostile --seed {seed} \
             --rounds 1{}{}",
            round.newest_lies(),
            if wishes.daemon { " --daemon" } else { "" },
            wishes
                .lie
                .iter()
                .map(|lie| format!(" --lie {lie}"))
                .collect::<String>(),
        );
        failed.push(format!(
            "seed {seed}: {}",
            failure.lines().next().unwrap_or_default()
        ));
        if !wishes.keep_going {
            break;
        }
    }
    let _gone = fs::remove_dir_all(&place);
    println!(
        "hostile: {rounds} rounds, seeds {} to {}, {} failed",
        wishes.seed,
        (wishes.seed + rounds).saturating_sub(1),
        failed.len()
    );
    for failure in &failed {
        println!("  {failure}");
    }
    Ok(failed.is_empty())
}
