//! The capabilities that vswap keeps, and giving up the others.
//!
//! They belong to a thread, and new threads have those of the one that starts them. Nothing here fails: whoever has no
//! capabilities has none to give up, and who may not change a set keeps it as it is.

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities,
};

/// Bits of a set.
const BITS: u32 = u64::BITS;

/// What a pager keeps of the capabilities that it was started with.
#[must_use]
pub fn kept() -> CapabilitySet {
    // Reads memory, mappings and descriptors of programs that have changed their user or have more rights than vswap,
    // traces them, and has fork events.
    CapabilitySet::SYS_PTRACE
        // Ends programs that have changed their user.
        | CapabilitySet::KILL
        // The real-time class and the niceness of threads, also of those that a fault starts later.
        | CapabilitySet::SYS_NICE
        // Locks the keys of areas, and buffers of a ring on older kernels, beyond `ulimit -l`.
        | CapabilitySet::IPC_LOCK
        // Files in /proc belong to the user of their process, and areas that are named later to anybody.
        | CapabilitySet::DAC_OVERRIDE
        | CapabilitySet::DAC_READ_SEARCH
}

/// Gives up what the calling thread does not need: from the effective, permitted, inheritable, ambient and bounding
/// sets.
///
/// Without CAP_SYS_PTRACE nothing is given up. A process may then look into another one only if it has every capability
/// that the other one has, so a pager with fewer would not see its own programs any more.
pub fn reduce() {
    let Ok(now) = capabilities(None) else {
        return;
    };
    if !now.effective.contains(CapabilitySet::SYS_PTRACE) {
        return;
    }
    // These three matter at an exec alone, and vswap makes none.
    let _ = clear_ambient_capability_set();
    for bit in 0..BITS {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        if kept().contains(capability) {
            continue;
        }
        // EPERM without CAP_SETPCAP, EINVAL behind the last one that the kernel knows.
        if remove_capability_from_bounding_set(capability).is_err() {
            break;
        }
    }
    // Never refused: every thread may have less.
    let _ = set_capabilities(None, less(now));
}

fn less(now: CapabilitySets) -> CapabilitySets {
    CapabilitySets {
        effective: now.effective & kept(),
        permitted: now.permitted & kept(),
        inheritable: CapabilitySet::empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_added() {
        let all = CapabilitySet::from_bits_retain(u64::MAX);
        let some = CapabilitySet::SYS_PTRACE | CapabilitySet::SYS_ADMIN;
        let sets = |permitted| CapabilitySets {
            effective: permitted,
            permitted,
            inheritable: permitted,
        };
        assert_eq!(less(sets(all)).permitted, kept());
        let left = less(sets(some));
        assert_eq!(left.permitted, CapabilitySet::SYS_PTRACE);
        assert_eq!(left.effective, left.permitted);
        assert!(left.inheritable.is_empty());
    }
}
