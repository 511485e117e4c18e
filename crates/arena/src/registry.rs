//! Which arena an address is of. The handler asks here.
//!
//! Bounds are read without a lock. The arena behind them is held by a share of its place's lock while a fault is
//! served; the lock is taken for writing only while an arena comes or goes, when nobody touches its memory, and with
//! signals blocked.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use vswap_sys::sigbus::{self, Masked};

use crate::error::ArenaError;
use crate::fault::Refused;
use crate::state::{Core, PAGE_BYTES};

/// Arenas of a process. The handler looks at all of them.
const ARENAS_MOST: usize = 64;

struct Place {
    start: AtomicUsize,
    end: AtomicUsize,
    core: RwLock<Option<Arc<Core>>>,
}

static PLACES: [Place; ARENAS_MOST] = [const {
    Place {
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
        for (at, place) in PLACES.iter().enumerate() {
            let mut held = place.core.write().unwrap_or_else(PoisonError::into_inner);
            if held.is_none() {
                *held = Some(Arc::clone(core));
                let Range { start, end } = bounds(core);
                // Release pairs with the loads in `serve`. The end comes last: before that no address is in between.
                place.start.store(start, Ordering::Release);
                place.end.store(end, Ordering::Release);
                return Ok(Registered {
                    place: at,
                    pid: core.pid,
                });
            }
        }
        let most = ARENAS_MOST;
        Err(ArenaError::TooManyArenas { most })
    }
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
        return match core.serve(page, is_write) {
            Ok(()) => true,
            Err(why) => {
                sigbus::say(why_text(why));
                false
            }
        };
    }
    false
}

/// What is said before the process is left to what it would do without the arena.
fn why_text(why: Refused) -> &'static str {
    match why {
        Refused::Full => {
            "vswap-arena: RAM, pool and areas are full, and a page that was touched has no room\n"
        }
        Refused::Lost => {
            "vswap-arena: the content of a page is lost: it was damaged in memory, or its swap area cannot be read\n"
        }
        Refused::Kernel => "vswap-arena: the kernel gives no page to memory that was touched\n",
    }
}
