//! The run's group: making it, and its figures. The engine charges groups.

use serde::{Deserialize, Serialize};
use vswap_areas::TierName;
use vswap_engine::{
    AreaFigures, Engine, GroupError, GroupFigures, GroupId, GroupLimits, GroupName, GroupNameError,
    PAGE_BYTES, Stats, TIERS_MAX,
};

use crate::store::areas::Areas;
use crate::store::config::RunGroup;
use crate::store::tiers::{self, GroupTier, Tiers, UnknownTier, with_tiers};

/// Figures of a group, for people. Bytes and limits include those of the groups inside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupStatus {
    /// Its name; `/` is the root.
    pub name: String,
    /// Bytes in physical areas.
    pub swap_bytes: u64,
    /// The most that it may have there. None means no limit.
    pub swap_max_bytes: Option<u64>,
    /// Bytes of compressed pages in the pool.
    pub pool_bytes: u64,
    /// The most that it may have there. None means no limit.
    pub pool_max_bytes: Option<u64>,
    /// Whether its pages may go to areas at all.
    pub writeback: bool,
    /// What it has in each tier, and may have: in those that have areas or in which it is limited.
    #[serde(default)]
    pub tiers: Vec<GroupTier>,
    /// How often its limits were met.
    pub events: Events,
}

/// What a group's limits have refused since the start, in pages. A page that waits is counted at each try.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Events {
    /// At the limit of bytes in areas.
    pub swap_max: u64,
    /// Pages of the group itself that got no slot in an area, for whatever reason.
    pub swap_fail: u64,
    /// At the limit of bytes in the pool.
    pub pool_max: u64,
    /// Pages of the group itself that may not go to areas.
    pub writeback_refused: u64,
}

/// Why a run cannot have its group.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MakeError {
    /// The engine's reason.
    #[error(transparent)]
    Engine(#[from] GroupError),
    /// Other runs are in it, under other limits.
    #[error(
        "the group {name} has other limits, and runs are in it: leave the limits out to join it, or choose another name"
    )]
    OtherLimits {
        /// The group.
        name: GroupName,
    },
    /// A limit is of a tier that there is not.
    #[error(transparent)]
    Tier(#[from] UnknownTier),
    /// The run's own group would have a name that no group can have.
    #[error("the name of the run's own group is none: {0}")]
    Name(#[from] GroupNameError),
}

/// Make the group of a run and the outer groups that its name contains. Without a name it is the root. In a shared
/// store the run gets its own group inside that, named after process `own`.
///
/// # Errors
/// [`MakeError`]. Groups without runs may be left behind.
pub fn make(
    engine: &Engine,
    tiers: &Tiers,
    group: Option<&RunGroup>,
    own: Option<u32>,
) -> Result<(GroupId, Option<GroupName>), MakeError> {
    let (mut id, mut name) = match group {
        Some(group) => (named(engine, tiers, group)?, Some(group.name.clone())),
        None => (GroupId::ROOT, None),
    };
    if let Some(pid) = own {
        let outer = name.map_or_else(String::new, |name| format!("{name}/"));
        let inner: GroupName = format!("{outer}run-{pid}").parse()?;
        id = engine.add_group(&inner, GroupLimits::default())?;
        name = Some(inner);
    }
    Ok((id, name))
}

/// The group that the user named: the existing one, or a new one.
fn named(engine: &Engine, tiers: &Tiers, group: &RunGroup) -> Result<GroupId, MakeError> {
    let name = &group.name;
    let limits = with_tiers(group.limits, &tiers.resolve(&group.tiers)?);
    let mut id = GroupId::ROOT;
    for part in name.with_parents() {
        let wanted = if part == *name {
            limits
        } else {
            GroupLimits::default()
        };
        id = match engine.find_group(&part) {
            Some(id) if has_limits(engine, id, wanted) => id,
            Some(_) => return Err(MakeError::OtherLimits { name: part }),
            None => engine.add_group(&part, wanted)?,
        };
    }
    Ok(id)
}

/// Does the group have these limits, or are none wanted?
fn has_limits(engine: &Engine, id: GroupId, wanted: GroupLimits) -> bool {
    let groups = engine.groups();
    wanted == GroupLimits::default()
        || groups
            .iter()
            .any(|group| group.id == id && group.limits == wanted)
}

/// The groups of a run in a shared store: its own, and those around it.
pub fn status_of(engine: &Engine, areas: &Areas, own: &GroupName) -> Vec<GroupStatus> {
    let groups = engine.groups();
    let look = Look::at(engine, areas);
    let is_around = |group: &&GroupFigures| own.with_parents().any(|name| name == group.name);
    let around = groups.iter().filter(is_around);
    around.map(|group| look.of(group)).collect()
}

/// All groups, the root first. `stats` are the engine's own figures, because everything is in the root.
pub fn status(engine: &Engine, areas: &Areas, stats: &Stats) -> Vec<GroupStatus> {
    let look = Look::at(engine, areas);
    let root = GroupStatus {
        name: "/".to_owned(),
        swap_bytes: stats.physical * PAGE_BYTES as u64,
        swap_max_bytes: None,
        pool_bytes: stats.payload_bytes,
        pool_max_bytes: None,
        writeback: true,
        tiers: look.tiers(&tiers::of_root(&look.areas), &GroupLimits::default()),
        events: Events::default(),
    };
    let others = engine.groups();
    let others = others.iter().map(|group| look.of(group));
    [root].into_iter().chain(others).collect()
}

/// What is to be known of areas to tell of groups.
struct Look {
    areas: Vec<AreaFigures>,
    names: [Option<TierName>; TIERS_MAX],
}

impl Look {
    fn at(engine: &Engine, areas: &Areas) -> Look {
        Look {
            areas: engine.areas(),
            names: areas.tiers.names(),
        }
    }

    fn tiers(&self, has: &[u64; TIERS_MAX], limits: &GroupLimits) -> Vec<GroupTier> {
        tiers::of_group(&self.names, &self.areas, has, limits)
    }

    fn of(&self, group: &GroupFigures) -> GroupStatus {
        let limit = |bytes: u64| (bytes != GroupLimits::NO_LIMIT).then_some(bytes);
        GroupStatus {
            name: group.name.to_string(),
            swap_bytes: group.swap_bytes,
            swap_max_bytes: limit(group.limits.swap_max_bytes),
            pool_bytes: group.pool_bytes,
            pool_max_bytes: limit(group.limits.pool_max_bytes),
            writeback: group.limits.writeback,
            tiers: self.tiers(&group.tier_bytes, &group.limits),
            events: Events {
                swap_max: group.events.swap_max,
                swap_fail: group.events.swap_fail,
                pool_max: group.events.pool_max,
                writeback_refused: group.events.writeback_refused,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tiers::tests::engine;

    #[test]
    fn the_group_is_made_inside_groups_without_limits() {
        let engine = engine();
        assert_eq!(
            make(&engine, &Tiers::default(), None, None),
            Ok((GroupId::ROOT, None))
        );
        let limits = GroupLimits {
            swap_max_bytes: 1 << 20,
            writeback: false,
            ..GroupLimits::default()
        };
        let run = |name: &str| RunGroup {
            name: name.parse().expect("a good name"),
            limits,
            tiers: Vec::new(),
        };
        let (id, name) = make(&engine, &Tiers::default(), Some(&run("web/jobs")), None)
            .expect("no such groups yet");
        assert_eq!(engine.find_group(&run("web/jobs").name), Some(id));
        assert_eq!(name, Some(run("web/jobs").name));
        make(&engine, &Tiers::default(), Some(&run("web/other")), None)
            .expect("web is there already");
        let error = make(&engine, &Tiers::default(), Some(&run("web")), None)
            .expect_err("it has no limits");
        assert!(
            error.to_string().contains("web has other limits"),
            "{error}"
        );
        let status = status(&engine, &Areas::default(), &engine.stats());
        let names: Vec<&str> = status.iter().map(|group| group.name.as_str()).collect();
        assert_eq!(names, ["/", "web", "web/jobs", "web/other"]);
        assert_eq!(status[1].swap_max_bytes, None);
        assert!(status[1].writeback && !status[2].writeback);
        assert_eq!(status[2].swap_max_bytes, Some(1 << 20));
        assert_eq!(status[2].pool_max_bytes, None);
    }

    #[test]
    fn each_run_in_a_shared_store_has_a_group_of_its_own() {
        let engine = engine();
        let jobs = |swap_max_bytes| RunGroup {
            name: "jobs".parse().expect("a good name"),
            limits: GroupLimits {
                swap_max_bytes,
                ..GroupLimits::default()
            },
            tiers: Vec::new(),
        };
        let no_limit = GroupLimits::NO_LIMIT;
        let make = |group: Option<&RunGroup>, pid| {
            let (id, name) = make(&engine, &Tiers::default(), group, Some(pid))?;
            assert_eq!(engine.find_group(name.as_ref().expect("its own")), Some(id));
            Ok(name.expect("its own"))
        };
        assert_eq!(
            make(None, 7).map(|name| name.to_string()),
            Ok("run-7".to_owned())
        );
        make(Some(&jobs(4096)), 8).expect("the first in its group");
        make(Some(&jobs(4096)), 9).expect("the same limits");
        let inner = make(Some(&jobs(no_limit)), 10).expect("no limits of its own");
        assert!(matches!(
            make(Some(&jobs(8192)), 11),
            Err(MakeError::OtherLimits { .. })
        ));
        let groups = status_of(&engine, &Areas::default(), &inner);
        let names: Vec<&str> = groups.iter().map(|group| group.name.as_str()).collect();
        assert_eq!(names, ["jobs", "jobs/run-10"]);
    }
}
