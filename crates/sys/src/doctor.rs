//! What this machine and this user are permitted, found by trying, and what to do about what is missing.
//!
//! `probe` creates descriptors, a few pages and two short-lived forked children, and leaves nothing behind. The
//! children make only system calls. Call it from a process that has no userfaultfd registered with fork events.

mod probes;
mod rights;

/// Name of the finding that says whether the kernel tells of forks.
pub const FORK_EVENTS: &str = "fork-events";

/// What a probe found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Works.
    Works,
    /// Does not work here.
    Missing,
    /// Could not be tried.
    Unknown,
}

/// Does `run` need it?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// `run` refuses to start without it.
    Required,
    /// One of several ways to a required thing.
    OneOf,
    /// Better with it.
    Useful,
    /// For information.
    Information,
}

/// One line of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// A stable short name.
    pub name: &'static str,
    /// The result.
    pub status: Status,
    /// Does it matter?
    pub need: Need,
    /// What it is for, or what was found, in a few words.
    pub detail: String,
    /// What to do about it; empty if it works or nothing can be done.
    pub advice: &'static str,
}

/// Tries everything; takes some milliseconds.
pub fn probe() -> Vec<Finding> {
    let mut findings = probes::userfaultfd();
    findings.extend(probes::other_process());
    let has_fork_events = |one: &Finding| one.name == FORK_EVENTS && one.status == Status::Works;
    findings.push(probes::attach(findings.iter().any(has_fork_events)));
    findings.push(probes::seccomp());
    findings.push(probes::io_uring());
    findings.push(probes::map_count());
    findings.extend(probes::memory());
    findings
}

/// The required findings that do not work. If there are none, `run` can start. What could not be tried comes last: it
/// may work when the rest does.
pub fn missing(findings: &[Finding]) -> impl Iterator<Item = &Finding> {
    let of = |status| {
        findings
            .iter()
            .filter(move |one| one.need == Need::Required && one.status == status)
    };
    of(Status::Missing).chain(of(Status::Unknown))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_probe_answers_once_and_advises_where_it_must() {
        let findings = probe();
        let mut names: Vec<&str> = findings.iter().map(|one| one.name).collect();
        for name in [
            "userfaultfd-device",
            "userfaultfd-syscall",
            "kernel-faults",
            "layout-events",
            "fork-events",
            "write-protect",
            "move",
            "poison",
            "pagemap-scan",
            "process-vm-readv",
            "pidfd",
            "attach",
            "seccomp-notify",
            "io-uring",
            "map-count",
            "memory-machine",
            "memory-limit",
        ] {
            assert!(names.contains(&name), "{name}");
        }
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
        for one in &findings {
            let must =
                one.status != Status::Works && matches!(one.need, Need::Required | Need::Useful);
            assert!(!must || !one.advice.is_empty(), "{one:?}");
            assert!(
                one.status != Status::Works || one.advice.is_empty(),
                "{one:?}"
            );
        }
    }

    #[test]
    fn probing_twice_leaves_nothing_behind() {
        let userfaultfds = || {
            std::fs::read_dir("/proc/self/fd")
                .unwrap()
                .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
                .filter(|link| link.to_string_lossy().contains("userfaultfd"))
                .count()
        };
        let status =
            |findings: &[Finding]| findings.iter().map(|one| one.status).collect::<Vec<_>>();
        let (first, second) = (probe(), probe());
        assert_eq!(status(&first), status(&second));
        let required = missing(&first).count();
        assert_eq!(missing(&second).count(), required);
        // The other test of this file may probe at the same time, but never has more than it holds at once.
        assert!(userfaultfds() <= 4);
    }
}
