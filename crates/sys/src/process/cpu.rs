//! CPUs and the calling thread: where it runs, where it may run, its name, niceness and class.

use std::ffi::CString;
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::CpuSet;

/// Number of the CPU on which the caller runs. It may be another the next moment.
pub fn current() -> usize {
    rustix::thread::sched_getcpu()
}

/// CPUs that the calling thread may run on, in order; only CPU 0 if the kernel does not tell.
pub fn permitted() -> Vec<usize> {
    match rustix::thread::sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU)
            .filter(|&cpu| set.is_set(cpu))
            .collect(),
        Err(_) => vec![0],
    }
}

/// How many CPUs the calling thread may run on.
pub fn count() -> usize {
    permitted().len().max(1)
}

/// One more than the largest CPU number that `current` can return to this thread.
pub fn bound() -> usize {
    permitted().last().map_or(1, |&last| last + 1)
}

/// Keeps the calling thread on `cpus`.
///
/// # Errors
/// EINVAL when none of them exists or is permitted.
pub fn set_affinity(cpus: &[usize]) -> Result<(), Errno> {
    let mut set = CpuSet::new();
    for &cpu in cpus.iter().filter(|&&cpu| cpu < CpuSet::MAX_CPU) {
        set.set(cpu);
    }
    rustix::thread::sched_setaffinity(None, &set)
}

/// Names the calling thread. Drops bytes after the 15th, and from a NUL on.
///
/// # Errors
/// The errno of prctl.
pub fn set_name(name: &str) -> Result<(), Errno> {
    /// Bytes that the kernel keeps of a thread's name.
    const NAME_BYTES_MAX: usize = 15;
    let bytes = name
        .bytes()
        .take_while(|&byte| byte != 0)
        .take(NAME_BYTES_MAX);
    let name = CString::new(bytes.collect::<Vec<u8>>()).unwrap_or_default();
    rustix::thread::set_name(&name)
}

/// Sets the niceness of the calling thread, -20 (first) to 19 (last).
///
/// # Errors
/// EACCES or EPERM for a niceness below the present one without the right to it.
pub fn set_nice(nice: i32) -> Result<(), Errno> {
    // On Linux the niceness of "process 0" is that of the calling thread alone.
    rustix::process::setpriority_process(None, nice)
}

/// CPU time that the calling thread has used.
pub fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// Puts the calling thread into the real-time class of the lowest priority (SCHED_RR 1). It then runs as soon as it
/// wakes, before every ordinary thread. Threads that it starts are ordinary ones.
///
/// # Errors
/// EPERM without CAP_SYS_NICE or an RLIMIT_RTPRIO.
pub fn set_real_time() -> Result<(), Errno> {
    set_class(0, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, 1)
}

/// Puts the calling thread into the ordinary class (SCHED_OTHER), in which niceness counts.
///
/// # Errors
/// The errno of the call.
pub fn set_ordinary() -> Result<(), Errno> {
    set_class(0, libc::SCHED_OTHER, 0)
}

/// Has threads that `start` starts begin in the caller's real-time class, if it is in that and may pass it on. Each of
/// them then has to call [`set_real_time`] or [`set_ordinary`]. Without this a thread begins as an ordinary one, and
/// beside busy ones it may take a tenth of a second until it can ask for more.
pub fn passing_class_on<T>(start: impl FnOnce() -> T) -> T {
    let is_passed_on = class_of(0) == Ok(libc::SCHED_RR | libc::SCHED_RESET_ON_FORK)
        && set_class(0, libc::SCHED_RR, 1).is_ok();
    let started = start();
    if is_passed_on {
        let _ = set_real_time();
    }
    started
}

/// Puts thread `tid`, or the calling thread if that is 0, into a class (`SCHED_*`).
pub(super) fn set_class(tid: u32, class: i32, sched_priority: i32) -> Result<(), Errno> {
    let parameters = libc::sched_param { sched_priority };
    // SAFETY: the parameters are read only during the call. rustix does not have this call.
    checked(unsafe { libc::sched_setscheduler(tid.cast_signed(), class, &raw const parameters) })?;
    Ok(())
}

/// The class of thread `tid`, or of the calling thread if that is 0.
pub(super) fn class_of(tid: u32) -> Result<i32, Errno> {
    // SAFETY: the call touches no memory. rustix does not have it.
    checked(unsafe { libc::sched_getscheduler(tid.cast_signed()) })
}

fn checked(returned: i32) -> Result<i32, Errno> {
    match returned {
        0.. => Ok(returned),
        _ => Err(std::io::Error::last_os_error()
            .raw_os_error()
            .map_or(Errno::PERM, Errno::from_raw_os_error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_passed_on_where_that_is_asked_for() {
        let class_of_a_thread = || std::thread::spawn(|| class_of(0)).join().unwrap();
        let ordinary = Ok(libc::SCHED_OTHER);
        assert_eq!(passing_class_on(class_of_a_thread), ordinary);
        let own = std::thread::spawn(move || {
            if set_real_time().is_err() {
                eprintln!("this user may not use the real-time class");
                return;
            }
            assert_eq!(class_of_a_thread(), ordinary);
            assert_eq!(passing_class_on(class_of_a_thread), Ok(libc::SCHED_RR));
            assert_eq!(class_of_a_thread(), ordinary);
        });
        own.join().unwrap();
    }

    #[test]
    fn a_thread_stays_where_it_is_put() {
        std::thread::spawn(|| {
            let all = permitted();
            assert!(count() == all.len() && bound() > all[0]);
            for &cpu in &all {
                set_affinity(&[cpu]).unwrap();
                assert_eq!((current(), permitted()), (cpu, vec![cpu]));
            }
            assert_eq!(set_affinity(&[]), Err(Errno::INVAL));
            assert_eq!(set_affinity(&[usize::MAX]), Err(Errno::INVAL));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn names_and_niceness_are_the_threads_own() {
        let main = rustix::process::getpriority_process(None).unwrap();
        std::thread::spawn(move || {
            set_name("vswap-evictor-0-long").unwrap();
            assert_eq!(
                rustix::thread::name().unwrap().to_bytes(),
                b"vswap-evictor-0"
            );
            set_name("a\0b").unwrap();
            assert_eq!(rustix::thread::name().unwrap().to_bytes(), b"a");
            set_nice(main.max(10)).unwrap();
            assert_eq!(
                rustix::process::getpriority_process(None).unwrap(),
                main.max(10)
            );
        })
        .join()
        .unwrap();
        assert_eq!(rustix::process::getpriority_process(None).unwrap(), main);
    }
}
