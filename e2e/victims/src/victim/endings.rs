//! Threads that end while memory that the kernel writes at their end may be swapped out: the thread id that joining
//! waits for, wherever it lies, and robust mutexes that they have locked.

use std::arch::asm;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use crate::content::PAGE_BYTES;
use crate::pages::{Mapping, Pages, map_raw, unmap_raw};
use crate::run::Options;
use crate::wrong::{Checked, Wrong, same};

/// Threads that live at the same time: more than a table of fixed size would hold.
const AT_ONCE: i64 = 700;
/// Threads that live one after the other, and how many of them are joined at a time.
const IN_TURN: i64 = 2000;
const TURN: i64 = 8;
const STACK_BYTES: usize = 16 * PAGE_BYTES;
/// How long a thread sleeps before it ends: long enough for its words to be evicted.
const NAP: Duration = Duration::from_millis(20);
/// Raw threads that live at the same time.
const RAW: usize = 16;
/// Robust mutexes that one thread locks.
const MUTEXES: usize = 12;
/// A word that is not cleared within this time will never be.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn run(options: &Options) -> Checked {
    let clock = options.clock();
    let mut pages = Pages::filled(options.pages() * 3 / 4, options.tag(0))?;
    let mut random = options.random(0, 31);
    let mut round = 0;
    loop {
        at_once()?;
        pages.stir("page beside threads", &mut random, 64)?;
        in_turn()?;
        for call in [
            Call::Clone,
            Call::CloneOverRead,
            Call::Clone3,
            Call::SetTidAddress,
        ] {
            raw(call)?;
            pages.stir("page beside raw threads", &mut random, 64)?;
        }
        for _ in 0..4 {
            robust()?;
            pages.stir("page beside mutexes", &mut random, 64)?;
        }
        round += 1;
        if !clock.running() {
            break;
        }
    }
    println!("{round} rounds");
    pages.check_all("page beside threads")
}

fn spawn<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Checked<std::thread::JoinHandle<T>> {
    let builder = std::thread::Builder::new().stack_size(STACK_BYTES);
    builder.spawn(work).map_err(|error| Wrong::Call {
        what: "pthread_create",
        error,
    })
}

fn join<T>(thread: std::thread::JoinHandle<T>) -> T {
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// All threads wait until the last one has begun and sleep once more, so that their control blocks are evicted.
fn at_once() -> Checked {
    let mut ends = Vec::new();
    let mut threads = Vec::new();
    for thread in 0..AT_ONCE {
        let (end, ended) = mpsc::channel::<()>();
        ends.push(end);
        threads.push(spawn(move || {
            let _ = ended.recv();
            std::thread::sleep(NAP);
            thread
        })?);
    }
    std::thread::sleep(NAP);
    drop(ends);
    for (expected, thread) in (0..).zip(threads) {
        same("result of a thread", expected, join(thread))?;
    }
    Ok(())
}

fn in_turn() -> Checked {
    for turn in 0..IN_TURN / TURN {
        let work = move |index: i64| {
            move || {
                std::thread::sleep(Duration::from_millis(2));
                turn + index
            }
        };
        let threads: Vec<_> = (0..TURN)
            .map(|index| spawn(work(index)))
            .collect::<Checked<_>>()?;
        for (index, thread) in (0..).zip(threads) {
            same("result of a thread", turn + index, join(thread))?;
        }
    }
    Ok(())
}

/// The call that names the word to clear.
#[derive(Clone, Copy)]
enum Call {
    Clone,
    /// The same. But the word is only read, not written, after it may have been out: such a page may be protected.
    CloneOverRead,
    Clone3,
    SetTidAddress,
}

const FLAGS: usize = 0x100 | 0x200 | 0x400 | 0x800 | 0x1_0000 | 0x4_0000; // VM FS FILES SIGHAND THREAD SYSVSEM
const CHILD_CLEARTID: usize = 0x20_0000;
const CHILD_SETTID: usize = 0x100_0000;

/// The orders for a raw thread, on a page of their own.
#[repr(C)]
struct Told {
    /// How long to sleep, ...
    seconds: i64,
    nanoseconds: i64,
    /// ... after naming this word, unless it is null.
    word: usize,
}

/// Threads that libc knows nothing of. Their words lie in ordinary memory.
fn raw(call: Call) -> Checked {
    // Pages of each thread: one for the word, one for its orders, and the rest for its stack.
    const PAGES: usize = 6;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let memory = map_raw(RAW * PAGES, protection, libc::MAP_PRIVATE)?;
    let place = |index| memory.wrapping_byte_add(index * PAGES * PAGE_BYTES);
    let over_read = matches!(call, Call::CloneOverRead);
    if over_read {
        let word = |index| place(index).cast::<AtomicU32>();
        // SAFETY: only this function uses the pages of this mapping.
        unsafe {
            (0..RAW).for_each(|index| (*word(index)).store(1, Ordering::SeqCst));
            std::thread::sleep(NAP);
            for index in 0..RAW {
                same(
                    "word before a thread",
                    1,
                    (*word(index)).load(Ordering::SeqCst),
                )?;
            }
        }
    }
    let mut words = Vec::new();
    for index in 0..RAW {
        let base = place(index);
        let word = base.cast::<AtomicU32>();
        let told = base.wrapping_byte_add(PAGE_BYTES).cast::<Told>();
        let own = matches!(call, Call::SetTidAddress);
        // SAFETY: only this function uses both pages until the thread exists.
        unsafe {
            // The word must not be 0 before the thread has run. Otherwise the waiting side would go on and unmap what
            // the thread still uses.
            if !over_read {
                (*word).store(1, Ordering::SeqCst);
            }
            told.write(Told {
                seconds: 0,
                nanoseconds: NAP.subsec_nanos().into(),
                word: if own { word.addr() } else { 0 },
            });
        }
        let stack = base.addr() + 2 * PAGE_BYTES;
        // SAFETY: stack, word and orders stay mapped until the thread has ended. If that cannot be seen, the victim
        // ends.
        let started =
            unsafe { start(call, stack, PAGES * PAGE_BYTES - 2 * PAGE_BYTES, word, told) };
        if started < 0 {
            let errno = i32::try_from(-started).unwrap_or(0);
            return Err(Wrong::Call {
                what: "clone",
                error: std::io::Error::from_raw_os_error(errno),
            });
        }
        words.push(word);
    }
    for &word in &words {
        // SAFETY: the word stays mapped.
        wait_cleared(unsafe { &*word })?;
    }
    // SAFETY: the kernel clears a word after the last instruction of its thread, so nobody uses the memory any more.
    unsafe { unmap_raw(memory, RAW * PAGES) }
}

/// # Safety
/// The thread alone uses the stack, the word and its orders until it has ended.
unsafe fn start(
    call: Call,
    stack: usize,
    stack_bytes: usize,
    word: *mut AtomicU32,
    told: *mut Told,
) -> isize {
    let top = stack + stack_bytes;
    let flags = match call {
        Call::SetTidAddress => FLAGS,
        Call::CloneOverRead => FLAGS | CHILD_CLEARTID,
        _ => FLAGS | CHILD_CLEARTID | CHILD_SETTID,
    };
    // struct clone_args: flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls
    let arguments = [flags, 0, word.addr(), 0, 0, stack, stack_bytes, 0];
    let [number, first, second] = match call {
        Call::Clone3 => [435, arguments.as_ptr().addr(), size_of_val(&arguments)],
        _ => [56, flags, top],
    };
    let returned: isize;
    // SAFETY: the parent goes on at label 2 as after any call. The thread has the same registers but its own stack. It
    // makes only system calls and ends.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "mov rdi, [r12 + 16]", // set_tid_address, if it was told so
            "test rdi, rdi",
            "jz 3f",
            "mov eax, 218",
            "syscall",
            "3:",
            "mov rdi, r12", // nanosleep
            "xor esi, esi",
            "mov eax, 35",
            "syscall",
            "xor edi, edi", // exit
            "mov eax, 60",
            "syscall",
            "ud2",
            "2:",
            inlateout("rax") number => returned,
            in("rdi") first, in("rsi") second, in("rdx") 0_usize, in("r10") word, in("r8") 0_usize,
            in("r12") told,
            lateout("rcx") _, lateout("r11") _,
        );
    }
    returned
}

/// Joins as libc does: waits on the word until it is 0.
fn wait_cleared(word: &AtomicU32) -> Checked {
    let start = std::time::Instant::now();
    loop {
        let value = word.load(Ordering::SeqCst);
        if value == 0 {
            return Ok(());
        }
        let left = PATIENCE.saturating_sub(start.elapsed());
        if left.is_zero() {
            return Err(Wrong::Result {
                what: "word that is cleared at the end of a thread",
                expected: 0,
                found: value.into(),
            });
        }
        let time = libc::timespec {
            tv_sec: left.as_secs().cast_signed(),
            tv_nsec: left.subsec_nanos().into(),
        };
        // SAFETY: the word and the time live until the call returns.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                word.as_ptr(),
                libc::FUTEX_WAIT,
                value,
                &raw const time,
            )
        };
    }
}

/// A thread ends while it holds robust mutexes, each on a page of its own. Whoever locks them next must be told so.
fn robust() -> Checked {
    let memory = std::sync::Arc::new(Mapping::new(MUTEXES)?);
    let place = |memory: &Mapping, index| memory.page(index).cast::<libc::pthread_mutex_t>();
    for index in 0..MUTEXES {
        // SAFETY: the page belongs to this mapping, and nobody uses it yet.
        unsafe { make_robust(place(&memory, index)) }?;
    }
    let of_thread = memory.clone();
    join(spawn(move || {
        for index in 0..MUTEXES {
            // SAFETY: the mutex is initialised and stays mapped.
            let failed = unsafe { libc::pthread_mutex_lock(place(&of_thread, index)) };
            same("pthread_mutex_lock", 0, failed)?;
        }
        std::thread::sleep(NAP);
        Ok(())
    })?)?;
    for index in 0..MUTEXES {
        let time = libc::timespec {
            tv_sec: now() + PATIENCE.as_secs().cast_signed(),
            tv_nsec: 0,
        };
        // SAFETY: as above.
        let answer =
            unsafe { libc::pthread_mutex_timedlock(place(&memory, index), &raw const time) };
        same(
            "lock of a mutex whose owner has died",
            libc::EOWNERDEAD,
            answer,
        )?;
        // SAFETY: as above, and this thread holds the mutex.
        unsafe {
            libc::pthread_mutex_consistent(place(&memory, index));
            libc::pthread_mutex_unlock(place(&memory, index));
        }
    }
    Ok(())
}

fn now() -> i64 {
    // SAFETY: with a null pointer the time is only returned.
    unsafe { libc::time(ptr::null_mut()) }
}

/// # Safety
/// `mutex` is memory that belongs to the caller.
unsafe fn make_robust(mutex: *mut libc::pthread_mutex_t) -> Checked {
    // SAFETY: the attribute is initialised before it is used.
    let failed = unsafe {
        let mut attribute = std::mem::zeroed();
        libc::pthread_mutexattr_init(&raw mut attribute);
        libc::pthread_mutexattr_setrobust(&raw mut attribute, libc::PTHREAD_MUTEX_ROBUST);
        libc::pthread_mutex_init(mutex, &raw const attribute)
    };
    same("pthread_mutex_init", 0, failed)
}
