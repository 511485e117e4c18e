//! Steps that are more than one call: the break, a limit of the address space, a thread that no library knows.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::program::access::{self, Channels};
use crate::program::actor::{Actor, LEFT_OUT};
use crate::program::calls::{self, Answer, PAGE_BYTES, Span};
use crate::program::content::{self, PAGE_WORDS, Words};
use crate::program::log::Wrong;
use crate::program::model::{ARENA_PAGES, FREED, Of, READ, WRITE};
use crate::step::Access;

/// Long enough for everything to be evicted in between.
const EVICTED_MS: u32 = 6;
/// Stack of a raw thread, which needs a page or two.
const STACK_BYTES: usize = 64 << 10;

impl Actor<'_> {
    /// Asks for the break at `to`, and returns where it is now.
    fn break_at(to: usize) -> usize {
        // SAFETY: the caller gives back no more than it has taken. No wrapper gives the bare result of `brk`.
        unsafe { libc::syscall(libc::SYS_brk, to) as usize }
    }

    fn evict(&self) {
        if !self.shared.fast {
            calls::sleep_ms(EVICTED_MS);
        }
    }

    /// Moves the break up, half way down, up again and back. The heap of a process with other threads is left alone.
    pub(crate) fn brk(&mut self, pages: u32) -> Answer {
        if !self.alone {
            return (LEFT_OUT, 0);
        }
        let old = Self::break_at(0);
        let start = old.next_multiple_of(PAGE_BYTES);
        let (pages, half) = (pages as usize, pages as usize / 2);
        let top = start + pages * PAGE_BYTES;
        if Self::break_at(top) != top {
            return (-1, libc::ENOMEM);
        }
        let channels = self.channels;
        self.expect(&channels, start, 0..pages, |_| 0);
        let stamp = |page| content::stamp(self.line, page);
        for page in 0..pages {
            let words = content::page(stamp(page));
            channels.write(start + page * PAGE_BYTES, &words, Access::Touch);
        }
        self.evict();
        Self::break_at(start + half * PAGE_BYTES);
        self.evict();
        if Self::break_at(top) != top {
            return (-2, libc::ENOMEM);
        }
        self.evict();
        self.expect(&channels, start, 0..half, stamp);
        self.expect(&channels, start, half..pages, |_| 0);
        let back = Self::break_at(old);
        (i64::from(back == old), 0)
    }

    /// Checks pages outside the arena, which must hold this content.
    fn expect(
        &self,
        channels: &Channels,
        start: usize,
        pages: std::ops::Range<usize>,
        stamp: impl Fn(usize) -> u64,
    ) {
        for page in pages {
            let address = start + page * PAGE_BYTES;
            let mut words = Words([0; PAGE_WORDS]);
            channels.read(address, &mut words, Access::Touch);
            let stamp = stamp(page);
            if !access::holds(&words, stamp)
                && let Some((index, expected, found)) = content::difference(&words, stamp)
            {
                self.fail(Wrong::Content, address + index * 8, (expected, found));
            }
        }
    }

    /// From here on no mapping can be made.
    pub(crate) fn limit_address_space(&mut self) -> Answer {
        if !self.alone {
            return (LEFT_OUT, 0);
        }
        let mut limit = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: both calls use only the structure.
        let result = unsafe {
            libc::getrlimit(libc::RLIMIT_AS, &raw mut limit);
            limit.rlim_cur = PAGE_BYTES as u64;
            libc::setrlimit(libc::RLIMIT_AS, &raw const limit)
        };
        self.limited = true;
        calls::answer(result.into())
    }

    /// A thread of a bare `clone` reads a page of the arena. When the thread has ended, the kernel clears the page's
    /// first word.
    pub(crate) fn raw_thread(&mut self, at: u32) -> Answer {
        let page = at as usize % ARENA_PAGES;
        let known = self.model.pages[page];
        let usable = known.of == Of::Anon && known.allows(READ) && known.allows(WRITE);
        if !usable || known.has(FREED) {
            return (LEFT_OUT, 0);
        }
        let nowhere = Span {
            start: 0,
            bytes: STACK_BYTES,
        };
        let prot = READ | WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let stack = calls::map(nowhere, prot, flags, -1, 0);
        if stack.1 != 0 {
            return stack;
        }
        let task = Task {
            address: self.address(page),
            stamp: self.model.content(page),
            wrong: AtomicU64::new(0),
        };
        let word = std::ptr::with_exposed_provenance::<AtomicU32>(task.address);
        // SAFETY: the page is the arena's, mapped and writable, and this thread waits until the other has ended.
        let word = unsafe { &*word };
        word.store(1, Ordering::SeqCst);
        let started = start(&task, stack.0 as usize + STACK_BYTES);
        while started.1 == 0 && word.load(Ordering::SeqCst) != 0 {
            wait_while(word, 1);
        }
        calls::unmap(Span {
            start: stack.0 as usize,
            bytes: STACK_BYTES,
        });
        let wrong = task.wrong.load(Ordering::SeqCst);
        if wrong != 0 {
            self.fail(Wrong::Content, task.address, (task.stamp, wrong));
        }
        let words = content::page(task.stamp);
        self.channels.write(task.address, &words, Access::Touch);
        if started.1 == 0 { (0, 0) } else { started }
    }
}

/// The task of the raw thread.
#[derive(Debug)]
struct Task {
    address: usize,
    stamp: u64,
    /// Not 0 if a word is wrong: that word, or 1 if the word is 0.
    wrong: AtomicU64,
}

fn start(task: &Task, stack_top: usize) -> Answer {
    let flags = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM
        | libc::CLONE_CHILD_CLEARTID;
    let null = std::ptr::null_mut::<libc::c_void>();
    let word = std::ptr::with_exposed_provenance_mut::<libc::c_void>(task.address);
    let argument = (&raw const *task).cast_mut().cast();
    let stack = std::ptr::with_exposed_provenance_mut(stack_top);
    // SAFETY: the stack is mapped and unused. The task and the word live until the thread has ended, which its starter
    // waits for. The thread shares this thread's TLS, so it does nothing that could need its own.
    calls::answer(unsafe { libc::clone(raw, stack, flags, argument, null, null, word) }.into())
}

/// Checks all words but the first, which the kernel clears.
extern "C" fn raw(task: *mut libc::c_void) -> i32 {
    // SAFETY: `raw_thread` keeps the task alive until this thread has ended.
    let task = unsafe { &*task.cast::<Task>() };
    for index in 1..PAGE_WORDS {
        let at = std::ptr::with_exposed_provenance::<AtomicU64>(task.address + index * 8);
        // SAFETY: the page is mapped and readable.
        let found = unsafe { (*at).load(Ordering::Relaxed) };
        if found != content::word(task.stamp, index) {
            task.wrong.store(found.max(1), Ordering::SeqCst);
        }
    }
    0
}

/// Waits for a change of the word, for a second at most.
fn wait_while(word: &AtomicU32, value: u32) {
    let second = libc::timespec {
        tv_sec: 1,
        tv_nsec: 0,
    };
    let address = word.as_ptr();
    // SAFETY: the word lives. The wait is shared, because the kernel's wake at the end of a thread is shared too.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            address,
            libc::FUTEX_WAIT,
            value,
            &raw const second,
        )
    };
}
