//! Programs that do not let go of whoever has stopped one of their threads and has it do something.

mod support;
#[path = "support/tracing.rs"]
mod tracing;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tracing::stop;
use vswap_sys::inject::{InjectError, Stopped};
use vswap_sys::process;

/// Well above what a thread may take (5 s asleep, 2 s of CPU time), and less than the 60 s that it has in all.
const PATIENCE: Duration = Duration::from_secs(50);

/// A copy of this process, which sleeps. It dies with its parent.
fn sleeper() -> u32 {
    // SAFETY: the child makes system calls alone, which is all that may be done in the copy of a process with threads.
    match unsafe { libc::fork() } {
        0 => loop {
            // SAFETY: the calls touch no memory.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                libc::pause();
            }
        },
        pid => u32::try_from(pid).unwrap(),
    }
}

/// Has a copy of this process do something that does not end. It is killed for that, before patience ends.
fn is_given_up(work: impl FnOnce(u32, &mut Stopped) -> Result<u64, InjectError>) {
    let pid = sleeper();
    let mut stopped = stop(pid);
    let since = Instant::now();
    let done = work(pid, &mut stopped);
    let took = since.elapsed();
    drop(stopped);
    let status = support::wait(pid.cast_signed());
    assert!(matches!(done, Err(InjectError::GivenUp(_))), "{done:?}");
    assert!(took < PATIENCE, "{took:?}");
    assert_eq!(status, 128 + libc::SIGKILL);
}

/// Code that never makes a system call.
extern "C" fn computes() -> ! {
    loop {
        std::hint::spin_loop();
    }
}

/// Has it run that, on its own copy of this thread's stack.
fn compute(stopped: &mut Stopped) -> Result<u64, InjectError> {
    let mut stack = [0_u64; 512];
    let end = stack.as_mut_ptr_range().end.expose_provenance();
    let entry = (computes as extern "C" fn() -> !) as usize;
    stopped.run_until(entry as u64, end as u64, libc::SYS_getpid.cast_unsigned())
}

#[test]
fn a_call_that_sleeps_for_ever_is_given_up() {
    is_given_up(|_, stopped| stopped.call("ppoll", libc::SYS_ppoll, [0; 6]));
}

#[test]
fn code_that_computes_for_ever_is_given_up() {
    is_given_up(|_, stopped| compute(stopped));
}

#[test]
fn a_thread_that_is_stopped_again_and_again_is_given_up() {
    let is_over = AtomicBool::new(false);
    is_given_up(|pid, stopped| {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    for signal in [libc::SIGSTOP, libc::SIGCONT] {
                        // SAFETY: nobody waits for the process yet, so its id names no other one.
                        unsafe { libc::kill(pid.cast_signed(), signal) };
                    }
                }
            });
            let done = compute(stopped);
            is_over.store(true, Ordering::Relaxed);
            done
        })
    });
}

/// A `timespec`, which the copy has at the same address.
static SECOND: [u64; 2] = [1, 0];

#[test]
fn what_ends_is_not_given_up() {
    let pid = sleeper();
    let mut stopped = stop(pid);
    let place = (&raw const SECOND).expose_provenance() as u64;
    let slept = stopped.call("nanosleep", libc::SYS_nanosleep, [place, 0, 0, 0, 0, 0]);
    assert_eq!(slept.unwrap(), 0);
    stopped.release().unwrap();
    process::kill(pid).unwrap();
    // SAFETY: no status is wanted.
    unsafe { libc::waitpid(pid.cast_signed(), std::ptr::null_mut(), 0) };
}
