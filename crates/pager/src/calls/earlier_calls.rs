//! Calls that are under way when memory is registered for the first time.
//!
//! The filter stops a call where it enters the kernel, and lets it through as long as nothing is to be registered. One
//! that had entered before the filter came, or was let through just now, goes on unseen, and on a busy machine its
//! thread may wait for a processor meanwhile. Were memory registered before it has done what it came for, a fork would
//! make a child that nobody follows, and an mremap would move pages behind the pager's back, or fail. So nothing is
//! registered until each thread was seen to wait elsewhere, or has run for long enough to be past that point: from
//! there on the call holds the lock of the mappings, and whoever registers waits for it.
//!
//! Meanwhile the program goes on growing. On a busy machine one of its threads may get no processor for a tenth of a
//! second while another fills memory, so who is in doubt gets a turn where the user may ask for that.
//!
//! This runs on the evictor's thread and holds no lock, nor the agent's slot: calls that stop at the filter meanwhile
//! are carried out, and then over.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use vswap_sys::process::procfs;
use vswap_sys::process::task::{self, At};
use vswap_sys::process::turns::Turns;

use super::notify::is_held_back;

/// A call takes a few microseconds to that point.
const RUN_ENOUGH: Duration = Duration::from_millis(1);
/// How long to wait at all: a thread may wait in vfork until its child has become a program.
const PATIENCE: Duration = Duration::from_secs(1);
const PACE: Duration = Duration::from_micros(200);

/// Wait until no thread of the process is in doubt, or for a while. `agent` is that of the agent. The caller should be
/// in the real-time class: others cannot give turns.
pub fn wait_for(pid: u32, agent: u32) {
    let threads = procfs::threads(pid).unwrap_or_default();
    let others = threads.into_iter().filter(|tid| *tid != agent);
    let mut in_doubt: HashMap<u32, Doubt> = others.map(|tid| (tid, Doubt::default())).collect();
    let since = Instant::now();
    // Not for every user.
    let giving = Turns::begin().ok();
    while since.elapsed() < PATIENCE {
        in_doubt
            .retain(|tid, doubt| doubt.holds(task::is_at(*tid), || task::time_on_processors(*tid)));
        if in_doubt.is_empty() {
            return;
        }
        let turn = |tid: &u32| giving.as_ref()?.give(*tid);
        let turns: Vec<_> = in_doubt.keys().filter_map(turn).collect();
        std::thread::sleep(PACE);
        drop(turns);
    }
}

/// Whether one thread may be on its way to that point.
#[derive(Debug, Default)]
struct Doubt {
    /// How long it had run when it was looked at first.
    ran: Option<Duration>,
}

impl Doubt {
    fn holds(&mut self, at: Option<At>, ran: impl FnOnce() -> Option<Duration>) -> bool {
        match at {
            Some(At::Call(number)) => is_held_back(number),
            Some(At::Elsewhere) => false,
            Some(At::Running) | None => {
                // It has gone, or nobody may know.
                let Some(now) = ran() else {
                    return at.is_some();
                };
                now < *self.ran.get_or_insert(now) + RUN_ENOUGH
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use vswap_sys::abi;

    use super::*;

    const CLONE: i32 = abi::call::CLONE.cast_signed();
    /// Any that is not held back.
    const IOCTL: i32 = abi::call::IOCTL.cast_signed();

    #[test]
    fn a_thread_is_in_doubt_until_it_waits_elsewhere_or_has_run() {
        let ms = |ms| move || Some(Duration::from_millis(ms));
        let mut doubt = Doubt::default();
        assert!(doubt.holds(Some(At::Running), ms(7)));
        assert!(doubt.holds(Some(At::Running), ms(7)));
        assert!(doubt.holds(Some(At::Call(CLONE)), ms(7)));
        assert!(!doubt.holds(Some(At::Running), ms(8)));
        let mut doubt = Doubt::default();
        assert!(!doubt.holds(Some(At::Call(IOCTL)), ms(7)));
        assert!(!doubt.holds(Some(At::Elsewhere), ms(7)));
        assert!(!doubt.holds(None, || None), "it has gone");
        assert!(doubt.holds(Some(At::Running), || None), "nobody knows");
    }
}
