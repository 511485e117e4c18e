//! Switches that leave out rules P1 to P9 (ARCHITECTURE.md, Rules of the pager), so that their tests can be tested.
//!
//! Without the feature `break-rules` every rule holds, and the switches cost nothing. No product is built with the
//! feature. With it the environment variable `VSWAP_BREAK_RULE` names the one rule that does not hold. `cargo xtask
//! rules` sets the variable. Each switch is asked in one place, where the rule is kept. P7 is kept by the agent, which
//! has its own switch.

/// A rule, or the part of a rule that is kept in one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// P1: a page that a discard has named while it was present does not move out.
    Stale,
    /// P2: mremap is carried out one at a time.
    OneMove,
    /// P3: no event is read while a move is under way.
    ReadInOrder,
    /// P3: no message is read while pages are given to the process.
    GiveInOrder,
    /// P4: pages that a fork has shared are made exclusive.
    Exclusive,
    /// P5: staging is emptied without an event.
    SilentStaging,
    /// P5: events are read while faults wait for memory.
    ReadAlways,
    /// P6: a fault that the kernel refused is tried again after a pause.
    Pace,
    /// P8: a page that has moved counts as moved, whatever the kernel said.
    MovedUnsaid,
    /// P9: what an UNMAP event names is gone only if the kernel, when asked, says so.
    AskAfterUnmap,
    /// P9: fresh memory has no past, also while an earlier UNMAP event there is undecided.
    FreshWords,
    /// P9: a page that an undecided UNMAP has named may be missing without an event.
    LateFault,
}

/// Is the rule kept in this run?
#[cfg(not(any(test, feature = "break-rules")))]
pub const fn holds(_: Rule) -> bool {
    true
}

/// Is the rule kept in this schedule of the simulator?
#[cfg(test)]
pub fn holds(rule: Rule) -> bool {
    !crate::simulator::actors::breaks(rule)
}

/// Is the rule kept in this run?
#[cfg(all(feature = "break-rules", not(test)))]
pub fn holds(rule: Rule) -> bool {
    static BROKEN: std::sync::OnceLock<Option<Rule>> = std::sync::OnceLock::new();
    *BROKEN.get_or_init(named) != Some(rule)
}

#[cfg(all(feature = "break-rules", not(test)))]
fn named() -> Option<Rule> {
    let name = std::env::var("VSWAP_BREAK_RULE").ok()?;
    let rule = match name.as_str() {
        "P1" => Rule::Stale,
        "P2" => Rule::OneMove,
        "P3-read" => Rule::ReadInOrder,
        "P3-give" => Rule::GiveInOrder,
        "P4" => Rule::Exclusive,
        "P5-staging" => Rule::SilentStaging,
        "P5-read" => Rule::ReadAlways,
        "P6" => Rule::Pace,
        "P8" => Rule::MovedUnsaid,
        "P9" => Rule::AskAfterUnmap,
        "P9-fresh" => Rule::FreshWords,
        "P9-late" => Rule::LateFault,
        // The agent keeps P7.
        "P7" => return None,
        _ => {
            tracing::error!("VSWAP_BREAK_RULE names no rule: {name}");
            std::process::abort();
        }
    };
    Some(rule)
}
