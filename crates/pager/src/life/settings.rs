//! What can be changed of a run, and of a group, while programs run on.
//!
//! What cannot be is refused before anything has changed. A new limit of memory is told to the run's bounds, which the
//! governor follows (`run/bounds.rs`); limits of groups hold for what is stored from then on. Takes the list of runs
//! for a moment, and no other lock.

use serde::{Deserialize, Serialize};
use vswap_engine::{Engine, GroupError, GroupId, GroupLimits, GroupName};

use crate::evict::shrink;
use crate::life::run::Run;
use crate::run::pool_share::floor_bytes;
use crate::store::config::{PoolLimit, RamRange};
use crate::store::tiers::{Resolved, TierLimit, Tiers, UnknownTier, with_tiers};

/// What shall be otherwise of a run; what is none stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// What it may use.
    pub ram: Option<RamRange>,
    /// What of that the pool may take.
    pub pool: Option<PoolLimit>,
    /// The limits of its group: in a shared store of its own, else of the one it was given.
    pub group: GroupChange,
}

/// What shall be otherwise of a group; what is none stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupChange {
    /// Bytes in physical areas, [`GroupLimits::NO_LIMIT`] for no limit.
    pub swap_max_bytes: Option<u64>,
    /// Bytes of payload in the pool, likewise.
    pub pool_max_bytes: Option<u64>,
    /// Whether its pages may go to areas.
    pub writeback: Option<bool>,
    /// What it may have of each tier that is named here.
    pub tiers: Vec<TierLimit>,
}

/// A change of a group in which each tier is one that there is.
#[derive(Debug)]
pub(crate) struct ResolvedChange<'a> {
    change: &'a GroupChange,
    tiers: Resolved,
}

impl GroupChange {
    /// Is there nothing to change?
    pub fn is_nothing(&self) -> bool {
        *self == GroupChange::default()
    }

    /// The same with the numbers of tiers.
    pub(crate) fn resolve(&self, tiers: &Tiers) -> Result<ResolvedChange<'_>, UnknownTier> {
        Ok(ResolvedChange {
            tiers: tiers.resolve(&self.tiers)?,
            change: self,
        })
    }
}

impl ResolvedChange<'_> {
    /// What limits become of these.
    pub(crate) fn of(&self, limits: GroupLimits) -> GroupLimits {
        let change = self.change;
        let limits = GroupLimits {
            swap_max_bytes: change.swap_max_bytes.unwrap_or(limits.swap_max_bytes),
            pool_max_bytes: change.pool_max_bytes.unwrap_or(limits.pool_max_bytes),
            writeback: change.writeback.unwrap_or(limits.writeback),
            ..limits
        };
        with_tiers(limits, &self.tiers)
    }
}

/// Why something cannot be changed. Nothing has been.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SetError {
    /// Less memory than what cannot be moved out.
    #[error(
        "the run cannot do with {} MiB, it needs {}: {} for vswap without the pool, {} for processes without an agent, \
         {} for the program",
        mib(*.asked_bytes), mib(*.own_bytes + *.unmanaged_bytes + *.floor_bytes),
        mib(*.own_bytes), mib(*.unmanaged_bytes), mib(*.floor_bytes)
    )]
    TooLittle {
        /// What was asked for.
        asked_bytes: u64,
        /// Memory of vswap's own beside the pool.
        own_bytes: u64,
        /// Memory of processes without an agent.
        unmanaged_bytes: u64,
        /// What the program has to have, and what is to be free.
        floor_bytes: u64,
    },
    /// The limits of the root.
    #[error(
        "the run is in no group, and only groups have such limits: start it with --group NAME, or limit its pool \
         with --pool"
    )]
    NoGroup,
    /// There is none of this name.
    #[error("there is no group {0} here: `vswap status --groups` lists those that there are")]
    UnknownGroup(GroupName),
    /// A limit is of a tier that there is not.
    #[error(transparent)]
    Tier(#[from] UnknownTier),
    /// The engine's reason.
    #[error(transparent)]
    Engine(#[from] GroupError),
}

fn mib(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

/// Change a run.
///
/// # Errors
/// [`SetError`]; nothing has changed.
pub(crate) fn set(run: &Run, settings: &Settings) -> Result<(), SetError> {
    if let Some(ram) = settings.ram {
        must_be_enough(run, ram.least_bytes)?;
    }
    if !settings.group.is_nothing() {
        set_own_group(run, &settings.group)?;
    }
    let limit = &run.serving.limit;
    if let Some(ram) = settings.ram {
        limit.bounds.set(ram);
    }
    if let Some(pool) = settings.pool {
        limit.pool.ask(pool);
    }
    limit.pool.renew(&run.part, &run.serving.areas);
    tracing::debug!(?settings, "the run has other limits");
    // Samples are far apart while there is much room.
    limit.look_now();
    shrink::wake(&run.serving);
    Ok(())
}

/// Refuse a limit below what cannot be moved out, as far as that is known.
fn must_be_enough(run: &Run, asked_bytes: u64) -> Result<(), SetError> {
    let spaces = run.listening.spaces.all();
    let own_bytes = run.serving.limit.pool.beside_bytes();
    let unmanaged_bytes = run.listening.shares.strangers(&spaces).bytes;
    let floor_bytes = floor_bytes(asked_bytes);
    if own_bytes + unmanaged_bytes + floor_bytes <= asked_bytes {
        return Ok(());
    }
    Err(SetError::TooLittle {
        asked_bytes,
        own_bytes,
        unmanaged_bytes,
        floor_bytes,
    })
}

fn set_own_group(run: &Run, change: &GroupChange) -> Result<(), SetError> {
    let part = &run.part;
    let change = change.resolve(&run.serving.areas.tiers)?;
    if part.is_all() {
        return set_group(&run.serving.engine, part.group, &change);
    }
    part.change_limits(|limits| change.of(limits));
    Ok(())
}

/// Change the limits of a group that no run's own are.
///
/// # Errors
/// [`SetError`]; nothing has changed.
pub(crate) fn set_group(
    engine: &Engine,
    group: GroupId,
    change: &ResolvedChange<'_>,
) -> Result<(), SetError> {
    let groups = engine.groups();
    let found = groups.iter().find(|figures| figures.id == group);
    let limits = found.ok_or(SetError::NoGroup)?.limits;
    engine.set_group_limits(group, change.of(limits))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_stays() {
        let limits = GroupLimits {
            swap_max_bytes: 7,
            pool_max_bytes: 8,
            writeback: false,
            ..GroupLimits::default()
        };
        let tiers = Tiers::default();
        let of = |change: &GroupChange| change.resolve(&tiers).map(|change| change.of(limits));
        assert!(GroupChange::default().is_nothing());
        assert_eq!(of(&GroupChange::default()), Ok(limits));
        let change = GroupChange {
            pool_max_bytes: Some(GroupLimits::NO_LIMIT),
            writeback: Some(true),
            ..GroupChange::default()
        };
        let changed = GroupLimits {
            swap_max_bytes: 7,
            ..GroupLimits::default()
        };
        assert_eq!(of(&change), Ok(changed));
        let tier = |name: &str| GroupChange {
            tiers: vec![TierLimit {
                tier: name.parse().expect("a good name"),
                max_bytes: 9,
            }],
            ..GroupChange::default()
        };
        let limited = of(&tier("default")).expect("always there");
        assert_eq!((limited.tier_max_bytes[0], limited.swap_max_bytes), (9, 7));
        assert!(of(&tier("fast")).is_err() && !tier("fast").is_nothing());
    }

    #[test]
    fn too_little_is_said_with_what_would_do() {
        let error = SetError::TooLittle {
            asked_bytes: 16 << 20,
            own_bytes: 7 << 20,
            unmanaged_bytes: 100 << 20,
            floor_bytes: 2 << 20,
        };
        let said = error.to_string();
        assert!(said.contains("16 MiB, it needs 109: 7 for vswap"), "{said}");
        assert!(said.len() < 130, "{said}");
    }
}
