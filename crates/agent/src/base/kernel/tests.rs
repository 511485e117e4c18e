//! Numbers are those of the headers, and what differs between machines answers alike.

use std::io::Write;
use std::os::fd::AsRawFd;

use super::*;

#[test]
fn numbers_are_those_of_the_headers() {
    for (ours, theirs) in [
        (call::READ, ::libc::SYS_read),
        (call::WRITE, ::libc::SYS_write),
        (call::CLOSE, ::libc::SYS_close),
        (call::MMAP, ::libc::SYS_mmap),
        (call::MPROTECT, ::libc::SYS_mprotect),
        (call::MUNMAP, ::libc::SYS_munmap),
        (call::BRK, ::libc::SYS_brk),
        (call::RT_SIGACTION, ::libc::SYS_rt_sigaction),
        (call::RT_SIGPROCMASK, ::libc::SYS_rt_sigprocmask),
        (call::IOCTL, ::libc::SYS_ioctl),
        (call::MREMAP, ::libc::SYS_mremap),
        (call::MINCORE, ::libc::SYS_mincore),
        (call::MADVISE, ::libc::SYS_madvise),
        (call::NANOSLEEP, ::libc::SYS_nanosleep),
        (call::GETPID, ::libc::SYS_getpid),
        (call::SOCKET, ::libc::SYS_socket),
        (call::CONNECT, ::libc::SYS_connect),
        (call::RECVFROM, ::libc::SYS_recvfrom),
        (call::SENDMSG, ::libc::SYS_sendmsg),
        (call::RECVMSG, ::libc::SYS_recvmsg),
        (call::GETSOCKOPT, ::libc::SYS_getsockopt),
        (call::CLONE, ::libc::SYS_clone),
        (call::EXIT, ::libc::SYS_exit),
        (call::KILL, ::libc::SYS_kill),
        (call::FTRUNCATE, ::libc::SYS_ftruncate),
        (call::CHDIR, ::libc::SYS_chdir),
        (call::GETEUID, ::libc::SYS_geteuid),
        (call::GETPPID, ::libc::SYS_getppid),
        (call::GETPRIORITY, ::libc::SYS_getpriority),
        (call::SETPRIORITY, ::libc::SYS_setpriority),
        (call::MUNLOCK, ::libc::SYS_munlock),
        (call::PRCTL, ::libc::SYS_prctl),
        (call::GETTID, ::libc::SYS_gettid),
        (call::FUTEX, ::libc::SYS_futex),
        (call::EXIT_GROUP, ::libc::SYS_exit_group),
        (call::TGKILL, ::libc::SYS_tgkill),
        (call::OPENAT, ::libc::SYS_openat),
        (call::NEWFSTATAT, ::libc::SYS_newfstatat),
        (call::UNSHARE, ::libc::SYS_unshare),
        (call::EVENTFD2, ::libc::SYS_eventfd2),
        (call::PRLIMIT64, ::libc::SYS_prlimit64),
        (call::SETNS, ::libc::SYS_setns),
        (call::SECCOMP, ::libc::SYS_seccomp),
        (call::GETRANDOM, ::libc::SYS_getrandom),
        (call::MEMFD_CREATE, ::libc::SYS_memfd_create),
        (call::USERFAULTFD, ::libc::SYS_userfaultfd),
        (call::PKEY_MPROTECT, ::libc::SYS_pkey_mprotect),
        (call::PIDFD_OPEN, ::libc::SYS_pidfd_open),
        (call::CLONE3, ::libc::SYS_clone3),
        (call::CLOSE_RANGE, ::libc::SYS_close_range),
        (call::PIDFD_GETFD, ::libc::SYS_pidfd_getfd),
        (call::PROCESS_MADVISE, ::libc::SYS_process_madvise),
    ] {
        assert_eq!(ours, usize::try_from(theirs).unwrap());
    }
}

#[test]
fn poll_looks_and_waits() {
    const POLLIN: u64 = 1;
    let (reader, mut writer) = std::io::pipe().unwrap();
    let ready = |waits| {
        let descriptor = u64::from(reader.as_raw_fd().cast_unsigned());
        let mut record = descriptor | POLLIN << 32;
        // SAFETY: the record is one, on this stack.
        let count = unsafe { poll((&raw mut record).addr(), 1, waits) };
        (count, record >> 48)
    };
    assert_eq!(ready(false), (0, 0));
    writer.write_all(&[1]).unwrap();
    assert_eq!(ready(false), (1, POLLIN));
    assert_eq!(ready(true), (1, POLLIN));
}

#[test]
fn links_of_a_directory_are_found_in_its_record() {
    let place = tempfile::tempdir().unwrap();
    std::fs::create_dir(place.path().join("inner")).unwrap();
    let path = std::ffi::CString::new(place.path().to_str().unwrap()).unwrap();
    let mut stat = Stat::default();
    let buffer = (&raw mut stat).expose_provenance();
    const AT_FDCWD: usize = (-100_isize).cast_unsigned();
    // SAFETY: the path is a string, and the buffer has as many bytes as the kernel writes.
    let asked = unsafe {
        call(
            call::NEWFSTATAT,
            [AT_FDCWD, path.as_ptr().addr(), buffer, 0, 0, 0],
        )
    };
    assert_eq!(asked, Ok(0));
    let metadata = std::fs::metadata(place.path()).unwrap();
    assert_eq!(
        links_in(&stat),
        std::os::unix::fs::MetadataExt::nlink(&metadata)
    );
}

#[test]
fn pages_have_4_kib_if_libc_says_so() {
    // SAFETY: the call only asks.
    let bytes = unsafe { ::libc::sysconf(::libc::_SC_PAGESIZE) };
    assert_eq!(has_small_pages(), bytes == 4096);
}

#[test]
fn what_can_be_read_is_known() {
    let word = 0_usize;
    assert!(is_readable((&raw const word).addr()));
    assert!(!is_readable(0) && !is_readable(16));
}
