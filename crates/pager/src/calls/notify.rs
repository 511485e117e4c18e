//! System calls that the seccomp filter hands to the pager instead of running them.
//!
//! The head of the agent's filter lists these calls. The thread that calls waits meanwhile.
//!
//! - The agent carries out mremap (`moves`), one at a time, so that the order of REMAP events is the order of the moves
//!   (rule P2). It also carries out advice that discards (`advice`).
//! - Before the program registers memory with its own userfaultfd, or has memory wiped on fork, vswap lets go of it.
//! - The agent makes mappings and moves the heap's end. The pager registers the new memory before the program can fill
//!   it.
//! - A thread that ends or makes another waits until the memory that the kernel writes to at a thread's end is present
//!   (`thread_exit`).
//! - A handler of a process without hooks gets a stand-in (`handlers`).
//! - A fork of a process without hooks is followed by ptrace (`forks`), and so is every fork where the kernel tells of
//!   none. Others run as they are.
//! - Calls of a process without an agent, or with a confined one, run as they are.
//!
//! One thread for each filter takes the calls in. Each space has its own threads that answer them: the agent of a
//! stopped process answers only when the process goes on, and other processes must not wait for that. There are two
//! such threads. Calls that move or discard memory wait for the end of a fork. The forking thread may wait for a lock
//! of malloc, whose holder may be about to map memory. So calls that map must not wait behind calls that move.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};

use vswap_sys::abi;
use vswap_sys::process::{image, task};
use vswap_sys::ring::op;
use vswap_sys::seccomp::{Answer, Listener, Notification, NotifyError};

use crate::base::page_run::{PAGE_BYTES, pages_of};
use crate::base::rules::{self, Rule};
use crate::base::threads;
use crate::calls::{advice, confine, forks, handlers, moves, tags, thread_exit, unknown};
use crate::events::listening::Listening;
use crate::events::regions;
use crate::fault::serving::Serving;
use crate::run::limit::Limit;
use crate::run::references::References;
use crate::run::spaces::Spaces;
use crate::space::agent::AgentGone;
use crate::space::call::Call;
use crate::space::gain::{self, Gain};
use crate::space::process::Process;
use crate::space::{Space, marks};

const MMAP: i32 = abi::call::MMAP.cast_signed();
const BRK: i32 = abi::call::BRK.cast_signed();
const RT_SIGACTION: i32 = abi::call::RT_SIGACTION.cast_signed();
const IOCTL: i32 = abi::call::IOCTL.cast_signed();
const MREMAP: i32 = abi::call::MREMAP.cast_signed();
const MADVISE: i32 = abi::call::MADVISE.cast_signed();
const CLONE: i32 = abi::call::CLONE.cast_signed();
const FORK: i32 = abi::call::FORK.cast_signed();
const EXIT: i32 = abi::call::EXIT.cast_signed();
const PTRACE: i32 = abi::call::PTRACE.cast_signed();
const SET_TID_ADDRESS: i32 = abi::call::SET_TID_ADDRESS.cast_signed();
const SECCOMP: i32 = abi::call::SECCOMP.cast_signed();
const IO_URING_SETUP: i32 = abi::call::IO_URING_SETUP.cast_signed();
const CLONE3: i32 = abi::call::CLONE3.cast_signed();
const PROCESS_MADVISE: i32 = abi::call::PROCESS_MADVISE.cast_signed();
/// MAP_POPULATE fills the mapping at once, which would exceed the limit by as much. It is a hint and may be left out.
const MAP_POPULATE: u64 = 0x8000;
/// The mapping replaces what lies there.
const MAP_FIXED: u64 = 0x10;
/// How long such a mapping waits for the end of a fork if it replaces pages that are out. Not for ever: its thread may
/// hold a lock that the forking thread waits for.
const FORK_PATIENCE: Duration = Duration::from_millis(100);
/// The child shares its parent's memory: a thread, or a child of vfork.
const CLONE_VM: u64 = 0x100;
/// A stack that grows downwards is not one range.
const MAP_GROWSDOWN: u64 = 0x100;
/// How often a thread that is to end checks whether the calls that it took in are answered.
const END_PACE: Duration = Duration::from_millis(1);

/// Smaller mappings do not wait until their process is watched.
const POSTPONE_BYTES_LEAST: u64 = 128 << 10;
/// How long a call waits until its process is watched, and how often that is checked.
const POSTPONE_PATIENCE: Duration = Duration::from_millis(200);
const POSTPONE_PACE: Duration = Duration::from_micros(500);

/// Has a space's memory registered as soon as possible. The evictor that does so is on a higher floor, so this is a
/// callback.
pub type Hasten = Arc<dyn Fn(&Arc<Space>) + Send + Sync>;

/// Start a thread that serves the listener of a filter until nobody uses the filter any more. Start it before the
/// filter is installed, because calls that nobody listens to fail. The thread ends if no listener is sent.
///
/// # Errors
/// There is no thread.
pub fn start(listening: &Arc<Listening>, hasten: Hasten) -> std::io::Result<Sender<Listener>> {
    let listening = Arc::clone(listening);
    let (sender, sent) = mpsc::channel::<Listener>();
    // Hurry: until it is received, a signal cuts a call short (`state/handlers.rs` of the agent).
    threads::try_spawn_hurried("syscalls", move || {
        let Ok(listener) = sent.recv() else { return };
        let listener = Arc::new(listener);
        // A hint that older kernels do not know.
        let _ = listener.wake_on_callers_cpu();
        let _takes_calls = listening.leaving.takes_calls();
        // After any other error than that a call is over, nothing good comes from this listener any more.
        while matches!(
            take_one(&listening, &listener, &hasten),
            Ok(()) | Err(NotifyError::Over)
        ) {
            if !listening.leaving.is_over() {
                continue;
            }
            // Only this thread makes more of them: no call is under way.
            if Arc::strong_count(&listener) == 1 {
                if let Some(listener) = Arc::into_inner(listener) {
                    listener.leave_open();
                }
                return;
            }
            std::thread::sleep(END_PACE);
        }
    })?;
    Ok(sender)
}

fn take_one(
    listening: &Arc<Listening>,
    listener: &Arc<Listener>,
    hasten: &Hasten,
) -> Result<(), NotifyError> {
    if !listener.wait(listening.leaving.over())? {
        return Ok(());
    }
    let notification = tags::taken_off(listener.receive()?);
    if notification.nr == PTRACE {
        let answer = attach(&listening.spaces, &notification);
        let _ = listener.respond(notification.id, answer);
        return Ok(());
    }
    let call = Call::new(Arc::clone(listener), notification);
    let space = of_caller(&call, |caller| {
        space_of_thread(&listening.spaces, caller.tid)
            .or_else(|| space_shared_by(&listening.spaces, caller))
    })?;
    match space {
        // The hooks have seen to it, or nobody will.
        Some(space) if is_for_hooks(&space, &call.notification) => drop(call),
        Some(space)
            if space.is_active()
                || space.is_confined()
                || !maps_too_much(&listening.serving.limit, &call.notification) =>
        {
            hand_over(listening, &space, call);
        }
        _ if maps_too_much(&listening.serving.limit, &call.notification) => {
            postpone(listening, call, Arc::clone(hasten));
        }
        None if is_for_agent(call.notification.nr)
            && unknown::is_of_copy(listening, &call.notification) =>
        {
            unknown::after_copies(listening, call);
        }
        // brk needs no decision: it never extends a mapping that is watched.
        None if call.notification.nr == MREMAP => {
            let references = &listening.serving.references;
            unknown::decide_before_growth(references, &listening.spaces);
            drop(call);
        }
        _ => drop(call),
    }
    Ok(())
}

/// ptrace: refuse to attach to the process's own agent. LeakSanitizer stops all threads of a process to inspect it,
/// from a child that shares its memory. It leaves out a thread that it may not attach to. The agent must run on,
/// because it makes room for the memory that is inspected. Debuggers may attach to whatever they like.
fn attach(spaces: &Spaces, call: &Notification) -> Answer {
    const EPERM: i32 = 1;
    let target = i32::try_from(call.args[1]).unwrap_or(0);
    let is_own_agent = |space: &Arc<Space>| {
        let process = space.process.get();
        process.is_some_and(|process| {
            process.agent.tid() == target && task::is_same_or_child(call.tid, process.pid)
        })
    };
    if spaces.all().iter().any(is_own_agent) {
        return Answer::Errno(EPERM);
    }
    Answer::Continue
}

/// Does a process that is not watched yet map more than there is room for? While memory is short the process is about
/// to be watched. A populated mapping is filled at once, and nobody can interrupt that.
fn maps_too_much(limit: &Limit, call: &Notification) -> bool {
    let [_, bytes, _, flags, ..] = call.args;
    let soon = flags & MAP_POPULATE != 0 || limit.is_short();
    let large = bytes >= POSTPONE_BYTES_LEAST;
    call.nr == MMAP && large && soon && !limit.has_room(bytes)
}

/// Have the process watched first, though it may not have said hello yet. After a while the call runs as it is.
fn postpone(listening: &Arc<Listening>, call: Call, hasten: Hasten) {
    let listening = Arc::clone(listening);
    // Without a thread the call is dropped, and so runs as it is.
    let _ = threads::try_spawn("postponed", move || {
        let since = Instant::now();
        while since.elapsed() < POSTPONE_PATIENCE {
            let find = |caller: &Notification| space_of_thread(&listening.spaces, caller.tid);
            let Ok(space) = of_caller(&call, find) else {
                return;
            };
            if let Some(space) = space {
                if space.is_active() {
                    return hand_over(&listening, &space, call);
                }
                hasten(&space);
            }
            std::thread::sleep(POSTPONE_PACE);
        }
        drop(call);
    });
}

fn hand_over(listening: &Arc<Listening>, space: &Arc<Space>, call: Call) {
    let nr = call.notification.nr;
    let call = if may_fork(nr) {
        space.forking.give(call)
    } else {
        Some(call)
    };
    let Some(call) = call else { return };
    // Where forks are answered here they come one at a time, and after calls that must not run during one.
    let (name, calls) = if may_wait_for_fork(nr) || (space.has_followed_forks() && may_fork(nr)) {
        ("moves", &space.moves)
    } else {
        ("calls", &space.calls)
    };
    let calls = calls.get_or_init(|| start_answering(listening, space, name));
    // A space that has ended takes no calls. The error contains the call, which is dropped.
    let _ = calls.send(call);
}

/// Does the thread that answers this call wait until no fork is under way?
fn may_wait_for_fork(nr: i32) -> bool {
    matches!(nr, MREMAP | MADVISE | PROCESS_MADVISE | IOCTL | SECCOMP)
}

/// May this call go wrong in a process without an agent?
fn is_for_agent(nr: i32) -> bool {
    may_wait_for_fork(nr) || nr == IO_URING_SETUP
}

/// Would this call go wrong if memory were registered between its entry and its work?
pub(super) fn is_held_back(nr: i32) -> bool {
    may_fork(nr) || matches!(nr, MREMAP | MADVISE | PROCESS_MADVISE)
}

/// May this call make a process?
fn may_fork(nr: i32) -> bool {
    matches!(nr, FORK | CLONE | CLONE3)
}

/// Has the pager nothing to do about this call, because the process has hooks?
fn is_for_hooks(space: &Space, call: &Notification) -> bool {
    let is_marked = space.marks.load(Ordering::Acquire);
    let is_announced = is_fork(call) && !is_marked && !space.has_followed_forks();
    is_announced || (call.nr == RT_SIGACTION && !space.has_no_hooks())
}

/// Does this call make a process with memory of its own? False of clone3, whose flags lie in memory.
fn is_fork(call: &Notification) -> bool {
    call.nr == FORK || (call.nr == CLONE && call.args[0] & CLONE_VM == 0)
}

fn start_answering(listening: &Arc<Listening>, space: &Arc<Space>, name: &str) -> Sender<Call> {
    let (calls, taken) = mpsc::channel();
    let listening = Arc::clone(listening);
    // The space has the other end, which closes with it.
    let weak = Arc::downgrade(space);
    threads::spawn_late(&format!("{name}-{}", space.id), move || {
        threads::hurry();
        for call in taken {
            let Some(space) = weak.upgrade() else { return };
            answer_all(&listening, &space, call);
        }
    });
    calls
}

/// Answer a call, and others of the thread that nobody has looked at.
fn answer_all(listening: &Arc<Listening>, space: &Arc<Space>, call: Call) {
    let Some(process) = space.process.get() else {
        return;
    };
    let mut next = Some(call);
    while let Some(call) = next.take() {
        next = answer_one(listening, space, process, call);
    }
}

/// Returns another call of the thread that nobody has looked at, if one came meanwhile.
fn answer_one(
    listening: &Arc<Listening>,
    space: &Arc<Space>,
    process: &Process,
    call: Call,
) -> Option<Call> {
    let is_fork = makes_process(process, &call.notification);
    if is_fork {
        marks::drop_before_fork(space, &mut listening.serving.references.puts());
    }
    if is_fork && space.has_followed_forks() {
        return forks::carry_out(listening, space, process, call);
    }
    let (serving, is_waiting) = (&listening.serving, || call.is_waiting());
    let answer = answer(serving, space, process, &call.notification, &is_waiting);
    call.answer(answer);
    None
}

/// Does the call make a process with memory of its own?
fn makes_process(process: &Process, call: &Notification) -> bool {
    let mut flags = [CLONE_VM];
    is_fork(call)
        || (call.nr == CLONE3
            && process.read_words(call.args[0], &mut flags)
            && flags[0] & CLONE_VM == 0)
}

/// The answer to a trapped call of a process. Whether it still waits is asked after a look-up by its thread's id.
pub fn answer(
    serving: &Serving,
    space: &Arc<Space>,
    process: &Process,
    call: &Notification,
    is_waiting: &dyn Fn() -> bool,
) -> Answer {
    let args = call.args;
    if call.nr == EXIT {
        thread_exit::await_leave(space, call.tid, args[0]);
    }
    if space.runs_calls_as_they_are() {
        return Answer::Continue;
    }
    let result = match call.nr {
        SECCOMP => {
            confine::confine(serving, space, process, confine::FILTER_OF_ALL);
            return Answer::Continue;
        }
        MADVISE => advice::madvise(serving, space, process, &args),
        PROCESS_MADVISE => advice::process_madvise(serving, space, process, call.tid, &args),
        IOCTL => {
            if let Some((start, bytes)) = registered_range(process, args[2]) {
                regions::let_go(serving, space, start, bytes);
            }
            return Answer::Continue;
        }
        RT_SIGACTION => handlers::act(process, &args),
        IO_URING_SETUP => {
            marks::begin(space);
            return Answer::Continue;
        }
        CLONE | CLONE3 | EXIT | SET_TID_ADDRESS => {
            note_thread(serving, space, process, call, is_waiting);
            return Answer::Continue;
        }
        MMAP if args[3] & MAP_GROWSDOWN != 0 => return Answer::Continue,
        MMAP => map(&serving.references, space, process, &args).map(Some),
        BRK => set_break(&serving.references, space, process, args[0]).map(Some),
        // Rule P2: carried out by the agent, one at a time.
        MREMAP if rules::holds(Rule::OneMove) => {
            moves::mremap(&serving.references, space, process, &args).map(Some)
        }
        _ => return Answer::Continue,
    };
    match result {
        Ok(Some(value)) if value < 0 => {
            Answer::Errno(i32::try_from(value.saturating_neg()).unwrap_or(0))
        }
        Ok(Some(value)) => Answer::Value(value),
        Ok(None) | Err(AgentGone) => Answer::Continue,
    }
}

/// A thread ends or makes another.
fn note_thread(
    serving: &Serving,
    space: &Arc<Space>,
    process: &Process,
    call: &Notification,
    is_waiting: &dyn Fn() -> bool,
) {
    let args = &call.args;
    match call.nr {
        EXIT => thread_exit::prepare(serving, space, process, call.tid, is_waiting),
        CLONE => thread_exit::note_clone(serving, space, args),
        CLONE3 => thread_exit::note_clone3(serving, space, process, args),
        _ => thread_exit::note_word(serving, space, args[0]),
    }
}

/// mmap. In an active space the new memory is registered before anybody touches it. The agent makes the call in an
/// inactive space too: a call of the program itself, made while the space becomes active, could leave a mapping
/// unregistered, and the kernel would never merge that with its neighbours.
fn map(
    references: &References,
    space: &Space,
    process: &Process,
    args: &[u64; 6],
) -> Result<i64, AgentGone> {
    let [address, bytes, protection, flags, ..] = *args;
    let mut slot = process.agent.slot_beside_fork();
    if flags & MAP_FIXED != 0 && slot.is_forking() && has_entries(space, address, bytes) {
        slot = slot.after_fork(FORK_PATIENCE);
    }
    let is_active = space.is_active();
    let flags = if is_active {
        flags & !MAP_POPULATE
    } else {
        flags
    };
    let args = [address, bytes, protection, flags];
    let result = slot.call(op::MMAP, &args, &[])?;
    if let Ok(start) = u64::try_from(result)
        && is_active
    {
        regions::adopt(references, space, pages_of(start, bytes), &slot);
    }
    Ok(result)
}

/// Has any page of a range content outside of memory? If an mmap replaces it, the child of a fork may have copied it
/// before, so its entries must not go before the child has them.
fn has_entries(space: &Space, address: u64, bytes: u64) -> bool {
    let state = space.lock();
    let mut words = state.layout.words.iter(pages_of(address, bytes));
    words.any(|(_, word)| word.entry().is_some())
}

/// brk. What the heap gains is registered before anybody touches it.
fn set_break(
    references: &References,
    space: &Space,
    process: &Process,
    to: u64,
) -> Result<i64, AgentGone> {
    let mut slot = process.agent.slot_beside_fork();
    let gain = Gain::UpTo(to.div_ceil(PAGE_BYTES));
    let result = gain::during(space, &mut slot, gain, |slot| {
        slot.call(op::BRK, &[to], &[])
    })?;
    let after = pages_of(u64::try_from(result).unwrap_or(0), 0).end;
    let before = pages_of(slot.break_before(), 0).end;
    if before < after && space.is_active() {
        regions::adopt(references, space, before..after, &slot);
    }
    Ok(result)
}

/// The range that UFFDIO_REGISTER names, in the first two words of its argument.
fn registered_range(process: &Process, address: u64) -> Option<(u64, u64)> {
    let mut words = [0; 2];
    process
        .read_words(address, &mut words)
        .then_some((words[0], words[1]))
}

/// What `find` finds out by the id of a call's thread. It holds only if the call still waits afterwards: else the
/// thread has died, its id may be another one's, and the call must not be carried out in that one's process.
///
/// # Errors
/// `Over`.
fn of_caller<T>(call: &Call, find: impl FnOnce(&Notification) -> T) -> Result<T, NotifyError> {
    let found = find(&call.notification);
    if call.is_waiting() {
        Ok(found)
    } else {
        Err(NotifyError::Over)
    }
}

/// The space whose memory a process shares that is about to fork: a child of vfork, which is no process that the pager
/// knows. Only where forks are followed, because nobody else tells of this one.
fn space_shared_by(spaces: &Spaces, call: &Notification) -> Option<Arc<Space>> {
    if !may_fork(call.nr) {
        return None;
    }
    let pid = task::process_of(call.tid)?;
    let is_shared = |space: &Arc<Space>| {
        let process = space.process.get().filter(|process| process.is_followed());
        process.is_some_and(|process| image::may_share_memory(process.pid, pid))
    };
    spaces.all().into_iter().find(is_shared)
}

/// The space of the process that a thread belongs to.
fn space_of_thread(spaces: &Spaces, tid: u32) -> Option<Arc<Space>> {
    spaces
        .of_process(tid)
        .or_else(|| spaces.of_process(task::process_of(tid)?))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn what_was_found_by_the_id_of_a_caller_that_died_is_not_believed() {
        // No call waits at any other kind of file.
        let file = File::open("/dev/null").expect("a file");
        let notification = Notification {
            id: 1,
            tid: 77,
            nr: MREMAP,
            args: [0; 6],
        };
        let call = Call::new(Arc::new(Listener::from_fd(file.into())), notification);
        let found = of_caller(&call, |caller| Some(caller.tid));
        assert!(matches!(found, Err(NotifyError::Over)));
    }
}
