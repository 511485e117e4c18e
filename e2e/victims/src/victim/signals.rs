//! Signal handlers that run on swapped memory: on an alternate stack and on the thread's own.
//!
//! A child sends real-time signals. These are queued and never merged, so every signal must be handled. The handlers
//! write their frame and a page of the program. Both may be out when the signal arrives.

use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::content::{self, PAGE_BYTES, PAGE_WORDS};
use crate::pages::{Mapping, Pages};
use crate::run::{Child, Clock, Options};
use crate::wrong::{Checked, Wrong, call};

/// Pages of an alternate stack.
const STACK_PAGES: usize = 16;
/// Pages in which the handlers count.
const TALLY_PAGES: usize = 64;
/// Words that a handler fills on its stack.
const FRAME_WORDS: usize = 2 * PAGE_WORDS;
/// Time between two signals.
const PAUSE: Duration = Duration::from_micros(200);
/// How long the last signals may take to arrive.
const DRAIN: Duration = Duration::from_secs(60);

/// The first page in which handlers count. Set before the first signal.
static TALLY: AtomicPtr<u64> = AtomicPtr::new(std::ptr::null_mut());
/// Handled signals, and frames that differed from what the handler wrote. Relaxed, because they are counters.
static HANDLED: AtomicU64 = AtomicU64::new(0);
static WRONG_FRAMES: AtomicUsize = AtomicUsize::new(0);

extern "C" fn handle(signal: i32) {
    let turn = HANDLED.load(Ordering::Relaxed);
    let mut frame = [0u64; FRAME_WORDS];
    for (index, word) in frame.iter_mut().enumerate() {
        *word = content::mix(turn ^ index as u64);
    }
    let frame = std::hint::black_box(&mut frame);
    let page = usize::try_from(turn).unwrap_or(0).wrapping_mul(7) % TALLY_PAGES;
    let index = usize::try_from(signal).unwrap_or(0) % PAGE_WORDS;
    // SAFETY: the word is inside the tally pages, which stay mapped while signals are handled, and is only used
    // atomically.
    unsafe {
        let word = TALLY.load(Ordering::Acquire).add(page * PAGE_WORDS + index);
        AtomicU64::from_ptr(word).fetch_add(1, Ordering::Relaxed);
    }
    let right = frame
        .iter()
        .enumerate()
        .all(|(n, &word)| word == content::mix(turn ^ n as u64));
    WRONG_FRAMES.fetch_add(usize::from(!right), Ordering::Relaxed);
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

fn install(signal: i32, flags: i32) -> Checked {
    let handler: extern "C" fn(i32) = handle;
    // SAFETY: an all-zero sigaction is valid: no flags, empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    action.sa_flags = flags;
    // SAFETY: the handler is async-signal-safe: it uses only atomics and its own frame.
    call("sigaction", unsafe {
        libc::sigaction(signal, &raw const action, std::ptr::null_mut())
    })
    .map(drop)
}

/// The signals: the first is handled on the alternate stack, the second on the thread's own.
fn signals() -> [i32; 2] {
    [libc::SIGRTMIN() + 1, libc::SIGRTMIN() + 2]
}

pub(crate) fn run(options: &Options) -> Checked {
    let clock = options.clock();
    let tally = Mapping::new(TALLY_PAGES)?;
    TALLY.store(tally.page(0), Ordering::Release);
    let [alternate, own] = signals();
    install(alternate, libc::SA_ONSTACK | libc::SA_RESTART)?;
    install(own, libc::SA_RESTART)?;
    // The alternate stacks of Rust's runtime are small. So signals are blocked for all later threads, except where a
    // stack of this victim is in place.
    mask(libc::SIG_BLOCK)?;
    let sent = Mapping::with(1, libc::MAP_SHARED)?;
    // SAFETY: the word is inside the mapping, aligned, and only used atomically.
    let sent_count = unsafe { AtomicU64::from_ptr(sent.page(0)) };
    let target = std::process::id().cast_signed();
    let sender = Child::fork(|| send(target, clock, sent_count))?;
    options.parallel(|thread| {
        on_own_stack(|| {
            let mut pages = Pages::filled(options.pages_per_thread(), options.tag(thread))?;
            let mut random = options.random(thread, 12);
            while clock.running() {
                pages.stir("page of a signalled program", &mut random, 64)?;
            }
            pages.check_all("page of a signalled program")
        })
    })?;
    sender.wait()?;
    on_own_stack(|| finish(&tally, sent_count.load(Ordering::Relaxed)))
}

fn mask(how: i32) -> Checked {
    // SAFETY: an all-zero set is the empty one. The calls change only the set and the mask.
    let result = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        for signal in signals() {
            libc::sigaddset(&raw mut set, signal);
        }
        libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut())
    };
    expect_zero("pthread_sigmask", result)
}

fn expect_zero(what: &'static str, result: i32) -> Checked {
    if result == 0 {
        return Ok(());
    }
    Err(Wrong::Call {
        what,
        error: std::io::Error::from_raw_os_error(result),
    })
}

/// Runs `work` with signals allowed, and with an alternate stack in memory that can be swapped.
fn on_own_stack(work: impl FnOnce() -> Checked) -> Checked {
    let stack = Mapping::new(STACK_PAGES)?;
    let own = libc::stack_t {
        ss_sp: stack.page(0).cast(),
        ss_flags: 0,
        ss_size: STACK_PAGES * PAGE_BYTES,
    };
    let mut before = own;
    // SAFETY: the stack is a mapping, and is removed as a stack before it is unmapped.
    call("sigaltstack", unsafe {
        libc::sigaltstack(&raw const own, &raw mut before)
    })?;
    mask(libc::SIG_UNBLOCK)?;
    let result = work();
    mask(libc::SIG_BLOCK)?;
    // SAFETY: this is the stack that was in place before, as the kernel described it.
    call("sigaltstack", unsafe {
        libc::sigaltstack(&raw const before, std::ptr::null_mut())
    })?;
    result
}

/// Sends both signals in turn until the time is over. Runs in a child.
fn send(target: i32, clock: Clock, sent: &AtomicU64) -> Checked {
    let value = libc::sigval {
        sival_ptr: std::ptr::null_mut(),
    };
    for turn in 0usize.. {
        if !clock.running() {
            break;
        }
        // SAFETY: sends a signal to the parent, which handles it.
        if unsafe { libc::sigqueue(target, signals()[turn % 2], value) } == 0 {
            sent.fetch_add(1, Ordering::Relaxed);
        } else {
            let error = std::io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::EAGAIN) {
                return Err(Wrong::Call {
                    what: "sigqueue",
                    error,
                });
            }
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

fn finish(tally: &Mapping, sent: u64) -> Checked {
    let end = std::time::Instant::now() + DRAIN;
    while HANDLED.load(Ordering::Relaxed) < sent && std::time::Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
    let signed = |n| i64::try_from(n).unwrap_or(i64::MAX);
    let mut tallied = 0;
    content::strike(tally.page(0));
    for page in 0..TALLY_PAGES {
        for index in 0..PAGE_WORDS {
            // SAFETY: the word is inside the tally pages, and no signal is under way any more.
            tallied += unsafe { tally.page(page).add(index).read_volatile() };
        }
    }
    if tallied != sent {
        let what = "signals tallied by handlers";
        return Err(Wrong::Result {
            what,
            expected: signed(sent),
            found: signed(tallied),
        });
    }
    match WRONG_FRAMES.load(Ordering::Relaxed) {
        0 => Ok(()),
        wrong => Err(Wrong::Result {
            what: "frames of handlers with wrong content",
            expected: 0,
            found: i64::try_from(wrong).unwrap_or(i64::MAX),
        }),
    }
}
