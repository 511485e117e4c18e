//! Tracing threads of other processes.

#[path = "support/tracing.rs"]
mod tracing;

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use tracing::stop;
use vswap_sys::inject::{Forking, InjectError, Stopped, Tracee};
use vswap_sys::process::{self, procfs, task};

const PATIENCE: Duration = Duration::from_secs(20);

/// Traces a child of another process, has something done with it that ends it, and expects its parent to see the end.
/// The tracing thread lives on meanwhile.
fn parent_sees_the_end(act: fn(u32, Stopped)) {
    let mut shell = Command::new("sh")
        .args(["-c", "sleep 1000 & echo $!; wait $!; echo $?"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(shell.stdout.take().unwrap()).lines();
    let pid: u32 = lines.next().unwrap().unwrap().parse().unwrap();
    let stopped = stop(pid);
    act(pid, stopped);
    let (said, heard) = mpsc::channel();
    std::thread::spawn(move || said.send(lines.next().unwrap().unwrap()));
    let status = heard.recv_timeout(PATIENCE);
    let _ = process::kill(pid);
    let _ = shell.kill();
    shell.wait().unwrap();
    assert_eq!(status.as_deref(), Ok("137"), "128 and SIGKILL");
}

#[test]
fn parents_see_the_end_of_a_child_that_is_killed_while_it_is_traced() {
    parent_sees_the_end(|pid, stopped| {
        process::kill(pid).unwrap();
        assert!(matches!(stopped.release(), Err(InjectError::Gone)));
    });
    parent_sees_the_end(|pid, mut stopped| {
        process::kill(pid).unwrap();
        let called = stopped.call("getpid", libc::SYS_getpid, [0; 6]);
        assert!(matches!(called, Err(InjectError::Gone)));
    });
    parent_sees_the_end(|pid, stopped| {
        stopped.release().unwrap();
        let mut tracee = Tracee::seize(pid).unwrap();
        process::kill(pid).unwrap();
        // It may have stopped before.
        while let Ok(Err(running)) = tracee.stop() {
            tracee = running;
        }
    });
}

/// A process that waits in the kernel until its child has ended, and ends with `STATUS` then. It does not stop
/// meanwhile.
fn waits_in_vfork() -> u32 {
    extern "C" fn child(_: *mut libc::c_void) -> libc::c_int {
        loop {
            // SAFETY: the calls touch no memory. The child is not to outlive its parent.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                libc::pause();
            }
        }
    }
    const FLAGS: libc::c_int = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    let mut stack = vec![0_u128; 4096];
    let end = stack.as_mut_ptr_range().end;
    // SAFETY: the child makes system calls alone, which is all that may be done in the copy of a process with threads.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: the stack is this copy's own, and its child uses no more than a little of it.
            unsafe { libc::clone(child, end.cast(), FLAGS, std::ptr::null_mut()) };
            // SAFETY: it ends the copy.
            unsafe { libc::_exit(STATUS) }
        }
        pid => u32::try_from(pid).unwrap(),
    }
}

const STATUS: i32 = 7;

#[test]
fn what_does_not_stop_outlives_its_tracer() {
    let pid = waits_in_vfork();
    let since = Instant::now();
    let child = loop {
        if let [child] = procfs::children_listed(pid).unwrap()[..] {
            break child;
        }
        assert!(since.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(1));
    };
    let tracer = std::thread::spawn(move || {
        let running = Tracee::seize(pid).unwrap().stop().unwrap();
        running.expect_err("it waits, and cannot stop");
    });
    tracer.join().unwrap();
    // The kernel lets go of it a moment after the thread can be joined.
    while task::tracer_of(pid).is_some() {
        assert!(since.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(1));
    }
    process::kill(child).unwrap();
    let mut status = 0;
    // SAFETY: the status outlives the call.
    unsafe { libc::waitpid(pid.cast_signed(), &raw mut status, 0) };
    assert!(libc::WIFEXITED(status), "{status:#x}");
    assert_eq!(libc::WEXITSTATUS(status), STATUS);
}

/// As when the id of a thread that was about to fork is another's by now.
#[test]
fn a_thread_that_was_traced_by_mistake_goes_on_unharmed() {
    let mut shell = Command::new("sh")
        .args(["-c", "i=0; while [ $i -lt 200 ]; do (:); i=$((i+1)); done"])
        .spawn()
        .unwrap();
    let pid = shell.id();
    // It forks all the time, and so may stop with a child.
    let mut cancelled = 0;
    while let Ok(forking) = Forking::seize(pid) {
        forking.cancel();
        if task::has_ended(pid) {
            break;
        }
        assert_eq!(task::tracer_of(pid), None);
        cancelled += 1;
    }
    assert!(cancelled > 10, "{cancelled}");
    assert!(shell.wait().unwrap().success());
}
