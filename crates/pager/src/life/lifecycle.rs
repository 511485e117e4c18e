//! Beginnings and ends of spaces: hello, activation, death.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use vswap_sys::memory::addresses;
use vswap_sys::process::could_have_descriptors;
use vswap_sys::ring::op;
use vswap_sys::seccomp::Listener;

use crate::base::kernel::uffd::Userfaultfd;
use crate::base::page_run::PAGE_BYTES;
use crate::base::threads;
use crate::calls::confine::{CONFINED, FILTER_OF_ALL, never_ask, refuse};
use crate::calls::earlier_calls;
use crate::calls::notify::{self, Hasten};
use crate::calls::thread_exit;

use crate::events::listening::Listening;
use crate::events::{reader, regions};
use crate::evict;
use crate::fault::serving::Serving;
use crate::layout::Layout;
use crate::life::last_thread;
use crate::life::run::Run;
use crate::space::kin::Kin;
use crate::space::process::Process;
use crate::space::{Space, marks};

/// After this long a process is killed whose agent hung up although its memory lives on. Somebody has tampered with the
/// agent, and nobody could ever stop the process cleanly any more.
const HANGUP_PATIENCE: Duration = Duration::from_secs(2);
/// Where the addresses of programs begin that the kernel can be asked about: it refuses the lowest.
const ADDRESSES_START: u64 = 1 << 20;
/// How often an armed space checks whether memory is short. It is also woken for that.
const ACTIVATE_PACE: Duration = Duration::from_millis(50);
/// How often it checks whether a fork is over that saw the space inactive.
const FORK_PACE: Duration = Duration::from_micros(500);
/// Descriptors that must be left before a filter is installed: one for the filter, and some for what others do at that
/// moment.
const FILTER_DESCRIPTORS: usize = 4;

/// Most spaces that end in one go. Thousands may be killed together, and samples have to be taken meanwhile.
const ENDS_MAX: usize = 64;

/// Make a space for a program image that has just started, or for a child that was forked before anything was
/// registered.
pub fn begin(
    listening: &Listening,
    uffd: Userfaultfd,
    process: Process,
    kin: Arc<Kin>,
) -> std::io::Result<Arc<Space>> {
    let space = Space::new(listening.spaces.next_id(), uffd, Layout::default(), kin);
    // A new space has no process yet, so this cannot fail.
    let _ = space.process.set(process);
    tracing::debug!(
        space = space.id,
        pid = space.pid(),
        "a process has said hello"
    );
    listening.spaces.add(Arc::clone(&space));
    listening.serving.limit.look_now();
    Ok(space)
}

/// Start the space's evictor. Either memory may become short, or a forked child has said hello. Until memory is short
/// the evictor only gets ready. The caller does not wait, because a stopped process answers late.
pub fn start_evictor(run: &Arc<Run>, space: &Arc<Space>) {
    // Nobody could move the pages of a forked child that has not said hello.
    if space.process.get().is_none() || space.mailbox.evictor_started.swap(true, Ordering::AcqRel) {
        return;
    }
    let (run, evicted) = (Arc::clone(run), Arc::clone(space));
    let own = Arc::clone(&run);
    // Hurry: until its memory is registered the process grows unasked.
    let started = threads::try_spawn_hurried(&format!("evict-{}", space.id), move || {
        if evicted.is_active() {
            threads::hurry();
            evict::run(&own.evicting, &evicted);
        } else if arm(&own, &evicted) && activate(&own.serving, &evicted) {
            evict::run(&own.evicting, &evicted);
        }
    });
    if let Err(error) = started {
        // The governor will ask for it again.
        space
            .mailbox
            .evictor_started
            .store(false, Ordering::Release);
        refuse(run.config.quiet, space, NO_EVICTOR, &error);
    }
}

/// Register the space's memory as soon as possible, even if memory is not short yet.
pub fn hasten(run: &Arc<Run>, space: &Arc<Space>) {
    space.hastened.store(true, Ordering::Release);
    start_evictor(run, space);
    space.mailbox.ask(|wanted| wanted.rescan = true);
}

/// Do what takes long and costs the program nothing: install the filter, start the threads. False if the process may
/// not be managed.
fn arm(run: &Arc<Run>, space: &Arc<Space>) -> bool {
    let Some(process) = space.process.get() else {
        return false;
    };
    if !install_filter(run, space, process) {
        return false;
    }
    // What follows takes the longer the more mappings and threads the process has, so it is not for the real-time
    // class.
    threads::hurry();
    regions::exclude_wiped_on_fork(space, process);
    marks::look_for_rings(space, process);
    let start = |line, cpu| reader::start(&run.listening, line, cpu);
    match run.listening.watch.begin(space, &run.cpus, start) {
        Ok(()) => true,
        Err(error) => refuse(run.config.quiet, space, NO_READER, &error),
    }
}

/// Wait until memory is short, then register. False if the process ends or is confined before.
fn activate(serving: &Serving, space: &Space) -> bool {
    let Some(process) = space.process.get() else {
        return false;
    };
    thread_exit::await_unknown_threads(process);
    // A fork that saw the space inactive must be over first.
    let is_due = || serving.limit.is_short() || space.hastened.load(Ordering::Acquire);
    while !is_due() || !process.agent.announce_active() {
        let pace = if is_due() { FORK_PACE } else { ACTIVATE_PACE };
        if space.has_ended() || space.is_confined() || space.mailbox.take(pace).stop {
            return false;
        }
    }
    // From now on trapped calls are carried out here. Those that were let through before have to be over.
    space.mailbox.active.store(true, Ordering::Release);
    // Meanwhile it grows unasked. Only who is in the real-time class can give its threads a turn.
    threads::hurry_most();
    earlier_calls::wait_for(process.pid, process.agent.tid().cast_unsigned());
    threads::hurry();
    // A fork announced from now on waits for the slot, and then finds everything registered.
    let slot = process.agent.slot();
    if space.is_confined() {
        process.agent.confine();
        return false;
    }
    serving.stats.activations.add(1);
    let (id, pid) = (space.id, process.pid);
    tracing::debug!(space = id, pid, "memory is short: a process is watched");
    regions::rescan(&serving.references, space, process, &slot);
    true
}

/// Why a process is refused: nobody could move its pages out, or serve its faults.
const NO_EVICTOR: &str = "no thread can move its pages out";
const NO_READER: &str = "its faults cannot be served";
/// Why a process is refused: its system calls cannot be trapped.
const NO_FILTER: &str = "its seccomp filter could not be installed";

/// The program is about to install a seccomp filter on one of its threads. After that no filter could be installed on
/// all of them, so vswap installs its own first. If that fails, the user is told, and the process stays unmanaged.
pub fn filter_first(run: &Arc<Run>, space: &Arc<Space>) {
    if let Some(process) = space.process.get() {
        install_filter(run, space, process);
    }
}

/// The kernel tells of no forks of this process. They are followed from the filter on, so that comes first; the program
/// waits for it. Without the filter nothing of the process is ever registered, and it forks as it likes.
pub fn follow(run: &Arc<Run>, space: &Arc<Space>) {
    if let Some(process) = space.process.get() {
        let is_filtered = install_filter(run, space, process);
        if !is_filtered {
            // Its hooks will see to its forks. Were it managed later all the same, the two would wait for one another.
            never_ask(space, process);
        }
        // A process that has ended does not wait any more.
        let _ = process
            .agent
            .slot()
            .call(op::FOLLOW, &[u64::from(is_filtered)], &[]);
    }
}

/// The seccomp filter makes mremap run one at a time (rule P2). Without it the space may not be registered.
fn install_filter(run: &Arc<Run>, space: &Arc<Space>, process: &Process) -> bool {
    const EEXIST: i64 = -17;
    const EMFILE: i32 = 24;
    if space.filtered.load(Ordering::Acquire) {
        return true;
    }
    let hastens = Arc::clone(run);
    let hasten: Hasten = Arc::new(move |space| hasten(&hastens, space));
    let to_listener = match notify::start(&run.listening, hasten) {
        Ok(to_listener) => to_listener,
        Err(error) => return refuse(run.config.quiet, space, NO_FILTER, &error),
    };
    let mut slot = process.agent.slot();
    // Another thread may have installed it meanwhile.
    if space.filtered.load(Ordering::Acquire) {
        return true;
    }
    if space.is_confined() {
        return false;
    }
    if process.agent.is_confined() {
        // The agent might be killed for the next thing it does.
        never_ask(space, process);
        return refuse(run.config.quiet, space, CONFINED, &FILTER_OF_ALL);
    }
    // The filter's descriptor is sent back. If there is no room for it, the calls that the filter stops fail.
    if !could_have_descriptors(FILTER_DESCRIPTORS) {
        let error = std::io::Error::from_raw_os_error(EMFILE);
        return refuse(run.config.quiet, space, NO_FILTER, &error);
    }
    let outcome = slot.call(op::INSTALL_FILTER, &[], &[]);
    // It is sent before any thread but the agent's has the filter, whatever becomes of the rest.
    let received = slot.receive_listener().map(|listener| {
        take_over(run, listener, &to_listener);
    });
    match outcome {
        Ok(0) => {
            if let Err(error) = received {
                return refuse(run.config.quiet, space, NO_FILTER, &error);
            }
        }
        // The filter is there, from the process that started or forked this one.
        Ok(EEXIST) if run.filters.has_listener() => {}
        Ok(errno) => {
            // The agent's thread may have the filter alone, and cannot install it again.
            never_ask(space, process);
            let errno = i32::try_from(errno.saturating_neg()).unwrap_or(0);
            let error = std::io::Error::from_raw_os_error(errno);
            return refuse(run.config.quiet, space, NO_FILTER, &error);
        }
        Err(_) => {
            // It has ended, or runs another program, perhaps under the filter.
            if received.is_ok() {
                run.filters.note(process.pid);
            }
            return false;
        }
    }
    space.filtered.store(true, Ordering::Release);
    run.filters.note(process.pid);
    true
}

/// The thread that was started for the listener waits for it.
fn take_over(run: &Run, listener: Listener, thread: &Sender<Listener>) {
    run.filters.add_listener();
    // Without a thread nobody would have asked for the filter.
    let _ = thread.send(listener);
}

/// The agent's connection has closed. The process has exited or replaced its image, or is about to.
pub fn hang_up(space: &Space) {
    if let Some(process) = space.process.get() {
        process.agent.set_gone();
    }
    let mut hung_up = space.hung_up.lock();
    hung_up.get_or_insert_with(Instant::now);
}

/// End the spaces whose memory is gone, some at a time. What they have out is left in `listening.remains`, and only
/// when the kernel says that the address space no longer exists. Until then some thread may still read its memory on
/// the way out. True if there may be more to end.
pub fn reap(listening: &Listening, spaces: &[Arc<Space>]) -> bool {
    let mut ended = 0;
    for space in spaces {
        if ended == ENDS_MAX {
            break;
        }
        last_thread::follow(space);
        let hung_up = *space.hung_up.lock();
        let unknown = space.process.get().is_none();
        if !unknown && hung_up.is_none() {
            continue;
        }
        if space.uffd.is_gone() || space.dismissed.load(Ordering::Acquire) {
            end(listening, space);
            ended += 1;
        } else if hung_up.is_some_and(|since| since.elapsed() > HANGUP_PATIENCE)
            && let Some(process) = space.process.get()
        {
            // The process may have exited already. Then the next check finds that out.
            let _ = process.pidfd.kill();
            let_go_of_readers(listening, space, process);
        }
    }
    if ended > 0 {
        listening.serving.limit.has_more_room();
        let left = listening.spaces.all();
        left.iter().for_each(|other| other.share_has_changed());
    }
    ended == ENDS_MAX
}

/// A process whose agent has hung up has been killed, and its memory lives on. A thread of the pager that reads there
/// may be what keeps it. It waits for a page that the program has put under one of the userfaultfds that the pager has
/// too, for a fault whose message the program has read itself, or for a page that was on its way out when the agent
/// was gone.
fn let_go_of_readers(listening: &Listening, space: &Arc<Space>, process: &Process) {
    let other = process.agent.socket().as_fd();
    // Nobody serves faults there.
    process.staging.retire(other);
    if space.is_active() {
        // Woken, they fault once more, and the fault is served.
        let bytes = addresses::end() - ADDRESSES_START;
        let _ = space.uffd.wake(ADDRESSES_START, bytes);
        // What does not come is lost. Should another process still have this memory, it gets SIGBUS there.
        if !process.is_alive() {
            for page in process.proofs.reading().flatten() {
                let address = page * PAGE_BYTES;
                // A marker in its place is in the way.
                let _ = space.uffd.write_unprotect(address, PAGE_BYTES, true);
                let _ = space.uffd.poison(address, PAGE_BYTES, false);
            }
        }
    } else {
        // Vswap has registered nothing with it, so nothing is out.
        space.uffd.retire(other);
        end(listening, space);
    }
}

fn end(listening: &Listening, space: &Arc<Space>) {
    tracing::debug!(
        space = space.id,
        pid = space.pid(),
        "the memory of a process is gone"
    );
    space.mailbox.ended.store(true, Ordering::Release);
    listening.watch.end(space);
    space.mailbox.ask(|wanted| wanted.stop = true);
    let mut state = space.lock();
    let words = state.layout.end();
    state.deferred.clear();
    state.waiting.clear();
    space.thaw(&mut state);
    drop(state);
    listening.remains.add(words);
    space
        .mailbox
        .put_proposals(&listening.serving.engine, |_| true);
    listening.forks.forget(space.id);
    listening.spaces.remove(space.id);
    listening.shares.end(space.id);
}
