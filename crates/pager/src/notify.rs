//! System calls that the seccomp filter hands to the pager instead of running them.
//!
//! mremap is carried out by the process's agent, one at a time, so that the order of REMAP events is the order of the
//! moves (rule P2). MADV_FREE becomes MADV_DONTNEED: the kernel may discard lazily freed pages at any later moment,
//! and no event tells when. Before the program registers memory with a userfaultfd of its own, or has it wiped on
//! fork, vswap lets go of it. Larger mappings and the heap's end are made by the agent and registered before the
//! program can fill them. The program's thread waits meanwhile; calls of processes without an active space run as
//! they are.
//!
//! One thread a filter takes the calls in. Each space has a thread of its own that answers them, because the agent of a
//! stopped process answers when that goes on, and other processes must not wait for it.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use vswap_sys::process::{self, LocalSpan, RemoteSpan};
use vswap_sys::ring::op;
use vswap_sys::seccomp::{Answer, Listener, Notification, NotifyError};
use vswap_sys::task;

use crate::agent::AgentGone;
use crate::core::Core;
use crate::rules::{self, Rule};
use crate::run::PAGE_BYTES;
use crate::space::{Process, Space};
use crate::{lifecycle, regions, threads};

// System call numbers of x86_64, the only machine that vswap-sys compiles for.
const MMAP: i32 = 9;
const BRK: i32 = 12;
const IOCTL: i32 = 16;
const MREMAP: i32 = 25;
const MADVISE: i32 = 28;
const MADV_WIPEONFORK: u64 = 18;
/// Fill the mapping at once, which would pass the limit by as much. A hint that may be left out.
const MAP_POPULATE: u64 = 0x8000;
/// Replace what lies at the address.
const MAP_FIXED: u64 = 0x10;
/// A stack that grows downwards is not one range.
const MAP_GROWSDOWN: u64 = 0x100;
/// How often an idle thread that answers calls looks whether its space has ended.
const IDLE: Duration = Duration::from_secs(1);

/// How long a call waits until its process is watched, and how often that is looked at.
const POSTPONE_PATIENCE: Duration = Duration::from_millis(200);
const POSTPONE_PACE: Duration = Duration::from_micros(500);

/// A system call that waits for its answer. Dropped without one it runs as it is: a space that ends while a call is on
/// its way to it belonged to the image before an exec, and the caller is the next image.
#[derive(Debug)]
pub struct Call {
    listener: Arc<Listener>,
    notification: Notification,
    answer: Answer,
}

impl Call {
    fn answer(mut self, answer: Answer) {
        self.answer = answer;
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        // The thread may have been killed while it waited; then there is nobody to answer.
        let _ = self.listener.respond(self.notification.id, self.answer);
    }
}

/// Serve a filter's listener until nobody uses the filter any more.
pub fn start(core: &Arc<Core>, listener: OwnedFd) {
    let core = Arc::clone(core);
    core.add_listener();
    threads::spawn("syscalls", move || {
        let listener = Arc::new(Listener::from_fd(listener));
        // A hint, which older kernels do not know.
        let _ = listener.wake_on_callers_cpu();
        while take_one(&core, &listener) != Err(NotifyError::Closed) {}
    });
}

fn take_one(core: &Arc<Core>, listener: &Arc<Listener>) -> Result<(), NotifyError> {
    if !listener.wait(None)? {
        return Ok(());
    }
    let notification = listener.receive()?;
    let space = space_of_thread(core, notification.tid);
    let call = Call {
        listener: Arc::clone(listener),
        notification,
        answer: Answer::Continue,
    };
    match space {
        Some(space) if concerns(&space, &call.notification) => hand_over(core, &space, call),
        _ if maps_too_much(core, &call.notification) => postpone(core, call),
        _ => drop(call),
    }
    Ok(())
}

/// Does a process that is not watched yet map more than there is room for? While memory is short it is about to be
/// watched; what is populated is filled at once, and nobody can interrupt that.
fn maps_too_much(core: &Core, call: &Notification) -> bool {
    let [_, bytes, _, flags, ..] = call.args;
    let soon = flags & MAP_POPULATE != 0 || core.is_short();
    call.nr == MMAP && soon && !core.governor.has_room(bytes)
}

/// Have the process watched first, which may still have to say hello. After some time the call runs as it is.
fn postpone(core: &Arc<Core>, call: Call) {
    let core = Arc::clone(core);
    threads::spawn("postponed", move || {
        let since = Instant::now();
        while since.elapsed() < POSTPONE_PATIENCE {
            if let Some(space) = space_of_thread(&core, call.notification.tid) {
                if space.is_active() {
                    return hand_over(&core, &space, call);
                }
                lifecycle::hasten(&core, &space);
            }
            std::thread::sleep(POSTPONE_PACE);
        }
        drop(call);
    });
}

/// Has the pager anything to do about a call?
fn concerns(space: &Space, call: &Notification) -> bool {
    let registers = call.nr == IOCTL || (call.nr == MADVISE && call.args[2] == MADV_WIPEONFORK);
    space.process.get().is_some() && (registers || space.is_active())
}

fn hand_over(core: &Arc<Core>, space: &Arc<Space>, call: Call) {
    let calls = space.calls.get_or_init(|| start_answering(core, space));
    // A space that has ended takes none; the call comes back in the error and is dropped.
    let _ = calls.send(call);
}

fn start_answering(core: &Arc<Core>, space: &Arc<Space>) -> Sender<Call> {
    let (calls, taken) = mpsc::channel();
    let (core, space) = (Arc::clone(core), Arc::clone(space));
    threads::spawn(&format!("calls-{}", space.id), move || {
        threads::hurry();
        answer_all(&core, &space, &taken);
    });
    calls
}

fn answer_all(core: &Core, space: &Arc<Space>, taken: &Receiver<Call>) {
    let Some(process) = space.process.get() else {
        return;
    };
    while !space.has_ended() {
        match taken.recv_timeout(IDLE) {
            Ok(call) => {
                let answer = answer(core, space, process, &call.notification);
                call.answer(answer);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn answer(core: &Core, space: &Arc<Space>, process: &Process, call: &Notification) -> Answer {
    let args = call.args;
    let result = match call.nr {
        MADVISE if args[2] == MADV_WIPEONFORK => {
            regions::let_go(core, space, args[0], args[1]);
            return Answer::Continue;
        }
        IOCTL => {
            if let Some((start, bytes)) = registered_range(process.pid, args[2]) {
                regions::let_go(core, space, start, bytes);
            }
            return Answer::Continue;
        }
        MMAP if args[3] & MAP_GROWSDOWN != 0 => return Answer::Continue,
        MMAP => map(core, space, process, &args),
        BRK => set_break(core, space, process, args[0]),
        // Rule P2: carried out by the agent, one at a time.
        MREMAP if !rules::holds(Rule::OneMove) => return Answer::Continue,
        MREMAP => process.agent.slot().call(op::MREMAP, &args, &[]),
        MADVISE => process.agent.slot().call(op::DISCARD, &args[..2], &[]),
        _ => return Answer::Continue,
    };
    match result {
        Ok(value) if value < 0 => Answer::Errno(i32::try_from(-value).unwrap_or(0)),
        Ok(value) => Answer::Value(value),
        Err(AgentGone) => Answer::Continue,
    }
}

/// mmap, and the new memory is registered before anybody touches it.
fn map(core: &Core, space: &Space, process: &Process, args: &[u64; 6]) -> Result<i64, AgentGone> {
    let mut slot = process.agent.slot();
    let [address, bytes, protection, flags, ..] = *args;
    let args = [address, bytes, protection, flags & !MAP_POPULATE];
    let result = slot.call(op::MMAP, &args, &[])?;
    if flags & MAP_FIXED != 0 {
        // Other threads know the address, and may have unmapped some of it again.
        regions::rescan(core, space, process, &slot);
    } else if let Ok(start) = u64::try_from(result) {
        let end = start.saturating_add(bytes).div_ceil(PAGE_BYTES);
        regions::adopt(core, space, start / PAGE_BYTES..end, &slot);
    }
    Ok(result)
}

/// brk, and what the heap gains is registered before anybody touches it.
fn set_break(core: &Core, space: &Space, process: &Process, to: u64) -> Result<i64, AgentGone> {
    let mut slot = process.agent.slot();
    let result = slot.call(op::BRK, &[to], &[])?;
    let after = u64::try_from(result).unwrap_or(0).div_ceil(PAGE_BYTES);
    let before = slot.break_before().div_ceil(PAGE_BYTES);
    if before < after {
        regions::adopt(core, space, before..after, &slot);
    }
    Ok(result)
}

/// The range that a UFFDIO_REGISTER names: the first two words of its argument.
fn registered_range(pid: u32, address: u64) -> Option<(u64, u64)> {
    let mut words = [0u64; 2];
    let local = [LocalSpan {
        pointer: words.as_mut_ptr().cast(),
        bytes: size_of_val(&words),
    }];
    let remote = [RemoteSpan {
        address,
        bytes: size_of_val(&words),
    }];
    // SAFETY: the local span is `words`, which nothing else refers to during the call.
    let read = unsafe { process::read_memory(pid, &remote, &local) };
    (read == Ok(size_of_val(&words))).then_some((words[0], words[1]))
}

/// The space of the process that a thread belongs to.
fn space_of_thread(core: &Core, tid: u32) -> Option<Arc<Space>> {
    core.space_of(tid)
        .or_else(|| core.space_of(task::process_of(tid)?))
}
