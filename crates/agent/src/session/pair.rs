//! Opening the two userfaultfds of a process, with the pager's help where the process has not the right.
//!
//! Only the agent's thread does this, in its own descriptor table.

use crate::base::kernel::{Descriptor, Errno, close};
use crate::base::uffd::{self, handshake};
use crate::session::socket;

/// UFFD_FEATURE_EVENT_FORK.
pub const FEATURE_FORK: u64 = 1 << 1;
/// The features that the pager uses if the kernel offers them: PAGEFAULT_FLAG_WP, EVENT_FORK, EVENT_REMAP,
/// EVENT_REMOVE, EVENT_UNMAP, THREAD_ID, EXACT_ADDRESS, WP_UNPOPULATED, POISON, MOVE.
const FEATURES: u64 =
    1 | FEATURE_FORK | 1 << 2 | 1 << 3 | 1 << 6 | 1 << 8 | 1 << 11 | 1 << 13 | 1 << 14 | 1 << 16;

/// The two userfaultfds of a process.
#[derive(Debug, Clone, Copy)]
pub struct Pair {
    /// For the program's memory and staging A, with events.
    pub main: Descriptor,
    /// For staging B, without events.
    pub staging: Descriptor,
    /// Features of `main`.
    pub features: u64,
}

/// Opens both. Where fork events are not permitted the pager gets them, if it may have them itself.
pub fn open_pair() -> Result<Pair, Errno> {
    let staging = open()?;
    // Asks for no feature: the answer says which there are. UFFDIO_MOVE needs none.
    let offered = handshake(staging, 0)?;
    let main = open()?;
    let mut features = FEATURES & offered;
    if handshake(main, features).is_err() && socket::ask_for_handshake(main, features).is_err() {
        features &= !FEATURE_FORK;
        handshake(main, features)?;
    }
    Ok(Pair {
        main,
        staging,
        features,
    })
}

/// Opens only the one for staging, in a child that inherits the other.
pub fn open_staging() -> Result<Descriptor, Errno> {
    let staging = open()?;
    handshake(staging, 0)?;
    Ok(staging)
}

/// A userfaultfd. Where this process may not make one the pager lends its device.
fn open() -> Result<Descriptor, Errno> {
    uffd::open().or_else(|errno| {
        let device = socket::ask_for_device().map_err(|_| errno)?;
        let opened = uffd::open_by(device);
        close(device);
        opened
    })
}
