//! What the arenas of a run's programs may take together (crate `vswap-arena`).
//!
//! An arena moves its own memory in and out. The pager cannot move it, and it counts as the run's. So arenas say what
//! they wish for, in the rings of their processes, and the pager says what each process gets of the limit. What it gets
//! is a wish too: an arena that has nowhere to put its pages keeps them.

use std::sync::Arc;

use vswap_sys::grant::portion;

use crate::run::limit::Limit;
use crate::space::Space;

/// Arenas may take all but one part in this many of the limit, together. The rest is for the programs' other memory,
/// and for the pool and the tables of the run.
const OTHERS_PART: u64 = 4;

/// Look at what arenas wish for, and grant it. Costs one word of each process. Whatever a process says, it is a number
/// that shares are computed from, and only arenas of the same run get less for it.
pub fn grant(limit: &Limit, spaces: &[Arc<Space>]) {
    let figures = limit.figures();
    let bytes = figures.limit_bytes.min(figures.wanted_limit_bytes);
    let budget = bytes - bytes / OTHERS_PART;
    let wishes: Vec<_> = spaces
        .iter()
        .filter_map(|space| {
            let agent = &space.process.get()?.agent;
            let wish = agent.arenas_wish();
            (wish > 0).then_some((agent, wish))
        })
        .collect();
    let all = wishes
        .iter()
        .fold(0_u64, |all, (_, wish)| all.saturating_add(*wish));
    for (agent, wish) in wishes {
        // 0 would say that nobody has looked.
        agent.grant_arenas(portion(wish, all, budget).max(1));
    }
}
