//! Whether a run does nothing: `--park-after`.

use std::time::{Duration, Instant};

use vswap_sys::process::procfs;

use crate::verbs::run::family::Family;

/// A run that takes less than one part in this many of a processor is idle: servers and notebooks look around now and
/// then, and take a thousandth to a hundredth for it.
const IDLE_PART: u32 = 50;
/// So much is always permitted, because CPU time has a grain of ten milliseconds.
const GRAIN: Duration = Duration::from_millis(100);

/// Since when a run has done nothing.
#[derive(Debug)]
pub struct Idle {
    after: Duration,
    since: Option<(Instant, Duration)>,
}

impl Idle {
    /// It is idle when it has done nothing for so long.
    pub fn new(after: Duration) -> Idle {
        Idle { after, since: None }
    }

    /// Looks at the processes of the run. Have they done nothing for long enough?
    pub fn look(&mut self, family: &Family) -> bool {
        self.note(Instant::now(), worked(family))
    }

    /// It is woken, or parked by somebody else: begins anew.
    pub fn begin(&mut self) {
        self.since = None;
    }

    /// By now its processes have taken this much CPU time.
    fn note(&mut self, now: Instant, worked: Duration) -> bool {
        let (since, before) = *self.since.get_or_insert((now, worked));
        let elapsed = now.saturating_duration_since(since);
        // Where a process has ended, and its time with it, something has been done.
        let is_idle = worked
            .checked_sub(before)
            .is_some_and(|took| took <= GRAIN.max(elapsed / IDLE_PART));
        if !is_idle {
            self.since = Some((now, worked));
        }
        is_idle && elapsed >= self.after
    }
}

/// CPU time of all processes of the run so far, and of children that they have waited for.
fn worked(family: &Family) -> Duration {
    let living = family.listed().into_iter().flat_map(procfs::stat);
    let ticks = living.map(|stat| stat.cpu_ticks + stat.children_cpu_ticks);
    procfs::duration_of_ticks(ticks.sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_next_to_nothing_for_long_enough_is_idle() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let ms = Duration::from_millis;
        let mut idle = Idle::new(Duration::from_secs(60));
        assert!(!idle.note(at(0), ms(5000)));
        assert!(!idle.note(at(59), ms(5090)));
        assert!(idle.note(at(60), ms(5100)));
        assert!(idle.note(at(90), ms(5150)), "and stays so");
        // It works for a while.
        assert!(!idle.note(at(100), ms(9000)));
        assert!(!idle.note(at(159), ms(9010)));
        assert!(idle.note(at(160), ms(9020)));
        assert!(!idle.note(at(161), ms(100)), "a process has ended");
        idle.begin();
        assert!(!idle.note(at(300), ms(100)));
        assert!(idle.note(at(400), ms(1000)), "a hundredth of a processor");
    }
}
