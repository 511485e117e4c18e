//! Tags of addresses that calls name.
//!
//! A filter shows the arguments as the program has passed them. Where the processor ignores bits of a pointer, the
//! kernel takes them off an address of memory that is there, and whoever answers the call in its place has to do so
//! too. Everything else stays as it is: an address where memory is to be made, the handler of a signal, a number.

use vswap_sys::abi::call;
use vswap_sys::machine::untagged;
use vswap_sys::seccomp::Notification;

/// Which arguments of a call are addresses of memory that is there.
fn addresses(nr: u32) -> &'static [usize] {
    match nr {
        call::MADVISE | call::MREMAP | call::SET_TID_ADDRESS | call::CLONE3 => &[0],
        call::PROCESS_MADVISE => &[1],
        call::IOCTL => &[2],
        call::RT_SIGACTION => &[1, 2],
        call::CLONE => &[call::CLONE_PARENT, call::CLONE_CHILD],
        _ => &[],
    }
}

/// The call with its addresses as the kernel takes them.
pub fn taken_off(mut call: Notification) -> Notification {
    for &at in addresses(call.nr.cast_unsigned()) {
        call.args[at] = untagged(call.args[at]);
    }
    call
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAG: u64 = 0x2a << 56;

    fn taken_off_all(nr: u32) -> [bool; 6] {
        let call = Notification {
            id: 1,
            tid: 2,
            nr: nr.cast_signed(),
            args: [0x1000 | TAG; 6],
        };
        taken_off(call).args.map(|argument| {
            let is_off = argument == untagged(0x1000 | TAG);
            assert!(is_off || argument == 0x1000 | TAG);
            is_off
        })
    }

    #[test]
    fn only_addresses_of_memory_that_is_there_lose_their_tags() {
        if untagged(TAG) == TAG {
            return eprintln!("SKIP: this machine has no tags");
        }
        let old_address = [true, false, false, false, false, false];
        assert_eq!(taken_off_all(call::MADVISE), old_address);
        assert_eq!(
            taken_off_all(call::MREMAP),
            old_address,
            "the new one is refused with a tag"
        );
        assert_eq!(taken_off_all(call::MMAP), [false; 6]);
        assert_eq!(taken_off_all(call::BRK), [false; 6]);
        let clone = taken_off_all(call::CLONE);
        assert!(clone[call::CLONE_PARENT] && clone[call::CLONE_CHILD] && !clone[0]);
    }
}
