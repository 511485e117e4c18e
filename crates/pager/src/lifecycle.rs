//! Beginnings and ends of spaces: hello, activation, death.

use std::fmt::Display;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use vswap_sys::eventfd::EventFd;
use vswap_sys::process;
use vswap_sys::ring::op;
use vswap_sys::uffd::{UffdError, Userfaultfd};

use crate::core::Core;
use crate::kin::Kin;
use crate::layout::Layout;
use crate::run::PAGE_BYTES;
use crate::space::{Process, Space};
use crate::{evict, notify, reader, regions, threads};

/// An agent that hung up while its process's memory lives on has been tampered with; after this long the process is
/// killed, because nobody could ever stop it cleanly any more.
const HANGUP_PATIENCE: Duration = Duration::from_secs(2);
/// How often an armed space looks whether memory is short; it is also woken for that.
const ACTIVATE_PACE: Duration = Duration::from_millis(50);
/// How often it looks whether a fork is over that saw the space inactive.
const FORK_PACE: Duration = Duration::from_micros(500);
/// How long a failed call on a process's memory may be waited on to be explained by its end.
const ENDING_PATIENCE: Duration = Duration::from_millis(500);
/// An address that no process has mapped: asking for it tells whether the address space still exists.
const UNMAPPED_ADDRESS: u64 = PAGE_BYTES;

/// A space for a program image that has just started, or for a child that was forked before anything was registered.
pub fn begin(
    core: &Arc<Core>,
    uffd: OwnedFd,
    process: Process,
    kin: Arc<Kin>,
) -> std::io::Result<Arc<Space>> {
    let uffd = Userfaultfd::from_fd(uffd);
    let stop = EventFd::new().map_err(std::io::Error::from)?;
    let space = Space::new(core.next_space_id(), uffd, stop, Layout::default(), kin);
    // A new space has no process yet, so this cannot fail.
    let _ = space.process.set(process);
    core.add_space(Arc::clone(&space));
    Ok(space)
}

/// Memory may become short, or a forked child has said hello: start the space's evictor. Until memory is short it only
/// gets ready. The caller does not wait: a stopped process answers late.
pub fn start_evictor(core: &Arc<Core>, space: &Arc<Space>) {
    // A forked child that has not said hello has nobody who could move its pages.
    if space.process.get().is_none() || space.evictor_started.swap(true, Ordering::AcqRel) {
        return;
    }
    let (core, space) = (Arc::clone(core), Arc::clone(space));
    threads::spawn(&format!("evict-{}", space.id), move || {
        // Until it is registered the process grows unasked.
        threads::hurry_most();
        if space.is_active() || (arm(&core, &space) && activate(&core, &space)) {
            threads::hurry();
            evict::run(&core, &space);
        }
    });
}

/// Register the space's memory as soon as possible, whether memory is short yet or not.
pub fn hasten(core: &Arc<Core>, space: &Arc<Space>) {
    space.hastened.store(true, Ordering::Release);
    start_evictor(core, space);
    space.evictor.ask(|wanted| wanted.rescan = true);
}

/// What takes long and costs the program nothing: the filter, and the threads. False when the process may not be
/// managed.
fn arm(core: &Arc<Core>, space: &Arc<Space>) -> bool {
    let Some(process) = space.process.get() else {
        return false;
    };
    if !install_filter(core, space, process) {
        return false;
    }
    regions::exclude_wiped_on_fork(space, process);
    reader::start(core, space);
    true
}

/// Wait until memory is short, then register. False when the process ended before.
fn activate(core: &Core, space: &Space) -> bool {
    let Some(process) = space.process.get() else {
        return false;
    };
    // A fork that saw the space inactive must be over first.
    let is_due = || core.is_short() || space.hastened.load(Ordering::Acquire);
    while !is_due() || !process.agent.announce_active() {
        let pace = if is_due() { FORK_PACE } else { ACTIVATE_PACE };
        if space.has_ended() || space.evictor.take(pace).stop {
            return false;
        }
    }
    // A fork that is announced from now on waits for the slot, and then finds everything registered.
    let slot = process.agent.slot();
    space.active.store(true, Ordering::Release);
    core.stats.activations.add(1);
    regions::rescan(core, space, process, &slot);
    true
}

/// The seccomp filter serialises mremap (rule P2). Without it the space may not be registered.
fn install_filter(core: &Arc<Core>, space: &Arc<Space>, process: &Process) -> bool {
    const EBUSY: i64 = -16;
    if space.filtered.load(Ordering::Acquire) {
        return true;
    }
    let mut slot = process.agent.slot();
    match slot.call(op::INSTALL_FILTER, &[], &[]) {
        Ok(0) => match slot.receive_descriptor() {
            Ok(listener) => notify::start(core, listener),
            Err(error) => return refuse(core, space, &error),
        },
        // A filter with a listener is there: ours, from the process that this one was started or forked by.
        Ok(EBUSY) if core.has_listener() => {}
        Ok(errno) => {
            let error = std::io::Error::from_raw_os_error(i32::try_from(-errno).unwrap_or(0));
            return refuse(core, space, &error);
        }
        Err(_) => return false,
    }
    space.filtered.store(true, Ordering::Release);
    true
}

/// Without the filter a mremap could lose pages, so the process stays unmanaged, and the user is told once.
fn refuse(core: &Core, space: &Space, error: &dyn Display) -> bool {
    if !space.refused.swap(true, Ordering::Relaxed) && !core.config.quiet {
        let pid = space.pid().unwrap_or(0);
        eprintln!(
            "vswap: process {pid} cannot be managed: its seccomp filter could not be installed ({error}); \
             it runs on without swap"
        );
    }
    false
}

/// The agent's connection has closed: the process has exited or replaced its image, or is about to.
pub fn hang_up(space: &Space) {
    if let Some(process) = space.process.get() {
        process.agent.set_gone();
    }
    let mut hung_up = space.hung_up.lock();
    hung_up.get_or_insert_with(Instant::now);
}

/// End the spaces whose memory is gone. Entries are given up only when the kernel says that the address space no
/// longer exists: until then some thread may still read its memory on the way out.
pub fn reap(core: &Core, spaces: &[Arc<Space>]) {
    for space in spaces {
        let hung_up = *space.hung_up.lock();
        let unknown = space.process.get().is_none();
        if !unknown && hung_up.is_none() {
            continue;
        }
        if is_gone(space) {
            end(core, space);
        } else if hung_up.is_some_and(|since| since.elapsed() > HANGUP_PATIENCE)
            && let Some(pid) = space.pid()
        {
            // It may have exited already; then the next probe says so.
            let _ = process::kill(pid);
        }
    }
}

/// Does the address space no longer exist?
fn is_gone(space: &Space) -> bool {
    space.uffd.zeropage(UNMAPPED_ADDRESS, PAGE_BYTES, true) == Err(UffdError::Gone)
}

/// Is the process exiting or replacing its image? Waits a little: that its agent hung up is heard a moment after a
/// call on its memory fails for it.
pub fn is_ending(space: &Space) -> bool {
    let since = Instant::now();
    while since.elapsed() < ENDING_PATIENCE {
        if space.has_ended() || space.is_hung_up() || is_gone(space) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    false
}

fn end(core: &Core, space: &Arc<Space>) {
    space.ended.store(true, Ordering::Release);
    // Readers that miss the signal see `ended`; an eventfd that is full is signalled.
    let _ = space.stop.signal();
    space.evictor.ask(|wanted| wanted.stop = true);
    let mut state = space.lock();
    state.layout.clear(&mut core.put_words());
    state.deferred.clear();
    state.waiting.clear();
    space.thaw(&mut state);
    drop(state);
    space.proposals.drop_all(core);
    core.remove_space(space.id);
    core.shares.end(space.id);
    core.spaces()
        .iter()
        .for_each(|other| other.share_has_changed());
}
