//! How densely pages are packed on their way out: with lz4, or with zstd, which takes longer and leaves less.
//!
//! What zstd saves is memory, in which more of the program stays, so that fewer pages have to come back. How many fewer
//! can be seen beforehand. The refault distance of a page that comes back (`working_set.rs`) says how much more memory
//! would have kept it. Zstd would give the run so much more memory: its *reach*. So of all pages that come back, the
//! part within reach would not have had to. Against that, every page that does come back takes longer. How much that
//! weighs depends on what a return costs, which is measured: the time that the run loses, for each page. A program that
//! grows packs more pages than come back. Each of these takes longer too, and saves nothing yet.
//!
//! Once pages are packed densely, the same reckoning says what still more memory would do, and no more what this memory
//! does. A program whose most used pages fit now has few returns left, and those are far. Going back would throw it out
//! of its memory again. So it stays dense while it loses less time than before. It goes back when it does not, and when
//! the reckoning, too, is against it. Then it stays there for a while, the longer the more often it has been wrong.
//!
//! Where there are areas, zstd leaves the pool as large as it is. More pages fit into it, so fewer have to be read from
//! areas. Then what is within reach are pages that came from an area and that a pool of so many more had kept.
//!
//! Even in a dense run pages that came back early go out with lz4, because they come back soon again: what they save
//! they save for a short time. And when the pool is nearly full and there is no area, everything goes out with zstd.
//!
//! The kernel leaves this choice to the user: zram packs with one algorithm, and again with others when it is told to.

use std::time::Duration;

use crate::policy::repack::{SLOWER_READ, SLOWER_WRITE};
use crate::policy::working_set::Heat;

/// How pages are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Density {
    /// With lz4.
    Fast,
    /// With zstd, but for those that come back early.
    ColdDense,
    /// With zstd.
    Dense,
}

impl Density {
    /// Is a page of this heat packed with zstd?
    pub fn packs_densely(self, heat: Heat) -> bool {
        match self {
            Density::Fast => false,
            Density::ColdDense => !heat.is_early(),
            Density::Dense => true,
        }
    }
}

/// How often it is decided.
pub const DECIDE_EVERY: Duration = Duration::from_millis(250);
/// Fewer returns than this between two decisions say nothing.
const RETURNS_LEAST: u64 = 256;
/// The reckoning must be right so often in a row ...
const SURE_AFTER: u32 = 2;
/// ... and wrong so often.
const WRONG_AFTER: u32 = 8;
/// How many decisions a run stays fast that was dense in vain: at first, and at the most.
const HOLD: (u32, u32) = (40, 2400);
/// What a miss costs at the least: a dense one takes longer than what zstd takes alone.
const MISS_LEAST: Duration = Duration::from_micros(12);
/// A run becomes dense if it would lose less than this part of the time that it loses now ...
const WORTH: f64 = 0.94;
/// ... and fast again if it seems to lose more than this part of what it would lose then. Less would not do: the nearer
/// the most used pages come to fitting, the more each further page saves. So what this memory saves is more than what
/// as much again would.
const VAIN: f64 = 1.15;
/// It has done so if the run loses less than this part of the time that it lost before.
const BETTER: f64 = 0.8;

/// What a run has seen since the last decision.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    /// How long that is.
    pub elapsed: Duration,
    /// How much of it was lost to paging.
    pub lost: Duration,
    /// Pages that came back.
    pub returns: u64,
    /// Those of them that were within reach, so would not have come back, or not from an area.
    pub near: u64,
    /// Pages that were packed.
    pub packed: u64,
}

/// Decides, again and again.
#[derive(Debug, Default)]
pub struct Decider {
    is_dense: bool,
    /// How often in a row the reckoning has been for the other.
    other: u32,
    /// What share of the time was lost before the run became dense.
    lost_before: f64,
    /// Decisions until it may become dense again, and how many there were the last time.
    hold: u32,
    held: u32,
}

impl Decider {
    /// Shall cold pages be packed densely?
    pub fn decide(&mut self, seen: &Seen) -> bool {
        self.hold = self.hold.saturating_sub(1);
        if seen.returns < RETURNS_LEAST {
            return self.is_dense;
        }
        let lost = seen.lost.as_secs_f64() / seen.elapsed.as_secs_f64().max(f64::EPSILON);
        if self.is_dense {
            let is_better = lost < self.lost_before * BETTER;
            self.count(!is_better && self.dense_part(seen) > VAIN);
            if self.other >= WRONG_AFTER {
                self.held = (self.held * 2).clamp(HOLD.0, HOLD.1);
                (self.is_dense, self.other, self.hold) = (false, 0, self.held);
            }
        } else {
            self.count(self.hold == 0 && self.dense_part(seen) < WORTH);
            if self.other >= SURE_AFTER {
                (self.is_dense, self.other, self.lost_before) = (true, 0, lost);
            }
        }
        self.is_dense
    }

    /// What it loses when it is dense, as part of what it loses when it is fast.
    #[expect(
        clippy::cast_precision_loss,
        reason = "so many pages do not come back in a moment"
    )]
    fn dense_part(&self, seen: &Seen) -> f64 {
        let returns = seen.returns as f64;
        let slower_write = SLOWER_WRITE.as_secs_f64();
        let slower = SLOWER_READ.as_secs_f64() + slower_write;
        let miss = (seen.lost.as_secs_f64() / returns).max(MISS_LEAST.as_secs_f64());
        let fast = if self.is_dense { miss - slower } else { miss };
        let far = returns - seen.near as f64;
        // What comes back goes out again. The rest is growth.
        let grown = seen.packed.saturating_sub(seen.returns) as f64;
        (far * (fast + slower) + grown * slower_write) / (returns * fast)
    }

    fn count(&mut self, is_for_other: bool) {
        self.other = if is_for_other { self.other + 1 } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Moments in which pages come back that each cost so much, so many percent of them within reach.
    fn moment(us: u64, near_percent: u64) -> Seen {
        let elapsed = DECIDE_EVERY;
        let returns = 250_000 / us;
        Seen {
            elapsed,
            lost: elapsed,
            returns,
            near: returns * near_percent / 100,
            packed: returns,
        }
    }

    fn decide_often(decider: &mut Decider, times: u32, seen: Seen) -> Vec<bool> {
        (0..times).map(|_| decider.decide(&seen)).collect()
    }

    #[test]
    fn what_is_within_reach_has_to_pay_for_what_takes_longer() {
        for (us, near, is_dense) in [
            (20, 0, false),
            (20, 20, false),
            (20, 40, true),
            // Where misses cost more, what zstd costs weighs less.
            (100, 20, true),
            (100, 5, false),
        ] {
            let mut decider = Decider::default();
            let last = decide_often(&mut decider, 4, moment(us, near)).pop();
            assert_eq!(last, Some(is_dense), "{near} % at {us} us");
        }
        let mut decider = Decider::default();
        assert!(!decider.decide(&moment(20, 100)), "once is chance");
        let few = Seen {
            returns: RETURNS_LEAST - 1,
            ..moment(20, 100)
        };
        assert!(!decide_often(&mut Decider::default(), 9, few).contains(&true));
    }

    #[test]
    fn a_program_that_grows_has_to_pay_for_all_that_is_packed() {
        for (times, is_dense) in [(1, true), (3, true), (6, false)] {
            let mut seen = moment(20, 80);
            seen.packed = seen.returns * times;
            let last = decide_often(&mut Decider::default(), 4, seen).pop();
            assert_eq!(last, Some(is_dense), "{times} pages packed for each return");
        }
    }

    #[test]
    fn a_run_that_has_gained_stays_dense_though_nothing_more_is_within_reach() {
        let mut decider = Decider::default();
        decide_often(&mut decider, 2, moment(20, 60));
        let gained = Seen {
            lost: DECIDE_EVERY / 2,
            ..moment(40, 0)
        };
        assert!(!decide_often(&mut decider, 100, gained).contains(&false));
        // It loses as much as before, and more memory would not help: a program in another phase.
        let later = decide_often(&mut decider, WRONG_AFTER, moment(20, 1));
        assert_eq!(later.last(), Some(&false));
    }

    #[test]
    fn a_run_that_was_dense_in_vain_waits_longer_each_time() {
        let mut decider = Decider::default();
        let mut tries = || {
            let tries = decide_often(&mut decider, 200, moment(20, 90));
            let at = tries.iter().position(|is_dense| *is_dense).unwrap();
            decide_often(&mut decider, WRONG_AFTER, moment(20, 0));
            assert!(!decider.is_dense);
            at
        };
        let at = [tries(), tries(), tries()];
        let hold = HOLD.0 as usize;
        assert_eq!(at[0], 1);
        assert!(at[1] >= hold && at[2] >= 2 * hold, "{at:?}");
    }

    #[test]
    fn only_what_comes_back_soon_goes_out_fast_from_a_dense_run() {
        let hot = Heat::from_bits(1);
        assert!(!Density::Fast.packs_densely(Heat::COLD));
        assert!(Density::ColdDense.packs_densely(Heat::COLD));
        assert!(!Density::ColdDense.packs_densely(hot));
        assert!(Density::Dense.packs_densely(hot));
    }
}
