//! A process that has given up what it does not need, and what it can still do.

mod support;

use std::fs;
use std::io::ErrorKind;

use vswap_sys::confinement::{self, Reach};

/// Runs `body` in a copy of this process that has been confined. Returns its exit code; for a signal 128 + its number.
fn confined(body: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the C library's fork leaves its allocator usable in the child, which needs no other lock of this process.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let code = confinement::confine(Reach::Machine).map_or(UNCONFINED, |()| body());
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(code) }
    }
    support::wait(pid)
}

const UNCONFINED: i32 = 100;
const BY_THE_FILTER: i32 = 128 + libc::SIGSYS;

fn answer(done: i64) -> i32 {
    match done {
        -1 => std::io::Error::last_os_error().raw_os_error().unwrap_or(0),
        _ => 0,
    }
}

#[test]
fn attacks_end_it_and_what_it_does_not_know_is_refused() {
    // SAFETY: the calls fail, or end the child.
    let program = || answer(unsafe { i64::from(libc::execve(c"/bin/true".as_ptr(), NONE, NONE)) });
    // SAFETY: as above. A child that is made all the same goes the way of its parent.
    let process = || answer(unsafe { i64::from(libc::fork()) });
    // SAFETY: as above.
    let mount = || answer(unsafe { libc::syscall(libc::SYS_umount2, c"/nowhere".as_ptr(), 0) });
    let network = || {
        // SAFETY: as above.
        let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0) };
        answer(i64::from(socket))
    };
    // SAFETY: as above.
    let memory = || answer(unsafe { libc::syscall(libc::SYS_shmget, 0, 4096, 0o600) });
    assert_eq!(confined(program), BY_THE_FILTER);
    assert_eq!(confined(process), BY_THE_FILTER);
    assert_eq!(confined(mount), BY_THE_FILTER);
    assert_eq!(confined(network), libc::ENOSYS);
    assert_eq!(confined(memory), libc::ENOSYS);
}

const NONE: *const *const libc::c_char = std::ptr::null();

#[test]
fn threads_and_files_are_to_be_had() {
    let done = confined(|| {
        let thread =
            std::thread::spawn(|| fs::read("/proc/self/stat").is_ok_and(|stat| !stat.is_empty()));
        let missing = fs::read("/nowhere/at/all").map_err(|error| error.kind());
        i32::from(!(thread.join().unwrap_or(false) && missing == Err(ErrorKind::NotFound)))
    });
    assert_eq!(done, 0);
}

/// The line of `/proc/thread-self/status` with this name, as the kernel writes it.
fn status(name: &str) -> Option<String> {
    let status = fs::read_to_string("/proc/thread-self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().to_owned())
}

fn hexadecimal(name: &str) -> Option<u64> {
    u64::from_str_radix(&status(name)?, 16).ok()
}

const SETS: [&str; 3] = ["CapInh:", "CapPrm:", "CapEff:"];

#[test]
fn threads_that_are_started_early_have_few_capabilities_too() {
    let read = || SETS.map(hexadecimal);
    let before = read();
    let early = confinement::start_threads(|| std::thread::spawn(read).join().unwrap()).unwrap();
    let kept = confinement::kept().bits();
    if before[2].is_some_and(|effective| effective & 1 << SYS_PTRACE != 0) {
        let less = |set: Option<u64>| set.map(|set| set & kept);
        assert_eq!(early, [Some(0), less(before[1]), less(before[2])]);
    } else {
        assert_eq!(
            early, before,
            "whoever may not trace keeps what its programs have"
        );
    }
    assert_eq!(read(), before, "the caller keeps its own");
}

const SYS_PTRACE: u32 = 19;
