//! Operations on the model and the engine.

use proptest::prelude::*;
use vswap_engine::{GroupLimits, PAGE_BYTES, TIERS_MAX, TierId};

use super::FRAMES;
use super::content::{Content, content};

/// One step. The indexes choose among the entries that are alive.
#[derive(Debug, Clone)]
pub enum Operation {
    SwapOut {
        content: Content,
        cpu: usize,
        group: usize,
    },
    WriteOut(usize),
    WriteOutAll {
        at: usize,
        pages: usize,
    },
    WriteBack {
        pages: usize,
    },
    Demote {
        pages: usize,
    },
    Repack {
        pages: usize,
    },
    BeginGeneration,
    SwapIn(usize),
    SwapInAll {
        at: usize,
        count: usize,
    },
    SwapInAround {
        at: usize,
        window: usize,
    },
    Dup {
        at: usize,
        times: u8,
    },
    Put {
        at: usize,
        times: u8,
    },
    Compact,
    Discard {
        budget: usize,
    },
    Limit {
        pages: u64,
    },
    SwapOn {
        slots: u64,
        priority: i16,
    },
    SwapOff {
        at: usize,
    },
    LimitGroup {
        at: usize,
        limits: GroupLimits,
    },
    RemoveGroup {
        at: usize,
    },
    Break {
        after: u64,
    },
    Mend,
}

/// How many tiers the areas are in.
pub const TIERS: usize = 3;

/// The tier of an area of this size.
pub fn tier(slots: u64) -> TierId {
    let number = usize::try_from(slots / 2).expect("few") % TIERS;
    TierId::new(number).expect("below the most")
}

/// Limits of a few pages, or none. Those of tiers are told apart from none by being one less, so that there is 0.
pub fn limits(
    swap_pages: u64,
    pool_bytes: u64,
    writeback: bool,
    tier_pages: [u64; TIERS],
) -> GroupLimits {
    let some = |limit: u64| {
        if limit == 0 {
            GroupLimits::NO_LIMIT
        } else {
            limit
        }
    };
    let mut tier_max_bytes = [GroupLimits::NO_LIMIT; TIERS_MAX];
    for (max_bytes, pages) in tier_max_bytes.iter_mut().zip(tier_pages) {
        *max_bytes = match pages.checked_sub(1) {
            Some(pages) => pages * PAGE_BYTES as u64,
            None => GroupLimits::NO_LIMIT,
        };
    }
    GroupLimits {
        swap_max_bytes: some(swap_pages * PAGE_BYTES as u64),
        pool_max_bytes: some(pool_bytes),
        writeback,
        tier_max_bytes,
    }
}

/// Most often none, and now and then nothing.
fn tiers() -> impl Strategy<Value = [u64; TIERS]> {
    let one = prop_oneof![2 => Just(0), 1 => Just(1), 2 => 2..8u64];
    [one.clone(), one.clone(), one]
}

pub fn operation() -> impl Strategy<Value = Operation> {
    let at = 0..1000usize;
    prop_oneof![
        8 => (content(), 0..5usize, 0..6usize)
            .prop_map(|(content, cpu, group)| Operation::SwapOut { content, cpu, group }),
        6 => at.clone().prop_map(Operation::WriteOut),
        2 => (at.clone(), 2..=FRAMES).prop_map(|(at, pages)| Operation::WriteOutAll { at, pages }),
        2 => (0..2 * FRAMES).prop_map(|pages| Operation::WriteBack { pages }),
        2 => (0..2 * FRAMES).prop_map(|pages| Operation::Demote { pages }),
        2 => (0..2 * FRAMES).prop_map(|pages| Operation::Repack { pages }),
        // Twice makes pages cold enough to be packed again.
        2 => Just(Operation::BeginGeneration),
        4 => at.clone().prop_map(Operation::SwapIn),
        2 => (at.clone(), 0..12usize)
            .prop_map(|(at, count)| Operation::SwapInAll { at, count }),
        2 => (at.clone(), 0..5u32)
            .prop_map(|(at, order)| Operation::SwapInAround { at, window: 1 << order }),
        3 => (at.clone(), 1..20u8).prop_map(|(at, times)| Operation::Dup { at, times }),
        6 => (at, 1..20u8).prop_map(|(at, times)| Operation::Put { at, times }),
        1 => Just(Operation::Compact),
        1 => (0..3usize).prop_map(|budget| Operation::Discard { budget }),
        1 => (0..24u64).prop_map(|pages| Operation::Limit { pages }),
        1 => (1..40u64, 0..3i16)
            .prop_map(|(slots, priority)| Operation::SwapOn { slots, priority }),
        2 => (0..4usize).prop_map(|at| Operation::SwapOff { at }),
        2 => (0..4usize, 0..6u64, 0..5000u64, prop::bool::weighted(0.8), tiers()).prop_map(
            |(at, swap_pages, pool_bytes, writeback, tier_pages)| Operation::LimitGroup {
                at,
                limits: limits(swap_pages, pool_bytes, writeback, tier_pages),
            }
        ),
        1 => (0..4usize).prop_map(|at| Operation::RemoveGroup { at }),
        1 => (0..6u64).prop_map(|after| Operation::Break { after }),
        2 => Just(Operation::Mend),
    ]
}
