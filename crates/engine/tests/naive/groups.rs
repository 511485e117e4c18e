//! The model's groups. After each operation, what each must be charged is added up from all its pages.

use vswap_engine::{
    AllocError, Engine, GroupError, GroupId, GroupLimits, GroupName, PAGE_BYTES, TIERS_MAX,
    WriteOutError,
};

/// Names, each after those of the groups around it.
const NAMES: [&str; 4] = ["a", "a/b", "a/b/c", "d"];
/// Bytes of a page.
const PAGE: u64 = PAGE_BYTES as u64;

/// What pages take up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Charges {
    pub swap_bytes: u64,
    pub pool_bytes: u64,
}

/// Bytes in each tier.
type InTiers = [u64; TIERS_MAX];

/// A group that exists now, or did once.
#[derive(Debug, Clone, Copy)]
struct Known {
    id: GroupId,
    is_alive: bool,
    limits: GroupLimits,
    charged: Charges,
    in_tiers: InTiers,
}

impl Known {
    /// Whether another page is too much for some tier.
    fn meets_tier(&self) -> bool {
        let tiers = self.in_tiers.iter().zip(self.limits.tier_max_bytes);
        tiers
            .into_iter()
            .any(|(bytes, max_bytes)| bytes + PAGE > max_bytes)
    }
}

/// All groups except the root.
#[derive(Debug)]
pub struct Groups([Known; NAMES.len()]);

fn name(at: usize) -> GroupName {
    NAMES[at].parse().expect("a good name")
}

/// The index of the group itself, then of the group around it, and so on outwards.
fn path(at: usize) -> impl Iterator<Item = usize> {
    let outer = |at: &usize| {
        let (parent, _) = NAMES[*at].rsplit_once('/')?;
        NAMES.iter().position(|other| *other == parent)
    };
    std::iter::successors(Some(at), outer)
}

impl Groups {
    /// Makes all groups, without limits.
    pub fn new(engine: &Engine) -> Groups {
        Groups(std::array::from_fn(|at| Known {
            id: engine
                .add_group(&name(at), GroupLimits::default())
                .expect("a new group"),
            is_alive: true,
            limits: GroupLimits::default(),
            charged: Charges::default(),
            in_tiers: InTiers::default(),
        }))
    }

    /// A group for a page. 0 and numbers that are too large give the root.
    pub fn choose(&self, number: usize) -> (Option<usize>, GroupId) {
        let at = number.checked_sub(1).filter(|at| *at < NAMES.len());
        (at, at.map_or(GroupId::ROOT, |at| self.0[at].id))
    }

    /// Checks why a swap-out for a group was refused.
    pub fn expect_refused(&self, at: Option<usize>, error: AllocError) {
        assert_eq!(error, AllocError::NoGroup);
        assert!(at.is_some_and(|at| !self.0[at].is_alive), "{error}");
    }

    /// Checks that a swap-out for a group was refused because of a limit on slots.
    pub fn expect_no_slot(&self, at: Option<usize>) {
        let meets_limit = |at: usize| {
            let Known {
                limits, charged, ..
            } = self.0[at];
            charged.swap_bytes + PAGE > limits.swap_max_bytes || self.0[at].meets_tier()
        };
        assert!(at.is_some_and(|at| path(at).any(meets_limit)), "{self:?}");
    }

    /// Limits a group. If it was removed, makes it again.
    pub fn limit(&mut self, engine: &Engine, at: usize, limits: GroupLimits) {
        let at = at % NAMES.len();
        if self.0[at].is_alive {
            engine
                .set_group_limits(self.0[at].id, limits)
                .expect("it is there");
        } else if path(at).skip(1).all(|outer| self.0[outer].is_alive) {
            self.0[at].id = engine.add_group(&name(at), limits).expect("it was removed");
            self.0[at].is_alive = true;
        } else {
            let refused = engine.add_group(&name(at), limits);
            assert!(matches!(refused, Err(GroupError::NoParent { .. })));
            return;
        }
        self.0[at].limits = limits;
    }

    /// Removes a group that has this many pages.
    pub fn remove(&mut self, engine: &Engine, at: usize, pages: impl Fn(usize) -> u64) {
        let at = at % NAMES.len();
        let has_groups = (0..NAMES.len())
            .any(|inside| self.0[inside].is_alive && path(inside).skip(1).any(|outer| outer == at));
        match engine.remove_group(self.0[at].id) {
            Ok(()) => {
                assert!(self.0[at].is_alive && !has_groups && pages(at) == 0);
                self.0[at].is_alive = false;
            }
            Err(GroupError::Gone) => assert!(!self.0[at].is_alive),
            Err(GroupError::HasGroups { .. }) => assert!(has_groups),
            Err(GroupError::InUse { pages: found }) => assert_eq!(found, pages(at)),
            Err(unexpected) => panic!("{unexpected}"),
        }
    }

    /// Checks that a page was refused because of a limit. A page written alone met the limits as they are now.
    pub fn expect_limited(&self, at: Option<usize>, payload_bytes: u64, is_alone: bool) {
        let meets_limit = |at: usize| {
            let Known {
                limits, charged, ..
            } = self.0[at];
            charged.swap_bytes + PAGE > limits.swap_max_bytes
                || charged.pool_bytes + payload_bytes > limits.pool_max_bytes
                || !limits.writeback
                || self.0[at].meets_tier()
        };
        let is_limited = if is_alone {
            at.is_some_and(|at| path(at).any(meets_limit))
        } else {
            self.is_limited(at)
        };
        assert!(is_limited, "{}: {self:?}", WriteOutError::Limited);
    }

    /// Whether the group or one around it has limits.
    pub fn is_limited(&self, at: Option<usize>) -> bool {
        let is_limited = |at: usize| self.0[at].limits != GroupLimits::default();
        at.is_some_and(|at| path(at).any(is_limited))
    }

    /// Whether a page of the group may go to an area.
    pub fn writes_back(&self, at: Option<usize>) -> bool {
        at.is_none_or(|at| path(at).all(|at| self.0[at].limits.writeback))
    }

    /// Compares the engine's figures with what the pages of each group take up.
    pub fn check(&mut self, engine: &Engine, of_pages: impl Fn(usize) -> Charges) {
        let mut expected = [Charges::default(); NAMES.len()];
        for at in 0..NAMES.len() {
            let own = of_pages(at);
            for outer in path(at) {
                expected[outer].swap_bytes += own.swap_bytes;
                expected[outer].pool_bytes += own.pool_bytes;
            }
        }
        let figures = engine.groups();
        for (known, expected) in self.0.iter_mut().zip(expected) {
            let figures = figures.iter().find(|group| group.id == known.id);
            let Some(figures) = figures else {
                assert!(!known.is_alive);
                assert_eq!(expected, Charges::default());
                continue;
            };
            let charged = Charges {
                swap_bytes: figures.swap_bytes,
                pool_bytes: figures.pool_bytes,
            };
            assert_eq!(charged, expected, "{}", figures.name);
            // A limit that is made smaller leaves what is already there.
            let (before, limits) = (known.charged, known.limits);
            assert!(charged.swap_bytes <= limits.swap_max_bytes.max(before.swap_bytes));
            assert!(charged.pool_bytes <= limits.pool_max_bytes.max(before.pool_bytes));
            known.charged = charged;
            let in_tiers = figures.tier_bytes;
            assert_eq!(in_tiers.iter().sum::<u64>(), charged.swap_bytes);
            for (at, bytes) in in_tiers.into_iter().enumerate() {
                assert!(bytes <= limits.tier_max_bytes[at].max(known.in_tiers[at]));
            }
            known.in_tiers = in_tiers;
        }
        let alive = self.0.iter().filter(|known| known.is_alive);
        assert_eq!(figures.len(), alive.count());
    }
}
