//! The program that is to be managed: whether it can be, as far as that is seen from outside.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use vswap_sys::process::{image, procfs};

use crate::failure::Failure;

/// Longest chain of parents followed upwards.
const ANCESTORS_MAX: usize = 1024;

/// A program that runs.
#[derive(Debug)]
pub struct Target {
    pub pid: u32,
    /// Its name, as the kernel has it.
    pub name: String,
    /// Its command line.
    pub command: Vec<OsString>,
}

impl Target {
    /// Refuses what can never be managed.
    pub fn find(pid: u32) -> Result<Target, Failure> {
        let stat = procfs::stat(pid).map_err(|_| {
            Failure::own(format!(
                "there is no process {pid}: `ps` or `pidof NAME` lists those that there are"
            ))
        })?;
        let target = Target {
            pid,
            name: stat.comm.clone(),
            command: command_of(pid),
        };
        if !stat.alive() {
            return Err(target.has_ended());
        }
        if pid == std::process::id() || is_ancestor(pid) {
            return Err(target.refused(
                "this command descends from it, and would manage itself: start it from elsewhere",
            ));
        }
        if target.command.is_empty() && std::fs::read_link(format!("/proc/{pid}/exe")).is_err() {
            // So it is with one that has just ended, or is about to.
            if !procfs::stat(pid).is_ok_and(|stat| stat.alive() && !stat.is_exiting) {
                return Err(target.has_ended());
            }
            return Err(target.refused(
                "it is a thread of the kernel, or another user's process: only root may attach to those of others",
            ));
        }
        if image::has_agent(pid) {
            return Err(target.refused(
                "it is in a run already: `vswap status` lists them, and `vswap set` changes its limits",
            ));
        }
        if image::has_ring_of_agent(pid) {
            return Err(target.refused(
                "vswap has let go of it before, or of the process that forked it, and its filter cannot be taken off; \
                 start it anew",
            ));
        }
        Ok(target)
    }

    /// The failure to say so.
    pub fn has_ended(&self) -> Failure {
        self.refused("it has ended")
    }

    fn refused(&self, why: &str) -> Failure {
        Failure::own(format!(
            "process {} ({}) cannot be attached to: {why}",
            self.pid, self.name
        ))
    }
}

fn command_of(pid: u32) -> Vec<OsString> {
    let text = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = text.split(|byte| *byte == 0).map(<[u8]>::to_vec);
    let mut words: Vec<OsString> = words.map(OsString::from_vec).collect();
    // The last word ends with a zero too.
    words.pop();
    words
}

fn is_ancestor(pid: u32) -> bool {
    let parent = |pid: &u32| procfs::stat(*pid).ok().map(|stat| stat.parent);
    std::iter::successors(Some(std::process::id()), parent)
        .take(ANCESTORS_MAX)
        .any(|one| one == pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_never_be_managed_is_refused_with_the_reason() {
        let own = std::process::id();
        let parent = procfs::stat(own).expect("it lives").parent;
        for (pid, expected) in [
            (u32::MAX, "there is no process"),
            (own, "would manage itself"),
            (parent, "would manage itself"),
            (2, "a thread of the kernel"),
        ] {
            // Process 2 is something else in a namespace of its own.
            if pid == 2 && procfs::stat(2).is_ok_and(|stat| stat.comm != "kthreadd") {
                continue;
            }
            let refused = Target::find(pid).map(|target| target.command);
            let refused = refused.expect_err(expected).to_string();
            assert!(
                refused.contains(expected) || refused.contains("there is no process"),
                "{pid}: {refused}"
            );
        }
    }

    #[test]
    fn a_command_line_is_taken_apart() {
        let words = command_of(std::process::id());
        let own: Vec<OsString> = std::env::args_os().collect();
        assert_eq!(words, own);
        assert!(command_of(u32::MAX).is_empty());
    }
}
