//! The hooks around fork. The pager hears of a fork before it happens, and the child is under a pager before it runs
//! on.
//!
//! `prepare` is the last hook to run before the fork, and `child` the first after it. In between all signals are
//! blocked and this thread holds the fork lock. As long as nothing is registered, a fork is only counted, and the child
//! begins like a fresh program. Otherwise the `herald` announces the fork. vfork and posix_spawn do not run the hooks,
//! and need none.
//!
//! Where the kernel tells of no forks, the pager follows them in the filter, and the child has its agent before its
//! first instruction. The hooks do nothing then.
//!
//! A child that was made without the hooks has a copy of the state here, taken at any moment: the lock may be held, or
//! a fork under way. Such a child has no agent. Its hooks do nothing, and of the state they write only `fork_mode`.

use core::sync::atomic::Ordering;

use crate::base::die::die;
use crate::base::kernel::{ENODATA, Errno, block_signals, process_id, restore_signals};
use crate::hooks::herald;
use crate::ring::{CONFINED, hello};
use crate::state::reservation::Reservation;
use crate::state::{STATE, phase};
use crate::thread::{self, Origin};

/// Values of `State::fork_mode`.
mod mode {
    /// There is no agent here.
    pub const OFF: u32 = 0;
    /// Nothing is registered, so the fork was only counted.
    pub const QUIET: u32 = 1;
    /// The pager has been told and knows what to do.
    pub const ANNOUNCED: u32 = 2;
    /// The pager could not be told: the child must not live.
    pub const BROKEN: u32 = 3;
    /// This process is a copy, and its children are copies too.
    pub const COPY: u32 = 4;
    /// The process has a seccomp filter of its own. The child gets no agent: its agent might be killed for its first
    /// call.
    pub const BARE: u32 = 5;
    /// It has turned out just now that the pager follows forks. It stays so, and the other hooks do nothing.
    pub const FOLLOWED: u32 = 6;
}

/// Before the fork, in the forking thread.
pub extern "C" fn prepare() {
    if STATE.is_followed() {
        return;
    }
    if STATE.is_copy() {
        // Several threads of a copy may be here at the same time; all of them store the same value.
        STATE.fork_mode.store(mode::COPY, Ordering::Relaxed);
        return;
    }
    let signals = block_signals();
    herald::lock();
    STATE.fork_signals.store(signals, Ordering::Relaxed);
    let mode = begin();
    if mode == mode::FOLLOWED {
        end();
    } else {
        STATE.fork_mode.store(mode, Ordering::Relaxed);
    }
}

fn begin() -> u32 {
    if STATE.settled() != phase::ARMED {
        return mode::OFF;
    }
    if STATE.is_followed() {
        return mode::FOLLOWED;
    }
    // A child of vfork shares its parent's memory, but the pager knows only the parent.
    if STATE.owner.load(Ordering::Relaxed) != process_id() {
        return mode::OFF;
    }
    let Some(ring) = STATE.ring() else {
        return mode::OFF;
    };
    // Pairs with the pager, which sets `active` and then waits for `forks` to be 0.
    ring.forks.fetch_add(1, Ordering::SeqCst);
    let active = ring.active.load(Ordering::SeqCst);
    if active == 0 {
        return mode::QUIET;
    }
    ring.forks.fetch_sub(1, Ordering::SeqCst);
    if active == CONFINED {
        return mode::OFF;
    }
    if STATE.sandboxed.load(Ordering::SeqCst) != 0 {
        return mode::BARE;
    }
    match herald::announce(hello::FORK_BEGIN) {
        Ok(true) => {}
        Ok(false) => return mode::BROKEN,
        // The pager hears of the child as of that of a bare clone.
        Err(_) => return mode::BARE,
    }
    // The fork may have waited until the pager had let go of this process. Then nothing is registered, and nobody waits
    // for the child. From the answer to the end of the fork that does not change.
    if ring.active.load(Ordering::SeqCst) == CONFINED {
        herald::dismiss();
        return mode::OFF;
    }
    mode::ANNOUNCED
}

/// After the fork, in the parent; also when the fork failed.
pub extern "C" fn parent() {
    if STATE.is_followed() {
        return;
    }
    match STATE.fork_mode.load(Ordering::Relaxed) {
        mode::QUIET => {
            // The ring is shared with the child. The parent alone counts the fork down.
            if let Some(ring) = STATE.ring() {
                ring.forks.fetch_sub(1, Ordering::SeqCst);
            }
        }
        mode::ANNOUNCED => herald::dismiss(),
        mode::COPY => return,
        _ => {}
    }
    end();
}

/// After the fork, in the child, whose only thread this is.
pub extern "C" fn child() {
    if STATE.is_followed() {
        return;
    }
    let origin = match STATE.fork_mode.load(Ordering::Relaxed) {
        mode::OFF => {
            STATE.phase.store(phase::OFF, Ordering::Relaxed);
            None
        }
        // The child goes on as a copy.
        mode::BARE => None,
        mode::QUIET if STATE.sandboxed.load(Ordering::SeqCst) != 0 => None,
        mode::QUIET => Some(Origin::Forked),
        mode::ANNOUNCED => Some(Origin::Inherited),
        mode::COPY => return,
        _ => die(b"vswap-agent: vswap was not ready for a fork, child killed\n"),
    };
    if let Some(origin) = origin {
        // SAFETY: this is the child's only thread.
        unsafe { forget_parent() };
        let started = thread::start(origin).is_ok();
        // Without an agent the pager cannot manage the memory. If nothing is registered it need not.
        if origin == Origin::Inherited && !(started && STATE.was_taken_in()) {
            die(b"vswap-agent: no thread for a forked process with swapped memory, process killed\n");
        }
    }
    end();
}

/// Turns the copy of the parent's state into that of a child without an agent. Returns where the parent's reservation
/// was; nothing of it is mapped any more.
///
/// # Safety
/// The caller is the child's only thread.
unsafe fn forget_parent() -> usize {
    let base = STATE.base.load(Ordering::Relaxed);
    STATE.ring.store(core::ptr::null_mut(), Ordering::SeqCst);
    // The process that forked, even if it has exited since: getppid would then name another process.
    STATE
        .parent
        .store(STATE.owner.load(Ordering::Relaxed), Ordering::Relaxed);
    herald::forget();
    STATE.phase.store(phase::OFF, Ordering::Relaxed);
    STATE.base.store(0, Ordering::Relaxed);
    // SAFETY: this is the child's only thread, and it has forgotten where the ring and the birthmark are.
    unsafe { Reservation::at(base).forsake() };
    base
}

/// In a child whose only thread this is, before it runs on. The pager has followed the fork from the filter on, and has
/// this thread run here. Returns when the pager knows the child.
pub fn begin_followed_child(origin: Origin) -> Result<(), Errno> {
    // SAFETY: the kernel has just made this process with one thread.
    let base = unsafe { forget_parent() };
    // Another thread of the parent may have held it.
    STATE.fork_lock.store(0, Ordering::Relaxed);
    // In the same place, because the pager expects it behind the image. Nothing can have been mapped there since.
    let started = Reservation::map_at(base)
        .and_then(|reservation| thread::start_in(origin, reservation))
        .and_then(|()| STATE.was_taken_in().then_some(()).ok_or(ENODATA));
    if started.is_err() && origin != Origin::Forked {
        // Without an agent the pager cannot manage the memory.
        die(b"vswap-agent: no thread for a forked process with swapped memory, process killed\n");
    }
    started
}

fn end() {
    let signals = STATE.fork_signals.load(Ordering::Relaxed);
    herald::unlock();
    restore_signals(signals);
}
