//! What an agent does beside answering: it takes things away that the pager uses, sends what nobody asked for, stops.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;
use std::time::Duration;

use vswap_sys::ring::{Hello, RING_MAGIC, hello};
use vswap_sys::uffd::{Messages, mode};

use crate::liar::descriptors::{self, KINDS};
use crate::liar::session::Session;
use crate::liar::truth::STAGING_BYTES;
use crate::liar::{Liar, filters, hellos, replies};
use crate::process::{self, Fork};

/// Forks that are announced at once.
const FORKS_MAX: u32 = 60;
/// How long a child lives.
const CHILD_TIME: Duration = Duration::from_millis(300);
/// Words that are written to the ring at once.
const SCRIBBLES: u32 = 100;
/// Messages until a socket is full: a packet socket takes fewer.
const FULL: u32 = 2000;

type Act = fn(&Session, &mut Liar);

const ACTS: [(&str, Act); 18] = [
    ("shrinks the ring", shrink),
    ("unmaps staging", unmap_staging),
    ("maps a file over staging", map_file),
    ("unmaps a part of the arena", unmap_arena),
    ("discards a part of the arena", discard_arena),
    ("protects a part of the arena", protect_arena),
    ("fills the socket", fill_socket),
    ("sends descriptors that nobody asked for", send_descriptors),
    ("closes the connection and goes on", shut_down),
    ("makes its userfaultfd block", make_blocking),
    ("reads its own messages", read_own),
    ("unregisters its memory", unregister),
    ("announces forks and makes none", announce_forks),
    ("forks without a word", fork_silently),
    ("forks in an announced fork", fork_announced),
    ("asks for its filter", ask_for_filter),
    ("writes all over the ring", scribble),
    ("names another thread as the agent's", name_another),
];

/// Does one thing.
pub(crate) fn act(session: &Session, liar: &mut Liar) {
    let (name, act) = liar.random.pick(&ACTS);
    liar.log.note(name);
    act(session, liar);
}

fn shrink(session: &Session, liar: &mut Liar) {
    let bytes = liar.random.pick(&[0, 1, 4096, 8192]);
    // A sealed ring does not. Of another, this process may not touch what is gone.
    let has_shrunk = rustix::fs::ftruncate(&session.truth.ring_file, bytes).is_ok();
    if has_shrunk {
        std::thread::sleep(CHILD_TIME);
        process::leave(0);
    }
}

fn unmap_staging(session: &Session, liar: &mut Liar) {
    let bytes = liar.random.pick(&[4096, STAGING_BYTES, 2 * STAGING_BYTES]);
    filters::call(libc::SYS_munmap, [session.truth.staging, bytes, 0, 0, 0]);
}

fn map_file(session: &Session, liar: &mut Liar) {
    let fixed = (libc::MAP_FIXED | liar.random.pick(&[libc::MAP_SHARED, libc::MAP_PRIVATE])) as u64;
    let protection = liar.random.pick(&[0, 1, 3]);
    let fd = rustix::fs::memfd_create("file", rustix::fs::MemfdFlags::CLOEXEC);
    let Ok(fd) = fd else { return };
    let number = std::os::fd::AsRawFd::as_raw_fd(&fd) as u64;
    // The file is empty, so whoever touches the mapping gets SIGBUS, or EFAULT in a call.
    filters::call(
        libc::SYS_mmap,
        [
            session.truth.staging,
            STAGING_BYTES,
            protection,
            fixed,
            number,
        ],
    );
}

/// A part of the arena.
fn part(liar: &mut Liar) -> (u64, u64) {
    let arena = liar.arena;
    let page = liar.random.next() % arena.pages();
    let pages = u64::from(liar.random.between(1, 64)).min(arena.pages() - page);
    (arena.start + page * 4096, pages * 4096)
}

fn unmap_arena(_: &Session, liar: &mut Liar) {
    let (start, bytes) = part(liar);
    filters::call(libc::SYS_munmap, [start, bytes, 0, 0, 0]);
    // The threads that touch it need something to be there.
    let fixed = (libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
    filters::call(libc::SYS_mmap, [start, bytes, 3, fixed, u64::MAX]);
}

fn discard_arena(_: &Session, liar: &mut Liar) {
    let (start, bytes) = part(liar);
    let advice = liar.random.pick(&[libc::MADV_DONTNEED, libc::MADV_FREE]) as u64;
    filters::call(libc::SYS_madvise, [start, bytes, advice, 0, 0]);
}

fn protect_arena(_: &Session, liar: &mut Liar) {
    let (start, bytes) = part(liar);
    filters::call(libc::SYS_mprotect, [start, bytes, 3 | 4, 0, 0]);
}

fn fill_socket(session: &Session, _: &mut Liar) {
    let Some(connection) = session.connection() else {
        return;
    };
    for _ in 0..FULL {
        if !connection.send(&[0x55; 100], &[]) {
            return;
        }
    }
}

fn send_descriptors(session: &Session, liar: &mut Liar) {
    let kind = liar.random.pick(&KINDS);
    let count = liar.random.pick(&[1, 4, 5, 100, 253]);
    if let Some(made) = descriptors::make(kind, &mut liar.random, liar.arena.near())
        && let Some(connection) = session.connection()
    {
        let fds: Vec<BorrowedFd<'_>> = (0..count).map(|_| made.fd.as_fd()).collect();
        connection.send(&[0], &fds);
    }
}

fn shut_down(session: &Session, _: &mut Liar) {
    if let Some(connection) = session.connection() {
        let _ = connection.0.shutdown();
    }
}

fn make_blocking(session: &Session, _: &mut Liar) {
    let _ = session.truth.main.set_nonblocking(false);
    let _ = session.truth.second.set_nonblocking(false);
}

fn read_own(session: &Session, _: &mut Liar) {
    if rustix::fs::fcntl_getfl(&session.truth.main)
        .is_ok_and(|flags| !flags.contains(rustix::fs::OFlags::NONBLOCK))
    {
        return;
    }
    let mut messages = Messages::new();
    for _ in 0..SCRIBBLES {
        if session.truth.main.read(&mut messages, 8).is_err() {
            return;
        }
    }
}

fn unregister(session: &Session, liar: &mut Liar) {
    let (start, bytes) = part(liar);
    let _ = session.truth.main.unregister(start, bytes);
    if liar.random.chance(30) {
        // SAFETY: nobody refers to the arena.
        let _ = unsafe { session.truth.second.register(start, bytes, mode::MISSING) };
    }
}

fn fork_hello(kind: u32, token: u64) -> Hello {
    Hello {
        magic: RING_MAGIC,
        kind,
        fork: token,
        ..Hello::default()
    }
}

fn announce_forks(_: &Session, liar: &mut Liar) {
    for _ in 0..liar.random.between(1, FORKS_MAX) {
        let token = liar.random.pick(&[0, 1, 2, liar.seed]) ^ (liar.random.next() & 3);
        if let Some(connection) = liar.connect() {
            connection.hello(&fork_hello(hello::FORK_BEGIN, token), &[]);
            if liar.random.chance(70) {
                liar.kept.push(connection);
            }
        }
    }
}

fn child(liar: &Liar) -> Fork {
    let forked = process::fork();
    if forked == Fork::Child {
        for page in 0..liar.arena.pages() {
            liar.arena.touch(page, None);
        }
        std::thread::sleep(CHILD_TIME);
        process::leave(0);
    }
    forked
}

fn fork_silently(_: &Session, liar: &mut Liar) {
    child(liar);
}

fn fork_announced(_: &Session, liar: &mut Liar) {
    let token = liar.random.next();
    let Some(connection) = liar.connect() else {
        return;
    };
    connection.hello(&fork_hello(hello::FORK_BEGIN, token), &[]);
    if liar.random.chance(80) {
        // Whether it may or not, it forks.
        connection.hear(CHILD_TIME);
    }
    child(liar);
    if liar.random.chance(50) {
        drop(connection);
    } else {
        liar.kept.push(connection);
    }
    // A child that is none says hello, and takes what it is offered.
    if let Some(joining) = liar.connect() {
        let greeting = Hello {
            flags: liar.random.pick(&[1, 4, 5]),
            ..fork_hello(hello::FORKED, token)
        };
        joining.hello(&greeting, &[]);
        while let Some((byte, offered)) = joining.hear(CHILD_TIME) {
            liar.kept_fds.extend(offered);
            let reply = liar.random.pick(&[byte, 0x06, 0x1a, 0, 255]);
            if !joining.send(&[reply], &[]) {
                break;
            }
        }
        liar.kept.push(joining);
    }
}

fn ask_for_filter(_: &Session, liar: &mut Liar) {
    for _ in 0..liar.random.between(1, 20) {
        if let Some(connection) = liar.connect() {
            connection.hello(&fork_hello(hello::FILTER, 0), &[]);
            liar.kept.push(connection);
        }
    }
}

fn scribble(session: &Session, liar: &mut Liar) {
    for _ in 0..SCRIBBLES {
        replies::scribble(session.truth.ring(), &mut liar.random);
    }
}

fn name_another(session: &Session, liar: &mut Liar) {
    let another = hellos::id(&mut liar.random) as u32;
    session
        .truth
        .ring()
        .agent_tid
        .store(another, Ordering::SeqCst);
}
