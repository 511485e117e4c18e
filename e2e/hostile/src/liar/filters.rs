//! Seccomp filters with a listener, and the calls that stop in them.
//!
//! Unsafe is needed here because there is no wrapper for these calls.

use std::os::fd::{FromRawFd, OwnedFd};

use vswap_drive::random::Random;

use crate::liar::truth::Arena;
use crate::numbers;

const PAGE: u64 = 4096;

/// The sixth argument of calls that stop. No others do: the thread that answers the pager must not stop.
const MARK: u32 = 0x0001_1a12;
/// The sixth argument of the true agent's calls, which its filter lets through.
const AGENTS_MARK: u64 = 0x9b5c_71e2_d03f_4000;
const LOAD: u16 = 0x20;
const EQUAL: u16 = 0x15;
const ANSWER: u16 = 0x06;
const USER_NOTIF: u32 = 0x7fc0_0000;
const ALLOW: u32 = 0x7fff_0000;
const SIXTH_ARGUMENT: u32 = 56;
const NEW_LISTENER: u64 = 1 << 3;
const TSYNC: u64 = 1;
const TSYNC_ESRCH: u64 = 1 << 4;

/// Calls that a true filter stops, without those that end or make the thread, and one that no filter stops.
const CALLS: [i64; 9] = [
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_process_madvise,
    libc::SYS_brk,
    libc::SYS_rt_sigaction,
    libc::SYS_ioctl,
    libc::SYS_set_tid_address,
    libc::SYS_io_uring_setup,
    libc::SYS_getppid,
];

/// Installs a filter, on all threads or on this one. Returns its listener.
pub(crate) fn install(random: &mut Random, is_for_all: bool) -> Option<OwnedFd> {
    let stopped: Vec<i64> = CALLS.into_iter().filter(|_| random.chance(60)).collect();
    let statement = |code, k| libc::sock_filter {
        code,
        jt: 0,
        jf: 0,
        k,
    };
    let equal = |k, jt, jf| libc::sock_filter {
        code: EQUAL,
        jt,
        jf,
        k,
    };
    let count = stopped.len() as u8;
    let mut filter = vec![
        statement(LOAD, SIXTH_ARGUMENT),
        equal(MARK, 0, count + 1),
        statement(LOAD, 0),
    ];
    for (at, nr) in stopped.iter().enumerate() {
        filter.push(equal(*nr as u32, count - at as u8, 0));
    }
    filter.push(statement(ANSWER, ALLOW));
    filter.push(statement(ANSWER, USER_NOTIF));
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    let flags = NEW_LISTENER | if is_for_all { TSYNC | TSYNC_ESRCH } else { 0 };
    // SAFETY: the program is complete and outlives the calls. The result is a new descriptor or an error.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        let fd = libc::syscall(
            libc::SYS_seccomp,
            1,
            flags,
            &raw const program,
            0,
            0,
            AGENTS_MARK,
        );
        (fd >= 0).then(|| OwnedFd::from_raw_fd(fd as i32))
    }
}

/// A listener of a filter that only a thread has, which has ended.
pub(crate) fn listener_of_a_thread(random: &mut Random) -> Option<OwnedFd> {
    let mut random = Random::new(random.next());
    let thread = std::thread::spawn(move || install(&mut random, false));
    thread.join().ok()?
}

/// A call that stops neither in the filters made here nor in vswap's own.
pub(crate) fn call(nr: i64, arguments: [u64; 5]) -> i64 {
    let [a, b, c, d, e] = arguments;
    // SAFETY: the callers name memory of the arena or of staging, which nobody refers to.
    unsafe { libc::syscall(nr, a, b, c, d, e, AGENTS_MARK) }
}

/// A call that stops in a filter, here or in vswap's own, about memory of the arena. What takes memory away names the
/// end of the arena, which nobody touches.
pub(crate) fn stopping_call(random: &mut Random, arena: Arena) {
    let pages = u64::from(random.between(1, 16));
    let page = random.next() % (arena.touched_pages() - pages);
    let (at, some) = (arena.start + page * PAGE, pages * PAGE);
    let end = arena.start + arena.bytes - some;
    let (nr, arguments) = match random.pick(&CALLS) {
        libc::SYS_mremap if random.chance(50) => (libc::SYS_mremap, [at, some, some, 0, 0]),
        // MREMAP_MAYMOVE | MREMAP_DONTUNMAP: content goes, the mapping stays.
        libc::SYS_mremap if random.chance(50) => (libc::SYS_mremap, [at, some, some, 5, 0]),
        libc::SYS_mremap => (
            libc::SYS_mremap,
            [end, some, some * 2, 1, numbers::word(random)],
        ),
        libc::SYS_madvise => (
            libc::SYS_madvise,
            [at, some, random.pick(&[4, 8, 18, 19, 1000]), 0, 0],
        ),
        libc::SYS_process_madvise => (
            libc::SYS_process_madvise,
            [
                numbers::word(random),
                at,
                1,
                random.pick(&[4, 8, 18, 102]),
                0,
            ],
        ),
        // The number of no signal; no such descriptor; more entries than there may be.
        libc::SYS_rt_sigaction => (libc::SYS_rt_sigaction, [999, at, 0, 8, 0]),
        libc::SYS_ioctl => (libc::SYS_ioctl, [u64::MAX, 0xc020_aa00, at, 0, 0]),
        libc::SYS_io_uring_setup => (libc::SYS_io_uring_setup, [1 << 20, at, 0, 0, 0]),
        libc::SYS_set_tid_address => (libc::SYS_set_tid_address, [at, 0, 0, 0, 0]),
        libc::SYS_brk => (libc::SYS_brk, [1; 5]),
        _ => (libc::SYS_getppid, [numbers::word(random); 5]),
    };
    let [a, b, c, d, e] = arguments;
    // SAFETY: the calls change memory of the arena alone, to which nobody refers, or fail.
    unsafe { libc::syscall(nr, a, b, c, d, e, u64::from(MARK)) };
}
