//! The tree of groups: making, limiting and removing them, and numbers that are reused.

use super::*;

const PAGE: u64 = PAGE_BYTES as u64;

fn name(text: &str) -> GroupName {
    text.parse().expect("a good name")
}

fn limits(swap_max_bytes: u64) -> GroupLimits {
    GroupLimits {
        swap_max_bytes,
        ..GroupLimits::default()
    }
}

/// Removes a group that has no slots.
fn remove(groups: &Groups, id: GroupId) -> Result<(), GroupError> {
    let removed = groups.remove(id, |_| 0);
    assert_eq!(groups.is_valid(&SlotsOf::new()), Ok(()));
    removed
}

fn add(groups: &Groups, text: &str, swap_max_bytes: u64) -> GroupId {
    let added = groups.add(&name(text), limits(swap_max_bytes));
    added.expect("a new group")
}

fn charged(groups: &Groups) -> Vec<u64> {
    let figures = groups.figures();
    figures.iter().map(|group| group.swap_bytes).collect()
}

#[test]
fn groups_lie_in_a_tree_and_are_found_by_name() {
    let groups = Groups::new();
    let refused = groups.add(&name("a/b"), GroupLimits::default());
    assert_eq!(refused, Err(GroupError::NoParent { parent: name("a") }));
    let (a, b) = (add(&groups, "a", 1), add(&groups, "a/b", 2));
    let refused = groups.add(&name("a"), GroupLimits::default());
    assert_eq!(refused, Err(GroupError::Exists { name: name("a") }));
    assert_eq!(groups.find(&name("a/b")), Some(b));
    assert_eq!(groups.find(&name("b")), None);
    let path: Vec<u64> = groups
        .path(b.index)
        .map(|group| group.limits().swap_max_bytes)
        .collect();
    assert_eq!(path, [2, 1]);
    assert_eq!(groups.path(GroupIndex::ROOT).count(), 0);
    groups.set_limits(a, limits(7)).expect("it is there");
    let figures = groups.figures();
    assert_eq!(figures[0].limits, limits(7));
    let names: Vec<&str> = figures.iter().map(|group| group.name.as_str()).collect();
    assert_eq!(names, ["a", "a/b"]);
    let refused = groups.set_limits(GroupId::ROOT, limits(1));
    assert_eq!(refused, Err(GroupError::Root));
}

#[test]
fn a_charge_is_as_large_as_the_tightest_limit_allows_and_leaves_no_more_anywhere() {
    let groups = Groups::new();
    add(&groups, "a", 6 * PAGE);
    add(&groups, "a/b", 4 * PAGE);
    let c = add(&groups, "a/b/c", 5 * PAGE);
    let other = add(&groups, "a/d", 9 * PAGE);
    let charge = |id: GroupId, pages: u64| {
        groups.charge(id.index, Resource::Swap, pages * PAGE, PAGE) / PAGE
    };
    assert_eq!(charge(other, 3), 3);
    assert_eq!(charge(c, 5), 3);
    assert_eq!(charged(&groups), [6, 3, 3, 3].map(|pages| pages * PAGE));
    // A charge that is all or nothing gets nothing, at whatever level it is refused.
    let whole = groups.charge(other.index, Resource::Swap, PAGE + 1, PAGE + 1);
    assert_eq!((whole, charge(c, 1)), (0, 0));
    assert_eq!(groups.charge(c.index, Resource::Pool, 0, 0), 0);
    assert_eq!(charged(&groups), [6, 3, 3, 3].map(|pages| pages * PAGE));
    groups.uncharge(c.index, Resource::Swap, 3 * PAGE);
    groups.uncharge(other.index, Resource::Swap, 3 * PAGE);
    assert_eq!(charged(&groups), [0; 4]);
    // The root is not charged, and has no limit.
    assert_eq!(charge(GroupId::ROOT, 1 << 40), 1 << 40);
    groups.uncharge(GroupIndex::ROOT, Resource::Swap, PAGE << 40);
}

#[test]
fn only_an_empty_group_is_removed() {
    let groups = Groups::new();
    let (a, b) = (add(&groups, "a", PAGE), add(&groups, "a/b", PAGE));
    let inside = name("a/b");
    assert_eq!(remove(&groups, a), Err(GroupError::HasGroups { inside }));
    assert_eq!(groups.charge(b.index, Resource::Pool, 1, 1), 1);
    let in_use = Err(GroupError::InUse { pages: 0 });
    assert_eq!(remove(&groups, b), in_use);
    let has_slots = groups.remove(b, |of| if of == b.index { 3 } else { 0 });
    assert_eq!(has_slots, Err(GroupError::InUse { pages: 3 }));
    assert_eq!(
        groups.index_for_slot(b),
        Some(b.index),
        "nothing has changed"
    );
    groups.uncharge(b.index, Resource::Pool, 1);
    assert_eq!(remove(&groups, b), Ok(()));
    assert_eq!(remove(&groups, b), Err(GroupError::Gone));
    assert_eq!(remove(&groups, a), Ok(()));
    assert_eq!(remove(&groups, GroupId::ROOT), Err(GroupError::Root));
    assert!(groups.figures().is_empty());
}

#[test]
fn a_number_is_used_again_and_an_old_id_is_not_taken_for_the_new_group() {
    let groups = Groups::new();
    let old = add(&groups, "a", PAGE);
    groups.charge(old.index, Resource::Swap, 2 * PAGE, PAGE);
    groups.uncharge(old.index, Resource::Swap, PAGE);
    remove(&groups, old).expect("it is empty");
    let new = add(&groups, "b", 3 * PAGE);
    assert_eq!(new.index, old.index);
    assert_eq!(groups.index_for_slot(old), None);
    assert_eq!(groups.set_limits(old, limits(1)), Err(GroupError::Gone));
    assert_eq!(groups.index_for_slot(new), Some(new.index));
    let figures = groups.figures();
    assert_eq!(figures[0].events, GroupEvents::default());
    assert_eq!(figures[0].limits, limits(3 * PAGE));
}

#[test]
fn who_takes_a_slot_keeps_a_group_that_is_about_to_go() {
    let groups = Groups::new();
    let id = add(&groups, "a", PAGE);
    let group = groups.get(id.index).expect("it is there");
    group.begin_end(id.life);
    assert_eq!(groups.index_for_slot(id), Some(id.index));
    assert!(!group.end(id.life), "it was kept");
    group.begin_end(id.life);
    assert!(group.end(id.life));
    assert_eq!(groups.index_for_slot(id), None);
    assert_eq!(groups.remove(id, |_| 0), Err(GroupError::Gone));
}

#[test]
#[cfg_attr(miri, ignore = "more groups than the interpreter has time for")]
fn there_are_as_many_as_numbers() {
    let groups = Groups::new();
    let ids: Vec<GroupId> = (1..GROUPS_MAX)
        .map(|at| add(&groups, &at.to_string(), PAGE))
        .collect();
    let refused = groups.add(&name("more"), GroupLimits::default());
    assert_eq!(refused, Err(GroupError::TooMany));
    let mut indexes: Vec<u16> = ids.iter().map(|id| id.index.raw()).collect();
    indexes.sort_unstable();
    indexes.dedup();
    assert_eq!((indexes.len(), indexes[0]), (GROUPS_MAX - 1, 1));
    remove(&groups, ids[1]).expect("it is empty");
    assert_eq!(add(&groups, "more", PAGE).index, ids[1].index);
    assert!(groups.table_bytes() > 0);
}

#[test]
#[cfg_attr(miri, ignore = "more steps than the interpreter has time for")]
fn threads_charge_and_uncharge_and_are_never_above_a_limit() {
    const STEPS: u64 = 20_000;
    const MAX_PAGES: u64 = 20;
    let groups = Groups::new();
    add(&groups, "a", MAX_PAGES * PAGE);
    let inner = ["a/1", "a/2"].map(|name| add(&groups, name, MAX_PAGES / 2 * PAGE));
    let work = |seed: u64| {
        let id = inner[usize::from(seed.is_multiple_of(2))];
        let (mut random, mut held, mut got) = (seed + 1, 0, 0);
        for _ in 0..STEPS {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let pages = random >> 61;
            if held > 0 && random & 1 << 40 != 0 {
                let back = (pages * PAGE).min(held);
                groups.uncharge(id.index, Resource::Swap, back);
                held -= back;
            } else {
                let charged = groups.charge(id.index, Resource::Swap, pages * PAGE, PAGE);
                held += charged;
                got += charged;
            }
        }
        groups.uncharge(id.index, Resource::Swap, held);
        got
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4).map(|seed| scope.spawn(move || work(seed))).collect();
        while workers.iter().any(|worker| !worker.is_finished()) {
            let figures = groups.figures();
            assert!(
                figures
                    .iter()
                    .all(|group| group.swap_bytes <= group.limits.swap_max_bytes)
            );
        }
        let got = workers
            .into_iter()
            .map(|worker| worker.join().expect("no panic"));
        // A thread that holds everything may be stopped while the others run, but everything was taken many times over.
        assert!(got.sum::<u64>() > STEPS * PAGE, "hardly anything was taken");
    });
    assert_eq!(groups.is_valid(&SlotsOf::new()), Ok(()));
    assert_eq!(charged(&groups), [0; 3], "nothing is lost");
    assert!(
        groups
            .figures()
            .iter()
            .any(|group| group.events.swap_max > 0)
    );
}
