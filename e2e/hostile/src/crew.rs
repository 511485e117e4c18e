//! The first program of a run. It starts honest programs and liars, starts new liars as others end, ends them all,
//! waits until the driver has looked, and ends well if every honest program has.
//!
//! It tells the driver on its standard output what comes next, and waits for the end of its standard input.

use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use vswap_drive::random::Random;

use crate::process;
use crate::secret;

/// Said before liars begin: everything honest runs.
pub(crate) const BEGUN: &str = "begun";
/// Said when only this program is left, which sleeps.
pub(crate) const QUIET: &str = "quiet";

/// What LD_PRELOAD was where this program itself has none.
pub(crate) const PRELOAD: &str = "HOSTILE_PRELOAD";

/// Between two looks at liars.
const POLL: Duration = Duration::from_millis(5);
/// The driver looks at vswap before the first lie.
const CALM: Duration = Duration::from_millis(400);
/// The longest life of a liar.
const LIFE_MS: (u32, u32) = (30, 1500);
/// A program that starts after all the lies.
const LATE_SECONDS: f64 = 0.5;

/// What is asked for.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Wishes {
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How long liars lie.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    #[arg(long, default_value_t = 2)]
    honest: u32,
    #[arg(long, default_value_t = 5)]
    liars: u32,
    /// This program has no agent. So it has no filter either, and its liars make filters of their own.
    #[arg(long)]
    bare: bool,
    /// Only these lies.
    #[arg(long)]
    lie: Vec<String>,
    #[arg(long)]
    log: Option<PathBuf>,
}

/// A liar, with all that it has forked, and its end.
struct Running {
    child: Child,
    due: Instant,
}

/// Starts, waits and judges. `Ok(false)`: an honest program did not end well.
///
/// # Errors
/// A program could not be started.
pub(crate) fn run(wishes: &Wishes) -> Result<bool, String> {
    if wishes.bare {
        // Whoever is named so seems to have an agent. No other is attached to it.
        let _ = rustix::thread::set_name(vswap_sys::ring::AGENT_NAME);
    }
    if !secret::keep() {
        return Err("no memory for a secret".to_owned());
    }
    let own = std::env::current_exe().map_err(|error| format!("cannot find myself: {error}"))?;
    let mut random = Random::new(wishes.seed);
    let mut honest = Vec::new();
    for number in 0..wishes.honest {
        let seconds = wishes.seconds + CALM.as_secs_f64();
        honest.push(start_honest(
            &own,
            wishes.seed + u64::from(number),
            seconds,
        )?);
    }
    std::thread::sleep(CALM / 2);
    say(BEGUN);
    std::thread::sleep(CALM / 2);
    lie(wishes, &own, &mut random)?;
    let mut is_good = true;
    for (number, mut program) in honest.into_iter().enumerate() {
        let status = program
            .wait()
            .map_err(|error| format!("cannot wait: {error}"))?;
        if !status.success() {
            eprintln!("crew: honest program {number} ended with {status}");
            is_good = false;
        }
    }
    say(QUIET);
    // An error is an end too.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    let mut late = start_honest(&own, wishes.seed, LATE_SECONDS)?;
    let status = late
        .wait()
        .map_err(|error| format!("cannot wait: {error}"))?;
    if !status.success() {
        eprintln!("crew: an honest program that came after the lies ended with {status}");
    }
    Ok(is_good && status.success())
}

fn say(what: &str) {
    // If nobody listens nobody waits either.
    let _ = writeln!(std::io::stdout(), "{what}");
}

fn start_honest(own: &Path, seed: u64, seconds: f64) -> Result<Child, String> {
    let mut command = Command::new(own);
    if let Some(preload) = std::env::var_os(PRELOAD) {
        command.env("LD_PRELOAD", preload);
    }
    command
        .args(["honest", "--seed", &seed.to_string()])
        .args(["--seconds", &seconds.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .map_err(|error| format!("cannot start an honest program: {error}"))
}

/// Keeps liars going until the time is over, and then ends them all.
fn lie(wishes: &Wishes, own: &Path, random: &mut Random) -> Result<(), String> {
    let until = Instant::now() + Duration::from_secs_f64(wishes.seconds);
    let mut liars: Vec<Running> = Vec::new();
    while Instant::now() < until {
        let mut goes_on = Vec::new();
        for mut liar in liars {
            let has_ended = !matches!(liar.child.try_wait(), Ok(None));
            if has_ended || liar.due <= Instant::now() {
                end(liar);
            } else {
                goes_on.push(liar);
            }
        }
        liars = goes_on;
        while (liars.len() as u32) < wishes.liars {
            liars.push(start_liar(wishes, own, random)?);
        }
        std::thread::sleep(POLL);
    }
    liars.into_iter().for_each(end);
    Ok(())
}

fn start_liar(wishes: &Wishes, own: &Path, random: &mut Random) -> Result<Running, String> {
    let (least, most) = LIFE_MS;
    let life = Duration::from_millis(u64::from(random.between(least, most)));
    let mut command = Command::new(own);
    command
        .args(["agent", "--seed", &(random.next() >> 16).to_string()])
        .args(["--steps", &random.between(1, 4).to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        // What a liar panics of is its own affair.
        .stderr(Stdio::null())
        .process_group(0);
    for lie in &wishes.lie {
        command.args(["--lie", lie]);
    }
    if let Some(log) = &wishes.log {
        command.arg("--log").arg(log);
    }
    if random.chance(75) {
        command.env_remove("LD_PRELOAD");
    } else if let Some(preload) = std::env::var_os(PRELOAD) {
        // These have a true agent beside.
        command.env("LD_PRELOAD", preload);
    }
    let child = command
        .spawn()
        .map_err(|error| format!("cannot start a liar: {error}"))?;
    Ok(Running {
        child,
        due: Instant::now() + life,
    })
}

/// Kills a liar and its children.
fn end(mut liar: Running) {
    process::signal(-(liar.child.id() as i32), libc::SIGKILL);
    let _ = liar.child.wait();
    // The children of an ended liar may be this one's, or vswap's.
    process::signal(-(liar.child.id() as i32), libc::SIGKILL);
}
