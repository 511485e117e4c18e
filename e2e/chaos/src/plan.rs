//! A program: who runs which step. As text it is a line about the whole program and then one line for each step, which
//! begins with the actor. So a person can read and change it.
//!
//! Actors are numbered: first the threads of the first process, then children. The step that makes a child names its
//! number. Any subset of lines is a program too, and shrinking relies on that.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::step::Step;

/// What holds for the whole program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    /// The seed of the plan.
    pub(crate) seed: u64,
    /// Threads of the first process.
    pub(crate) threads: u32,
}

/// One line: a step and its actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// Who runs it.
    pub(crate) actor: u32,
    /// What the actor does.
    pub(crate) step: Step,
}

/// A program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) head: Head,
    pub(crate) lines: Vec<Line>,
}

impl Plan {
    /// The program as text.
    pub(crate) fn text(&self) -> String {
        let json = |value: serde_json::Result<String>| value.unwrap_or_default();
        let mut text = json(serde_json::to_string(&self.head)) + "\n";
        for line in &self.lines {
            let step = json(serde_json::to_string(&line.step));
            let _ = writeln!(text, "{} {step}", line.actor);
        }
        text
    }

    /// Reads the text that `text` has written.
    ///
    /// # Errors
    /// A line is not valid. The error names it.
    pub(crate) fn parse(text: &str) -> Result<Plan, String> {
        let mut lines = text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
        let (_, first) = lines.next().ok_or("the plan is empty")?;
        let head = serde_json::from_str(first)
            .map_err(|error| format!("line 1 is not the head of a plan: {error}"))?;
        let parsed = lines.map(|(number, line)| {
            let wrong = |what: &str| format!("line {} of the plan: {what}: {line}", number + 1);
            let (actor, step) = line
                .split_once(' ')
                .ok_or_else(|| wrong("expected `ACTOR STEP`"))?;
            Ok(Line {
                actor: actor.parse().map_err(|_| wrong("no number of an actor"))?,
                step: serde_json::from_str(step).map_err(|error| wrong(&error.to_string()))?,
            })
        });
        Ok(Plan {
            head,
            lines: parsed.collect::<Result<_, String>>()?,
        })
    }

    /// The numbers of the lines of each actor, in order.
    pub(crate) fn by_actor(&self) -> Vec<Vec<usize>> {
        let made = self.lines.iter().map(|line| match line.step {
            Step::Fork { child, .. } => child.max(line.actor),
            _ => line.actor,
        });
        let last = made.chain([self.head.threads]).max().unwrap_or(0);
        let mut lists = vec![Vec::new(); last as usize + 1];
        for (index, line) in self.lines.iter().enumerate() {
            lists[line.actor as usize].push(index);
        }
        lists
    }

    /// The plan without lines of actors that nobody makes.
    pub(crate) fn without_orphans(mut self) -> Plan {
        loop {
            let made: Vec<u32> = self
                .lines
                .iter()
                .filter_map(|line| match line.step {
                    Step::Fork { child, .. } => Some(child),
                    _ => None,
                })
                .collect();
            let threads = self.head.threads;
            let before = self.lines.len();
            self.lines
                .retain(|line| line.actor < threads || made.contains(&line.actor));
            if self.lines.len() == before {
                return self;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step::{Birth, End};

    fn plan() -> Plan {
        let fork = Step::Fork {
            how: Birth::Clone,
            child: 3,
            end: End::Exit(4),
            wait: true,
        };
        let line = |actor, step| Line { actor, step };
        Plan {
            head: Head {
                seed: 9,
                threads: 2,
            },
            lines: vec![
                line(0, Step::Pause { ms: 3 }),
                line(1, fork),
                line(3, Step::UnlockAll),
            ],
        }
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(Plan::parse(&plan().text()).unwrap(), plan());
    }

    #[test]
    fn nonsense_is_refused_with_its_line() {
        let text = plan().text() + "7 {\"Nothing\":1}\n";
        assert!(Plan::parse(&text).unwrap_err().contains("line 5"));
        assert!(Plan::parse("").unwrap_err().contains("empty"));
    }

    #[test]
    fn actors_that_nobody_makes_go() {
        let mut plan = plan();
        plan.lines.remove(1);
        assert_eq!(plan.without_orphans().lines.len(), 1);
    }
}
