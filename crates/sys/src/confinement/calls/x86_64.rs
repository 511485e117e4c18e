//! What the lists have besides on x86-64: calls that newer architectures never got, and the old requests for registers.

use libc::c_long;

/// As in the parent.
pub const ALLOWED: &[c_long] = &[
    libc::SYS_time,
    libc::SYS_pause,
    libc::SYS_getpgrp,
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_unlink,
    libc::SYS_rename,
    libc::SYS_link,
    libc::SYS_chmod,
    libc::SYS_dup2,
    libc::SYS_poll,
    libc::SYS_epoll_wait,
];

/// As in the parent.
pub const TRACING: &[u32] = &[libc::PTRACE_GETREGS, libc::PTRACE_SETREGS];

/// As in the parent.
pub const FATAL: &[c_long] = &[
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_mknod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
];
