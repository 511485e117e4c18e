//! Letting go of processes that live on: of one, or of all when the run ends before them.
//!
//! Everything that is out comes back, whatever the limit says, and nothing stays registered. A process of a run that
//! goes on keeps its agent, which does nothing any more. When the whole run is left, the agents leave too, and then the
//! threads that answer trapped calls. The filters stay, because no filter can be taken off. Whoever holds their
//! listeners afterwards, which stay open, has to answer (`vswap_sys::guardian`).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use vswap_sys::process::procfs;

use crate::calls::confine;
use crate::life::last_thread;
use crate::life::run::Run;
use crate::space::Space;

/// Pause between two looks at what still has to leave.
const PACE: Duration = Duration::from_millis(2);
/// How long a thread may take to end that has been let go to its end, and the pause between two looks.
const EXIT_PATIENCE: Duration = Duration::from_secs(1);
const EXIT_PACE: Duration = Duration::from_micros(100);

/// There is no process of this id that vswap manages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotManaged(pub u32);

impl fmt::Display for NotManaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "vswap does not manage process {} in this run", self.0)
    }
}

impl std::error::Error for NotManaged {}

/// Let go of one process. Returns when all that it had in swap is in memory again. The process stays in the run, and
/// counts as long as it lives.
///
/// # Errors
/// It is none of the run, or has no agent.
pub fn let_go(run: &Run, pid: u32) -> Result<(), NotManaged> {
    let space = run.listening.spaces.of_process(pid);
    let space = space.ok_or(NotManaged(pid))?;
    let process = space.process.get().ok_or(NotManaged(pid))?;
    confine::let_go(&run.listening.serving, &space, process);
    Ok(())
}

/// Let go of all processes and have their agents leave. Returns when no thread of the pager has to do with any of them
/// any more. A stopped process may hold that up: `say_stopped` hears of it once.
pub fn leave(run: &Run, mut say_stopped: impl FnMut(u32)) {
    let listening = &run.listening;
    listening.leaving.begin();
    let mut left = Vec::new();
    let mut stopped = Vec::new();
    loop {
        // In this order: who was on the way in has a space now.
        let is_admitting = listening.leaving.is_admitting();
        let spaces = listening.spaces.all();
        if spaces.is_empty() && !is_admitting {
            break;
        }
        for space in spaces {
            if space.dismissed.load(Ordering::Acquire) {
                continue;
            }
            match space.pid() {
                // Its agent answers when it goes on.
                Some(pid) if procfs::stat(pid).is_ok_and(|stat| stat.stopped()) => {
                    if !stopped.contains(&pid) {
                        stopped.push(pid);
                        say_stopped(pid);
                    }
                    continue;
                }
                Some(_) => dismiss(run, &space),
                None if space.is_bare.load(Ordering::Acquire) => {
                    confine::let_go_of_copy(&listening.serving, &space);
                    space.dismissed.store(true, Ordering::Release);
                }
                // A forked child that has not said hello is met again.
                None => continue,
            }
            left.push(Arc::downgrade(&space));
        }
        wait_for_governor(run);
    }
    listening.leaving.end_calls();
    // Their userfaultfds close with the last reference.
    while left.iter().any(|space| space.strong_count() > 0) || listening.leaving.are_calls_taken() {
        wait_for_governor(run);
    }
}

/// The governor ends the spaces.
fn wait_for_governor(run: &Run) {
    run.serving.limit.look_now();
    std::thread::sleep(PACE);
}

fn dismiss(run: &Run, space: &Arc<Space>) {
    let Some(process) = space.process.get() else {
        return;
    };
    confine::let_go(&run.listening.serving, space, process);
    // The agent's thread must not be the last one, or has to end with the right status.
    space.exits.hold();
    let since = Instant::now();
    while !space.exits.are_over(process.pid) && since.elapsed() < EXIT_PATIENCE {
        std::thread::sleep(EXIT_PACE);
    }
    let alone = last_thread::code_if_alone(process.pid, process.agent.tid().cast_unsigned());
    let code = alone.map(|code| space.exits.last_code().unwrap_or(code));
    run.listening.leaving.has_let_go(process.pid);
    tracing::debug!(pid = process.pid, "a process goes on without vswap");
    space.dismissed.store(true, Ordering::Release);
    process.agent.dismiss(code);
}
