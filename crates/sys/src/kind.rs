//! What a descriptor is. Whoever gets one from a program must not believe that it is what the program says.
//!
//! The kernel names the file behind each descriptor in `/proc/PID/fd`. The names here are those of files without a
//! path. No program can make another file with such a name, because a path begins with `/`.

use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

/// Kinds of files without a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A userfaultfd.
    Userfaultfd,
    /// The listener of a seccomp filter.
    Listener,
    /// An io_uring.
    IoUring,
}

impl Kind {
    /// The kernel's name.
    pub const fn link(self) -> &'static str {
        match self {
            Kind::Userfaultfd => "anon_inode:[userfaultfd]",
            Kind::Listener => "anon_inode:seccomp notify",
            Kind::IoUring => "anon_inode:[io_uring]",
        }
    }

    /// Is this the name of such a file?
    pub fn is_link(self, link: &Path) -> bool {
        link == Path::new(self.link())
    }
}

/// Is this descriptor of this process of that kind? Also false if `/proc` cannot tell. Takes no descriptor.
pub fn is(descriptor: &impl AsFd, kind: Kind) -> bool {
    let number = descriptor.as_fd().as_raw_fd();
    let link = std::fs::read_link(format!("/proc/self/fd/{number}"));
    link.is_ok_and(|link| kind.is_link(&link))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seccomp::Listener;
    use rustix::fs::{CWD, MemfdFlags, Mode, OFlags};

    #[test]
    fn nothing_else_passes_for_a_userfaultfd_or_a_listener() {
        for kind in [Kind::Userfaultfd, Kind::Listener] {
            let (reader, _writer) = std::io::pipe().unwrap();
            assert!(!is(&reader, kind));
            assert!(Listener::received(reader.into()).is_none());
            // Files that have the kernel's name for it as far as they can.
            let named = rustix::fs::memfd_create(kind.link(), MemfdFlags::CLOEXEC).unwrap();
            assert!(!is(&named, kind));
            assert!(Listener::received(named).is_none());
            let place = std::env::temp_dir().join(kind.link());
            let flags = OFlags::CREATE | OFlags::RDWR;
            let named = rustix::fs::openat(CWD, &place, flags, Mode::RUSR).unwrap();
            std::fs::remove_file(place).unwrap();
            assert!(!is(&named, kind));
        }
    }
}
