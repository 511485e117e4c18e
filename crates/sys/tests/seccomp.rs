//! A filter and its notifications between a forked child and this process.
//!
//! Unsafe is needed here for a bare seccomp call and for calls that the filter traps.

mod support;

use std::os::fd::{AsFd, FromRawFd, OwnedFd};

use vswap_sys::eventfd::EventFd;
use vswap_sys::seccomp::{Answer, Listener, NotifyError};
use vswap_sys::sock::{Stream, Wait};

#[repr(C)]
struct Program {
    len: u16,
    filter: *const libc::sock_filter,
}

const fn instruction(code: u16, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

/// Notifies for mremap and for madvise(MADV_FREE), and allows everything else.
const FILTER: [libc::sock_filter; 7] = {
    const LOAD: u16 = 0x20;
    const EQUAL: u16 = 0x15;
    const GIVE: u16 = 0x06;
    // In seccomp_data: the call's number, and the low half of the third argument.
    const NUMBER: u32 = 0;
    const ADVICE: u32 = 32;
    [
        instruction(LOAD, 0, 0, NUMBER),
        instruction(EQUAL, 4, 0, 25),
        instruction(EQUAL, 0, 2, 28),
        instruction(LOAD, 0, 0, ADVICE),
        instruction(EQUAL, 1, 0, 8),
        instruction(GIVE, 0, 0, libc::SECCOMP_RET_ALLOW),
        instruction(GIVE, 0, 0, libc::SECCOMP_RET_USER_NOTIF),
    ]
};

/// Installs the filter in this (single-threaded) process. Returns the listener, or the errno.
fn install() -> Result<OwnedFd, i32> {
    const SET_MODE_FILTER: libc::c_ulong = 1;
    const FLAG_NEW_LISTENER: libc::c_ulong = 1 << 3;
    let program = Program {
        len: u16::try_from(FILTER.len()).unwrap_or(0),
        filter: FILTER.as_ptr(),
    };
    // SAFETY: the program outlives the call, which copies it. prctl takes plain numbers.
    let fd = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::syscall(
            libc::SYS_seccomp,
            SET_MODE_FILTER,
            FLAG_NEW_LISTENER,
            &raw const program,
        )
    };
    match i32::try_from(fd) {
        // SAFETY: the call returned a new descriptor, which nobody else owns.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)),
    }
}

fn mremap(bytes: usize) -> (i64, i32) {
    // SAFETY: address 0 is never mapped, so the call itself can only fail. The tests answer in its place.
    let result = unsafe { libc::syscall(libc::SYS_mremap, 0, bytes, bytes, 0, 0) };
    (
        result,
        std::io::Error::last_os_error().raw_os_error().unwrap_or(0),
    )
}

const NOT_PERMITTED: &str = "seccomp user notification is not permitted here";

/// Forks a child that runs `body` with the filter. Returns it and its listener. None if there can be no filter.
fn fork_trapped(body: fn() -> i32) -> Option<(i32, Listener)> {
    let (mine, theirs) = Stream::pair().unwrap();
    let pid = support::fork(|| {
        let Ok(listener) = install() else { return 77 };
        if theirs.send(&1u8, &[listener.as_fd()], Wait::Yes).is_err() {
            return 1;
        }
        drop(listener);
        body()
    });
    drop(theirs);
    let Ok((_, mut fds)) = mine.recv::<u8>(Wait::Yes) else {
        assert_eq!(support::wait(pid), 77);
        return None;
    };
    Some((pid, Listener::from_fd(fds.take(0).unwrap())))
}

fn child() -> i32 {
    if mremap(1).0 != 0x1234_5678_9000 {
        return 2;
    }
    if mremap(2) != (-1, libc::ENOMEM) {
        return 3;
    }
    // The kernel carries this one out and finds nothing at 0.
    if mremap(4096) != (-1, libc::EFAULT) {
        return 4;
    }
    // SAFETY: nothing is mapped at 0. Only the second call is trapped.
    let (plain, free) = unsafe {
        (
            libc::madvise(std::ptr::null_mut(), 0, libc::MADV_NORMAL),
            libc::madvise(std::ptr::null_mut(), 4096, libc::MADV_FREE),
        )
    };
    if (plain, free) == (0, 0) { 0 } else { 5 }
}

#[test]
fn trapped_calls_are_answered() {
    let _alone = support::alone();
    let Some((pid, listener)) = fork_trapped(child) else {
        return support::skip(NOT_PERMITTED);
    };
    // This is a hint, which kernels before 6.6 refuse.
    let _ = listener.wake_on_callers_cpu();
    let stop = EventFd::new().unwrap();
    let answers = [
        (libc::SYS_mremap, 1, Answer::Value(0x1234_5678_9000)),
        (libc::SYS_mremap, 2, Answer::Errno(libc::ENOMEM)),
        (libc::SYS_mremap, 4096, Answer::Continue),
        (libc::SYS_madvise, 4096, Answer::Value(0)),
    ];
    for (nr, argument, answer) in answers {
        assert_eq!(listener.wait(&stop), Ok(true));
        let call = listener.receive().unwrap();
        assert_eq!((i64::from(call.nr), call.args[1]), (nr, argument));
        assert_eq!(i64::from(call.tid), i64::from(pid));
        assert!(listener.id_valid(call.id) && !listener.id_valid(call.id + 1));
        listener.respond(call.id, answer).unwrap();
        assert_eq!(listener.respond(call.id, answer), Err(NotifyError::Over));
    }
    stop.signal().unwrap();
    assert_eq!(support::wait(pid), 0);
    assert_eq!(listener.wait(&stop), Err(NotifyError::Closed));
}

#[test]
fn a_caller_that_dies_is_over() {
    let _alone = support::alone();
    let Some((pid, listener)) = fork_trapped(child) else {
        return support::skip(NOT_PERMITTED);
    };
    let call = listener.receive().unwrap();
    vswap_sys::process::kill(u32::try_from(pid).unwrap()).unwrap();
    assert_eq!(support::wait(pid), 128 + libc::SIGKILL);
    assert!(!listener.id_valid(call.id));
    assert_eq!(
        listener.respond(call.id, Answer::Value(0)),
        Err(NotifyError::Over)
    );
    let never = EventFd::new().unwrap();
    assert_eq!(listener.wait(&never), Err(NotifyError::Closed));
}

/// A child whose one trapped call must run as it is.
fn child_that_goes_on() -> i32 {
    if mremap(4096) == (-1, libc::EFAULT) {
        0
    } else {
        2
    }
}

/// As when the pager is killed: it has taken in a call, and the guardian has the listener too.
#[test]
fn a_call_that_nobody_answered_is_let_through() {
    let _alone = support::alone();
    let Some((caller, listener)) = fork_trapped(child_that_goes_on) else {
        return support::skip(NOT_PERMITTED);
    };
    vswap_sys::taken::share().unwrap();
    let taker = support::fork(|| i32::from(listener.receive().is_err()));
    assert_eq!(support::wait(taker), 0);
    listener.let_taken_through();
    assert_eq!(support::wait(caller), 0);
}
