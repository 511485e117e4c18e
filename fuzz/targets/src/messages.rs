//! Messages between processes: hellos and rings of agents, events of the kernel, requests at the control socket.
//!
//! Any bytes are accepted or refused, and what is accepted must equal what was sent. Everything goes through the same
//! calls that the pager and the command use, over real sockets, pipes and memory files.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicBool;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};
use vswap_pager::hello::{Greeting, own_pages};
use vswap_pager::page_run::PAGES_END;
use vswap_sys::memory::{MemoryError, RingMap};
use vswap_sys::ring::{ASIDE_PAGES, Hello, RING_BYTES, RING_MAGIC, STAGING_PAGES, hello};
use vswap_sys::sock::{SockError, Stream, Wait};
use vswap_sys::uffd::{MESSAGES_MAX, Message, Messages, Userfaultfd};

use crate::bytes::Bytes;
use crate::control;

/// Longer than any message, so that messages that are too long are tried too. Shorter than a pipe's capacity.
const MESSAGE_BYTES_MAX: usize = 4096;
/// The answer of a run without figures.
const REPORT: &str = "figures";

/// The first byte chooses the receiver.
pub fn messages(data: &[u8]) {
    let mut bytes = Bytes(data);
    let to = bytes.below(5);
    let said = &bytes.0[..bytes.0.len().min(MESSAGE_BYTES_MAX)];
    match to {
        0 => any_hello(said),
        1 => good_hello(bytes),
        2 => ring(bytes),
        3 => events(said),
        _ => request(said),
    }
}

/// The agents' socket accepts only a hello of exactly its length, and returns it unchanged.
fn any_hello(said: &[u8]) {
    let (agent, pager) = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .expect("a socket");
    send(&agent, said, SendFlags::empty()).expect("room for one message");
    match Stream::from_fd(pager).recv::<Hello>(Wait::No) {
        Ok((hello, descriptors)) => {
            assert_eq!(said.len(), size_of::<Hello>());
            assert!(descriptors.is_empty());
            assert_eq!(said, sent_bytes(&hello));
            judge(&hello);
        }
        Err(SockError::Closed) => assert!(said.is_empty()),
        Err(SockError::Length { got, expected }) => {
            assert_eq!((got, expected), (said.len(), size_of::<Hello>()));
            assert_ne!(got, expected);
        }
        Err(error) => panic!("{error}"),
    }
}

/// The bytes that an agent sends.
fn sent_bytes(hello: &Hello) -> Vec<u8> {
    let (agent, pager) = Stream::pair().expect("a socket");
    agent
        .send(hello, &[], Wait::No)
        .expect("room for one message");
    let mut bytes = vec![0; MESSAGE_BYTES_MAX];
    let length = rustix::io::read(pager.as_fd(), &mut bytes).expect("it was sent");
    bytes.truncate(length);
    bytes
}

/// A hello that an agent could have sent arrives unchanged.
fn good_hello(mut bytes: Bytes<'_>) {
    let said = Hello {
        magic: RING_MAGIC,
        kind: [hello::EXEC, hello::FORKED, hello::FORK_BEGIN][usize::from(bytes.below(3))],
        flags: bytes.u8().into(),
        agent_base: bytes.u64(),
        agent_bytes: bytes.u64(),
        staging: bytes.u64(),
        fork: bytes.u64(),
        ring: bytes.u64(),
        ..Hello::default()
    };
    let (agent, pager) = Stream::pair().expect("a socket");
    agent
        .send(&said, &[agent.as_fd()], Wait::No)
        .expect("room for one message");
    let (heard, descriptors) = pager.recv::<Hello>(Wait::No).expect("it was sent");
    assert_eq!((heard, descriptors.len()), (said, 1));
    assert!(Greeting::of(&heard).is_some());
    judge(&heard);
}

/// Whatever a hello claims, what is believed of it must be consistent.
fn judge(hello: &Hello) {
    if hello.magic != RING_MAGIC {
        assert_eq!(Greeting::of(hello), None);
    }
    if let Some(own) = own_pages(hello) {
        let own = own.range();
        assert!(own.end <= PAGES_END);
        let has = |address: u64, bytes: usize| {
            own.contains(&(address / 4096)) && own.contains(&((address + bytes as u64 - 1) / 4096))
        };
        let staged = 2 * STAGING_PAGES + ASIDE_PAGES;
        assert!(has(hello.staging, staged * 4096) && has(hello.ring, RING_BYTES));
    }
}

/// A memory file of any length and content is a ring or is refused before anything in it is touched.
fn ring(mut bytes: Bytes<'_>) {
    let file = memfd_create("fuzz-ring", MemfdFlags::ALLOW_SEALING).expect("a memory file");
    let length = u64::from(bytes.u16());
    let takes_no_seal = bytes.bool();
    let content = match bytes.bool() {
        true => RING_MAGIC,
        false => bytes.u64(),
    };
    rustix::io::pwrite(&file, &content.to_ne_bytes(), 0).expect("written");
    ftruncate(&file, length).expect("its length");
    if takes_no_seal {
        fcntl_add_seals(&file, SealFlags::SEAL).expect("a fresh file takes seals");
    }
    match RingMap::open(file.as_fd()) {
        Ok(ring) => {
            assert!(length >= RING_BYTES as u64 && content == RING_MAGIC && !takes_no_seal);
            assert!(ftruncate(&file, length - 1).is_err());
            assert!(ring.page_errno.iter().all(|errno| {
                // The end of the ring can be read, so the file is long enough.
                errno.load(std::sync::atomic::Ordering::Relaxed) == 0
            }));
        }
        Err(MemoryError::ShortRing { bytes }) => {
            assert_eq!(bytes, length);
            assert!(length < RING_BYTES as u64);
        }
        Err(MemoryError::Magic { magic }) => {
            assert_eq!(magic, content);
            assert_ne!(magic, RING_MAGIC);
        }
        Err(MemoryError::Unsealed) => assert!(takes_no_seal),
        Err(error) => panic!("{error}"),
    }
}

/// Bytes of a kernel message.
const EVENT_BYTES: usize = 32;
/// The kernel's number for a fork event, whose message contains a descriptor.
const EVENT_FORK: u8 = 0x13;
/// The descriptor's place in that message.
const FORK_DESCRIPTOR: std::ops::Range<usize> = 8..12;

/// Kernel messages are read as they are in the buffer, whatever they say.
fn events(said: &[u8]) {
    let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
    let whole = said.len() / EVENT_BYTES * EVENT_BYTES;
    let mut sent: Vec<[u8; EVENT_BYTES]> = Vec::new();
    for event in said[..whole].chunks_exact(EVENT_BYTES).take(MESSAGES_MAX) {
        let mut event: [u8; EVENT_BYTES] = event.try_into().expect("a whole one");
        if event[0] == EVENT_FORK {
            // The kernel names a descriptor that it has just made. Any other number would belong to somebody else.
            event[FORK_DESCRIPTOR].copy_from_slice(&fresh_descriptor(&reader));
        }
        sent.push(event);
    }
    if sent.is_empty() {
        return;
    }
    rustix::io::write(&writer, sent.as_flattened()).expect("room in the pipe");
    let uffd = Userfaultfd::from_fd(reader);
    let mut messages = Messages::new();
    let read = uffd.read(&mut messages, MESSAGES_MAX).expect("a pipe");
    assert_eq!(read, sent.len());
    for event in &sent {
        let message = messages.next().expect("as many as were sent");
        same(event, &message);
    }
    assert!(messages.next().is_none());
}

/// A descriptor that nobody else owns, as the kernel writes it.
fn fresh_descriptor(of: &OwnedFd) -> [u8; 4] {
    use std::os::fd::IntoRawFd;
    let fresh = of.try_clone().expect("a descriptor").into_raw_fd();
    fresh.to_ne_bytes()
}

/// Compares field by field, in the layout of the kernel's header.
fn same(event: &[u8; EVENT_BYTES], message: &Message) {
    let word = |at: usize| u64::from_ne_bytes(event[at..at + 8].try_into().expect("eight bytes"));
    match (event[0], message) {
        (
            0x12,
            Message::Fault {
                address,
                write,
                wp,
                minor,
                tid,
            },
        ) => {
            assert_eq!((word(8) & 1 != 0, word(8) & 2 != 0), (*write, *wp));
            assert_eq!((word(8) & 4 != 0, word(16)), (*minor, *address));
            assert_eq!(word(24).to_ne_bytes()[..4], tid.to_ne_bytes());
        }
        (EVENT_FORK, Message::Fork { uffd }) => {
            assert_eq!(uffd.as_raw_fd().to_ne_bytes(), event[FORK_DESCRIPTOR]);
        }
        (0x14, Message::Remap { from, to, bytes }) => {
            assert_eq!((word(8), word(16), word(24)), (*from, *to, *bytes));
        }
        (0x15, Message::Remove { start, end }) | (0x16, Message::Unmap { start, end }) => {
            assert_eq!((word(8), word(16)), (*start, *end));
        }
        (number, Message::Unknown { event }) => {
            assert_eq!(number, *event);
            assert!(!(0x12..=0x16).contains(&number));
        }
        (number, other) => panic!("event {number:#x} became {other:?}"),
    }
}

/// The control socket answers only requests, and always ends.
fn request(said: &[u8]) {
    let (mut client, run) = UnixStream::pair().expect("a socket");
    client.write_all(said).expect("room");
    client.shutdown(Shutdown::Write).expect("open");
    let heard = RefCell::new(None);
    let answered = control::answer(&run, &AtomicBool::new(false), |request, _| {
        *heard.borrow_mut() = Some(request);
        Ok(REPORT.into())
    });
    drop(run);
    let mut text = String::new();
    let read = client.read_to_string(&mut text);
    if let (Ok(()), Some(request)) = (answered, heard.take()) {
        assert!(text.contains(REPORT));
        // The request means the same when it is sent again.
        let again = serde_json::to_vec(&request).expect("JSON");
        let decoded: control::Request = serde_json::from_slice(&again).expect("a request");
        assert_eq!(decoded, request);
    } else {
        assert_eq!(text, "");
    }
    // If the run has not read all bytes, the connection ends with a reset.
    assert!(read.is_ok() || said.len() > text.len());
}
