//! `--tier NAME=AREA` and `--tier-max NAME=SIZE`.

use std::str::FromStr;

use vswap_areas::{SpecError, SwapSpec, TierName};
use vswap_engine::{GroupLimits, PRIORITY_DEFAULT};
use vswap_pager::TierLimit;

use crate::args::size::parse_limit;
use crate::args::swaps::SwapOption;

/// An area of a tier: `--tier NAME=AREA` is `--swap AREA,tier=NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TierArea {
    tier: TierName,
    spec: SwapSpec,
}

impl FromStr for TierArea {
    type Err = String;

    fn from_str(text: &str) -> Result<TierArea, String> {
        let expected = "expected NAME=AREA, for example: fast=/var/tmp:8G";
        let (name, area) = text.split_once('=').ok_or_else(|| expected.to_owned())?;
        let tier: TierName = name
            .parse()
            .map_err(|error| format!("{error}; {expected}"))?;
        let spec: SwapSpec = area.parse().map_err(|error: SpecError| error.to_string())?;
        if spec.tier.is_some() {
            return Err(format!(
                "the tier is named twice: leave tier= out, it is {tier}"
            ));
        }
        let spec = spec.in_tier(tier.clone());
        Ok(TierArea { tier, spec })
    }
}

/// All areas that were named. Those of tiers without a priority get one: the tier that was named first has the highest.
pub fn all_areas(swap: &[SwapOption], tiers: &[TierArea]) -> Vec<SwapOption> {
    let mut names: Vec<&TierName> = Vec::new();
    for tier in tiers {
        if !names.contains(&&tier.tier) {
            names.push(&tier.tier);
        }
    }
    let of_tier = |tier: &TierArea| {
        let behind = names.iter().rev().position(|name| **name == tier.tier);
        let priority = behind.and_then(|behind| i16::try_from(behind).ok());
        let mut spec = tier.spec.clone();
        if spec.priority == PRIORITY_DEFAULT {
            spec.priority = priority.unwrap_or(PRIORITY_DEFAULT);
        }
        SwapOption::Area(spec)
    };
    let tiers = tiers.iter().map(of_tier);
    swap.iter().cloned().chain(tiers).collect()
}

/// The tiers that areas name.
pub fn names(areas: &[SwapOption]) -> impl Iterator<Item = &TierName> {
    areas.iter().filter_map(|area| match area {
        SwapOption::Area(spec) => spec.tier.as_ref(),
        SwapOption::None => None,
    })
}

/// `NAME=SIZE`, where SIZE may be 0, and `max` is no limit.
pub fn parse_tier_max(text: &str) -> Result<TierLimit, String> {
    let expected =
        "expected NAME=SIZE, 0 for nothing at all, max for no limit; for example: fast=1G";
    let (name, size) = text.split_once('=').ok_or_else(|| expected.to_owned())?;
    let tier = name
        .parse()
        .map_err(|error| format!("{error}; {expected}"))?;
    let max_bytes = match size.trim() {
        "max" => GroupLimits::NO_LIMIT,
        size => parse_limit(size).map_err(|error| format!("{error}, max"))?,
    };
    Ok(TierLimit { tier, max_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn areas(swap: &[&str], tiers: &[&str]) -> Vec<(String, i16)> {
        let swap: Vec<SwapOption> = swap.iter().map(|one| one.parse().expect(one)).collect();
        let tiers: Vec<TierArea> = tiers.iter().map(|one| one.parse().expect(one)).collect();
        let all = all_areas(&swap, &tiers);
        let area = |option: &SwapOption| match option {
            SwapOption::Area(spec) => {
                let tier = spec.tier.clone().unwrap_or_default();
                (tier.to_string(), spec.priority)
            }
            SwapOption::None => ("none".to_owned(), 0),
        };
        all.iter().map(area).collect()
    }

    fn owned(expected: &[(&str, i16)]) -> Vec<(String, i16)> {
        let one = |(tier, priority): &(&str, i16)| ((*tier).to_owned(), *priority);
        expected.iter().map(one).collect()
    }

    #[test]
    fn the_tier_named_first_is_used_first() {
        let found = areas(
            &["/a:1G", "/b:1G,tier=far,prio=9"],
            &[
                "fast=/c:1G",
                "ssd=/d:1G,prio=7",
                "fast=/e=f:1G",
                "far=/g:1G",
            ],
        );
        let expected = [
            ("default", PRIORITY_DEFAULT),
            ("far", 9),
            ("fast", 2),
            ("ssd", 7),
            ("fast", 2),
            ("far", 0),
        ];
        assert_eq!(found, owned(&expected));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, expected) in [
            ("/c:1G", "NAME=AREA"),
            ("a b=/c:1G", "no name of a tier"),
            ("fast=", "no path"),
            ("fast=/c,tier=ssd", "named twice"),
        ] {
            let error = text.parse::<TierArea>().expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn limits_of_tiers_are_sizes_or_none() {
        let limit = |text: &str| parse_tier_max(text).map(|limit| limit.max_bytes);
        assert_eq!(limit("fast=0"), Ok(0));
        assert_eq!(limit("fast=1k"), Ok(1024));
        assert_eq!(limit("fast=max"), Ok(GroupLimits::NO_LIMIT));
        for text in ["fast", "=1G", "fast=", "fast=none"] {
            assert!(parse_tier_max(text).is_err(), "{text}");
        }
    }
}
