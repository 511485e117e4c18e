//! Where arenas of the program say how much RAM they want, and hear how much the run grants them. For program threads
//! only. Takes no lock.

use core::ptr;

use crate::ring::Arenas;
use crate::state::STATE;

/// The words of this process, in the ring (`ring::ARENAS_SYMBOL`). Null before the agent is armed, where there is none,
/// and in a child that was made without the hooks. What it returns is there as long as this process runs this program,
/// but not in its children.
#[unsafe(no_mangle)]
pub extern "C" fn vswap_arenas_1() -> *const Arenas {
    STATE
        .ring()
        .map_or(ptr::null(), |ring| &raw const ring.arenas)
}
