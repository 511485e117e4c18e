//! Tests of the message sockets.

use super::*;
use rustix::io::FdFlags;

fn pipe() -> (OwnedFd, OwnedFd) {
    rustix::pipe::pipe().unwrap()
}

#[test]
fn a_hello_and_its_descriptors_arrive_both_ways() {
    let (one, other) = Stream::pair().unwrap();
    for (from, to) in [(&one, &other), (&other, &one)] {
        let hello = Hello {
            magic: 1,
            kind: 2,
            pid: -3,
            staging: u64::MAX,
            ..Hello::default()
        };
        let (reader, writer) = pipe();
        from.send(&hello, &[reader.as_fd(), writer.as_fd()], Wait::Yes)
            .unwrap();
        drop((reader, writer));
        let (got, mut fds) = to.recv::<Hello>(Wait::Yes).unwrap();
        assert_eq!(got, hello);
        assert_eq!(fds.len(), 2);
        let (reader, writer) = (fds.take(0).unwrap(), fds.take(1).unwrap());
        assert!(fds.is_empty() && fds.take(0).is_none() && fds.take(9).is_none());
        assert!(
            rustix::io::fcntl_getfd(&reader)
                .unwrap()
                .contains(FdFlags::CLOEXEC)
        );
        rustix::io::write(&writer, b"through").unwrap();
        let mut text = [0u8; 7];
        rustix::io::read(&reader, &mut text).unwrap();
        assert_eq!(&text, b"through");
    }
}

#[test]
fn wrong_lengths_ends_and_empty_sockets_are_told_apart() {
    let (one, other) = Stream::pair().unwrap();
    assert_eq!(other.recv::<u8>(Wait::No).err(), Some(SockError::NotReady));
    one.send(&7u64, &[], Wait::Yes).unwrap();
    assert_eq!(
        other.recv::<u8>(Wait::Yes).err(),
        Some(SockError::Length {
            got: 8,
            expected: 1
        })
    );
    one.send(&7u8, &[], Wait::Yes).unwrap();
    assert_eq!(
        other.recv::<u64>(Wait::Yes).err(),
        Some(SockError::Length {
            got: 1,
            expected: 8
        })
    );
    one.send(&7u8, &[], Wait::Yes).unwrap();
    drop(one);
    assert_eq!(other.recv::<u8>(Wait::Yes).unwrap().0, 7);
    assert_eq!(other.recv::<u8>(Wait::Yes).err(), Some(SockError::Closed));
    assert_eq!(other.send(&1u8, &[], Wait::Yes), Err(SockError::Closed));
}

#[test]
fn descriptors_of_a_refused_message_are_closed() {
    let (one, other) = Stream::pair().unwrap();
    let (reader, writer) = pipe();
    one.send(&7u64, &[writer.as_fd()], Wait::Yes).unwrap();
    drop(writer);
    assert!(other.recv::<u8>(Wait::Yes).is_err());
    // When every copy of the writer is closed, the reader sees the end.
    assert_eq!(rustix::io::read(&reader, &mut [0u8; 1]), Ok(0));
    let many = [reader.as_fd(); DESCRIPTORS_MAX + 1];
    assert_eq!(
        one.send(&7u8, &many, Wait::Yes),
        Err(SockError::DescriptorsLost)
    );
    one.send(&7u8, &many[..DESCRIPTORS_MAX], Wait::Yes).unwrap();
    assert_eq!(
        other.recv::<u8>(Wait::Yes).unwrap().1.len(),
        DESCRIPTORS_MAX
    );
}

#[test]
fn a_listener_accepts_knows_its_peer_and_cleans_up() {
    let path = std::env::temp_dir().join(format!("vswap-sock-test-{}", std::process::id()));
    let listener = Listener::bind(&path, 0o600).unwrap();
    let mode = rustix::fs::stat(&path).unwrap().st_mode;
    assert_eq!(mode & 0o077, 0);
    let client = Stream::connect(&path).unwrap();
    let server = listener.accept().unwrap();
    for stream in [&client, &server] {
        let peer = stream.peer().unwrap();
        assert_eq!(peer.pid, std::process::id());
        assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
    }
    client.shutdown().unwrap();
    assert_eq!(server.recv::<u8>(Wait::Yes).err(), Some(SockError::Closed));
    let busy = Listener::bind(&path, 0o600).err();
    assert_eq!(
        busy,
        Some(SockError::Other(Errno::ADDRINUSE.raw_os_error()))
    );
    drop(listener);
    let nobody = Stream::connect(&path).err();
    assert_eq!(nobody, Some(SockError::Other(Errno::NOENT.raw_os_error())));
}
