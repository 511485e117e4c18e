//! Letting go of processes that live on: of one, or of all when the run ends before them.
//!
//! Everything that is out comes back, whatever the limit says, and nothing stays registered. A process of a run that
//! goes on keeps its agent, which does nothing any more. When the whole run is left, the agents leave too, and then the
//! threads that answer trapped calls. The filters stay, because no filter can be taken off. Whoever holds their
//! listeners afterwards, which stay open, has to answer (`vswap_sys::guardian`).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use vswap_sys::process::procfs;

use crate::calls::confine;
use crate::life::run::Run;
use crate::space::Space;

/// Pause between two looks at what still has to leave.
const PACE: Duration = Duration::from_millis(2);

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
        let spaces = listening.spaces.all();
        if spaces.is_empty() {
            break;
        }
        for space in &spaces {
            // A forked child that has not said hello is met again.
            let Some(pid) = space.pid() else { continue };
            if !space.dismissed.load(Ordering::Acquire) {
                if procfs::stat(pid).is_ok_and(|stat| stat.stopped()) {
                    if !stopped.contains(&pid) {
                        stopped.push(pid);
                        say_stopped(pid);
                    }
                    continue;
                }
                dismiss(run, space);
                left.push(Arc::downgrade(space));
            }
        }
        drop(spaces);
        wait_for_governor(run);
    }
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
    if let Some(process) = space.process.get() {
        confine::let_go(&run.listening.serving, space, process);
        space.dismissed.store(true, Ordering::Release);
        process.agent.dismiss();
    }
}
