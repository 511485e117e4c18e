//! Which system calls a confined vswap makes: the list, and the calls that are an attack.
//!
//! Pure tables. A call that is in neither of them fails with ENOSYS, as from a kernel that does not have it, and the
//! kernel's log names it. A call is added here with the code that makes it.

use libc::c_long;

use super::Reach;
use super::rule::Rule;

#[cfg_attr(target_arch = "x86_64", path = "calls/x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "calls/aarch64.rs")]
mod machine;

/// Calls with any arguments. The kernel remembers that these need no look at the filter, so they cost nothing.
pub fn allowed() -> impl Iterator<Item = c_long> {
    ALLOWED.iter().chain(machine::ALLOWED).copied()
}

/// Those that there are everywhere.
const ALLOWED: &[c_long] = &[
    // Memory of this process. Those that may make memory executable are below.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_munlock,
    libc::SYS_mincore,
    libc::SYS_memfd_create,
    // Threads, and the end.
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_rseq,
    libc::SYS_membarrier,
    libc::SYS_gettid,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_getparam,
    libc::SYS_getpriority,
    libc::SYS_setpriority,
    libc::SYS_getcpu,
    // Time and chance.
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
    // Signals.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_rt_sigpending,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_kill,
    libc::SYS_tgkill,
    libc::SYS_tkill,
    // Who this is, and where.
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getpgid,
    libc::SYS_getsid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_capget,
    libc::SYS_getrusage,
    libc::SYS_times,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    libc::SYS_getcwd,
    // Other processes.
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_pidfd_getfd,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_kcmp,
    libc::SYS_userfaultfd,
    // Files.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_openat,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_getdents64,
    libc::SYS_getxattr,
    libc::SYS_readlinkat,
    libc::SYS_mkdirat,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_linkat,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_umask,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fadvise64,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync_file_range,
    libc::SYS_flock,
    libc::SYS_fcntl,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_pipe2,
    // Waiting.
    libc::SYS_ppoll,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    // Rings. What a ring is asked for passes every filter, see docs/security.md.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // The second half of the filter, which forbids this call.
    libc::SYS_seccomp,
    // Sockets. Those that make one are below.
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_shutdown,
];

/// Type of the ioctls of userfaultfds, in the bits of a request that hold it.
const UFFD: u64 = 0xAA << 8;
/// The same for listeners of seccomp filters.
const LISTENER: u64 = 0x21 << 8;
/// Where a request holds its type.
const TYPE: u64 = 0xFF << 8;
/// `_IOWR('f', 16, struct pm_scan_arg)`, `_IOWR('f', 17, struct procmap_query)`, without the bytes of the structure,
/// which grows from kernel to kernel.
const PAGEMAP_SCAN: u64 = 0xC000_6610;
const PROCMAP_QUERY: u64 = 0xC000_6611;
/// `_IOWR(0xFF, 11, struct pidfd_info)`, the same.
const PIDFD_GET_INFO: u64 = 0xC000_FF0B;
/// All of a request but the bytes of its structure.
const WITHOUT_BYTES: u64 = 0xC000_FFFF;
const BLKDISCARD: u64 = 0x1277;
const BLKSSZGET: u64 = 0x1268;
const BLKGETSIZE64: u64 = 0x8008_1272;
/// A bit of `mmap` and `mprotect`.
const EXECUTABLE: u64 = libc::PROT_EXEC.unsigned_abs() as u64;
const THREAD: u64 = libc::CLONE_THREAD.unsigned_abs() as u64;
const LOCAL: u64 = libc::AF_UNIX.unsigned_abs() as u64;
const INTERNET: u64 = libc::AF_INET.unsigned_abs() as u64;
const INTERNET_6: u64 = libc::AF_INET6.unsigned_abs() as u64;
/// The C library names what it maps.
const PR_SET_VMA: u64 = 0x5356_4d41;
/// rustix looks for the clock's ticks and the vdso.
const PR_GET_AUXV: u64 = 0x4155_5856;

/// Calls with some arguments alone. Of several rules for a call one has to fit. Those that are asked most stand first.
pub fn allowed_with(reach: Reach) -> Vec<(c_long, Vec<Rule>)> {
    let mut calls = allowed_on_machine();
    if reach == Reach::Network {
        let families = [LOCAL, INTERNET, INTERNET_6].map(|family| Rule::is(0, family));
        calls.retain(|(call, _)| *call != libc::SYS_socket);
        calls.push((libc::SYS_socket, families.into()));
        // The C library asks for both kinds of address of a name at once.
        calls.push((libc::SYS_sendmmsg, Vec::new()));
    }
    calls
}

fn allowed_on_machine() -> Vec<(c_long, Vec<Rule>)> {
    let ioctls = [
        Rule::masked(1, TYPE, UFFD),
        Rule::masked(1, TYPE, LISTENER),
        Rule::masked(1, WITHOUT_BYTES, PAGEMAP_SCAN),
        Rule::masked(1, WITHOUT_BYTES, PROCMAP_QUERY),
        Rule::masked(1, WITHOUT_BYTES, PIDFD_GET_INFO),
    ];
    let more_ioctls = [
        BLKDISCARD,
        BLKSSZGET,
        BLKGETSIZE64,
        libc::FIONBIO,
        libc::FIONREAD,
        libc::FIOCLEX,
        libc::TCGETS,
        libc::TIOCGPGRP,
        libc::TIOCGWINSZ,
    ];
    let more_ioctls = more_ioctls.into_iter().map(|request| Rule::is(1, request));
    let number = |number: i32| u64::from(number.unsigned_abs());
    let options = [
        number(libc::PR_SET_NAME),
        number(libc::PR_GET_NAME),
        number(libc::PR_SET_DUMPABLE),
        PR_SET_VMA,
        PR_GET_AUXV,
    ];
    let requests = TRACING
        .iter()
        .chain(machine::TRACING)
        .map(|request| Rule::is(0, u64::from(*request)));
    vec![
        (
            libc::SYS_ioctl,
            ioctls.into_iter().chain(more_ioctls).collect(),
        ),
        // No new code: neither to map nor to write.
        (libc::SYS_mmap, vec![Rule::masked(2, EXECUTABLE, 0)]),
        (libc::SYS_mprotect, vec![Rule::masked(2, EXECUTABLE, 0)]),
        // Threads, and no processes. `clone3` hides what it is to make behind a pointer; without it the C library takes
        // this one.
        (libc::SYS_clone, vec![Rule::masked(0, THREAD, THREAD)]),
        // Others are reached only if an area is on them. What comes to a listener from before is another matter.
        (libc::SYS_socket, vec![Rule::is(0, LOCAL)]),
        (libc::SYS_socketpair, vec![Rule::is(0, LOCAL)]),
        (
            libc::SYS_prctl,
            options.map(|option| Rule::is(0, option)).into(),
        ),
        // Limits are read, not set.
        (libc::SYS_prlimit64, vec![Rule::masked(2, u64::MAX, 0)]),
        (libc::SYS_ptrace, requests.collect()),
    ]
}

/// What `inject` asks of ptrace everywhere.
const TRACING: [u32; 14] = [
    libc::PTRACE_SEIZE,
    libc::PTRACE_INTERRUPT,
    libc::PTRACE_SETOPTIONS,
    libc::PTRACE_SYSCALL,
    libc::PTRACE_CONT,
    libc::PTRACE_DETACH,
    libc::PTRACE_GETREGSET,
    libc::PTRACE_SETREGSET,
    libc::PTRACE_GETSIGINFO,
    libc::PTRACE_GETSIGMASK,
    libc::PTRACE_SETSIGMASK,
    libc::PTRACE_GETEVENTMSG,
    linux_raw_sys::ptrace::PTRACE_GET_RSEQ_CONFIGURATION,
    libc::PTRACE_LISTEN,
];

/// Calls that vswap never makes and that somebody makes who has taken it over: they end it, and its programs with it
/// (P7). None of them is one that a library tries out of habit.
pub fn fatal() -> impl Iterator<Item = c_long> {
    FATAL.iter().chain(machine::FATAL).copied()
}

/// Those that there are everywhere.
const FATAL: &[c_long] = &[
    // Other programs, and processes.
    libc::SYS_execve,
    libc::SYS_execveat,
    // Who it is, and what it may do.
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_setgroups,
    libc::SYS_personality,
    libc::SYS_seccomp,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // Namespaces and mounts.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_chroot,
    libc::SYS_pivot_root,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    // Files behind the back of their directories, devices, and rights of files.
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_mknodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_fanotify_init,
    // The kernel and the machine.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_syslog,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_vhangup,
];

/// Calls that are fatal with some arguments.
pub fn fatal_with() -> Vec<(c_long, Vec<Rule>)> {
    // A process, not a thread.
    vec![(libc::SYS_clone, vec![Rule::masked(0, THREAD, 0)])]
}
