//! The options of `vswap park` and `vswap wake`, and the time of `--park-after`.

use std::time::Duration;

/// What stands below the options of `park`.
pub const PARK_EXAMPLES: &str = "\
All of the run's memory moves to its swap areas, the pool too, and its processes are stopped (SIGSTOP). A few MiB
remain: stacks, tables, vswap itself. Without an area the pages stay compressed in memory. A run that has none gets its
private file first, unless it was started with --swap none.

`vswap wake` lets it go on, and so does a signal to `vswap run` (Ctrl-C, Ctrl-Z and SIGTERM too) and SIGCONT to one of
its processes. Until then nothing answers: clients wait, and may give up. The clock goes on, so timers may be late when
it is woken. A run does not stay parked across a reboot, nor when vswap ends: that ends the run, as always.

Exit status: 0 when the run is parked, now or before; 125 when it cannot be.

Examples:
  vswap park
  vswap park 4711
  vswap park --until-used
  vswap park --run 4712";

/// What stands below the options of `wake`.
pub const WAKE_EXAMPLES: &str = "\
Its processes go on at once. What they had in memory comes back with large reads meanwhile, as far as there is room
under --ram; whatever they touch first comes at once.

Exit status: 0 when the run is awake, now or before; 125 when it cannot be woken.

Examples:
  vswap wake
  vswap wake --run 4712";

#[derive(Debug, clap::Args)]
pub struct ParkArgs {
    #[command(flatten)]
    pub meant: Meant,
    /// Wake it also when somebody connects, when input comes, or a signal.
    #[arg(long)]
    pub until_used: bool,
}

#[derive(Debug, clap::Args)]
pub struct WakeArgs {
    #[command(flatten)]
    pub meant: Meant,
}

/// Which run.
#[derive(Debug, clap::Args)]
pub struct Meant {
    /// The run, or one of its processes; the whole run is meant. Not needed where there is one run.
    #[arg(value_name = "PID", conflicts_with = "run")]
    pub pid: Option<u32>,
    /// The process id of the run.
    #[arg(long, value_name = "PID")]
    pub run: Option<u32>,
}

/// A time of seconds, minutes or hours, such as `90s`, `10m`, `2h`: at least a second.
pub fn parse_idle_time(text: &str) -> Result<Duration, String> {
    let expected = || {
        "expected a time of a second or more with its unit s, m or h; for example: 10m".to_owned()
    };
    let text = text.trim();
    let seconds = match text.chars().last() {
        Some('s') => 1.0,
        Some('m') => 60.0,
        Some('h') => 3600.0,
        _ => return Err(expected()),
    };
    let value: f64 = text[..text.len() - 1].parse().map_err(|_| expected())?;
    let time = Duration::try_from_secs_f64(value * seconds).map_err(|_| expected())?;
    (time >= Duration::from_secs(1))
        .then_some(time)
        .ok_or_else(expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_and_are_not_too_short() {
        for (text, seconds) in [("90s", 90), ("10m", 600), (" 2h ", 7200), ("0.5m", 30)] {
            assert_eq!(parse_idle_time(text), Ok(Duration::from_secs(seconds)));
        }
        for bad in ["10", "m", "", "0s", "-5m", "1d", "nan s", "1e99h", "\u{b5}"] {
            let error = parse_idle_time(bad).expect_err(bad);
            assert!(error.contains("for example: 10m"), "{error}");
        }
    }
}
