//! The run's group: making it, and what groups say of themselves. What is charged to them is the engine's affair.

use serde::Serialize;
use vswap_engine::{Engine, GroupError, GroupFigures, GroupId, GroupLimits, PAGE_BYTES, Stats};

use crate::config::RunGroup;

/// What is known of a group, for people. Bytes and limits are those of the groups inside it, too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GroupStatus {
    /// Its name; `/` is the root.
    pub name: String,
    /// Bytes in physical areas.
    pub swap_bytes: u64,
    /// The most that it may have there; none is no limit.
    pub swap_max_bytes: Option<u64>,
    /// Bytes of compressed pages in the pool.
    pub pool_bytes: u64,
    /// The most that it may have there; none is no limit.
    pub pool_max_bytes: Option<u64>,
    /// Whether its pages may go to areas at all.
    pub writeback: bool,
    /// How often its limits were met.
    pub events: Events,
}

/// What a group's limits have refused since the start, in pages. One that waits is counted each time it is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
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

/// Make the group of a run, inside the groups that its name says. The root where there is none.
///
/// # Errors
/// `GroupError`, as of the engine.
pub fn make(engine: &Engine, group: Option<&RunGroup>) -> Result<GroupId, GroupError> {
    let Some(RunGroup { name, limits }) = group else {
        return Ok(GroupId::ROOT);
    };
    let mut id = GroupId::ROOT;
    for part in name.with_parents() {
        id = match engine.find_group(&part) {
            Some(id) if part != *name => id,
            _ if part == *name => engine.add_group(&part, *limits)?,
            _ => engine.add_group(&part, GroupLimits::default())?,
        };
    }
    Ok(id)
}

/// All groups, the root first. `stats` are the engine's own figures: all that there is is in the root.
pub fn status(engine: &Engine, stats: &Stats) -> Vec<GroupStatus> {
    let root = GroupStatus {
        name: "/".to_owned(),
        swap_bytes: stats.physical * PAGE_BYTES as u64,
        swap_max_bytes: None,
        pool_bytes: stats.payload_bytes,
        pool_max_bytes: None,
        writeback: true,
        events: Events::default(),
    };
    let others = engine.groups();
    [root].into_iter().chain(others.iter().map(of)).collect()
}

fn of(group: &GroupFigures) -> GroupStatus {
    let limit = |bytes: u64| (bytes != GroupLimits::NO_LIMIT).then_some(bytes);
    GroupStatus {
        name: group.name.to_string(),
        swap_bytes: group.swap_bytes,
        swap_max_bytes: limit(group.limits.swap_max_bytes),
        pool_bytes: group.pool_bytes,
        pool_max_bytes: limit(group.limits.pool_max_bytes),
        writeback: group.limits.writeback,
        events: Events {
            swap_max: group.events.swap_max,
            swap_fail: group.events.swap_fail,
            pool_max: group.events.pool_max,
            writeback_refused: group.events.writeback_refused,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use vswap_engine::{Codec, Config, HeapPages};

    use super::*;

    fn engine() -> Engine {
        let config = Config {
            frames: 1,
            cpus: 1,
            codec: Codec::Lz4,
            pool_limit_bytes: 0,
            checksums: false,
        };
        Engine::new(&config, Arc::new(HeapPages::new())).expect("memory")
    }

    #[test]
    fn the_group_is_made_inside_groups_without_limits() {
        let engine = engine();
        assert_eq!(make(&engine, None), Ok(GroupId::ROOT));
        let limits = GroupLimits {
            swap_max_bytes: 1 << 20,
            pool_max_bytes: GroupLimits::NO_LIMIT,
            writeback: false,
        };
        let run = |name: &str| RunGroup {
            name: name.parse().expect("a good name"),
            limits,
        };
        let id = make(&engine, Some(&run("web/jobs"))).expect("no such groups yet");
        assert_eq!(engine.find_group(&run("web/jobs").name), Some(id));
        make(&engine, Some(&run("web/other"))).expect("web is there already");
        assert!(make(&engine, Some(&run("web"))).is_err());
        let status = status(&engine, &engine.stats());
        let names: Vec<&str> = status.iter().map(|group| group.name.as_str()).collect();
        assert_eq!(names, ["/", "web", "web/jobs", "web/other"]);
        assert_eq!(status[1].swap_max_bytes, None);
        assert!(status[1].writeback && !status[2].writeback);
        assert_eq!(status[2].swap_max_bytes, Some(1 << 20));
        assert_eq!(status[2].pool_max_bytes, None);
    }
}
