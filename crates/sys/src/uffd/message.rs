//! Messages of a userfaultfd: faults and layout events, decoded from the caller's fixed buffer.
//!
//! A fork message carries a descriptor, so each message is decoded exactly once. A buffer that is dropped or refilled
//! closes the descriptors that were left in it. No allocation.

use core::mem::MaybeUninit;
use std::io::IoSliceMut;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use linux_raw_sys::general as raw;
use rustix::io::{Errno, ReadWriteFlags};

use super::Userfaultfd;

/// Most messages of one read: one per waiting thread of a busy program, and small enough for a stack (2 KiB).
pub const MESSAGES_MAX: usize = 64;

const MESSAGE_BYTES: usize = 32;
const _: () = assert!(size_of::<raw::uffd_msg>() == MESSAGE_BYTES);

/// One message from the kernel. Addresses are those of the program that owns the userfaultfd.
#[derive(Debug)]
pub enum Message {
    /// A thread waits at `address`.
    Fault {
        /// Faulting address; exact if EXACT_ADDRESS was negotiated, else page aligned.
        address: u64,
        /// The access is a write.
        write: bool,
        /// The page is present but write-protected.
        wp: bool,
        /// The page is in the page cache but not mapped.
        minor: bool,
        /// Thread id of the waiting thread, 0 unless THREAD_ID was negotiated.
        tid: u32,
    },
    /// The program forked; the child's memory is under `uffd`, which is new in this process.
    Fork {
        /// The child's userfaultfd.
        uffd: Userfaultfd,
    },
    /// mremap moved `bytes` from `from` to `to`.
    Remap {
        /// Old address.
        from: u64,
        /// New address.
        to: u64,
        /// Length after the move.
        bytes: u64,
    },
    /// MADV_DONTNEED, MADV_FREE or MADV_REMOVE is about to drop the pages of [start, end).
    Remove {
        /// First address.
        start: u64,
        /// End, exclusive.
        end: u64,
    },
    /// [start, end) was unmapped.
    Unmap {
        /// First address.
        start: u64,
        /// End, exclusive.
        end: u64,
    },
    /// An event that this version does not know. None is negotiated, so none should come.
    Unknown {
        /// The kernel's event number.
        event: u8,
    },
}

/// A fixed buffer for messages; iterate over it after each `Userfaultfd::read`.
pub struct Messages {
    buffer: [MaybeUninit<raw::uffd_msg>; MESSAGES_MAX],
    next: usize,
    filled: usize,
}

impl core::fmt::Debug for Messages {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Messages")
            .field("next", &self.next)
            .field("filled", &self.filled)
            .finish()
    }
}

impl Default for Messages {
    fn default() -> Messages {
        Messages::new()
    }
}

impl Messages {
    /// An empty buffer.
    pub const fn new() -> Messages {
        Messages {
            buffer: [const { MaybeUninit::zeroed() }; MESSAGES_MAX],
            next: 0,
            filled: 0,
        }
    }

    /// Messages not yet taken.
    pub fn len(&self) -> usize {
        self.filled - self.next
    }

    /// Whether all messages were taken.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads up to `limit` (1..=`MESSAGES_MAX`) messages from `uffd`. Drops first what was left from before. Never
    /// waits: the program can make its userfaultfd a blocking one at any moment, and a reader serves other programs
    /// too.
    pub(super) fn fill(&mut self, uffd: &Userfaultfd, limit: usize) -> Result<usize, Errno> {
        self.drain();
        let limit = limit.clamp(1, MESSAGES_MAX);
        let room = &mut self.buffer[..limit];
        // SAFETY: the records are initialised from `new` on and are plain bytes, and the slice covers exactly `room`.
        // Unsafe because a slice of records has to be read into as bytes.
        let bytes = unsafe {
            core::slice::from_raw_parts_mut(room.as_mut_ptr().cast::<u8>(), limit * MESSAGE_BYTES)
        };
        let read = read_now(uffd, bytes)?;
        self.filled = read / MESSAGE_BYTES;
        Ok(self.filled)
    }

    fn drain(&mut self) {
        while self.next().is_some() {}
        self.next = 0;
        self.filled = 0;
    }
}

impl Drop for Messages {
    fn drop(&mut self) {
        self.drain();
    }
}

impl Iterator for Messages {
    type Item = Message;

    fn next(&mut self) -> Option<Message> {
        if self.next == self.filled {
            return None;
        }
        // SAFETY: the kernel has written the entries below `filled` whole, and uffd_msg allows every bit pattern.
        let message = unsafe { self.buffer[self.next].assume_init_read() };
        self.next += 1;
        // SAFETY: the kernel wrote this message. It is decoded only here and only once, because `next` has moved on.
        Some(unsafe { decode(&message) })
    }
}

/// Reads what there is, and never waits for more. A kernel before Linux 6.10 cannot do that with a userfaultfd. There a
/// plain read waits if the program has made its userfaultfd a blocking one.
fn read_now(uffd: &Userfaultfd, bytes: &mut [u8]) -> Result<usize, Errno> {
    /// Read at the file's own position.
    const NO_OFFSET: u64 = u64::MAX;
    let mut into = [IoSliceMut::new(bytes)];
    match rustix::io::preadv2(uffd, &mut into, NO_OFFSET, ReadWriteFlags::NOWAIT) {
        Err(Errno::OPNOTSUPP) => rustix::io::readv(uffd, &mut into),
        read => read,
    }
}

/// Decodes one message.
///
/// # Safety
/// `message` came from the kernel and has not been decoded before: a fork message gives away its descriptor.
unsafe fn decode(message: &raw::uffd_msg) -> Message {
    let arg = message.arg;
    // SAFETY: the kernel wrote all 24 bytes of the union, every variant is plain integers, and `event` tells which
    // holds.
    unsafe {
        match u32::from(message.event) {
            raw::UFFD_EVENT_PAGEFAULT => {
                let fault = arg.pagefault;
                let has = |flag: u32| fault.flags & u64::from(flag) != 0;
                Message::Fault {
                    address: fault.address,
                    write: has(raw::UFFD_PAGEFAULT_FLAG_WRITE),
                    wp: has(raw::UFFD_PAGEFAULT_FLAG_WP),
                    minor: has(raw::UFFD_PAGEFAULT_FLAG_MINOR),
                    tid: fault.feat.ptid,
                }
            }
            raw::UFFD_EVENT_FORK => match RawFd::try_from(arg.fork.ufd) {
                Ok(fd) => Message::Fork {
                    uffd: Userfaultfd::from_fd(OwnedFd::from_raw_fd(fd)),
                },
                Err(_) => Message::Unknown {
                    event: message.event,
                },
            },
            raw::UFFD_EVENT_REMAP => Message::Remap {
                from: arg.remap.from,
                to: arg.remap.to,
                bytes: arg.remap.len,
            },
            raw::UFFD_EVENT_REMOVE => Message::Remove {
                start: arg.remove.start,
                end: arg.remove.end,
            },
            raw::UFFD_EVENT_UNMAP => Message::Unmap {
                start: arg.remove.start,
                end: arg.remove.end,
            },
            _ => Message::Unknown {
                event: message.event,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(event: u32, words: [u64; 3]) -> raw::uffd_msg {
        raw::uffd_msg {
            event: u8::try_from(event).unwrap(),
            reserved1: 0,
            reserved2: 0,
            reserved3: 0,
            arg: raw::uffd_msg__bindgen_ty_1 {
                reserved: raw::uffd_msg__bindgen_ty_1__bindgen_ty_5 {
                    reserved1: words[0],
                    reserved2: words[1],
                    reserved3: words[2],
                },
            },
        }
    }

    #[test]
    fn faults_carry_flags_address_and_thread() {
        let flags = u64::from(raw::UFFD_PAGEFAULT_FLAG_WRITE | raw::UFFD_PAGEFAULT_FLAG_WP);
        // SAFETY: not a fork message.
        let decoded = unsafe { decode(&message(raw::UFFD_EVENT_PAGEFAULT, [flags, 0x7000, 42])) };
        let Message::Fault {
            address,
            write,
            wp,
            minor,
            tid,
        } = decoded
        else {
            panic!("{decoded:?}")
        };
        assert_eq!(
            (address, write, wp, minor, tid),
            (0x7000, true, true, false, 42)
        );
    }

    #[test]
    fn layout_events_carry_their_ranges() {
        // SAFETY: none of these is a fork message.
        let decoded = unsafe {
            [
                decode(&message(raw::UFFD_EVENT_REMAP, [1, 2, 3])),
                decode(&message(raw::UFFD_EVENT_REMOVE, [4, 5, 0])),
                decode(&message(raw::UFFD_EVENT_UNMAP, [6, 7, 0])),
                decode(&message(0xff, [0; 3])),
            ]
        };
        assert!(matches!(
            decoded[0],
            Message::Remap {
                from: 1,
                to: 2,
                bytes: 3
            }
        ));
        assert!(matches!(decoded[1], Message::Remove { start: 4, end: 5 }));
        assert!(matches!(decoded[2], Message::Unmap { start: 6, end: 7 }));
        assert!(matches!(decoded[3], Message::Unknown { event: 0xff }));
    }
}
