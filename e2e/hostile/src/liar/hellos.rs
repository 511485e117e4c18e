//! Hellos with any content.

use vswap_sys::ring::{ATTACHED, COPIED, Hello, INHERITED, RING_MAGIC, hello};

use crate::random::Random;

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
            random.word()
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
            random.word() as i32
        },
        uffd_features: random.word(),
        agent_base: random.word(),
        agent_bytes: random.word(),
        staging: random.word(),
        ring: random.word(),
        entry: random.word(),
        entry_stack: random.word(),
        fork: if random.chance(30) { 0 } else { random.word() },
    }
}

/// The hello with one or two of its numbers replaced.
pub(crate) fn bent(mut hello: Hello, random: &mut Random) -> Hello {
    for _ in 0..random.between(1, 2) {
        match random.below(10) {
            0 => (hello.agent_base, hello.agent_bytes) = (random.word(), random.word()),
            // All of the numbers there are, from a place near their end.
            1 => {
                (hello.agent_base, hello.agent_bytes) = (0, u64::MAX);
                hello.staging = random.pick(&[0, 1, u64::MAX - 0xfff, u64::MAX, 1 << 63]);
            }
            2 => hello.staging = random.word(),
            8 => hello.ring = random.word(),
            3 => hello.staging += u64::from(random.between(1, 0xfff)),
            4 => hello.agent_tid = id(random),
            5 => hello.parent_pid = id(random),
            6 => hello.flags = random.next() as u32 & !(INHERITED | COPIED),
            7 => hello.uffd_features = random.word(),
            _ => (hello.entry, hello.entry_stack) = (random.word(), random.word()),
        }
    }
    if random.chance(25) {
        hello.kind = hello::FORKED;
    }
    hello
}
