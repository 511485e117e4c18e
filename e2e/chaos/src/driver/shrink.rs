//! Makes a failing plan small. First it drops threads and children, then runs of lines that are halved again and again.
//! Any subset of the lines is a program, so every subset that still fails in the same way is kept.

use std::time::{Duration, Instant};

use crate::plan::Plan;
use crate::step::Step;

/// Shrinks while there is time. `fails` says whether a plan still fails in the same way, after enough tries.
pub(crate) fn shrink(plan: &Plan, time: Duration, mut fails: impl FnMut(&Plan) -> bool) -> Plan {
    let until = Instant::now() + time;
    let mut best = plan.clone();
    for actor in 0..best.by_actor().len() as u32 {
        // If the line that makes a child goes, the child's lines go too.
        let makes = |step| matches!(step, Step::Fork { child, .. } if child == actor);
        let fewer = without(&best, |line| {
            best.lines[line].actor != actor && !makes(best.lines[line].step)
        });
        if Instant::now() < until && fewer.lines.len() < best.lines.len() && fails(&fewer) {
            best = fewer;
        }
    }
    let mut chunk = (best.lines.len() / 2).max(1);
    loop {
        let mut removed = false;
        let mut start = 0;
        while start < best.lines.len() && Instant::now() < until {
            let gone = start..start + chunk;
            let fewer = without(&best, |line| !gone.contains(&line));
            if fewer.lines.len() < best.lines.len() && fails(&fewer) {
                best = fewer;
                removed = true;
            } else {
                start += chunk;
            }
        }
        if Instant::now() >= until || (chunk == 1 && !removed) {
            return best;
        }
        if !removed {
            chunk = (chunk / 2).max(1);
        }
    }
}

fn without(plan: &Plan, keep: impl Fn(usize) -> bool) -> Plan {
    let lines = plan.lines.iter().enumerate();
    let lines = lines.filter(|(line, _)| keep(*line)).map(|(_, line)| *line);
    Plan {
        head: plan.head,
        lines: lines.collect(),
    }
    .without_orphans()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate;

    #[test]
    fn only_what_the_failure_needs_is_left() {
        let plan = generate::plan(5, &[]);
        let is_map = |plan: &Plan| {
            let maps = plan
                .lines
                .iter()
                .filter(|line| matches!(line.step, Step::Map { .. }));
            maps.count() >= 2
        };
        let small = shrink(&plan, Duration::from_secs(60), is_map);
        assert_eq!(small.lines.len(), 2, "{}", small.text());
        assert!(is_map(&small));
    }

    #[test]
    fn what_cannot_shrink_stays() {
        let plan = generate::plan(6, &[]);
        let lines = plan.lines.len();
        let same = shrink(&plan, Duration::from_secs(60), |plan| {
            plan.lines.len() == lines
        });
        assert_eq!(same, plan);
    }
}
