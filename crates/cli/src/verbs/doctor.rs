//! `vswap doctor`: says what this machine and user permit, and what to do about each missing thing. `run` refuses with
//! the same words.

use std::process::ExitCode;

use vswap_sys::doctor::{Finding, Need, Status, missing, probe};

use crate::failure::Failure;
use crate::output::print;

/// Exit status if `run` cannot work here. It is none of vswap's own errors, because the question was answered.
const CANNOT_RUN: u8 = 1;

/// Prints the list of probes.
pub fn doctor() -> Result<ExitCode, Failure> {
    let findings = probe();
    let verdict = match missing(&findings).count() {
        0 => "vswap run works here.",
        _ => "vswap run cannot work here: what is marked * is required and missing.",
    };
    print(&format!("{}\n{verdict}\n", list(&findings)))?;
    Ok(match missing(&findings).next() {
        None => ExitCode::SUCCESS,
        Some(_) => ExitCode::from(CANNOT_RUN),
    })
}

/// Refuses if a run could not work.
pub fn require() -> Result<(), Failure> {
    let missing: Vec<Finding> = missing(&probe()).cloned().collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Failure::own(format!(
        "this machine or user is not permitted what a run needs; vswap doctor shows the whole list:\n{}",
        list(&missing).trim_end()
    )))
}

fn list(findings: &[Finding]) -> String {
    let width = findings.iter().map(|one| one.name.len()).max().unwrap_or(0);
    findings
        .iter()
        .map(|finding| entry(finding, width))
        .collect()
}

fn entry(finding: &Finding, width: usize) -> String {
    let (status, name, detail) = (word(finding.status), finding.name, &finding.detail);
    let mark = match (finding.need, finding.status) {
        (_, Status::Works) => ' ',
        (Need::Required, _) => '*',
        _ => ' ',
    };
    let mut text = format!("{mark} {status:<7}  {name:<width$}  {detail}\n");
    if finding.status != Status::Works && !finding.advice.is_empty() {
        let indent = " ".repeat(mark.len_utf8() + " missing  ".len());
        text += &format!("{indent}to do: {}\n", finding.advice);
    }
    text
}

fn word(status: Status) -> &'static str {
    match status {
        Status::Works => "ok",
        Status::Missing => "missing",
        Status::Unknown => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(need: Need, status: Status, advice: &'static str) -> Finding {
        Finding {
            name: "move",
            status,
            need,
            detail: "pages are moved".to_owned(),
            advice,
        }
    }

    #[test]
    fn what_is_missing_comes_with_advice() {
        let text = entry(
            &finding(Need::Required, Status::Missing, "use a newer kernel"),
            6,
        );
        assert_eq!(
            text,
            "* missing  move    pages are moved\n           to do: use a newer kernel\n"
        );
        let optional = entry(&finding(Need::Useful, Status::Missing, ""), 6);
        assert_eq!(optional, "  missing  move    pages are moved\n");
        assert_eq!(
            entry(&finding(Need::Required, Status::Works, ""), 4),
            "  ok       move  pages are moved\n"
        );
    }
}
