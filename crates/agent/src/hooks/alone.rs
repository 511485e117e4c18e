//! `unshare` and `setns`: the kernel permits some of these calls only to a process of one thread. The agent's thread
//! steps aside for them.
//!
//! The call is first made as it is. If the kernel refuses it because of the number of threads, and the only other
//! thread is the agent's, the agent's thread leaves: the program's thread borrows the agent's descriptors, rings its
//! bell, and waits until the kernel no longer knows the agent's thread. Then it makes the call again. A new thread of
//! the agent takes over with the same descriptors, on the same stack, at the same command. The pager sees a slow answer
//! and another thread id.
//!
//! A process that has told its children to live in another pid namespace can start no thread any more. So the agent's
//! thread does not step aside there: the call fails as the kernel says. A call that asks for a pid namespace among
//! others is made in two steps, and the agent is back before the second, which takes no care of threads.
//!
//! In between nobody carries out commands, so the program's thread must not wait for a fault: it runs on the herald's
//! stack and touches only the agent's memory. All signals are blocked. If vswap is killed just then, its guardian kills
//! the process; what is swapped out stays out as long as the borrowed descriptors are open.
//!
//! Needs Linux 6.9 (PIDFD_THREAD). Before that such calls fail, as they do in any process of several threads.
//!
//! Unsafe is needed here because every call is a bare system call: libc's wrappers are the functions that this file
//! replaces, and they would use the program's stack and errno.

use core::ffi::{CStr, c_int};
use core::sync::atomic::Ordering;

use crate::base::kernel::{
    self, Descriptor, EINVAL, ESRCH, EUSERS, Errno, Stat, block_signals, call, close, process_id,
    restore_signals, thread_id,
};
use crate::base::libc;
use crate::hooks::herald;
use crate::raw;
use crate::state::reservation::Reservation;
use crate::state::{DESCRIPTORS, NO_DESCRIPTOR, STATE, phase};
use crate::thread;

const CLONE_VM: usize = 0x100;
const CLONE_SIGHAND: usize = 0x800;
const CLONE_THREAD: usize = 0x1_0000;
const CLONE_NEWUSER: usize = 0x1000_0000;
const CLONE_NEWPID: usize = 0x2000_0000;
/// What unshare(2) permits only to a process of one thread.
const FOR_ONE_THREAD: usize = CLONE_VM | CLONE_SIGHAND | CLONE_THREAD | CLONE_NEWUSER;
/// Links of /proc/self/task with two threads in it: the program's and the agent's.
const LINKS_OF_TWO: u64 = 4;
/// How long to pause between two looks whether an ending thread has gone, and how often to look.
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

/// Makes a call, given as number and arguments. If the kernel wants one thread and the agent's is the only other, makes
/// it as a process of one thread. Returns what the kernel returned.
pub fn carry_out(wanted: [usize; 3]) -> isize {
    let [number, first, second] = wanted;
    // SAFETY: the program asked for exactly this call, and answers for it.
    let returned = unsafe { raw::syscall2(number, first, second) };
    let is_for_threads = match raw::result(returned) {
        Err(EINVAL) => number == call::SETNS || first & FOR_ONE_THREAD != 0,
        Err(EUSERS) => number == call::SETNS,
        _ => false,
    };
    // A new thread would be confined by the program's seccomp filter, and might be killed for what the agent does.
    let is_sandboxed = STATE.sandboxed.load(Ordering::SeqCst) != 0;
    if !is_for_threads || is_sandboxed || STATE.is_copy() || !may_start_threads() {
        return returned;
    }
    match without_pid_namespace(wanted) {
        None => carry_out_alone(wanted, returned),
        Some((others, last)) => match carry_out_alone(others, returned) {
            0 => {
                let [number, first, second] = last;
                // SAFETY: this is the rest of what the program asked for.
                unsafe { raw::syscall2(number, first, second) }
            }
            failed => failed,
        },
    }
}

/// The call without the pid namespace that it asks for among others, and the call for that one alone.
fn without_pid_namespace([number, first, second]: [usize; 3]) -> Option<([usize; 3], [usize; 3])> {
    let kinds = if number == call::SETNS { second } else { first };
    let others = kinds & !CLONE_NEWPID;
    if kinds & CLONE_NEWPID == 0 || others == 0 {
        return None;
    }
    Some(if number == call::SETNS {
        ([number, first, others], [number, first, CLONE_NEWPID])
    } else {
        ([number, others, second], [number, CLONE_NEWPID, second])
    })
}

/// Do the children of this process live in its own pid namespace? If not the kernel gives it no thread. True if the
/// kernel does not tell.
fn may_start_threads() -> bool {
    let Some(own) = inode(c"/proc/self/ns/pid") else {
        return true;
    };
    // The link leads nowhere before the first child.
    inode(c"/proc/self/ns/pid_for_children") == Some(own)
}

/// Makes the call as a process of one thread, if it is one but for the agent. `refused` is what the kernel returned
/// when it was not.
fn carry_out_alone(wanted: [usize; 3], refused: isize) -> isize {
    let signals = block_signals();
    herald::lock();
    STATE.alone_returned.store(refused, Ordering::Relaxed);
    // A child of vfork shares its parent's memory, but not its threads.
    if STATE.settled() == phase::ARMED && STATE.owner.load(Ordering::Relaxed) == process_id() {
        for (word, value) in STATE.alone_call.iter().zip(wanted) {
            word.store(value, Ordering::Relaxed);
        }
        herald::await_stack();
        await_end(STATE.herald_tid.swap(0, Ordering::Relaxed));
        if is_one_but_for_the_agent() {
            let stack_top = Reservation::at(STATE.base.load(Ordering::Relaxed)).herald_stack_top();
            // SAFETY: the stack is free: no herald is alive, and none starts while this thread holds the lock.
            // Switching stacks is unsafe by nature.
            unsafe { raw::call_on_stack(stack_top, call_alone, 0) };
        }
    }
    let returned = STATE.alone_returned.load(Ordering::Relaxed);
    herald::unlock();
    restore_signals(signals);
    returned
}

/// Also true if the kernel does not tell.
fn is_one_but_for_the_agent() -> bool {
    stat(c"/proc/self/task").is_none_or(|stat| kernel::links_in(&stat) <= LINKS_OF_TWO)
}

/// The number that a file has in its file system.
fn inode(path: &CStr) -> Option<u64> {
    const INODE: usize = 1;
    stat(path)?.get(INODE).copied()
}

fn stat(path: &CStr) -> Option<Stat> {
    const AT_FDCWD: usize = (-100_isize).cast_unsigned();
    let mut stat = Stat::default();
    let arguments = [
        AT_FDCWD,
        path.as_ptr().addr(),
        stat.as_mut_ptr().addr(),
        0,
        0,
        0,
    ];
    // SAFETY: the path is a string, and the buffer has as many bytes as the kernel writes.
    let asked = unsafe { call(call::NEWFSTATAT, arguments) };
    asked.is_ok().then_some(stat)
}

/// Makes the call in `STATE.alone_call` while the agent's thread is away. Runs on the herald's stack.
extern "C" fn call_alone(_: usize) {
    let Some(ring) = STATE.ring() else {
        return;
    };
    let tid = STATE.agent_tid.load(Ordering::Relaxed);
    let Ok(agent) = Agent::borrow(tid) else {
        return;
    };
    // Meanwhile the pager finds the process by this thread.
    ring.agent_tid
        .store(thread_id().cast_unsigned(), Ordering::SeqCst);
    agent.send_away(tid);
    let [number, first, second] = [0, 1, 2].map(|index: usize| {
        let word = STATE.alone_call.get(index);
        word.map_or(0, |word| word.load(Ordering::Relaxed))
    });
    // SAFETY: the program asked for exactly this call, and answers for it.
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
        // SAFETY: this only makes a descriptor.
        let thread = unsafe { call(call::PIDFD_OPEN, [tid, PIDFD_THREAD, 0, 0, 0, 0]) }?;
        let mut agent = Agent {
            thread,
            descriptors: [NO_DESCRIPTOR; DESCRIPTORS],
        };
        for (own, theirs) in agent.descriptors.iter_mut().zip(&STATE.descriptors) {
            let theirs = theirs.load(Ordering::Relaxed);
            // SAFETY: this only makes a descriptor.
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

    /// Asks the agent's thread to leave. Returns when the kernel no longer counts it among the threads.
    fn send_away(&self, tid: c_int) {
        const POLLIN: u64 = 1;
        let [.., bell] = self.descriptors;
        let one = 1_u64;
        // A `pollfd` in one word: the descriptor, and in the upper half what is waited for.
        let mut ended = self.thread as u64 | POLLIN << 32;
        // SAFETY: the kernel reads the word and writes the record, both on this stack. The agent's thread looks at the
        // bell when it has nothing to do.
        unsafe {
            raw::syscall3(call::WRITE, bell, (&raw const one).addr(), size_of::<u64>());
            kernel::poll((&raw mut ended).addr(), 1, true);
        }
        await_end(tid);
    }

    /// Hands the descriptors to the thread that takes over. Returns them, to be closed afterwards.
    fn give_back(self) -> [Descriptor; DESCRIPTORS] {
        close(self.thread);
        for (word, own) in STATE.descriptors.iter().zip(self.descriptors) {
            word.store(own, Ordering::SeqCst);
        }
        self.descriptors
    }
}

/// Waits until an ended thread is no longer in its process. 0 stands for no thread.
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
        // SAFETY: signal 0 is not sent; the call only looks for the thread.
        if unsafe { call(call::TGKILL, [pid, tid, 0, 0, 0, 0]) } == Err(ESRCH) {
            break;
        }
        kernel::nap(GONE_PACE_NANOSECONDS);
    }
    // SAFETY: the call changes nothing. It is made for the lock that it takes: the kernel removes a thread from all its
    // lists under that lock. So a thread that was no longer in the first list is in none after this call.
    unsafe { raw::syscall2(call::GETPRIORITY, PRIO_PGRP, 0) };
}
