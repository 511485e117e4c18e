//! What waits for a process that is stopped: signals, and input at its descriptors.
//!
//! A descriptor is looked at by a copy of it (pidfd_getfd) that lives for the look alone. That takes the right to trace
//! the process. Only what others can bring about is looked at: sockets, pipes, terminals and inotify. Epolls are left
//! out, because what they hold is looked at by itself, and so are timers, which need nobody.

use std::fs::FileType;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::fs::FileTypeExt;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdGetfdFlags, getpgid, pidfd_getfd};
use rustix::termios::tcgetpgrp;

use crate::looks;
use crate::process::PidFd;

/// Most descriptors of a process that are looked at: each costs a few microseconds, several times a second.
const DESCRIPTORS_MAX: usize = 1024;
/// Signals by which nobody wants anything: of children, of timers, and of a terminal that changes its size. As bits.
const IGNORED: u64 = bits(&[
    libc::SIGCHLD,
    libc::SIGALRM,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGURG,
    libc::SIGWINCH,
]);

const fn bits(signals: &[i32]) -> u64 {
    let (mut mask, mut at) = (0, 0);
    while at < signals.len() {
        mask |= 1 << (signals[at] - 1);
        at += 1;
    }
    mask
}

/// Signals that wait for a process or for one of its threads, as bits, without those by which nobody wants anything.
pub fn signals(pid: u32) -> u64 {
    let status = looks::read_text(&format!("/proc/{pid}/status")).unwrap_or_default();
    pending(&status) & !IGNORED
}

fn pending(status: &str) -> u64 {
    let masks = status.lines().filter_map(|line| {
        let mask = line
            .strip_prefix("SigPnd:")
            .or_else(|| line.strip_prefix("ShdPnd:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    });
    masks.fold(0, |all, mask| all | mask)
}

/// Numbers of the descriptors of a process at which there is something to read, or an end.
pub fn readable(pid: u32) -> Vec<i32> {
    let Ok(process) = PidFd::open(pid) else {
        return Vec::new();
    };
    let names = looks::names(&format!("/proc/{pid}/fd")).unwrap_or_default();
    let numbers = names.iter().filter_map(|name| name.to_str()?.parse().ok());
    let is_input = |number: &i32| {
        let path = format!("/proc/{pid}/fd/{number}");
        let kind = std::fs::metadata(&path).map(|found| found.file_type());
        let target = std::fs::read_link(&path).unwrap_or_default();
        kind.is_ok_and(|kind| may_have_input(kind, &target.to_string_lossy()))
    };
    numbers
        .filter(is_input)
        .take(DESCRIPTORS_MAX)
        .filter(|&number| copy_of(&process, number).is_some_and(|copy| has_input(&copy, pid)))
        .collect()
}

/// Can others bring something to a descriptor of this kind, which /proc shows as `target`?
fn may_have_input(kind: FileType, target: &str) -> bool {
    let is_terminal = ["/dev/pts/", "/dev/tty", "/dev/console"]
        .iter()
        .any(|terminal| target.starts_with(terminal));
    kind.is_socket()
        || kind.is_fifo()
        || (kind.is_char_device() && is_terminal)
        || target == "anon_inode:inotify"
}

fn copy_of(process: &PidFd, number: RawFd) -> Option<OwnedFd> {
    pidfd_getfd(process, number, PidfdGetfdFlags::empty()).ok()
}

fn has_input(descriptor: &OwnedFd, pid: u32) -> bool {
    // What is typed is for the job in the foreground. Other descriptors have no such group, and of the terminal of
    // another session the kernel does not tell.
    let group = i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .map(|pid| getpgid(Some(pid)));
    if let (Ok(foreground), Some(Ok(group))) = (tcgetpgrp(descriptor), group)
        && foreground != group
    {
        return false;
    }
    let mut look = [PollFd::new(descriptor, PollFlags::IN)];
    let found = crate::eventfd::poll(&mut look, Some(Duration::ZERO));
    // Something that has no reader is an error, which is nothing to read.
    found.is_ok() && look[0].revents().intersects(PollFlags::IN | PollFlags::HUP)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn pending_signals_are_those_of_the_process_and_of_its_thread() {
        let status =
            "Name:\tx\nSigPnd:\t0000000000000100\nShdPnd:\t0000000000014001\nSigBlk:\tffff\n";
        assert_eq!(pending(status), 0x1_4101);
        assert_eq!(pending("no signals"), 0);
        assert_eq!(IGNORED & (1 << (libc::SIGTERM - 1)), 0);
        assert_ne!(IGNORED & (1 << (libc::SIGCHLD - 1)), 0);
    }

    #[test]
    fn input_is_what_others_bring() {
        let kind = |path: &str| std::fs::metadata(path).expect("it exists").file_type();
        let device = kind("/dev/null");
        assert!(may_have_input(device, "/dev/pts/3") && may_have_input(device, "/dev/tty"));
        assert!(!may_have_input(device, "/dev/null"));
        let other = kind("/");
        assert!(may_have_input(other, "anon_inode:inotify"));
        for target in ["anon_inode:[eventpoll]", "anon_inode:[timerfd]", "/tmp"] {
            assert!(!may_have_input(other, target), "{target}");
        }
    }

    #[test]
    fn a_socket_with_something_to_read_is_seen() {
        let (mut here, there) = UnixStream::pair().expect("descriptors");
        let own = std::process::id();
        let has = || readable(own).contains(&there.as_raw_fd());
        assert!(!has());
        here.write_all(b"x").expect("written");
        assert!(has());
        assert!(!readable(own).contains(&here.as_raw_fd()));
        drop(here);
        assert!(has(), "an end is something as well");
        assert!(readable(u32::MAX).is_empty());
    }
}
