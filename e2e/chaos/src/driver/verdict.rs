//! Compares what a plan did natively with what it did under vswap.

use crate::driver::attempt::Outcome;
use crate::driver::ended::words;
use crate::driver::faults::Fault;
use crate::plan::Plan;
use crate::step::Step;

/// Something is wrong.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// While a plan is shrunk, failures of the same kind count as the same.
    pub(crate) kind: String,
    /// The description for people.
    pub(crate) text: String,
}

impl Failure {
    fn new(kind: impl Into<String>, text: impl Into<String>) -> Option<Self> {
        Some(Self {
            kind: kind.into(),
            text: text.into(),
        })
    }
}

/// What is wrong with a native run. It means that chaos itself is wrong.
pub(crate) fn of_native(outcome: &Outcome) -> Option<Failure> {
    if let Some((kind, text)) = &outcome.finding {
        return Failure::new(kind, text);
    }
    if let Some(text) = &outcome.hang {
        return Failure::new("hang", text);
    }
    if !outcome.status.is_some_and(|status| status.success()) {
        let text = format!("{}: {}", words(outcome.status), outcome.errors);
        return Failure::new("status", text);
    }
    outcome
        .left
        .as_ref()
        .and_then(|left| Failure::new("left behind", left))
}

/// How many native runs in all are compared with a run that differs.
const NATIVE_RUNS: u32 = 5;

/// What is wrong with a run under vswap. A plan may have several right outcomes: an `mremap` over several mappings
/// fails with EFAULT by chance, also natively, in a program with an `io_uring`. So what differs from `native` is
/// compared with `more` native outcomes, and is right if one of them is the same.
pub(crate) fn of_limited(
    plan: &Plan,
    native: &Outcome,
    limited: &Outcome,
    fault: Fault,
    mut more: impl FnMut() -> Result<Outcome, String>,
) -> Result<Option<Failure>, String> {
    let failure = compared(plan, native, limited, fault);
    if failure.is_some() {
        for _ in 1..NATIVE_RUNS {
            if compared(plan, &more()?, limited, fault).is_none() {
                return Ok(None);
            }
        }
    }
    Ok(failure)
}

/// What is wrong with a run under vswap, compared with one native outcome.
fn compared(plan: &Plan, native: &Outcome, limited: &Outcome, fault: Fault) -> Option<Failure> {
    if let Some((kind, text)) = &limited.finding
        && !fault.explains(kind)
    {
        return Failure::new(kind, format!("{text}\n{}", limited.errors));
    }
    if let Some(text) = &limited.hang {
        return Failure::new("hang", text);
    }
    // A killed process answers nothing any more.
    let killed = fault.may_end_the_run();
    if !killed && let Some(failure) = first_difference(plan, native, limited) {
        return Some(failure);
    }
    if !killed && limited.status != native.status {
        let text = format!(
            "natively the program ended with {}, under vswap with {}\n{}",
            words(native.status),
            words(limited.status),
            limited.errors
        );
        return Failure::new("status", text);
    }
    if let Some(text) = &limited.beside {
        return Failure::new("vswap attach", text);
    }
    limited
        .left
        .as_ref()
        .and_then(|left| Failure::new("left behind", left))
}

/// The first line with another answer. Lines are in the order in which they were made. A child's lines come after its
/// maker's.
fn first_difference(plan: &Plan, native: &Outcome, limited: &Outcome) -> Option<Failure> {
    let answers = native.said.iter().zip(&limited.said);
    let (number, (line, (native_said, limited_said))) = plan
        .lines
        .iter()
        .zip(answers)
        .enumerate()
        .find(|(_, (_, (native, limited)))| native != limited)?;
    let step = format!("{:?}", line.step);
    let name = step.split([' ', '{']).next().unwrap_or_default();
    let detail = match line.step {
        Step::Advise { advice, door, .. } => format!(" {advice:?} {door:?}"),
        Step::Fork { how, .. } => format!(" {how:?}"),
        _ => String::new(),
    };
    let text = format!(
        "line {}: actor {} {step}\n  natively   {native_said:?}\n  under vswap {limited_said:?}, and it ended with \
         {}\n{}",
        number + 2,
        line.actor,
        words(limited.status),
        limited.errors
    );
    Failure::new(format!("answer of {name}{detail}"), text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::attempt::Said;
    use crate::driver::faults::Kind;
    use crate::plan::{Head, Line};

    fn outcome(result: i64) -> Outcome {
        Outcome {
            status: None,
            finding: None,
            hang: None,
            beside: None,
            left: None,
            said: vec![Said {
                done: true,
                result,
                errno: 0,
                layout: 1,
            }],
            errors: String::new(),
        }
    }

    fn plan() -> Plan {
        Plan {
            head: Head {
                seed: 1,
                threads: 1,
            },
            lines: vec![Line {
                actor: 0,
                step: Step::UnlockAll,
            }],
        }
    }

    #[test]
    fn another_answer_is_a_failure_and_the_same_is_none() {
        let plan = plan();
        let same = compared(&plan, &outcome(0), &outcome(0), Fault::NONE);
        assert!(same.is_none(), "{same:?}");
        let other = compared(&plan, &outcome(0), &outcome(-1), Fault::NONE);
        assert_eq!(other.unwrap().kind, "answer of UnlockAll");
        // When vswap was killed, no answers are expected.
        let killing = Fault {
            kind: Kind::KillVswap,
            seed: 1,
        };
        let killed = compared(&plan, &outcome(0), &outcome(-1), killing);
        assert!(killed.is_none(), "{killed:?}");
    }

    #[test]
    fn an_answer_that_a_later_native_run_gives_too_is_right() {
        let plan = plan();
        let mut runs = 1;
        let mut limited = |result, natively: i64| {
            runs = 1;
            let more = || {
                runs += 1;
                Ok(outcome(if runs == 3 { natively } else { 0 }))
            };
            let verdict = of_limited(&plan, &outcome(0), &outcome(result), Fault::NONE, more);
            (verdict.unwrap().is_some(), runs)
        };
        assert_eq!(limited(0, 0), (false, 1));
        assert_eq!(limited(-1, -1), (false, 3));
        assert_eq!(limited(-1, -2), (true, NATIVE_RUNS));
    }

    #[test]
    fn a_finding_a_hang_and_a_bad_native_status_are_failures() {
        let mut found = outcome(0);
        assert_eq!(of_native(&found).unwrap().kind, "status");
        found.hang = Some("everybody waits".into());
        assert_eq!(of_native(&found).unwrap().kind, "hang");
        found.finding = Some(("wrong content".into(), "page 3".into()));
        assert_eq!(of_native(&found).unwrap().kind, "wrong content");
    }
}
