//! Tiers: areas under one name, so that a group can be told how much of them it may have.
//!
//! The engine knows tiers by number. Here they have the names that the user gave. A number is kept for its name while
//! an area, a limit or a page of a group needs it; when all numbers are taken, a name that nothing needs gives way. The
//! first number is that of the areas for which nobody has named a tier. The lock is innermost.

use serde::{Deserialize, Serialize};
use vswap_areas::TierName;
use vswap_engine::{AreaFigures, Engine, GroupFigures, GroupLimits, TIERS_MAX, TierId};

use crate::base::lock::{Mutex, Row};
use crate::base::page_run::PAGE_BYTES;

/// How much a group may have of one tier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TierLimit {
    /// The tier.
    pub tier: TierName,
    /// Bytes in its areas; 0 for nothing at all, [`GroupLimits::NO_LIMIT`] for no limit.
    pub max_bytes: u64,
}

/// There is no tier of this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no tier {tier} here, only {known}: name one of these, or add an area with tier={tier} first"
)]
pub struct UnknownTier {
    /// The name.
    pub tier: TierName,
    /// Those that there are.
    pub known: String,
}

/// All numbers have names that are needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there are {TIERS_MAX} tiers, the most there can be: use one of them")]
pub struct TooManyTiers;

/// A limit of a tier that there is.
pub type Resolved = Vec<(TierId, u64)>;

/// Figures of a tier, for people: those of its areas together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TierStatus {
    /// Its name.
    pub name: TierName,
    /// How many areas it has.
    pub areas: u64,
    /// The lowest priority of an area.
    pub priority_min: i16,
    /// The highest priority of an area.
    pub priority_max: i16,
    /// Bytes that its areas can hold.
    pub size_bytes: u64,
    /// Bytes in use now.
    pub used_bytes: u64,
    /// Bytes read so far: pages on their way up.
    pub read_bytes: u64,
    /// Bytes written so far: pages on their way down.
    pub written_bytes: u64,
    /// How long reading a lone page takes on average, in microseconds, in the slowest of its areas. None if none was
    /// read yet.
    pub latency_us: Option<f64>,
}

/// What a group has in a tier, and may have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupTier {
    /// The tier.
    pub name: TierName,
    /// Bytes in its areas.
    pub bytes: u64,
    /// The most that it may have there. None means no limit.
    pub max_bytes: Option<u64>,
}

/// The names of a store's tiers.
#[derive(Debug)]
pub struct Tiers(Mutex<[Option<TierName>; TIERS_MAX]>);

impl Default for Tiers {
    fn default() -> Tiers {
        let mut names = [const { None }; TIERS_MAX];
        names[TierId::default().index()] = Some(TierName::default());
        Tiers(Mutex::new(Row::Innermost, "the names of tiers", names))
    }
}

impl Tiers {
    /// The number of this tier, which has one from now on.
    ///
    /// # Errors
    /// [`TooManyTiers`].
    pub fn declare(&self, engine: &Engine, name: &TierName) -> Result<TierId, TooManyTiers> {
        // Without the lock, because the engine has locks of its own.
        let (areas, groups) = (engine.areas(), engine.groups());
        let is_needed = |tier| tier == TierId::default() || is_needed(tier, &areas, &groups);
        let mut names = self.0.lock();
        let found = find(&*names, name)
            .or_else(|| TierId::all().find(|tier| names[tier.index()].is_none()))
            .or_else(|| TierId::all().find(|&tier| !is_needed(tier)));
        let tier = found.ok_or(TooManyTiers)?;
        names[tier.index()] = Some(name.clone());
        Ok(tier)
    }

    /// The numbers of the tiers that limits name.
    ///
    /// # Errors
    /// [`UnknownTier`].
    pub fn resolve(&self, limits: &[TierLimit]) -> Result<Resolved, UnknownTier> {
        let names = self.0.lock();
        let resolved = limits.iter().map(|limit| match find(&*names, &limit.tier) {
            Some(tier) => Ok((tier, limit.max_bytes)),
            None => {
                let known = names.iter().flatten().map(TierName::to_string);
                Err(UnknownTier {
                    tier: limit.tier.clone(),
                    known: known.collect::<Vec<_>>().join(", "),
                })
            }
        });
        resolved.collect()
    }

    /// The name of each tier.
    pub fn names(&self) -> [Option<TierName>; TIERS_MAX] {
        self.0.lock().clone()
    }

    /// Figures of the tiers that have areas, the highest priority first.
    pub fn status(&self, areas: &[AreaFigures]) -> Vec<TierStatus> {
        let names = self.names();
        let mut tiers: Vec<TierStatus> = TierId::all()
            .filter_map(|tier| of_tier(names[tier.index()].clone()?, tier, areas))
            .collect();
        tiers.sort_by_key(|tier| std::cmp::Reverse((tier.priority_max, tier.priority_min)));
        tiers
    }
}

/// These limits, and what they were for all other tiers.
pub fn with_tiers(mut limits: GroupLimits, tiers: &[(TierId, u64)]) -> GroupLimits {
    for &(tier, max_bytes) in tiers {
        limits.tier_max_bytes[tier.index()] = max_bytes;
    }
    limits
}

fn find(names: &[Option<TierName>], name: &TierName) -> Option<TierId> {
    let index = names
        .iter()
        .position(|known| known.as_ref() == Some(name))?;
    TierId::new(index)
}

/// Whether areas, limits or pages name the tier.
fn is_needed(tier: TierId, areas: &[AreaFigures], groups: &[GroupFigures]) -> bool {
    let has = |group: &GroupFigures| {
        let max_bytes = group.limits.tier_max_bytes[tier.index()];
        max_bytes != GroupLimits::NO_LIMIT || group.tier_bytes[tier.index()] > 0
    };
    areas.iter().any(|area| area.tier == tier) || groups.iter().any(has)
}

fn of_tier(name: TierName, tier: TierId, areas: &[AreaFigures]) -> Option<TierStatus> {
    let areas: Vec<&AreaFigures> = areas.iter().filter(|area| area.tier == tier).collect();
    let sum = |figure: fn(&AreaFigures) -> u64| areas.iter().map(|area| figure(area)).sum();
    let priorities = || areas.iter().map(|area| area.priority);
    Some(TierStatus {
        name,
        areas: areas.len() as u64,
        priority_min: priorities().min()?,
        priority_max: priorities().max()?,
        size_bytes: sum(|area| area.size_bytes),
        used_bytes: sum(|area| area.used_bytes),
        read_bytes: sum(|area| area.pages_read * PAGE_BYTES),
        written_bytes: sum(|area| area.pages_written * PAGE_BYTES),
        latency_us: areas
            .iter()
            .filter_map(|area| area.latency)
            .max()
            .map(microseconds),
    })
}

/// For people.
pub fn microseconds(time: std::time::Duration) -> f64 {
    (time.as_secs_f64() * 1e7).round() / 10.0
}

/// What a group has in the tiers that have areas or in which it is limited.
pub fn of_group(
    names: &[Option<TierName>; TIERS_MAX],
    areas: &[AreaFigures],
    has: &[u64; TIERS_MAX],
    limits: &GroupLimits,
) -> Vec<GroupTier> {
    let of_tier = |tier: TierId| {
        let max_bytes = limits.tier_max_bytes[tier.index()];
        let max_bytes = (max_bytes != GroupLimits::NO_LIMIT).then_some(max_bytes);
        let has_areas = areas.iter().any(|area| area.tier == tier);
        (has_areas || max_bytes.is_some()).then_some(GroupTier {
            name: names[tier.index()].clone()?,
            bytes: has[tier.index()],
            max_bytes,
        })
    };
    TierId::all().filter_map(of_tier).collect()
}

/// What all groups together have in each tier.
pub fn of_root(areas: &[AreaFigures]) -> [u64; TIERS_MAX] {
    let mut has = [0; TIERS_MAX];
    for area in areas {
        // As groups are charged: by pages.
        has[area.tier.index()] += area.held_bytes;
    }
    has
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use vswap_engine::{Codec, Config, HeapPages};

    use super::*;

    fn name(text: &str) -> TierName {
        text.parse().expect("a good name")
    }

    /// An engine with nothing in it.
    pub(in crate::store) fn engine() -> Engine {
        let config = Config {
            frames: 1,
            cpus: 1,
            codec: Codec::Lz4,
            pool_limit_bytes: 0,
            checksums: false,
        };
        Engine::new(&config, Arc::new(HeapPages::new())).expect("memory")
    }

    fn limit(tier: &str, max_bytes: u64) -> TierLimit {
        TierLimit {
            tier: name(tier),
            max_bytes,
        }
    }

    #[test]
    fn limits_travel_as_json() {
        let text = serde_json::to_string(&limit("fast", 7)).expect("JSON");
        assert_eq!(text, r#"{"tier":"fast","max_bytes":7}"#);
        let bad = serde_json::from_str::<TierLimit>(r#"{"tier":"a b","max_bytes":7}"#);
        assert!(bad.expect_err("no name").to_string().contains("a b"));
    }

    #[test]
    fn a_name_keeps_its_number_while_it_is_needed() {
        let (engine, tiers) = (engine(), Tiers::default());
        let declare = |text: &str| tiers.declare(&engine, &name(text));
        assert_eq!(declare("default"), Ok(TierId::default()));
        let names: Vec<String> = (1..TIERS_MAX).map(|at| format!("tier-{at}")).collect();
        for text in &names {
            let first = declare(text).expect("room");
            assert_eq!(declare(text), Ok(first));
        }
        let all: Vec<TierLimit> = names.iter().map(|text| limit(text, 0)).collect();
        let all = tiers.resolve(&all).expect("known");
        let limits = with_tiers(GroupLimits::default(), &all);
        let group = engine.add_group(&"a".parse().expect("a good name"), limits);
        assert_eq!(declare("another"), Err(TooManyTiers));
        let error = tiers.resolve(&[limit("another", 1)]).expect_err("unknown");
        assert!(error.to_string().contains("default, tier-1, tier-2"));
        let group = group.expect("a new group");
        let without = with_tiers(limits, &[(all[2].0, GroupLimits::NO_LIMIT)]);
        engine
            .set_group_limits(group, without)
            .expect("it is there");
        assert_eq!(declare("another"), Ok(all[2].0));
        assert!(tiers.resolve(&[limit("tier-3", 1)]).is_err());
        assert_eq!(
            tiers.resolve(&[limit("another", 1)]),
            Ok(vec![(all[2].0, 1)])
        );
    }

    #[test]
    fn a_group_is_told_of_tiers_in_which_it_is_limited() {
        let (engine, tiers) = (engine(), Tiers::default());
        let fast = tiers.declare(&engine, &name("fast")).expect("room");
        let limits = with_tiers(GroupLimits::default(), &[(fast, 0)]);
        let of_it = of_group(&tiers.names(), &[], &[7; TIERS_MAX], &limits);
        let expected = GroupTier {
            name: name("fast"),
            bytes: 7,
            max_bytes: Some(0),
        };
        assert_eq!(of_it, [expected]);
        assert!(tiers.status(&[]).is_empty());
    }
}
