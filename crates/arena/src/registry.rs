//! Which arena an address is of. The handler asks here.
//!
//! Bounds are read without a lock. The arena behind them is held by a share of its place's lock while a fault is
//! served; the lock is taken for writing only while an arena comes or goes, when nobody touches its memory, and with
//! signals blocked.

use std::mem::ManuallyDrop;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard, TryLockError};

use vswap_sys::sigbus::{self, Masked};

use crate::error::ArenaError;
use crate::state::{Core, PAGE_BYTES};

/// Arenas of a process. The handler looks at all of them.
const ARENAS_MOST: usize = 64;

struct Place {
    /// The process whose arena it is; 0 for none.
    home: AtomicU32,
    start: AtomicUsize,
    end: AtomicUsize,
    core: RwLock<Option<Arc<Core>>>,
}

static PLACES: [Place; ARENAS_MOST] = [const {
    Place {
        home: AtomicU32::new(0),
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        core: RwLock::new(None),
    }
}; ARENAS_MOST];

/// An arena whose faults are served. Dropping this ends that.
#[derive(Debug)]
pub struct Registered {
    place: usize,
    /// The process that it is served in.
    pid: u32,
}

impl Registered {
    /// Has the faults of an arena served.
    ///
    /// # Errors
    /// Too many arenas; no handler can be installed.
    pub fn new(core: &Arc<Core>) -> Result<Registered, ArenaError> {
        let what = "a handler of SIGBUS";
        sigbus::install(serve).map_err(|error| ArenaError::System { what, error })?;
        let _masked = Masked::new();
        PLACES
            .iter()
            .for_each(|place| place.leave_parents(core.pid));
        let is_taken = |place: &Place| place.try_to_take(core);
        let most = ARENAS_MOST;
        let place = PLACES
            .iter()
            .position(is_taken)
            .ok_or(ArenaError::TooManyArenas { most })?;
        Ok(Registered {
            place,
            pid: core.pid,
        })
    }
}

impl Place {
    /// Forgets the addresses of an arena that stayed with the parent of a fork: this process may have others there.
    fn leave_parents(&self, pid: u32) {
        if ![0, pid].contains(&self.home.load(Ordering::Acquire)) {
            self.end.store(0, Ordering::Release);
            self.start.store(0, Ordering::Release);
        }
    }

    /// Has this place hold an arena, if it holds none of this process.
    fn try_to_take(&self, core: &Arc<Core>) -> bool {
        let Some(mut held) = self.lock_if_free(core.pid) else {
            return false;
        };
        // That of a parent's is never dropped: its addresses are not mapped here, or are somebody else's.
        let _parents = held.take().map(ManuallyDrop::new);
        *held = Some(Arc::clone(core));
        self.home.store(core.pid, Ordering::Release);
        let Range { start, end } = bounds(core);
        // Release pairs with the loads in `serve`. The end comes last: before that no address is in between.
        self.start.store(start, Ordering::Release);
        self.end.store(end, Ordering::Release);
        true
    }

    fn lock_if_free(&self, pid: u32) -> Option<RwLockWriteGuard<'_, Option<Arc<Core>>>> {
        let home = self.home.load(Ordering::Acquire);
        if home == pid {
            return None;
        }
        let held = if home == 0 {
            self.core.write().unwrap_or_else(PoisonError::into_inner)
        } else {
            // A thread of the parent may have held the lock, and is not there to release it.
            match self.core.try_write() {
                Ok(held) => held,
                Err(TryLockError::Poisoned(held)) => held.into_inner(),
                Err(TryLockError::WouldBlock) => return None,
            }
        };
        // Somebody may have come first.
        (self.home.load(Ordering::Acquire) == home).then_some(held)
    }

    /// The arena, if it has one of these addresses.
    fn core_with(&self, addresses: &Range<usize>) -> Result<Option<Arc<Core>>, ArenaError> {
        let end = self.end.load(Ordering::Acquire);
        let start = self.start.load(Ordering::Acquire);
        if addresses.start >= end || addresses.end <= start {
            return Ok(None);
        }
        if self.home.load(Ordering::Acquire) != std::process::id() {
            return Err(ArenaError::Forked);
        }
        // The share ends before anything else is done: who waits to take the place has handlers wait.
        let _masked = Masked::new();
        let held = self.core.read().unwrap_or_else(PoisonError::into_inner);
        Ok(held.clone())
    }
}

/// The arenas that have some of these addresses.
///
/// # Errors
/// `Forked`: they had, in the parent.
pub fn cores_with(addresses: &Range<usize>) -> Result<Vec<Arc<Core>>, ArenaError> {
    let mut cores = Vec::new();
    for place in &PLACES {
        cores.extend(place.core_with(addresses)?);
    }
    Ok(cores)
}

impl Drop for Registered {
    fn drop(&mut self) {
        if std::process::id() != self.pid {
            // The child of a fork: another thread may have held the lock then.
            return;
        }
        let _masked = Masked::new();
        let place = &PLACES[self.place];
        let mut held = place.core.write().unwrap_or_else(PoisonError::into_inner);
        place.end.store(0, Ordering::Release);
        place.start.store(0, Ordering::Release);
        place.home.store(0, Ordering::Release);
        let core = held.take();
        drop(held);
        drop(core);
    }
}

/// Addresses of an arena.
pub fn bounds(core: &Core) -> Range<usize> {
    let start = core.memory.pointer().addr().get();
    start..start + core.memory.pages() * PAGE_BYTES
}

/// Serves a fault, in the handler.
fn serve(address: usize, is_write: bool) -> bool {
    for place in &PLACES {
        let end = place.end.load(Ordering::Acquire);
        let start = place.start.load(Ordering::Acquire);
        if !(start..end).contains(&address) {
            continue;
        }
        let held = place.core.read().unwrap_or_else(PoisonError::into_inner);
        let Some(core) = held.as_ref().filter(|core| bounds(core).contains(&address)) else {
            return false;
        };
        let page = (address - start) / PAGE_BYTES;
        return match core.serve_touch(page, is_write) {
            Ok(()) => true,
            Err(why) => {
                sigbus::say(why.text());
                false
            }
        };
    }
    false
}
