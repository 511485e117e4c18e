//! What the kernel-facing tests share: seeded pages, forked children, and skipping with a reason.

#![allow(dead_code, reason = "each test file uses a part")]

use vswap_sys::memory::{HugePages, Mapping};
use vswap_sys::uffd::{Faults, Userfaultfd, feature};

pub const PAGE: usize = 4096;
pub const PAGE_U64: u64 = 4096;

/// All features that the pager asks for.
pub const FEATURES: u64 = feature::PAGEFAULT_FLAG_WP
    | feature::EVENT_FORK
    | feature::EVENT_REMAP
    | feature::EVENT_REMOVE
    | feature::EVENT_UNMAP
    | feature::THREAD_ID
    | feature::EXACT_ADDRESS
    | feature::WP_UNPOPULATED
    | feature::POISON
    | feature::MOVE;

/// Runs the tests of one file one after the other: a fork in one would raise events on the userfaultfds of all others.
pub fn alone() -> std::sync::MutexGuard<'static, ()> {
    /// Seconds until SIGALRM ends a test. After a panic its threads may wait for faults that nobody answers.
    const PATIENCE_SECONDS: u32 = 60;
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    // SAFETY: only sets a timer of this process.
    unsafe { libc::alarm(PATIENCE_SECONDS) };
    ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Says why a test does nothing; the test then returns.
pub fn skip(reason: &str) {
    eprintln!("SKIPPED: {reason}");
}

/// A userfaultfd with `features`. None if there is none; then the reason is printed.
pub fn uffd(features: u64) -> Option<Userfaultfd> {
    match Userfaultfd::open_with(Faults::All, features) {
        Ok((uffd, granted)) if granted == features => Some(uffd),
        Ok((_, granted)) => {
            skip(&format!(
                "userfaultfd features {:#x} are not granted",
                features & !granted
            ));
            None
        }
        Err(error) => {
            skip(&error.to_string());
            None
        }
    }
}

/// `pages` of anonymous memory.
pub fn memory(pages: usize) -> Mapping {
    Mapping::anonymous(pages * PAGE, HugePages::Never).unwrap()
}

/// The content of page `index` under `seed`: no two pages alike, and no byte predictable from its place alone.
pub fn page(seed: u64, index: u64) -> [u8; PAGE] {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (index + 1);
    let mut bytes = [0; PAGE];
    for word in bytes.chunks_exact_mut(8) {
        // xorshift64*
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        word.copy_from_slice(&state.wrapping_mul(0x2545_F491_4F6C_DD1D).to_le_bytes());
    }
    bytes
}

/// Writes page `index` of `mapping` with its content under `seed`.
pub fn fill(mapping: &Mapping, seed: u64, index: usize) {
    assert!((index + 1) * PAGE <= mapping.bytes());
    let content = page(seed, index as u64);
    // SAFETY: the page lies in the test's mapping.
    unsafe { pointer(mapping, index).copy_from_nonoverlapping(content.as_ptr(), PAGE) };
}

/// Reads page `index`, which faults if it is missing.
pub fn read(mapping: &Mapping, index: usize) -> [u8; PAGE] {
    assert!((index + 1) * PAGE <= mapping.bytes());
    let mut content = [0; PAGE];
    // SAFETY: the page lies in the test's mapping.
    unsafe {
        content
            .as_mut_ptr()
            .copy_from_nonoverlapping(pointer(mapping, index), PAGE);
    };
    content
}

pub fn pointer(mapping: &Mapping, index: usize) -> *mut u8 {
    mapping.pointer().as_ptr().wrapping_add(index * PAGE)
}

pub fn address(mapping: &Mapping, index: usize) -> u64 {
    mapping.address() + (index * PAGE) as u64
}

/// Runs `body` in a forked child and returns its exit code; for a signal 128 + its number. The body must not allocate.
pub fn in_child(body: impl FnOnce() -> i32) -> i32 {
    wait(fork(body))
}

/// Forks a child that runs `body`, which must not allocate, and exits with its result.
///
/// Forks by the system call. The C library's fork holds the allocator's locks while the kernel waits for somebody to
/// read the fork event. A reader in this process that allocates would then wait for the fork. It is `clone`, because
/// not every machine has `fork`.
pub fn fork(body: impl FnOnce() -> i32) -> libc::pid_t {
    // SAFETY: the child only runs `body` and leaves by _exit.
    match unsafe {
        libc::syscall(
            libc::SYS_clone,
            libc::SIGCHLD,
            0_usize,
            0_usize,
            0_usize,
            0_usize,
        )
    } {
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        0 => {
            let code = body();
            // SAFETY: ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(code) }
        }
        pid => libc::pid_t::try_from(pid).unwrap(),
    }
}

/// Exit code of a child; for a signal 128 + its number.
pub fn wait(pid: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: waits for a child of this process and writes one int.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(waited, pid);
    if libc::WIFEXITED(status) {
        libc::WEXITSTATUS(status)
    } else {
        128 + libc::WTERMSIG(status)
    }
}
