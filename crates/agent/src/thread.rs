//! The agent's thread: sets up, then carries out the pager's commands until the process or the pager ends.
//!
//! A bare clone makes the thread. libc does not know it and goes on believing that the program has one thread. The
//! thread has its own descriptor table, root and current directory, no thread-local storage, and all signals blocked.
//! It must touch neither libc nor memory that could be evicted. Commands come one at a time; see `ring`.
//!
//! Unsafe is needed here because no wrapper makes such a thread: libc's threads have thread-local storage and are
//! counted.

use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::commands::{self, Session};
use crate::die::die;
use crate::kernel::{
    self, Descriptor, Errno, block_signals, call, exit_thread, exit_thread_with, futex_wake,
    parent_id, process_id, restore_signals, thread_id,
};
use crate::raw;
use crate::reservation::{self, Reservation};
use crate::ring::{
    ACK, AGENT_NAME, ATTACHED, Hello, INHERITED, LEFT_ALONE, NOT_MINE, NOTHING_INHERITED,
    RING_MAGIC, Ring, TURNED_AWAY, hello,
};
use crate::rules;
use crate::socket;
use crate::state::{NO_DESCRIPTOR, STATE, phase};
use crate::uffd;

/// How the process came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A fresh program image.
    Exec,
    /// A forked child whose memory is its own.
    Forked,
    /// A forked child whose memory is under a userfaultfd that the pager has.
    Inherited,
}

impl Origin {
    fn from_argument(argument: usize) -> Self {
        match argument {
            0 => Self::Exec,
            1 => Self::Forked,
            _ => Self::Inherited,
        }
    }
}

/// Reserves the agent's memory and starts the thread. `STATE.phase` tells the outcome, see
/// [`crate::state::State::settled`].
pub fn start(origin: Origin) -> Result<(), Errno> {
    start_in(origin, Reservation::map()?)
}

/// Starts the thread in a reservation that is made already.
pub fn start_in(origin: Origin, reservation: Reservation) -> Result<(), Errno> {
    STATE.ring.store(ptr::null_mut(), Ordering::SeqCst);
    STATE.base.store(reservation.base(), Ordering::SeqCst);
    STATE.owner.store(process_id(), Ordering::SeqCst);
    STATE.phase.store(phase::STARTING, Ordering::SeqCst);
    // SAFETY: the stack is new and stays mapped, and `run` makes only system calls.
    let started = unsafe {
        spawn(
            reservation.agent_stack_top(),
            ptr::null(),
            run,
            origin as usize,
        )
    };
    if started.is_err() {
        STATE.phase.store(phase::OFF, Ordering::SeqCst);
        // SAFETY: no thread was started, so nobody uses any of it.
        unsafe { reservation.give_up_all() };
    }
    started.map(|_| ())
}

/// Starts a bare thread with all signals blocked, and returns its id.
///
/// # Safety
/// See [`raw::clone_thread`].
pub unsafe fn spawn(
    stack_top: usize,
    exited: *const AtomicU32,
    entry: extern "C" fn(usize) -> !,
    argument: usize,
) -> Result<i32, Errno> {
    let signals = block_signals();
    // SAFETY: the caller keeps the promises of `clone_thread`.
    let started = raw::result(unsafe { raw::clone_thread(stack_top, exited, entry, argument) });
    restore_signals(signals);
    started.map(|tid| i32::try_from(tid).unwrap_or(0))
}

/// Ahead of the program, whose threads wait for the agent. The pager's threads have the same nice value.
const NICE: usize = (-15_isize).cast_unsigned();

/// Gives the calling thread an empty descriptor table of its own, leaves the program's directory, and connects.
pub fn connect_alone() -> Result<Descriptor, Errno> {
    keep_descriptors(&[])?;
    settle_in();
    socket::connect()
}

/// Gives the calling thread a descriptor table of its own, which keeps only these of the program's descriptors.
fn keep_descriptors(kept: &[Descriptor]) -> Result<(), Errno> {
    const CLOSE_RANGE_UNSHARE: usize = 2;
    let mut from = 0;
    loop {
        let next = kept.iter().copied().filter(|kept| *kept >= from).min();
        let last = next
            .unwrap_or(LAST_DESCRIPTOR)
            .wrapping_sub(usize::from(next.is_some()));
        if next != Some(from) {
            // SAFETY: the first call unshares the table, so the program's descriptors stay as they are.
            unsafe {
                call(
                    call::CLOSE_RANGE,
                    [from, last, CLOSE_RANGE_UNSHARE, 0, 0, 0],
                )
            }?;
        }
        match next {
            Some(next) => from = next.wrapping_add(1),
            None => return Ok(()),
        }
    }
}

const LAST_DESCRIPTOR: usize = u32::MAX as usize;

/// Changes of the agent's thread to itself.
fn settle_in() {
    const PR_SET_NAME: usize = 15;
    let (root, name) = (c"/".as_ptr().addr(), AGENT_NAME.as_ptr().addr());
    // SAFETY: both arguments are C strings. The thread has its own current directory since the clone; at the root that
    // directory keeps no file system from being unmounted.
    unsafe {
        raw::syscall1(call::CHDIR, root);
        raw::syscall2(call::PRCTL, PR_SET_NAME, name);
        // For this thread alone. An ordinary user may not do this, and the agent then has to wait its turn.
        raw::syscall3(call::SETPRIORITY, 0, 0, NICE);
    }
}

extern "C" fn run(argument: usize) -> ! {
    let mut origin = Origin::from_argument(argument);
    let reservation = Reservation::at(STATE.base.load(Ordering::SeqCst));
    let mut session = set_up(origin, reservation);
    if origin == Origin::Inherited && matches!(session, Err(kernel::ENODATA)) {
        origin = Origin::Forked;
        session = set_up(origin, reservation);
    }
    match session {
        Ok((session, ring)) => {
            session.remember();
            STATE.agent_tid.store(thread_id(), Ordering::Relaxed);
            STATE.enter(phase::ARMED);
            serve(&session, ring, 0)
        }
        Err(_) if origin == Origin::Inherited => {
            die(b"vswap-agent: no pager for a forked process with swapped memory, process killed\n")
        }
        Err(_) => {
            STATE.enter(phase::OFF);
            exit_thread()
        }
    }
}

fn set_up(origin: Origin, reservation: Reservation) -> Result<(Session, &'static Ring), Errno> {
    match connect_alone() {
        // From here on staging stays mapped, whatever happens: unmapping it could wait for somebody who reads events.
        Ok(socket) => introduce(origin, reservation, socket),
        Err(errno) => {
            if STATE.ring().is_none() {
                // SAFETY: there is no ring, and only this thread knows of staging.
                unsafe { reservation.give_up() };
            }
            Err(errno)
        }
    }
}

/// Opens everything and says Hello. If opening fails, tells the pager the errno instead, and the connection then ends.
fn introduce(
    origin: Origin,
    reservation: Reservation,
    socket: Descriptor,
) -> Result<(Session, &'static Ring), Errno> {
    let inherited = origin == Origin::Inherited;
    let image_bytes = STATE.image_bytes.load(Ordering::Relaxed);
    let mut greeting = Hello {
        magic: RING_MAGIC,
        kind: if origin == Origin::Exec {
            hello::EXEC
        } else {
            hello::FORKED
        },
        flags: if inherited { INHERITED } else { 0 } | if image_bytes == 0 { 0 } else { ATTACHED },
        fork: if inherited {
            STATE.fork_token.load(Ordering::SeqCst)
        } else {
            0
        },
        pid: process_id(),
        parent_pid: if origin == Origin::Exec {
            parent_id()
        } else {
            STATE.parent.load(Ordering::SeqCst)
        },
        agent_tid: thread_id(),
        agent_base: reservation.base().wrapping_sub(image_bytes) as u64,
        agent_bytes: reservation::BYTES.wrapping_add(image_bytes) as u64,
        staging: reservation.staging() as u64,
        ..Hello::default()
    };
    let opened = open(origin, reservation);
    let (main, staging, memfd, ring) = match opened {
        Ok(opened) => opened,
        Err(errno) => {
            greeting.uffd_errno = errno;
            socket::send_hello(socket, &greeting, &[])?;
            return Err(errno);
        }
    };
    greeting.uffd_features = STATE.features.load(Ordering::SeqCst);
    let main = if let Some(main) = main {
        socket::send_hello(socket, &greeting, &[main, staging, memfd])?;
        main
    } else {
        socket::send_hello(socket, &greeting, &[staging, memfd])?;
        inherit(socket, reservation).inspect_err(|_| reservation.unregister_freeing(staging))?
    };
    kernel::close(memfd);
    let session = Session {
        main,
        staging,
        socket,
        bell: make_bell(),
        reservation,
    };
    Ok((session, ring))
}

/// Makes an eventfd. Without one the agent never leaves.
fn make_bell() -> Descriptor {
    const NONBLOCK: usize = 0o4000;
    // SAFETY: this only makes a descriptor in the agent's own table.
    let bell = unsafe { call(call::EVENTFD2, [0, kernel::CLOEXEC | NONBLOCK, 0, 0, 0, 0]) };
    bell.unwrap_or(NO_DESCRIPTOR)
}

/// Starts a new thread of the agent in place of one that has left, in a process whose only thread is the caller.
/// Returns when the new thread has taken over.
///
/// # Safety
/// `STATE.descriptors` names descriptors of the calling thread, and no thread of the agent is left.
pub unsafe fn take_over() {
    const PACE_NANOSECONDS: u64 = 1_000_000;
    const TRIES: u32 = 10_000;
    STATE.phase.store(phase::STARTING, Ordering::SeqCst);
    let reservation = Reservation::at(STATE.base.load(Ordering::SeqCst));
    for _ in 0..TRIES {
        // SAFETY: nobody is left on the stack, the stack stays mapped, and `run_again` makes only system calls.
        let started = unsafe { spawn(reservation.agent_stack_top(), ptr::null(), run_again, 0) };
        if started.is_ok() {
            STATE.settled();
            return;
        }
        // A thread may be available a little later.
        kernel::nap(PACE_NANOSECONDS);
    }
    die(b"vswap-agent: no thread to come back, process killed\n")
}

/// Body of a thread that goes on where the one before has left off.
extern "C" fn run_again(_: usize) -> ! {
    let session = Session::remembered(Reservation::at(STATE.base.load(Ordering::SeqCst)));
    let Some(ring) = STATE.ring() else {
        die(b"vswap-agent: internal error, process killed\n")
    };
    let [main, staging, socket, bell] =
        [session.main, session.staging, session.socket, session.bell];
    if keep_descriptors(&[main, staging, socket, bell]).is_err() {
        die(b"vswap-agent: no descriptors to come back with, process killed\n");
    }
    settle_in();
    session.silence();
    let tid = thread_id();
    STATE.agent_tid.store(tid, Ordering::Relaxed);
    ring.agent_tid.store(tid.cast_unsigned(), Ordering::SeqCst);
    STATE.enter(phase::ARMED);
    // A command that has come meanwhile is in the ring, whether its doorbell was rung or not.
    serve(&session, ring, ring.complete_seq.load(Ordering::SeqCst))
}

type Opened = (Option<Descriptor>, Descriptor, Descriptor, &'static Ring);

/// Opens the main userfaultfd (except in a child that inherits it), the one of staging, and the ring with its memfd.
/// All is complete before the pager hears of it.
fn open(origin: Origin, reservation: Reservation) -> Result<Opened, Errno> {
    let (main, staging) = if origin == Origin::Inherited {
        (None, uffd::open_staging()?)
    } else {
        let pair = uffd::open_pair()?;
        STATE.features.store(pair.features, Ordering::SeqCst);
        reservation.register_staging(pair.main)?;
        (Some(pair.main), pair.staging)
    };
    reservation.register_freeing(staging)?;
    let memfd = reservation.map_ring()?;
    // SAFETY: the ring is mapped from now on for as long as the process lives, and zeros are a valid ring. A shared
    // reference is sound although the pager writes there, because all fields are atomic.
    let ring = unsafe { &*ptr::with_exposed_provenance::<Ring>(reservation.ring()) };
    ring.magic.store(RING_MAGIC, Ordering::SeqCst);
    // A child that inherits must announce its own forks from the start.
    ring.active
        .store(u32::from(origin == Origin::Inherited), Ordering::SeqCst);
    // Program threads use the ring from here on.
    STATE
        .ring
        .store(ptr::from_ref(ring).cast_mut(), Ordering::SeqCst);
    Ok((main, staging, memfd, ring))
}

/// Takes the inherited userfaultfd from the pager and registers staging with it. The pager may have several to offer:
/// other threads of the parent may have made children without the hooks at the same time.
fn inherit(socket: Descriptor, reservation: Reservation) -> Result<Descriptor, Errno> {
    loop {
        match socket::receive_descriptor(socket)? {
            (ACK, Some(main)) if reservation.is_watched_by(main) => {
                reservation.register_staging(main)?;
                socket::send_byte(socket, ACK)?;
                // From here on the pager knows the process, so the process may fork.
                return match socket::receive_byte(socket)? {
                    ACK => Ok(main),
                    _ => Err(kernel::EPROTO),
                };
            }
            (ACK, Some(other)) => {
                kernel::close(other);
                socket::send_byte(socket, NOT_MINE)?;
            }
            (NOTHING_INHERITED, None) => return Err(kernel::ENODATA),
            _ => return Err(kernel::EPROTO),
        }
    }
}

/// The command loop. Starts with the command after `completed`.
fn serve(session: &Session, ring: &Ring, mut completed: u32) -> ! {
    loop {
        let number = ring.command_seq.load(Ordering::Acquire);
        if number == completed {
            sleep(session, ring, completed);
            continue;
        }
        let result = commands::carry_out(session, ring);
        ring.result.store(result as i64, Ordering::Relaxed);
        completed = number;
        // Publishes the results. SeqCst, to pair with the pager: it raises pager_sleeps and then reads complete_seq.
        ring.complete_seq.store(completed, Ordering::SeqCst);
        if ring.pager_sleeps.swap(0, Ordering::SeqCst) != 0 {
            futex_wake(&ring.complete_seq);
        }
    }
}

/// Waits for the pager's doorbell unless a command has come meanwhile. Does not return if the pager is dead, or if a
/// program thread wants this one to leave.
fn sleep(session: &Session, ring: &Ring, completed: u32) {
    // SeqCst, to pair with the pager: it raises command_seq and then exchanges agent_sleeps.
    ring.agent_sleeps.store(1, Ordering::SeqCst);
    if ring.command_seq.load(Ordering::SeqCst) == completed {
        if session.is_asked_to_leave() {
            exit_thread();
        }
        match socket::receive_byte(session.socket) {
            Ok(TURNED_AWAY) if ring.active.load(Ordering::SeqCst) == 0 => {
                // The ring stays mapped: program threads may be about to use it.
                STATE.enter(phase::OFF);
                exit_thread();
            }
            Ok(LEFT_ALONE) if ring.active.load(Ordering::SeqCst) == 0 => {
                let status = socket::receive_byte(session.socket).unwrap_or(0);
                exit_thread_with(usize::from(status));
            }
            Ok(_) => {}
            // Rule P7: what is swapped out must never read as zeros.
            Err(_) if rules::dies_with_pager() => {
                die(b"vswap-agent: vswap is gone, process killed\n")
            }
            Err(_) => exit_thread(),
        }
    }
    ring.agent_sleeps.store(0, Ordering::SeqCst);
}
