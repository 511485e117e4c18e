//! The options of `vswap set`.

use std::time::Duration;

use clap::builder::BoolishValueParser;
use vswap_engine::{GroupLimits, GroupName};
use vswap_pager::{GroupChange, TierLimit};

use crate::args::ram::Ram;
use crate::args::size::{PoolSize, parse_limit};
use crate::args::tiers::parse_tier_max;

/// What stands below the options.
pub const SET_EXAMPLES: &str = "\
A higher limit holds at once. A lower one is approached while the program runs on: its pages move out as fast as pool
and areas take them. The command returns when it holds, or says after --wait where the run stands; the run goes on
towards it. Ctrl-C ends the waiting and nothing else. What the run cannot do with is refused, and nothing changes.

Limits of a group hold for what is stored from now on. What is above a lower one stays where it is until it is needed.

Exit status: 0 when it holds, 1 when it does not yet, 125 when it was refused, 130 after Ctrl-C.

Examples:
  vswap set --run 4711 --ram 2G
  vswap set --run 4711 --ram 512M..2G --pool 25%
  vswap set --ram 256M --wait 120
  vswap set --run 4711 --swap-max 4G
  vswap set --group web/jobs --tier-max fast=0 --tier-max far=4G
  vswap set --group web/jobs --swap-max none --pool-max 128M --writeback on";

#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("change").required(true).multiple(true))]
pub struct SetArgs {
    /// The process id of the run, where there are several.
    #[arg(long, value_name = "PID")]
    pub run: Option<u32>,
    /// A group of the daemon, or of the run, instead of a run.
    #[arg(long, value_name = "NAME[/SUB...]")]
    pub group: Option<GroupName>,
    /// RAM that the run may use: a size, or the least and the most, as for `vswap run`.
    #[arg(
        long,
        value_name = "SIZE[..MAX]",
        group = "change",
        conflicts_with = "group"
    )]
    pub ram: Option<Ram>,
    /// RAM of that for the compressed pool: a size, a share of --ram, or off.
    #[arg(long, value_name = "SIZE", group = "change", conflicts_with = "group")]
    pub pool: Option<PoolSize>,
    /// Most that the group may have in swap areas, or none for no limit.
    #[arg(long, value_name = "SIZE", group = "change", value_parser = parse_limit_or_none)]
    pub swap_max: Option<u64>,
    /// Most that the group may have in the areas of a tier, 0 for nothing at all, max for no limit; may be given again
    /// and again.
    #[arg(long, value_name = "NAME=SIZE|max", group = "change", value_parser = parse_tier_max)]
    pub tier_max: Vec<TierLimit>,
    /// Most that the group may have in the compressed pool, or none for no limit.
    #[arg(long, value_name = "SIZE", group = "change", value_parser = parse_limit_or_none)]
    pub pool_max: Option<u64>,
    /// Whether the group's pages may go to swap areas: on or off.
    #[arg(long, value_name = "on|off", group = "change", value_parser = BoolishValueParser::new())]
    pub writeback: Option<bool>,
    /// Seconds to wait until a lower limit holds.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = parse_seconds)]
    pub wait: Duration,
}

impl SetArgs {
    /// What shall be otherwise of a group.
    pub fn group_change(&self) -> GroupChange {
        GroupChange {
            swap_max_bytes: self.swap_max,
            pool_max_bytes: self.pool_max,
            writeback: self.writeback,
            tiers: self.tier_max.clone(),
        }
    }
}

fn parse_limit_or_none(text: &str) -> Result<u64, String> {
    if text.trim().eq_ignore_ascii_case("none") {
        return Ok(GroupLimits::NO_LIMIT);
    }
    parse_limit(text).map_err(|error| format!("{error}, none"))
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.trim().parse().ok();
    let pause = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    pause.ok_or_else(|| "expected a number of seconds; for example: 0, 2.5, 120".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_can_be_none_and_pauses_are_seconds() {
        assert_eq!(parse_limit_or_none("none"), Ok(GroupLimits::NO_LIMIT));
        assert_eq!(parse_limit_or_none("1k"), Ok(1024));
        assert!(
            parse_limit_or_none("nothing")
                .expect_err("no size")
                .contains("none")
        );
        assert_eq!(parse_seconds("2.5"), Ok(Duration::from_millis(2500)));
        for text in ["-1", "soon", "1e99", ""] {
            assert!(parse_seconds(text).is_err(), "{text}");
        }
    }
}
