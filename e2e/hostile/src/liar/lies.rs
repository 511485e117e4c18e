//! The table of lies.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use vswap_sys::ring::{COPIED, Hello, INHERITED, RING_MAGIC, hello};

use crate::liar::descriptors::{self, KINDS, Kind, Made};
use crate::liar::replies::Manner;
use crate::liar::session::Session;
use crate::liar::truth::Truth;
use crate::liar::wire::{Connection, DESCRIPTORS_MAX};
use crate::liar::{Liar, hellos, messages, theft};
use crate::numbers;

/// A way to lie.
pub(crate) struct Lie {
    pub(crate) name: &'static str,
    /// How often it is chosen, compared with others.
    pub(crate) weight: u32,
    pub(crate) tell: fn(&mut Liar),
}

const fn lie(name: &'static str, weight: u32, tell: fn(&mut Liar)) -> Lie {
    Lie { name, weight, tell }
}

/// All of them.
pub(crate) const LIES: &[Lie] = &[
    lie("any-hello", 4, any_hello),
    lie("broken-messages", 2, broken_messages),
    lie("silence", 2, silence),
    lie("wrong-descriptor", 6, wrong_descriptor),
    lie("forged-messages", 3, forged_messages),
    lie("bent-numbers", 4, bent_numbers),
    lie("lying-session", 8, lying_session),
    lie("restless-session", 6, restless_session),
    lie("shrinking-ring", 2, shrinking_ring),
    lie("blocking-uffd", 2, blocking_uffd),
    lie("same-twice", 2, same_twice),
    lie("other-memory", 2, other_memory),
    lie("joins-nothing", 2, joins_nothing),
    lie("forks-for-ever", 2, forks_for_ever),
    lie("asks-for-device", 1, asks_for_device),
    lie("shakes-anything", 2, shakes_anything),
    lie("leaves-at-once", 2, leaves_at_once),
    lie("mute", 2, mute),
    lie("wrong-listener", 3, wrong_listener),
    lie("theft", 3, theft::steal),
];

/// Connections of one lie.
const CONNECTIONS_MAX: u32 = 200;
/// How long an answer is waited for.
const ANSWER: Duration = Duration::from_millis(50);
/// How long a session lasts, in milliseconds.
const SESSION_MS: (u32, u32) = (50, 900);

/// Says hello as a true agent would, but for what `change` does. None if it did not go.
fn greet(
    liar: &mut Liar,
    truth: &Truth,
    change: impl FnOnce(Hello, &mut Liar) -> Hello,
) -> Option<Connection> {
    let connection = liar.connect()?;
    let hello = change(truth.hello(), liar);
    connection
        .hello(&hello, &truth.descriptors())
        .then_some(connection)
}

/// A session with some manner, and a hello with some change.
fn session(
    liar: &mut Liar,
    (can_shrink, manner): (bool, Manner),
    beside: u32,
    change: impl FnOnce(Hello, &mut Liar) -> Hello,
) {
    let Some(truth) = Truth::new(can_shrink) else {
        return;
    };
    let session = Session::start(liar, truth, manner);
    if let Some(connection) = greet(liar, &session.truth, change) {
        let until = session_end(liar);
        session.live(liar, connection, until, beside);
    }
}

/// A session after a hello with one descriptor replaced.
fn session_with(liar: &mut Liar, place: usize, fd: BorrowedFd<'_>) {
    let Some(truth) = Truth::new(false) else {
        return;
    };
    let session = Session::start(liar, truth, Manner::default());
    let Some(connection) = liar.connect() else {
        return;
    };
    let mut fds = session.truth.descriptors();
    fds[place] = fd;
    connection.hello(&session.truth.hello(), &fds);
    let until = session_end(liar);
    session.live(liar, connection, until, 5);
}

/// When a session that begins now is over.
fn session_end(liar: &mut Liar) -> Instant {
    let (least, most) = SESSION_MS;
    Instant::now() + Duration::from_millis(u64::from(liar.random.between(least, most)))
}

/// Some descriptor, kept open at the other end.
fn some_descriptor(liar: &mut Liar, kind: Kind) -> Option<Made> {
    descriptors::make(kind, &mut liar.random, liar.arena.near())
}

fn any_hello(liar: &mut Liar) {
    for _ in 0..liar.random.between(1, 30) {
        let Some(connection) = liar.connect() else {
            return;
        };
        let hello = hellos::any(&mut liar.random);
        let mut made = Vec::new();
        for _ in 0..liar.random.below(5) {
            let kind = liar.random.pick(&KINDS);
            made.extend(some_descriptor(liar, kind));
        }
        let fds: Vec<BorrowedFd<'_>> = made.iter().map(|made| made.fd.as_fd()).collect();
        connection.hello(&hello, &fds);
        if liar.random.chance(50) {
            liar.kept.push(connection);
        }
        liar.kept_fds
            .extend(made.into_iter().filter_map(|made| made.other_end));
    }
}

fn broken_messages(liar: &mut Liar) {
    let Some(made) = some_descriptor(liar, Kind::Event) else {
        return;
    };
    for _ in 0..liar.random.between(1, 40) {
        let Some(connection) = liar.connect() else {
            return;
        };
        let bytes = liar
            .random
            .pick(&[0, 1, 7, 8, 60, 95, 97, 200, 4096, 60_000]);
        let count = liar.random.pick(&[0, 0, 1, 2, 4, 5, 60, DESCRIPTORS_MAX]);
        let fds: Vec<BorrowedFd<'_>> = (0..count).map(|_| made.fd.as_fd()).collect();
        let mut message = vec![0x5a; bytes];
        if bytes >= 8 && liar.random.chance(50) {
            message[..8].copy_from_slice(&RING_MAGIC.to_ne_bytes());
        }
        connection.send(&message, &fds);
        if liar.random.chance(30) {
            liar.kept.push(connection);
        }
    }
}

fn silence(liar: &mut Liar) {
    for _ in 0..liar.random.between(1, CONNECTIONS_MAX) {
        match liar.connect() {
            Some(connection) => liar.kept.push(connection),
            // Nobody takes calls just now.
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

fn wrong_descriptor(liar: &mut Liar) {
    for _ in 0..liar.random.between(1, 6) {
        let (place, kind) = (liar.random.below(3) as usize, liar.random.pick(&KINDS));
        let Some(made) = some_descriptor(liar, kind) else {
            continue;
        };
        liar.log.note(&format!("a {kind:?} as descriptor {place}"));
        let Made { fd, other_end } = made;
        liar.kept_fds.extend(other_end);
        if place != 2 && liar.random.chance(50) {
            session_with(liar, place, fd.as_fd());
            continue;
        }
        let (Some(truth), Some(connection)) = (Truth::new(false), liar.connect()) else {
            return;
        };
        let mut fds = truth.descriptors();
        fds[place] = fd.as_fd();
        let is_whole = liar.random.chance(85);
        let count = if is_whole { 3 } else { liar.random.below(3) };
        connection.hello(&truth.hello(), &fds[..count as usize]);
        liar.kept.push(connection);
    }
}

/// Pipes and sockets that say what a userfaultfd would.
fn forged_messages(liar: &mut Liar) {
    let kinds = [Kind::Pipe, Kind::PacketPair, Kind::StreamPair];
    let kind = liar.random.pick(&kinds);
    let (Some(truth), Some(made)) = (Truth::new(false), some_descriptor(liar, kind)) else {
        return;
    };
    let session = Session::start(liar, truth, Manner::default());
    let Some(connection) = liar.connect() else {
        return;
    };
    let [_, second, ring] = session.truth.descriptors();
    let sent = [made.fd.as_fd(), second, ring];
    connection.hello(&session.truth.hello(), &sent);
    session.connect(connection);
    let until = session_end(liar);
    while Instant::now() < until && liar.has_time() {
        let message = messages::forged(&mut liar.random, liar.arena.near());
        if let Some(other_end) = &made.other_end {
            // It does not wait where it is full.
            let _ = rustix::io::write(other_end, &message);
        }
        session.go_on(liar, Instant::now() + Duration::from_millis(3), 0);
    }
}

fn bent_numbers(liar: &mut Liar) {
    session(liar, (false, Manner::default()), 0, |hello, liar| {
        let bent = hellos::bent(hello, &mut liar.random);
        liar.log.note(&format!("{bent:x?}"));
        bent
    });
}

fn lying_session(liar: &mut Liar) {
    let manner = Manner::new(&mut liar.random);
    liar.log.note(&format!("{manner:?}"));
    session(liar, (false, manner), 0, |hello, _| hello);
}

fn restless_session(liar: &mut Liar) {
    let often = liar.random.pick(&[10, 100, 400]);
    session(liar, (false, Manner::default()), often, |hello, _| hello);
}

/// Never answers a command.
fn mute(liar: &mut Liar) {
    let manner = Manner {
        never: 100,
        ..Manner::default()
    };
    session(liar, (false, manner), 0, |hello, _| hello);
    std::thread::sleep(ANSWER * 4);
}

fn wrong_listener(liar: &mut Liar) {
    let manner = Manner {
        listeners: 100,
        ..Manner::default()
    };
    session(liar, (false, manner), 0, |hello, _| hello);
}

fn shrinking_ring(liar: &mut Liar) {
    session(liar, (true, Manner::default()), 60, |hello, _| hello);
}

fn blocking_uffd(liar: &mut Liar) {
    let Some(truth) = Truth::new(false) else {
        return;
    };
    let is_early = liar.random.chance(50);
    if is_early {
        let _ = truth.main.set_nonblocking(false);
    }
    let session = Session::start(liar, truth, Manner::default());
    let Some(connection) = greet(liar, &session.truth, |hello, _| hello) else {
        return;
    };
    session.connect(connection);
    session.go_on(liar, Instant::now() + ANSWER * 4, 0);
    let _ = session.truth.main.set_nonblocking(false);
    let until = session_end(liar);
    session.go_on(liar, until, 0);
}

/// Two hellos with the same descriptors, or with some of them.
fn same_twice(liar: &mut Liar) {
    let (Some(truth), Some(other)) = (Truth::new(false), Truth::new(false)) else {
        return;
    };
    let session = Session::start(liar, truth, Manner::default());
    let Some(connection) = greet(liar, &session.truth, |hello, _| hello) else {
        return;
    };
    session.connect(connection);
    for _ in 0..liar.random.between(1, 5) {
        let Some(again) = liar.connect() else {
            return;
        };
        let mut fds = other.descriptors();
        for (place, fd) in session.truth.descriptors().into_iter().enumerate() {
            if liar.random.chance(60) {
                fds[place] = fd;
            }
        }
        again.hello(&session.truth.hello(), &fds);
        liar.kept.push(again);
    }
    let until = session_end(liar);
    session.go_on(liar, until, 0);
}

/// Userfaultfds of a child in place of its own.
fn other_memory(liar: &mut Liar) {
    let kind = liar.random.pick(&[Kind::UffdOfChild, Kind::UffdOfEnded]);
    if let Some(made) = some_descriptor(liar, kind) {
        let place = liar.random.below(2) as usize;
        session_with(liar, place, made.fd.as_fd());
    }
}

fn joins_nothing(liar: &mut Liar) {
    let Some(truth) = Truth::new(false) else {
        return;
    };
    for _ in 0..liar.random.between(1, 40) {
        let claim = |hello: Hello, liar: &mut Liar| Hello {
            kind: hello::FORKED,
            flags: liar.random.pick(&[INHERITED, COPIED, INHERITED | COPIED]),
            parent_pid: hellos::id(&mut liar.random),
            fork: liar.random.pick(&[0, 1, u64::MAX, liar.seed]),
            ..hello
        };
        if let Some(connection) = greet(liar, &truth, claim) {
            if liar.random.chance(50) {
                connection.hear(ANSWER);
            }
            liar.kept.push(connection);
        }
    }
}

/// Announces forks as a process that is known, and makes none.
fn forks_for_ever(liar: &mut Liar) {
    let Some(truth) = Truth::new(false) else {
        return;
    };
    let session = Session::start(liar, truth, Manner::default());
    let Some(connection) = greet(liar, &session.truth, |hello, _| hello) else {
        return;
    };
    session.connect(connection);
    for _ in 0..liar.random.between(1, CONNECTIONS_MAX) {
        if let Some(fork) = liar.connect() {
            let hello = Hello {
                magic: RING_MAGIC,
                kind: hello::FORK_BEGIN,
                fork: liar.random.next(),
                ..Hello::default()
            };
            fork.hello(&hello, &[]);
            liar.kept.push(fork);
        } else {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let until = session_end(liar);
    session.go_on(liar, until, 0);
}

fn asks_for_device(liar: &mut Liar) {
    for _ in 0..liar.random.between(1, CONNECTIONS_MAX) {
        if let Some(connection) = liar.connect() {
            let hello = Hello {
                magic: RING_MAGIC,
                kind: hello::DEVICE,
                ..Hello::default()
            };
            connection.hello(&hello, &[]);
            // The answer is not taken out of the socket.
            liar.kept.push(connection);
        }
    }
}

fn shakes_anything(liar: &mut Liar) {
    for _ in 0..liar.random.between(1, 20) {
        let kind = liar.random.pick(&KINDS);
        let Some(made) = some_descriptor(liar, kind) else {
            continue;
        };
        let Some(connection) = liar.connect() else {
            return;
        };
        let hello = Hello {
            magic: RING_MAGIC,
            kind: hello::HANDSHAKE,
            uffd_features: numbers::word(&mut liar.random),
            ..Hello::default()
        };
        connection.hello(&hello, &[made.fd.as_fd()]);
        connection.hear(ANSWER);
    }
}

fn leaves_at_once(liar: &mut Liar) {
    if let Some(truth) = Truth::new(false)
        && greet(liar, &truth, |hello, _| hello).is_some()
    {
        let pause = u64::from(liar.random.below(20));
        std::thread::sleep(Duration::from_millis(pause));
        crate::process::leave(0);
    }
}
