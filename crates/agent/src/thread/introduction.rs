//! How the agent's thread opens everything and introduces the process to the pager.
//!
//! All is complete before the pager hears of it. Runs on the agent's thread, in its own descriptor table. Unsafe is
//! needed here because the agent has no wrapper for these system calls, and the ring is a bare mapping.

use core::ptr;
use core::sync::atomic::Ordering;

use crate::base::kernel::{self, Descriptor, Errno, call, parent_id, process_id, thread_id};
use crate::ring::{
    ACK, ATTACHED, COPIED, Hello, INHERITED, NOT_MINE, NOTHING_INHERITED, RING_MAGIC, Ring, hello,
};
use crate::session::{Session, pair, socket};
use crate::state::reservation::{self, Reservation};
use crate::state::{NO_DESCRIPTOR, STATE};

/// How the process came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A fresh program image.
    Exec,
    /// A forked child whose memory is its own.
    Forked,
    /// A forked child whose memory is under a userfaultfd that the pager has.
    Inherited,
    /// A forked child whose memory is under no userfaultfd, though pages of its parent are out.
    Copied,
}

impl Origin {
    /// The origin whose number was passed to a new thread.
    pub fn from_argument(argument: usize) -> Self {
        match argument {
            0 => Self::Exec,
            1 => Self::Forked,
            2 => Self::Inherited,
            _ => Self::Copied,
        }
    }
}

/// Opens everything and says Hello. If opening fails, tells the pager the errno instead, and the connection then ends.
pub fn introduce(
    origin: Origin,
    reservation: Reservation,
    socket: Descriptor,
) -> Result<(Session, &'static Ring), Errno> {
    let image_bytes = STATE.image_bytes.load(Ordering::Relaxed);
    let mut greeting = Hello {
        magic: RING_MAGIC,
        kind: if origin == Origin::Exec {
            hello::EXEC
        } else {
            hello::FORKED
        },
        flags: match origin {
            Origin::Inherited => INHERITED,
            Origin::Copied => COPIED,
            Origin::Exec | Origin::Forked => 0,
        } | if STATE.is_attached() { ATTACHED } else { 0 },
        fork: match origin {
            Origin::Inherited | Origin::Copied => STATE.fork_token.load(Ordering::SeqCst),
            Origin::Exec | Origin::Forked => 0,
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
        ring: reservation.ring() as u64,
        entry: STATE.entry.load(Ordering::Relaxed) as u64,
        entry_stack: STATE.entry_stack.load(Ordering::Relaxed) as u64,
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
        if origin == Origin::Copied {
            await_copy(socket)?;
        }
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

type Opened = (Option<Descriptor>, Descriptor, Descriptor, &'static Ring);

/// Opens the main userfaultfd (except in a child that inherits it), the one of staging, and the ring with its memfd.
/// All is complete before the pager hears of it.
fn open(origin: Origin, reservation: Reservation) -> Result<Opened, Errno> {
    let (main, staging) = if origin == Origin::Inherited {
        (None, pair::open_staging()?)
    } else {
        let pair = pair::open_pair()?;
        STATE.features.store(pair.features, Ordering::SeqCst);
        reservation.register_staging(pair.main)?;
        (Some(pair.main), pair.staging)
    };
    reservation.register_freeing(staging)?;
    let memfd = reservation.map_ring(STATE.socket_path_bytes())?;
    // SAFETY: the ring is mapped from now on for as long as the process lives, and zeros are a valid ring. A shared
    // reference is sound although the pager writes there, because all fields are atomic.
    let ring = unsafe { &*ptr::with_exposed_provenance::<Ring>(reservation.ring()) };
    ring.magic.store(RING_MAGIC, Ordering::SeqCst);
    // A child that inherits must announce its own forks from the start.
    let is_active = matches!(origin, Origin::Inherited | Origin::Copied);
    ring.active.store(u32::from(is_active), Ordering::SeqCst);
    // Program threads use the ring from here on.
    STATE
        .ring
        .store(ptr::from_ref(ring).cast_mut(), Ordering::SeqCst);
    Ok((main, staging, memfd, ring))
}

/// Waits until the pager has registered the memory of this child and knows what is out.
fn await_copy(socket: Descriptor) -> Result<(), Errno> {
    match socket::receive_byte(socket)? {
        ACK => Ok(()),
        _ => Err(kernel::EPROTO),
    }
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
