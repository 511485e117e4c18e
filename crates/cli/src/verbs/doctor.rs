//! `vswap doctor`: says what this machine and user permit, and what to do about each missing thing, in the order in
//! which a person mends them. `run` refuses with the same words. Where nothing is missing, doctor makes a small run.

mod trial;

use std::process::ExitCode;

use vswap_sys::doctor::{FORK_EVENTS, Finding, Need, Status, missing, probe};
use vswap_sys::machine::check_page_size;

use crate::failure::Failure;
use crate::output::print;

/// Exit status if `run` cannot work here. It is none of vswap's own errors, because the question was answered.
const CANNOT_RUN: u8 = 1;
/// What no probe of this machine can tell.
const FAR: &str = "An area on other machines (--swap valkey://HOST:PORT) needs a Redis 6.0 or later, or a Valkey, with \
                   maxmemory-policy noeviction: `vswap far check valkey://HOST:PORT` asks it.";
/// Longest line of what to do.
const ADVICE_COLUMNS: usize = 90;

/// Prints the list of probes, and in the last lines what follows.
pub fn doctor() -> Result<ExitCode, Failure> {
    check_page_size().map_err(|error| {
        let mut failure = Failure::of(error);
        failure.exit_status = CANNOT_RUN;
        failure
    })?;
    let mut findings = probe();
    if missing(&findings).next().is_none() {
        findings.push(trial::trial());
    }
    let far = wrapped(FAR).join("\n");
    print(&format!(
        "{}\n{far}\n\n{}\n",
        list(&findings),
        verdict(&findings)
    ))?;
    Ok(match missing(&findings).next() {
        None => ExitCode::SUCCESS,
        Some(_) => ExitCode::from(CANNOT_RUN),
    })
}

/// Works, works without something, or does not and what to do first.
fn verdict(findings: &[Finding]) -> String {
    if let Some(first) = missing(findings).next() {
        let (name, advice) = (first.name, first.advice);
        let words = format!("vswap run does not work here ({name}); do this first: {advice}");
        return wrapped(&words).join("\n");
    }
    let without: Vec<&str> = findings
        .iter()
        .filter(|one| one.need == Need::Useful && one.status != Status::Works)
        .map(|one| one.name)
        .collect();
    match &without[..] {
        [] => "vswap run works here.".to_owned(),
        names => format!("vswap run works here, without {}.", names.join(" and ")),
    }
}

/// Refuses if a run could not work.
pub fn require() -> Result<(), Failure> {
    permitted(&probe())
}

/// Refuses if a daemon could not work. It copies pages out of processes that are not its descendants.
pub fn require_for_daemon() -> Result<(), Failure> {
    let findings = probe();
    permitted(&findings)?;
    let has_capability = |one: &Finding| one.name == FORK_EVENTS && one.status == Status::Works;
    if findings.iter().any(has_capability) {
        return Ok(());
    }
    Err(Failure::own(
        "the daemon needs CAP_SYS_PTRACE in the initial user namespace: start it as root, or with \
         AmbientCapabilities=CAP_SYS_PTRACE in a systemd unit, or use `vswap run` without a daemon"
            .to_owned(),
    ))
}

fn permitted(findings: &[Finding]) -> Result<(), Failure> {
    let missing: Vec<Finding> = missing(findings).cloned().collect();
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
    let mut text = String::new();
    // One step may mend several things.
    let mut said: Vec<&str> = Vec::new();
    for finding in findings {
        text += &entry(finding, width, !said.contains(&finding.advice));
        said.push(finding.advice);
    }
    text
}

fn entry(finding: &Finding, width: usize, is_news: bool) -> String {
    let (status, name, detail) = (word(finding.status), finding.name, &finding.detail);
    let mark = match (finding.need, finding.status) {
        (_, Status::Works) => ' ',
        (Need::Required, _) => '*',
        _ => ' ',
    };
    let mut text = format!("{mark} {status:<7}  {name:<width$}  {detail}\n");
    if finding.status != Status::Works && !finding.advice.is_empty() && is_news {
        let indent = " ".repeat(mark.len_utf8() + " missing  ".len());
        for line in wrapped(&format!("to do: {}", finding.advice)) {
            text += &format!("{indent}{line}\n");
        }
    }
    text
}

/// Lines of at most `ADVICE_COLUMNS`, parted at blanks. A longer word stays whole, so that it can be copied.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= ADVICE_COLUMNS => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
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
            true,
        );
        assert_eq!(
            text,
            "* missing  move    pages are moved\n           to do: use a newer kernel\n"
        );
        let optional = entry(&finding(Need::Useful, Status::Missing, ""), 6, true);
        assert_eq!(optional, "  missing  move    pages are moved\n");
        assert_eq!(
            entry(&finding(Need::Required, Status::Works, ""), 4, true),
            "  ok       move  pages are moved\n"
        );
    }

    #[test]
    fn the_verdict_names_the_first_step() {
        let works = finding(Need::Required, Status::Works, "");
        let useful = finding(Need::Useful, Status::Missing, "some day");
        let required = finding(Need::Required, Status::Missing, "use a newer kernel");
        let later = finding(Need::Required, Status::Unknown, "later");
        assert_eq!(
            verdict(std::slice::from_ref(&works)),
            "vswap run works here."
        );
        assert_eq!(
            verdict(&[works, useful.clone()]),
            "vswap run works here, without move."
        );
        assert_eq!(
            verdict(&[useful, required, later]),
            "vswap run does not work here (move); do this first: use a newer kernel"
        );
    }

    #[test]
    fn long_advice_is_wrapped_and_loses_no_word() {
        let advice = "give it the device or the system call ".repeat(8);
        let lines = wrapped(advice.trim());
        assert!(lines.len() > 3 && lines.iter().all(|line| line.len() <= ADVICE_COLUMNS));
        assert_eq!(lines.join(" "), advice.trim());
        let path = "x".repeat(200);
        assert_eq!(wrapped(&path), [path], "it can be copied");
    }

    #[test]
    fn a_step_is_said_once() {
        let twice = [
            finding(Need::Required, Status::Missing, "use a newer kernel"),
            finding(Need::Required, Status::Missing, "use a newer kernel"),
        ];
        assert_eq!(list(&twice).matches("to do:").count(), 1);
    }
}
