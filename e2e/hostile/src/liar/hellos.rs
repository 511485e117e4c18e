//! Hellos with any content.

use vswap_drive::random::Random;
use vswap_sys::ring::{ATTACHED, COPIED, Hello, INHERITED, RING_MAGIC, hello};

use crate::numbers;

/// Kinds that there are, and some that there are not.
const KINDS: [u32; 9] = [
    hello::EXEC,
    hello::FORKED,
    hello::FORK_BEGIN,
    hello::FILTER,
    hello::DEVICE,
    hello::HANDSHAKE,
    0,
    7,
    u32::MAX,
];

/// Ids of processes and threads that may be anybody's: this one's parent, which is honest, among them.
pub(crate) fn id(random: &mut Random) -> i32 {
    match random.below(5) {
        0 => rustix::process::getppid().map_or(1, |pid| pid.as_raw_nonzero().get()),
        1 => rustix::process::getpid().as_raw_nonzero().get(),
        2 => random.pick(&[0, -1, 1, i32::MIN, i32::MAX]),
        3 => random.next() as i32,
        _ => std::process::id() as i32 - random.below(200) as i32,
    }
}

/// A hello of any content. Most have the right magic, because the others are not heard.
pub(crate) fn any(random: &mut Random) -> Hello {
    Hello {
        magic: if random.chance(90) {
            RING_MAGIC
        } else {
            numbers::word(random)
        },
        kind: random.pick(&KINDS),
        flags: match random.below(3) {
            0 => random.pick(&[0, INHERITED, ATTACHED, COPIED, INHERITED | COPIED]),
            1 => random.next() as u32,
            _ => 0,
        },
        pid: id(random),
        parent_pid: id(random),
        agent_tid: id(random),
        uffd_errno: if random.chance(80) {
            0
        } else {
            numbers::word(random) as i32
        },
        uffd_features: numbers::word(random),
        agent_base: numbers::word(random),
        agent_bytes: numbers::word(random),
        staging: numbers::word(random),
        ring: numbers::word(random),
        entry: numbers::word(random),
        entry_stack: numbers::word(random),
        fork: if random.chance(30) {
            0
        } else {
            numbers::word(random)
        },
    }
}

/// The hello with one or two of its numbers replaced.
pub(crate) fn bent(mut hello: Hello, random: &mut Random) -> Hello {
    for _ in 0..random.between(1, 2) {
        match random.below(10) {
            0 => {
                (hello.agent_base, hello.agent_bytes) =
                    (numbers::word(random), numbers::word(random));
            }
            // All of the numbers there are, from a place near their end.
            1 => {
                (hello.agent_base, hello.agent_bytes) = (0, u64::MAX);
                hello.staging = random.pick(&[0, 1, u64::MAX - 0xfff, u64::MAX, 1 << 63]);
            }
            2 => hello.staging = numbers::word(random),
            8 => hello.ring = numbers::word(random),
            3 => hello.staging += u64::from(random.between(1, 0xfff)),
            4 => hello.agent_tid = id(random),
            5 => hello.parent_pid = id(random),
            6 => hello.flags = random.next() as u32 & !(INHERITED | COPIED),
            7 => hello.uffd_features = numbers::word(random),
            _ => (hello.entry, hello.entry_stack) = (numbers::word(random), numbers::word(random)),
        }
    }
    if random.chance(25) {
        hello.kind = hello::FORKED;
    }
    hello
}
