//! `unshare` and `setns`: calls for which the kernel wants a process of one thread. The agent's steps aside for them.
//!
//! A call is made as it is first. Where the kernel refuses it for its threads, and the agent's is the only other one,
//! that one leaves: the program's thread borrows its descriptors, rings its bell, and waits until the kernel knows it
//! no more. Then the call is made again, and a new thread of the agent takes over, with the same descriptors, on
//! the same stack, at the same command. The pager sees a slow answer and another thread id.
//!
//! In between nobody carries commands out, so the program's thread may wait for no fault: it runs on the herald's stack
//! and touches the agent's memory alone. All signals are blocked. If vswap is killed just then, its guardian kills the
//! process, and what is out stays out as long as the borrowed descriptors are open.
//!
//! Needs Linux 6.9 (PIDFD_THREAD); before it such calls fail, as they do in a process of several threads.

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use crate::commands::Session;
use crate::fork;
use crate::kernel::{
    self, Descriptor, EINVAL, ESRCH, EUSERS, Errno, block_signals, call, close, process_id,
    restore_signals, thread_id,
};
use crate::libc;
use crate::raw;
use crate::reservation::Reservation;
use crate::state::{DESCRIPTORS, NO_DESCRIPTOR, STATE, phase};
use crate::thread;

const CLONE_VM: usize = 0x100;
const CLONE_SIGHAND: usize = 0x800;
const CLONE_THREAD: usize = 0x1_0000;
const CLONE_NEWUSER: usize = 0x1000_0000;
/// What unshare(2) permits to a process of one thread alone.
const FOR_ONE_THREAD: usize = CLONE_VM | CLONE_SIGHAND | CLONE_THREAD | CLONE_NEWUSER;
/// Links of a directory with as many threads as there are with one thread and the agent's.
const LINKS_OF_TWO: u64 = 4;
/// How often, and how many times, it is looked whether a thread that ends has gone.
const GONE_PACE_NANOSECONDS: u64 = 20_000;
const GONE_TRIES: u32 = 50_000;

/// libc's `unshare`.
///
/// # Safety
/// As for unshare(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unshare(flags: c_int) -> c_int {
    finish(carry_out([
        call::UNSHARE,
        flags.cast_unsigned() as usize,
        0,
    ]))
}

/// libc's `setns`.
///
/// # Safety
/// As for setns(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setns(descriptor: c_int, kind: c_int) -> c_int {
    let arguments = [descriptor, kind].map(|word| word.cast_unsigned() as usize);
    let [descriptor, kind] = arguments;
    finish(carry_out([call::SETNS, descriptor, kind]))
}

fn finish(returned: isize) -> c_int {
    match raw::result(returned) {
        Ok(value) => c_int::try_from(value).unwrap_or(0),
        Err(errno) => {
            libc::set_errno(errno);
            -1
        }
    }
}

/// Makes a call, number and arguments, as a process of one thread where the agent's is the only other. Returns what the
/// kernel returned.
pub fn carry_out(wanted: [usize; 3]) -> isize {
    let [number, first, second] = wanted;
    // SAFETY: the program asked for exactly this call.
    let returned = unsafe { raw::syscall2(number, first, second) };
    let is_for_threads = match raw::result(returned) {
        Err(EINVAL) => number == call::SETNS || first & FOR_ONE_THREAD != 0,
        Err(EUSERS) => number == call::SETNS,
        _ => false,
    };
    // A thread that a program with a seccomp filter makes may be killed for what the agent does.
    let is_sandboxed = STATE.sandboxed.load(Ordering::SeqCst) != 0;
    if !is_for_threads || is_sandboxed || STATE.is_copy() {
        return returned;
    }
    let signals = block_signals();
    fork::lock();
    STATE.alone_returned.store(returned, Ordering::Relaxed);
    // A child of vfork shares its parent's memory, but not its threads.
    if STATE.settled() == phase::ARMED && STATE.owner.load(Ordering::Relaxed) == process_id() {
        for (word, value) in STATE.alone_call.iter().zip(wanted) {
            word.store(value, Ordering::Relaxed);
        }
        fork::await_herald();
        await_end(STATE.herald_tid.swap(0, Ordering::Relaxed));
        if is_one_but_for_the_agent() {
            let stack_top = Reservation::at(STATE.base.load(Ordering::Relaxed)).herald_stack_top();
            // SAFETY: no herald is alive, and none comes while the lock is held.
            unsafe { raw::call_on_stack(stack_top, call_alone, 0) };
        }
    }
    let returned = STATE.alone_returned.load(Ordering::Relaxed);
    fork::unlock();
    restore_signals(signals);
    returned
}

/// True also where nobody can tell.
fn is_one_but_for_the_agent() -> bool {
    /// Bytes of a `stat`, and its word with the number of links.
    const STAT_WORDS: usize = 144 / 8;
    const LINKS: usize = 2;
    const AT_FDCWD: usize = (-100_isize).cast_unsigned();
    let (mut stat, path) = ([0_u64; STAT_WORDS], c"/proc/self/task");
    let arguments = [
        AT_FDCWD,
        path.as_ptr().addr(),
        stat.as_mut_ptr().addr(),
        0,
        0,
        0,
    ];
    // SAFETY: the words are as many as the kernel writes.
    let asked = unsafe { call(call::NEWFSTATAT, arguments) };
    asked.is_err() || stat.get(LINKS).is_some_and(|links| *links <= LINKS_OF_TWO)
}

/// The call of `STATE.alone_call`, while the agent's thread is away. On the herald's stack.
extern "C" fn call_alone(_: usize) {
    let Some(ring) = STATE.ring() else {
        return;
    };
    let tid = STATE.agent_tid.load(Ordering::Relaxed);
    let Ok(agent) = Agent::borrow(tid) else {
        return;
    };
    // By this one the pager finds the process meanwhile.
    ring.agent_tid
        .store(thread_id().cast_unsigned(), Ordering::SeqCst);
    agent.send_away(tid);
    let [number, first, second] = [0, 1, 2].map(|index: usize| {
        let word = STATE.alone_call.get(index);
        word.map_or(0, |word| word.load(Ordering::Relaxed))
    });
    // SAFETY: the program asked for exactly this call.
    let returned = unsafe { raw::syscall2(number, first, second) };
    STATE.alone_returned.store(returned, Ordering::Relaxed);
    let own = agent.give_back();
    // SAFETY: the descriptors are this thread's, and the agent's thread has gone.
    unsafe { thread::take_over() };
    own.into_iter().for_each(close);
}

/// The agent's thread, and copies of its descriptors in the program's table.
struct Agent {
    thread: Descriptor,
    descriptors: [Descriptor; DESCRIPTORS],
}

impl Agent {
    fn borrow(tid: c_int) -> Result<Agent, Errno> {
        const PIDFD_THREAD: usize = 0o200;
        let tid = tid.cast_unsigned() as usize;
        // SAFETY: makes a descriptor.
        let thread = unsafe { call(call::PIDFD_OPEN, [tid, PIDFD_THREAD, 0, 0, 0, 0]) }?;
        let mut agent = Agent {
            thread,
            descriptors: [NO_DESCRIPTOR; DESCRIPTORS],
        };
        for (own, theirs) in agent.descriptors.iter_mut().zip(&STATE.descriptors) {
            let theirs = theirs.load(Ordering::Relaxed);
            // SAFETY: makes a descriptor.
            match unsafe { call(call::PIDFD_GETFD, [thread, theirs, 0, 0, 0, 0]) } {
                Ok(descriptor) => *own = descriptor,
                Err(errno) => {
                    agent.close_all();
                    return Err(errno);
                }
            }
        }
        Ok(agent)
    }

    fn close_all(self) {
        let is_open = |descriptor: &Descriptor| *descriptor != NO_DESCRIPTOR;
        self.descriptors.into_iter().filter(is_open).for_each(close);
        close(self.thread);
    }

    /// Returns when the kernel does not count it among the threads any more.
    fn send_away(&self, tid: c_int) {
        const POLLIN: u64 = 1;
        let [.., bell] = self.descriptors;
        let one = 1_u64;
        // A `pollfd`: descriptor, and what is waited for in the upper half.
        let mut ended = self.thread as u64 | POLLIN << 32;
        // SAFETY: a word that is read and a record that is written, both on this stack. The agent looks at the bell
        // when it has nothing to do.
        unsafe {
            raw::syscall3(call::WRITE, bell, (&raw const one).addr(), size_of::<u64>());
            raw::syscall3(call::POLL, (&raw mut ended).addr(), 1, usize::MAX);
        }
        await_end(tid);
    }

    /// Makes the descriptors those of the thread that takes over, and returns them to be closed afterwards.
    fn give_back(self) -> [Descriptor; DESCRIPTORS] {
        close(self.thread);
        for (word, own) in STATE.descriptors.iter().zip(self.descriptors) {
            word.store(own, Ordering::SeqCst);
        }
        self.descriptors
    }
}

/// Waits until a thread that has ended is not in its process any more. 0 is no thread.
fn await_end(tid: c_int) {
    const PRIO_PGRP: usize = 1;
    if tid == 0 {
        return;
    }
    let (pid, tid) = (
        process_id().cast_unsigned() as usize,
        tid.cast_unsigned() as usize,
    );
    for _ in 0..GONE_TRIES {
        // SAFETY: no signal is sent.
        if unsafe { call(call::TGKILL, [pid, tid, 0, 0, 0, 0]) } == Err(ESRCH) {
            break;
        }
        kernel::nap(GONE_PACE_NANOSECONDS);
    }
    // SAFETY: changes nothing. It takes the lock under which the kernel takes a thread out of all its lists: one that
    // is no longer found in the first of them is in none afterwards.
    unsafe { raw::syscall2(call::GETPRIORITY, PRIO_PGRP, 0) };
}

impl Session {
    /// Writes down which descriptors these are, for a thread that takes over.
    pub fn remember(&self) {
        let descriptors = [self.main, self.staging, self.socket, self.bell];
        for (word, descriptor) in STATE.descriptors.iter().zip(descriptors) {
            word.store(descriptor, Ordering::SeqCst);
        }
    }

    /// What was written down.
    pub fn remembered(reservation: Reservation) -> Session {
        let [main, staging, socket, bell] = &STATE.descriptors;
        let load = |word: &core::sync::atomic::AtomicUsize| word.load(Ordering::SeqCst);
        Session {
            main: load(main),
            staging: load(staging),
            socket: load(socket),
            bell: load(bell),
            reservation,
        }
    }

    /// Waits until there is something to hear, and says whether it is the bell.
    pub fn is_asked_to_leave(&self) -> bool {
        const POLLIN: u64 = 1;
        // Two `pollfd`: descriptor, what is waited for, what there is.
        let mut both = [self.socket, self.bell]
            .map(|descriptor| (descriptor as u64 & u64::from(u32::MAX)) | POLLIN << 32);
        // SAFETY: both records are on this stack. Without a time-out.
        unsafe { raw::syscall3(call::POLL, both.as_mut_ptr().addr(), 2, usize::MAX) };
        let [_, bell] = both;
        bell >> 48 & POLLIN != 0
    }

    /// The bell does not ring any more.
    pub fn silence(&self) {
        let mut rung = 0_u64;
        // SAFETY: a word on this stack. An eventfd that was not rung answers at once, too.
        unsafe {
            raw::syscall3(
                call::READ,
                self.bell,
                (&raw mut rung).addr(),
                size_of::<u64>(),
            )
        };
    }
}
