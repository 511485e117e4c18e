//! The connection to the pager: SEQPACKET messages, and descriptors that go with them.
//!
//! Only threads of the agent use it, in their own descriptor tables. Unsafe is needed here because the agent has no
//! wrapper for these system calls, and the kernel reads and writes their records by address.

use crate::base::kernel::{
    CLOEXEC, Descriptor, EACCES, EINTR, EPROTO, Errno, call, close, process_id,
};
use crate::raw;
use crate::ring::{ACK, Hello, RING_MAGIC, SOCKET_PATH_BYTES_MAX, hello};
use crate::state::STATE;

const AF_UNIX: u16 = 1;
const SOCK_SEQPACKET: usize = 5;
const SOL_SOCKET: i32 = 1;
const SCM_RIGHTS: i32 = 1;
const MSG_NOSIGNAL: usize = 0x4000;
const MSG_CMSG_CLOEXEC: usize = 0x4000_0000;
/// Most descriptors that one message carries: those of a Hello.
const DESCRIPTORS_MAX: usize = 3;
/// Bytes of the header and the descriptors, rounded up to words.
const CONTROL_BYTES: usize = CONTROL_HEADER_BYTES + (DESCRIPTORS_MAX * 4).next_multiple_of(8);
const CONTROL_HEADER_BYTES: usize = 16;

#[repr(C)]
struct Address {
    family: u16,
    path: [u8; SOCKET_PATH_BYTES_MAX + 1],
}

#[repr(C)]
struct Vector {
    base: usize,
    bytes: usize,
}

#[repr(C)]
struct Control {
    bytes: usize,
    level: i32,
    kind: i32,
    descriptors: [i32; DESCRIPTORS_MAX + 1],
}

#[repr(C)]
struct Message {
    name: usize,
    name_bytes: usize,
    vectors: *const Vector,
    vector_count: usize,
    control: *mut Control,
    control_bytes: usize,
    flags: usize,
}

const _: () = assert!(size_of::<Control>() == CONTROL_BYTES);
const _: () = assert!(size_of::<Message>() == 56);

/// Connects to the pager's socket. A program that has changed its root does not see the path any more, so the same name
/// is then tried as an abstract one. Anybody could listen there, so the other end must be root or this user.
pub fn connect() -> Result<Descriptor, Errno> {
    // SAFETY: this only makes a descriptor in the agent's own table.
    let socket = raw::result(unsafe {
        raw::syscall3(
            call::SOCKET,
            usize::from(AF_UNIX),
            SOCK_SEQPACKET | CLOEXEC,
            0,
        )
    })?;
    connect_to(socket, false)
        .or_else(|_| connect_to(socket, true).and_then(|()| check_peer(socket)))
        .map(|()| socket)
        .inspect_err(|_| close(socket))
}

fn check_peer(socket: Descriptor) -> Result<(), Errno> {
    const SO_PEERCRED: usize = 17;
    // pid, uid, gid
    let (mut credentials, mut bytes) = ([0_u32; 3], 12_u32);
    let (buffer, length) = ((&raw mut credentials).addr(), (&raw mut bytes).addr());
    // SAFETY: the buffer has the size and layout of ucred, and `bytes` says so. geteuid has no effects.
    let own = unsafe {
        raw::result(raw::syscall5(
            call::GETSOCKOPT,
            socket,
            1,
            SO_PEERCRED,
            buffer,
            length,
        ))?;
        raw::syscall0(call::GETEUID)
    };
    let [_, user, _] = credentials;
    if user == 0 || user as usize == own.cast_unsigned() {
        Ok(())
    } else {
        Err(EACCES)
    }
}

fn connect_to(socket: Descriptor, abstract_name: bool) -> Result<(), Errno> {
    let mut address = Address {
        family: AF_UNIX,
        path: [0; SOCKET_PATH_BYTES_MAX + 1],
    };
    // A path ends with a zero, and an abstract name begins with one. Either way the length is one byte more than the
    // name.
    let room = address.path.iter_mut().skip(usize::from(abstract_name));
    let mut bytes = 0_usize;
    for (to, from) in room.zip(STATE.socket_path_bytes()) {
        *to = from;
        bytes = bytes.wrapping_add(1);
    }
    let length = size_of::<u16>() + bytes + 1;
    loop {
        // SAFETY: the address has the layout of sockaddr_un, and `length` is within it.
        match raw::result(unsafe {
            raw::syscall3(call::CONNECT, socket, (&raw const address).addr(), length)
        }) {
            Err(EINTR) => {}
            other => return other.map(|_| ()),
        }
    }
}

/// Sends a Hello with its descriptors.
pub fn send_hello(
    socket: Descriptor,
    hello: &Hello,
    descriptors: &[Descriptor],
) -> Result<(), Errno> {
    send(
        socket,
        (&raw const *hello).addr(),
        size_of::<Hello>(),
        descriptors,
    )
}

/// Gets a descriptor of /dev/userfaultfd from the pager, on a connection for that alone.
pub fn ask_for_device() -> Result<Descriptor, Errno> {
    let greeting = Hello {
        magic: RING_MAGIC,
        kind: hello::DEVICE,
        pid: process_id(),
        ..Hello::default()
    };
    let socket = connect()?;
    let answer = send_hello(socket, &greeting, &[]).and_then(|()| receive_descriptor(socket));
    close(socket);
    match answer? {
        (ACK, Some(device)) => Ok(device),
        _ => Err(EPROTO),
    }
}

/// Has the pager do the handshake of a userfaultfd, on a connection for that alone.
pub fn ask_for_handshake(userfaultfd: Descriptor, features: u64) -> Result<(), Errno> {
    let greeting = Hello {
        magic: RING_MAGIC,
        kind: hello::HANDSHAKE,
        pid: process_id(),
        uffd_features: features,
        ..Hello::default()
    };
    let socket = connect()?;
    let answer = send_hello(socket, &greeting, &[userfaultfd]).and_then(|()| receive_byte(socket));
    close(socket);
    match answer? {
        ACK => Ok(()),
        _ => Err(EPROTO),
    }
}

/// Sends one byte.
pub fn send_byte(socket: Descriptor, byte: u8) -> Result<(), Errno> {
    send(socket, (&raw const byte).addr(), 1, &[])
}

/// Sends one byte with a descriptor.
pub fn send_descriptor(socket: Descriptor, byte: u8, descriptor: Descriptor) -> Result<(), Errno> {
    send(socket, (&raw const byte).addr(), 1, &[descriptor])
}

fn send(
    socket: Descriptor,
    base: usize,
    bytes: usize,
    descriptors: &[Descriptor],
) -> Result<(), Errno> {
    let mut control = Control {
        bytes: CONTROL_HEADER_BYTES + 4 * descriptors.len().min(DESCRIPTORS_MAX),
        level: SOL_SOCKET,
        kind: SCM_RIGHTS,
        descriptors: [-1; DESCRIPTORS_MAX + 1],
    };
    for (to, from) in control.descriptors.iter_mut().zip(descriptors) {
        *to = i32::try_from(*from).unwrap_or(-1);
    }
    let vector = Vector { base, bytes };
    let message = Message {
        name: 0,
        name_bytes: 0,
        vectors: &raw const vector,
        vector_count: 1,
        control: &raw mut control,
        control_bytes: if descriptors.is_empty() {
            0
        } else {
            control.bytes
        },
        flags: 0,
    };
    loop {
        // SAFETY: the message and everything that it points to live here until the call returns.
        let sent = raw::result(unsafe {
            raw::syscall3(
                call::SENDMSG,
                socket,
                (&raw const message).addr(),
                MSG_NOSIGNAL,
            )
        });
        match sent {
            Err(EINTR) => {}
            Ok(sent) if sent == bytes => return Ok(()),
            Ok(_) => return Err(EPROTO),
            Err(errno) => return Err(errno),
        }
    }
}

/// Waits for a message of one byte and takes it. An error or the end of the connection means that the pager is dead.
pub fn receive_byte(socket: Descriptor) -> Result<u8, Errno> {
    receive_word(socket).map(|[byte, ..]| byte)
}

/// Waits for a message of one to three bytes. Bytes that are not sent are 0.
pub fn receive_word(socket: Descriptor) -> Result<[u8; 3], Errno> {
    let mut word = [0_u8; 3];
    let place = word.as_mut_ptr().addr();
    loop {
        // SAFETY: the kernel writes at most three bytes on this stack. No sender's address is asked for.
        let received = raw::result(unsafe {
            raw::syscall6(call::RECVFROM, [socket, place, word.len(), 0, 0, 0])
        });
        match received {
            Err(EINTR) => {}
            Ok(1..=3) => return Ok(word),
            Ok(_) => return Err(EPROTO),
            Err(errno) => return Err(errno),
        }
    }
}

/// Waits for a message of one byte, with or without a descriptor.
pub fn receive_descriptor(socket: Descriptor) -> Result<(u8, Option<Descriptor>), Errno> {
    let mut byte = 0_u8;
    let mut control = Control {
        bytes: 0,
        level: 0,
        kind: 0,
        descriptors: [-1; DESCRIPTORS_MAX + 1],
    };
    let vector = Vector {
        base: (&raw mut byte).addr(),
        bytes: 1,
    };
    loop {
        let mut message = Message {
            name: 0,
            name_bytes: 0,
            vectors: &raw const vector,
            vector_count: 1,
            control: &raw mut control,
            control_bytes: size_of::<Control>(),
            flags: 0,
        };
        // SAFETY: the message and everything that it points to live here until the call returns.
        let received = raw::result(unsafe {
            raw::syscall3(
                call::RECVMSG,
                socket,
                (&raw mut message).addr(),
                MSG_CMSG_CLOEXEC,
            )
        });
        match received {
            Err(EINTR) => {}
            Err(errno) => return Err(errno),
            Ok(1) => {
                let rights = control.level == SOL_SOCKET && control.kind == SCM_RIGHTS;
                let [descriptor, ..] = control.descriptors;
                return Ok((byte, usize::try_from(descriptor).ok().filter(|_| rights)));
            }
            Ok(_) => return Err(EPROTO),
        }
    }
}
