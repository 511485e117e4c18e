//! Faults that wait because the run is held, see `run/parking.rs`.

use crate::base::page_run::PAGE_BYTES;
use crate::space::Space;
use crate::space::fault::Fault;

/// Forget the faults that wait, and have their threads look again. A thread that is stopped meanwhile waits no more,
/// and looks again when it goes on: nothing is brought back for it before.
pub fn look_again(space: &Space) {
    let mut state = space.lock();
    let all = std::mem::take(&mut state.deferred);
    let (urgent, held): (Vec<Fault>, Vec<Fault>) = all.into_iter().partition(|fault| fault.urgent);
    state.deferred = urgent;
    drop(state);
    for fault in held {
        // The page is mapped, because the address came from the kernel. A dead space needs no wake.
        let _ = space.uffd.wake(fault.page * PAGE_BYTES, PAGE_BYTES);
    }
}
