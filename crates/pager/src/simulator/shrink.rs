//! Shrinks a failing plan to the shortest one that still fails.

use super::plan::Plan;
use super::run::Lab;
use crate::base::rules::Rule;

/// Schedules tried with each smaller plan. A plan that fails at all fails in one of so many.
const TRIES: u64 = 40;
/// Most runs that shrinking may take.
const RUNS_MAX: u64 = 20_000;

/// A plan that fails, the schedule in which it fails, and why.
pub struct Failure {
    pub seed: u64,
    pub plan: Plan,
    pub schedule: u64,
    pub why: String,
}

/// The first of these seeds that fails.
pub fn search(
    lab: &mut Lab,
    plans: impl Iterator<Item = (u64, Plan)>,
    broken: Option<Rule>,
) -> Option<Failure> {
    for (seed, plan) in plans {
        if let Err(why) = lab.run(&plan, seed, broken) {
            return Some(Failure {
                seed,
                plan,
                schedule: seed,
                why,
            });
        }
    }
    None
}

impl Failure {
    /// Leave calls out one by one, as long as some schedule still fails.
    pub fn shrink(mut self, lab: &mut Lab, broken: Option<Rule>) -> Failure {
        let mut runs = 0;
        'smaller: while runs < RUNS_MAX {
            for plan in self.plan.smaller() {
                let schedules = (0..TRIES).map(|at| self.schedule.wrapping_add(at));
                for schedule in schedules {
                    runs += 1;
                    if let Err(why) = lab.run(&plan, schedule, broken)
                        && kind(&why) == kind(&self.why)
                    {
                        (self.plan, self.schedule, self.why) = (plan, schedule, why);
                        continue 'smaller;
                    }
                }
            }
            break;
        }
        self
    }
}

/// The kind of a failure, without its numbers.
fn kind(why: &str) -> String {
    let first = why.lines().next().unwrap_or_default();
    let words = first.split_whitespace();
    let is_word = |word: &&str| !word.contains(|c: char| c.is_ascii_digit());
    words.filter(is_word).collect()
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "seed {} fails; shrunk, in schedule {}:",
            self.seed, self.schedule
        )?;
        for (number, calls) in self.plan.threads.iter().enumerate() {
            writeln!(f, "thread {number}:")?;
            for call in calls {
                writeln!(f, "    {call:x?}")?;
            }
        }
        write!(f, "{}", self.why)
    }
}
