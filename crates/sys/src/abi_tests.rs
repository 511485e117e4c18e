//! The numbers that agent and pager share are those of the kernel's headers.

use linux_raw_sys::general as headers;

use crate::abi::{advice, call, remap};

#[test]
fn numbers_are_those_of_the_headers() {
    for (ours, theirs) in [
        (call::MMAP, headers::__NR_mmap),
        (call::BRK, headers::__NR_brk),
        (call::RT_SIGACTION, headers::__NR_rt_sigaction),
        (call::IOCTL, headers::__NR_ioctl),
        (call::MREMAP, headers::__NR_mremap),
        (call::MADVISE, headers::__NR_madvise),
        (call::CLONE, headers::__NR_clone),
        (call::EXIT, headers::__NR_exit),
        (call::PTRACE, headers::__NR_ptrace),
        (call::SET_TID_ADDRESS, headers::__NR_set_tid_address),
        (call::SECCOMP, headers::__NR_seccomp),
        (call::IO_URING_SETUP, headers::__NR_io_uring_setup),
        (call::CLONE3, headers::__NR_clone3),
        (call::PROCESS_MADVISE, headers::__NR_process_madvise),
        (advice::DONTNEED, headers::MADV_DONTNEED),
        (advice::FREE, headers::MADV_FREE),
        (advice::DONTFORK, headers::MADV_DONTFORK),
        (advice::NOHUGEPAGE, headers::MADV_NOHUGEPAGE),
        (advice::WIPEONFORK, headers::MADV_WIPEONFORK),
        (advice::KEEPONFORK, headers::MADV_KEEPONFORK),
        (advice::POPULATE_WRITE, headers::MADV_POPULATE_WRITE),
        (advice::DONTNEED_LOCKED, headers::MADV_DONTNEED_LOCKED),
        (advice::GUARD_INSTALL, headers::MADV_GUARD_INSTALL),
        (advice::GUARD_REMOVE, headers::MADV_GUARD_REMOVE),
        (remap::MAYMOVE, headers::MREMAP_MAYMOVE),
        (remap::FIXED, headers::MREMAP_FIXED),
        (remap::DONTUNMAP, headers::MREMAP_DONTUNMAP),
    ] {
        assert_eq!(ours, theirs);
    }
}

#[test]
fn forks_have_a_number_where_there_is_such_a_call() {
    #[cfg(target_arch = "x86_64")]
    let is_right = call::FORK == headers::__NR_fork;
    // The highest number of a call that a kernel may have (`NR_syscalls`) is some hundreds.
    #[cfg(not(target_arch = "x86_64"))]
    let is_right = call::FORK > 1 << 16;
    assert!(is_right);
}

#[test]
fn architectures_are_those_of_the_headers() {
    use linux_raw_sys::ptrace::{
        AUDIT_ARCH_AARCH64, AUDIT_ARCH_ARM, AUDIT_ARCH_I386, AUDIT_ARCH_X86_64,
    };
    let theirs = if cfg!(target_arch = "x86_64") {
        (AUDIT_ARCH_X86_64, AUDIT_ARCH_I386)
    } else {
        (AUDIT_ARCH_AARCH64, AUDIT_ARCH_ARM)
    };
    assert_eq!((call::ARCHITECTURE, call::ARCHITECTURE_32_BIT), theirs);
}
