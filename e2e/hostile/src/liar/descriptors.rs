//! Descriptors of every kind, to be sent where another kind is expected.
//!
//! Unsafe is needed here because rustix lacks a call.

use std::fs::File;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::Duration;

use rustix::event::epoll;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::pipe::PipeFlags;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use vswap_drive::random::Random;
use vswap_sys::ring::{RING_BYTES, RING_MAGIC};
use vswap_sys::uffd::{Faults, Userfaultfd, feature};

use crate::liar::{filters, messages};
use crate::process::{self, Fork};

/// Kinds of descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Pipe,
    BlockingPipe,
    EndedPipe,
    PacketPair,
    StreamPair,
    Null,
    Zero,
    Full,
    RegularFile,
    Directory,
    Event,
    Epoll,
    Timer,
    Signals,
    Process,
    Listener,
    Memory,
    SealedMemory,
    SmallMemory,
    HugeMemory,
    FutureSealedMemory,
    UnshakenUffd,
    Uffd,
    BlockingUffd,
    EventsUffd,
    UserUffd,
    UffdOfChild,
    UffdOfEnded,
}

/// How long a child lives at most, whose userfaultfd is used. Its group is killed before.
const CHILD_TIME: Duration = Duration::from_secs(5);

/// All of them.
pub(crate) const KINDS: [Kind; 28] = [
    Kind::Pipe,
    Kind::BlockingPipe,
    Kind::EndedPipe,
    Kind::PacketPair,
    Kind::StreamPair,
    Kind::Null,
    Kind::Zero,
    Kind::Full,
    Kind::RegularFile,
    Kind::Directory,
    Kind::Event,
    Kind::Epoll,
    Kind::Timer,
    Kind::Signals,
    Kind::Process,
    Kind::Listener,
    Kind::Memory,
    Kind::SealedMemory,
    Kind::SmallMemory,
    Kind::HugeMemory,
    Kind::FutureSealedMemory,
    Kind::UnshakenUffd,
    Kind::Uffd,
    Kind::BlockingUffd,
    Kind::EventsUffd,
    Kind::UserUffd,
    Kind::UffdOfChild,
    Kind::UffdOfEnded,
];

/// Features that a true agent asks for, where the kernel has them.
pub(crate) const FEATURES: u64 = feature::PAGEFAULT_FLAG_WP
    | feature::EVENT_FORK
    | feature::EVENT_REMAP
    | feature::EVENT_REMOVE
    | feature::EVENT_UNMAP
    | feature::THREAD_ID
    | feature::EXACT_ADDRESS
    | feature::WP_UNPOPULATED
    | feature::POISON
    | feature::MOVE;

/// A descriptor, and the other end through which forged messages can follow.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) fd: OwnedFd,
    pub(crate) other_end: Option<OwnedFd>,
}

/// Makes one. None if the machine does not give it.
pub(crate) fn make(kind: Kind, random: &mut Random, near: (u64, u64)) -> Option<Made> {
    match kind {
        Kind::Pipe | Kind::BlockingPipe | Kind::EndedPipe | Kind::PacketPair | Kind::StreamPair => {
            made_of_two(kind, random, near)
        }
        _ => made_of_one(kind, random).map(|fd| Made {
            fd,
            other_end: None,
        }),
    }
}

/// Pipes and sockets that may hold forged messages.
fn made_of_two(kind: Kind, random: &mut Random, near: (u64, u64)) -> Option<Made> {
    let pair = |kind| {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None)
    };
    let (fd, other_end) = match kind {
        Kind::PacketPair => pair(SocketType::SEQPACKET).ok()?,
        Kind::StreamPair => pair(SocketType::STREAM).ok()?,
        Kind::BlockingPipe => rustix::pipe::pipe_with(PipeFlags::CLOEXEC).ok()?,
        _ => rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?,
    };
    if random.chance(70) {
        // A pipe takes 64 KiB, which is more than this.
        let _ = rustix::io::write(&other_end, &messages::some(random, near));
    }
    let is_ended = kind == Kind::EndedPipe;
    Some(Made {
        fd,
        other_end: (!is_ended).then_some(other_end),
    })
}

fn made_of_one(kind: Kind, random: &mut Random) -> Option<OwnedFd> {
    let open = |path: &str| File::options().read(true).write(true).open(path).ok();
    Some(match kind {
        Kind::Null => open("/dev/null")?.into(),
        Kind::Zero => open("/dev/zero")?.into(),
        Kind::Full => open("/dev/full")?.into(),
        Kind::RegularFile => regular_file()?,
        Kind::Directory => File::open("/").ok()?.into(),
        Kind::Event => {
            let flags = rustix::event::EventfdFlags::NONBLOCK;
            rustix::event::eventfd(random.below(3), flags).ok()?
        }
        Kind::Epoll => epoll::create(epoll::CreateFlags::CLOEXEC).ok()?,
        Kind::Timer => timer()?,
        Kind::Signals => signals()?,
        Kind::Process => {
            let own = rustix::process::getpid();
            rustix::process::pidfd_open(own, rustix::process::PidfdFlags::empty()).ok()?
        }
        Kind::Listener => filters::listener_of_a_thread(random)?,
        Kind::Memory
        | Kind::SealedMemory
        | Kind::SmallMemory
        | Kind::HugeMemory
        | Kind::FutureSealedMemory => memory(kind, random)?,
        _ => uffd(kind, random)?.into(),
    })
}

fn regular_file() -> Option<OwnedFd> {
    let file = File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_TMPFILE)
        .open(std::env::temp_dir())
        .ok()?;
    file.set_len(RING_BYTES as u64).ok()?;
    Some(file.into())
}

/// A timer that fires all the time.
fn timer() -> Option<OwnedFd> {
    let fd =
        rustix::time::timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK).ok()?;
    let often = Timespec {
        tv_sec: 0,
        tv_nsec: 1_000_000,
    };
    let spec = Itimerspec {
        it_interval: often,
        it_value: often,
    };
    rustix::time::timerfd_settime(&fd, TimerfdTimerFlags::empty(), &spec).ok()?;
    Some(fd)
}

fn signals() -> Option<OwnedFd> {
    // SAFETY: the kernel reads one set of signals, and the result is a new descriptor or -1.
    unsafe {
        let mut set: libc::sigset_t = core::mem::zeroed();
        libc::sigfillset(&raw mut set);
        let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        (fd >= 0).then(|| OwnedFd::from_raw_fd(fd))
    }
}

/// Files in memory as a ring would be, but for one thing.
fn memory(kind: Kind, random: &mut Random) -> Option<OwnedFd> {
    let flags = match kind {
        Kind::SealedMemory | Kind::FutureSealedMemory => MemfdFlags::ALLOW_SEALING,
        Kind::HugeMemory => MemfdFlags::HUGETLB,
        _ => MemfdFlags::empty(),
    };
    let fd = rustix::fs::memfd_create("vswap-ring:", flags | MemfdFlags::CLOEXEC).ok()?;
    let bytes = match kind {
        Kind::SmallMemory => u64::from(random.below(RING_BYTES as u32)),
        Kind::HugeMemory => 2 << 20,
        _ => RING_BYTES as u64,
    };
    rustix::fs::ftruncate(&fd, bytes).ok()?;
    if kind != Kind::HugeMemory && random.chance(70) {
        // One that is too small becomes longer by this.
        let _ = rustix::io::write(&fd, &RING_MAGIC.to_ne_bytes());
    }
    let seals = match kind {
        Kind::SealedMemory => SealFlags::SEAL | SealFlags::GROW,
        Kind::FutureSealedMemory => SealFlags::FUTURE_WRITE | SealFlags::SEAL,
        _ => SealFlags::empty(),
    };
    if !seals.is_empty() {
        rustix::fs::fcntl_add_seals(&fd, seals).ok()?;
    }
    Some(fd)
}

/// Userfaultfds that are not what they should be.
fn uffd(kind: Kind, random: &mut Random) -> Option<Userfaultfd> {
    let opened = |features| {
        Userfaultfd::open_with(Faults::All, features)
            .ok()
            .map(|both| both.0)
    };
    match kind {
        Kind::UnshakenUffd => Some(Userfaultfd::open(Faults::All).ok()?.0),
        Kind::EventsUffd => opened(FEATURES),
        Kind::UserUffd => Userfaultfd::open_with(Faults::UserOnly, 0)
            .ok()
            .map(|both| both.0),
        Kind::BlockingUffd => {
            let uffd = opened(FEATURES)?;
            uffd.set_nonblocking(false).ok()?;
            Some(uffd)
        }
        Kind::UffdOfChild | Kind::UffdOfEnded => of_child(kind == Kind::UffdOfEnded),
        _ => opened(random.next() & FEATURES),
    }
}

/// The userfaultfd of a child, which lives as long as this process or has ended already.
fn of_child(is_ended: bool) -> Option<Userfaultfd> {
    let (here, there) = vswap_sys::sock::Stream::pair().ok()?;
    match process::fork() {
        Fork::Child => {
            let made = Userfaultfd::open_with(Faults::All, FEATURES);
            if let Ok((uffd, _)) = made {
                // If it does not go the parent has none.
                let _ = there.send(&0_u8, &[uffd.as_fd()], vswap_sys::sock::Wait::No);
            }
            if !is_ended {
                // The group is killed with the parent.
                std::thread::sleep(CHILD_TIME);
            }
            process::leave(0);
        }
        Fork::Parent(pid) => {
            drop(there);
            if is_ended {
                process::wait_for(pid);
            }
            let connection = crate::liar::wire::Connection(here);
            let (_, fd) = connection.hear(Duration::from_secs(1))?;
            fd.map(Userfaultfd::from_fd)
        }
        Fork::Failed => None,
    }
}
