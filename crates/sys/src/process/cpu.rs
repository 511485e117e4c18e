//! CPUs and the calling thread: where it runs, where it may run, its name and its niceness.

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
    set_class(libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, 1)
}

/// Puts the calling thread into the ordinary class (SCHED_OTHER), in which niceness counts.
///
/// # Errors
/// The errno of the call.
pub fn set_ordinary() -> Result<(), Errno> {
    set_class(libc::SCHED_OTHER, 0)
}

fn set_class(class: i32, sched_priority: i32) -> Result<(), Errno> {
    let parameters = libc::sched_param { sched_priority };
    // SAFETY: the parameters are read only during the call, and 0 is the calling thread. rustix does not have this
    // call.
    match unsafe { libc::sched_setscheduler(0, class, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()
            .raw_os_error()
            .map_or(Errno::PERM, Errno::from_raw_os_error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
