//! The userfaultfd of a simulated address space. It offers what `vswap_sys::uffd` offers, under the same names.
//!
//! It follows the kernel (`fs/userfaultfd.c`, `mm/userfaultfd.c`). Calls fail with EAGAIN while a layout event is
//! unread, or until the thread that raised it has gone on. Faults are read before events. A call over several pages
//! stops at the first page that it cannot do.
//!
//! Unsafe is needed here because these functions have the signatures of the real ones: pages are passed as raw
//! pointers.

use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::time::Duration;

use vswap_engine::Page;
use vswap_sys::eventfd::EventFd;

pub use vswap_sys::uffd::{ReadError, Ready, Registered, UffdError, copy_mode, feature, mode};

use super::actors::{self, world};
use super::memory::{Memory, OWN, Pte, Vma, Watch};
use crate::base::page_run::PAGE_BYTES;

const ENOMEM_ONCE_IN: u64 = 256;

/// A thread that waits for a page.
#[derive(Debug, Clone, Copy)]
pub struct Waiting {
    pub id: u64,
    pub page: u64,
    pub write: bool,
    pub protected: bool,
    pub tid: u32,
    pub is_read: bool,
}

/// A layout event that nobody has read yet, in page numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    pub id: u64,
    pub what: What,
}

/// What an event reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    Fork { child: usize },
    Remap { from: u64, to: u64, pages: u64 },
    Remove { start: u64, end: u64 },
    Unmap { start: u64, end: u64 },
}

/// One message from the kernel, like `vswap_sys::uffd::Message`.
#[derive(Debug)]
#[allow(dead_code, reason = "the pager does not look at all of them")]
pub enum Message {
    Fault {
        address: u64,
        write: bool,
        wp: bool,
        minor: bool,
        tid: u32,
    },
    Fork {
        uffd: Userfaultfd,
    },
    Remap {
        from: u64,
        to: u64,
        bytes: u64,
    },
    Remove {
        start: u64,
        end: u64,
    },
    Unmap {
        start: u64,
        end: u64,
    },
    Unknown {
        event: u8,
    },
}

/// Messages that were read.
#[derive(Debug, Default)]
pub struct Messages(VecDeque<Message>);

impl Messages {
    pub fn new() -> Messages {
        Messages::default()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Iterator for Messages {
    type Item = Message;

    fn next(&mut self) -> Option<Message> {
        self.0.pop_front()
    }
}

/// A userfaultfd of one address space.
#[derive(Debug)]
pub struct Userfaultfd {
    memory: usize,
    watch: Watch,
}

fn pages_of(start: u64, bytes: u64) -> Range<u64> {
    start / PAGE_BYTES..(start + bytes) / PAGE_BYTES
}

impl Userfaultfd {
    /// The userfaultfd with events.
    pub fn of(memory: usize) -> Userfaultfd {
        let watch = Watch::Program;
        Userfaultfd { memory, watch }
    }

    /// The userfaultfd without events.
    pub fn silent(memory: usize) -> Userfaultfd {
        let watch = Watch::Silent;
        Userfaultfd { memory, watch }
    }

    /// The number of the address space that it watches.
    pub fn memory(&self) -> usize {
        self.memory
    }

    pub fn received(_: OwnedFd) -> Option<Userfaultfd> {
        unreachable!("the simulator has no descriptors")
    }

    pub fn is_ready(&self) -> bool {
        true
    }

    pub fn as_fd(&self) -> BorrowedFd<'_> {
        unreachable!("the simulator has no descriptors")
    }

    /// Make a call as a separate step. `call` does not run if the kernel would refuse every call.
    fn call<R>(
        &self,
        what: &'static str,
        range: &Range<u64>,
        call: impl FnOnce(&mut Memory) -> Result<R, UffdError>,
    ) -> Result<R, UffdError> {
        actors::step(what, range.start, range.end);
        world(|world| {
            let memory = &mut world.memories[self.memory];
            if memory.gone {
                return Err(UffdError::Gone);
            }
            if self.watch != Watch::Silent && memory.changing > 0 {
                return Err(UffdError::Again { done_bytes: 0 });
            }
            call(memory)
        })
    }

    /// # Safety
    /// Always safe: it concerns simulated memory only.
    pub unsafe fn register(&self, start: u64, bytes: u64, _: u64) -> Result<u64, UffdError> {
        let range = pages_of(start, bytes);
        actors::step("register", range.start, range.end);
        world(|world| {
            let memory = &mut world.memories[self.memory];
            let parts = memory.parts(range.clone());
            if memory.gone || parts.is_empty() {
                return Err(UffdError::Invalid { done_bytes: 0 });
            }
            let is_others = |vma: &Vma| !matches!(vma.watch, Watch::No | Watch::Program);
            if parts.iter().any(|(_, vma)| is_others(vma)) {
                return Err(UffdError::Busy { done_bytes: 0 });
            }
            memory.set_watch(range, Watch::Program);
            Ok(0)
        })
    }

    pub fn unregister(&self, start: u64, bytes: u64) -> Result<(), UffdError> {
        let range = pages_of(start, bytes);
        actors::step("unregister", range.start, range.end);
        world(|world| {
            let memory = &mut world.memories[self.memory];
            memory.set_watch(range.clone(), Watch::No);
            for (_, pte) in memory.pages.range_mut(range.clone()) {
                if let Pte::Page { protected, .. } = pte {
                    *protected = false;
                }
            }
            memory.wake(range);
            Ok(())
        })
    }

    pub fn copy(
        &self,
        destination: u64,
        source: *const u8,
        bytes: u64,
        modes: u64,
    ) -> Result<(), UffdError> {
        let range = pages_of(destination, bytes);
        let is_short = actors::once_in(ENOMEM_ONCE_IN);
        self.call("copy", &range, |memory| {
            if is_short {
                return Err(UffdError::NoMemory { done_bytes: 0 });
            }
            fill(
                memory,
                &range,
                modes & copy_mode::DONTWAKE == 0,
                |index, old| {
                    if matches!(old, Some(Pte::Page { .. })) {
                        return None;
                    }
                    // SAFETY: the pager promises that all pages from `source` on can be read.
                    let page = unsafe { &*source.cast::<Page>().add(index) };
                    Some(Pte::Page {
                        tag: tag_of(page),
                        protected: modes & copy_mode::WP != 0,
                        exclusive: true,
                        zero: false,
                    })
                },
            )
        })
    }

    pub fn zeropage(&self, start: u64, bytes: u64, dont_wake: bool) -> Result<(), UffdError> {
        let range = pages_of(start, bytes);
        self.call("zeropage", &range, |memory| {
            fill(memory, &range, !dont_wake, |_, old| {
                old.is_none().then_some(Pte::Page {
                    tag: 0,
                    protected: false,
                    exclusive: false,
                    zero: true,
                })
            })
        })
    }

    pub fn write_protect(&self, start: u64, bytes: u64) -> Result<(), UffdError> {
        let range = pages_of(start, bytes);
        self.call("write_protect", &range, |memory| {
            set_protection(memory, &range, true)
        })
    }

    pub fn write_unprotect(
        &self,
        start: u64,
        bytes: u64,
        dont_wake: bool,
    ) -> Result<(), UffdError> {
        let range = pages_of(start, bytes);
        self.call("write_unprotect", &range, |memory| {
            set_protection(memory, &range, false)?;
            if !dont_wake {
                memory.wake(range.clone());
            }
            Ok(())
        })
    }

    pub fn events_pending(&self) -> bool {
        let asked = self.call("events_pending", &(0..0), |_| Ok(()));
        matches!(asked, Err(UffdError::Again { .. }))
    }

    pub fn is_registered(&self, start: u64, bytes: u64) -> Registered {
        let range = pages_of(start, bytes);
        let asked = self.call("is_registered", &range, |memory| {
            Ok(memory
                .vma(range.start)
                .is_some_and(|(mapping, vma)| range.end <= mapping.end && vma.watch != Watch::No))
        });
        match asked {
            Ok(true) => Registered::Yes,
            Err(UffdError::Again { .. }) => Registered::Unknown,
            _ => Registered::No,
        }
    }

    pub fn wake(&self, start: u64, bytes: u64) -> Result<(), UffdError> {
        let range = pages_of(start, bytes);
        actors::step("wake", range.start, range.end);
        world(|world| world.memories[self.memory].wake(range));
        Ok(())
    }

    pub fn retire(&self, _: BorrowedFd<'_>) {}

    pub fn set_nonblocking(&self, _: bool) -> Result<(), UffdError> {
        Ok(())
    }

    /// Mostly as in a kernel before 6.6: no page of the simulator is lost, and if the pager thinks so it is to stop.
    pub fn poison(&self, address: u64, bytes: u64, _: bool) -> Result<(), UffdError> {
        world(|world| {
            let memory = &mut world.memories[self.memory];
            let Some(poisoned) = &mut memory.poisoned else {
                return Err(UffdError::Invalid { done_bytes: 0 });
            };
            for page in address / PAGE_BYTES..(address + bytes) / PAGE_BYTES {
                if memory.pages.contains_key(&page) {
                    return Err(UffdError::Exists { done_bytes: 0 });
                }
                poisoned.insert(page);
            }
            Ok(())
        })
    }

    pub fn is_gone(&self) -> bool {
        world(|world| world.memories[self.memory].gone)
    }

    pub fn read(&self, messages: &mut Messages, _: usize) -> Result<usize, ReadError> {
        actors::step("read", self.memory as u64, 0);
        let read = world(|world| {
            let memory = &mut world.memories[self.memory];
            if let Some(fault) = memory.faults.iter_mut().find(|fault| !fault.is_read) {
                fault.is_read = true;
                return Some(Message::Fault {
                    address: fault.page * PAGE_BYTES,
                    write: fault.write,
                    wp: fault.protected,
                    minor: false,
                    tid: fault.tid,
                });
            }
            let event = memory.events.pop_front()?;
            if let What::Remove { start, end } = event.what {
                memory.heard_of_discard(&(start..end));
                // A fork under way may come after the discard.
                for child in memory.unborn.clone() {
                    (start..end).for_each(|page| world.memories[child].leave_open(page));
                }
            }
            Some(message(event))
        });
        if let Some(read) = read {
            note(&read);
            messages.0.push_back(read);
        }
        Ok(messages.0.len())
    }

    /// UFFDIO_MOVE by the agent. Returns the pages moved, and why not more.
    pub fn move_pages(&self, to: u64, from: u64, pages: u64, holes: bool) -> (u64, Option<i32>) {
        // The kernel may forget that it has moved a page (rule P8), or stop early.
        let unsaid = actors::once_in(16).then(|| actors::below(pages));
        let most = if actors::once_in(4) {
            actors::below(pages) + 1
        } else {
            pages
        };
        let pinned = actors::once_in(16).then(|| from + actors::below(pages));
        let range = from..from + pages;
        let mut done = 0;
        let moved = self.call("move", &range, |memory| {
            check_move(memory, to, &range)?;
            while done < most {
                let moved = move_page(memory, to + done, from + done, holes, pinned);
                moved?;
                if unsaid == Some(done) {
                    let rest = done + 1..most;
                    for next in rest {
                        if move_page(memory, to + next, from + next, holes, pinned).is_err() {
                            break;
                        }
                    }
                    return Err(UffdError::Exists { done_bytes: 0 });
                }
                done += 1;
            }
            Ok(())
        });
        match moved {
            Ok(()) if done == pages => (done, None),
            Ok(()) => (done, Some(11)),
            Err(error) => (done, Some(error.errno())),
        }
    }
}

fn note(message: &Message) {
    match message {
        Message::Fault { address, .. } => actors::note("  a fault", address / PAGE_BYTES, 0),
        Message::Fork { uffd } => actors::note("  FORK", uffd.memory as u64, 0),
        Message::Remap { from, to, .. } => {
            actors::note("  REMAP", from / PAGE_BYTES, to / PAGE_BYTES);
        }
        Message::Remove { start, end } => {
            actors::note("  REMOVE", start / PAGE_BYTES, end / PAGE_BYTES);
        }
        Message::Unmap { start, end } => {
            actors::note("  UNMAP", start / PAGE_BYTES, end / PAGE_BYTES);
        }
        Message::Unknown { .. } => {}
    }
}

fn message(event: Event) -> Message {
    match event.what {
        What::Fork { child } => Message::Fork {
            uffd: Userfaultfd::of(child),
        },
        What::Remap { from, to, pages } => Message::Remap {
            from: from * PAGE_BYTES,
            to: to * PAGE_BYTES,
            bytes: pages * PAGE_BYTES,
        },
        What::Remove { start, end } => Message::Remove {
            start: start * PAGE_BYTES,
            end: end * PAGE_BYTES,
        },
        What::Unmap { start, end } => Message::Unmap {
            start: start * PAGE_BYTES,
            end: end * PAGE_BYTES,
        },
    }
}

/// The content of a page: a number at its beginning and again at its end.
pub fn tag_of(page: &Page) -> u64 {
    let word = |at: usize| {
        let bytes = page.0[at..at + 8].try_into().expect("eight bytes");
        u64::from_ne_bytes(bytes)
    };
    let (first, last) = (word(0), word(4096 - 8));
    if first == last { first } else { u64::MAX - 1 }
}

/// Make a page with this content.
pub fn write_tag(page: &mut Page, tag: u64) {
    page.0.fill(0);
    page.0[..8].copy_from_slice(&tag.to_ne_bytes());
    page.0[4096 - 8..].copy_from_slice(&tag.to_ne_bytes());
}

/// Fill missing pages of one watched mapping. `make` returns None where a page is there.
fn fill(
    memory: &mut Memory,
    range: &Range<u64>,
    wakes: bool,
    make: impl Fn(usize, Option<Pte>) -> Option<Pte>,
) -> Result<(), UffdError> {
    let mapping = memory.vma(range.start);
    if mapping.is_none_or(|(whole, vma)| range.end > whole.end || vma.watch == Watch::No) {
        return Err(UffdError::NoEntry { done_bytes: 0 });
    }
    for (index, page) in range.clone().enumerate() {
        let Some(made) = make(index, memory.pages.get(&page).copied()) else {
            if wakes {
                memory.wake(range.start..page);
            }
            let done_bytes = index as u64 * PAGE_BYTES;
            return Err(match done_bytes {
                0 => UffdError::Exists { done_bytes },
                _ => UffdError::Again { done_bytes },
            });
        };
        memory.pages.insert(page, made);
    }
    if wakes {
        memory.wake(range.clone());
    }
    Ok(())
}

fn set_protection(memory: &mut Memory, range: &Range<u64>, on: bool) -> Result<(), UffdError> {
    if range.is_empty() {
        return Err(UffdError::Invalid { done_bytes: 0 });
    }
    let parts = memory.parts(range.clone());
    if parts.is_empty() {
        return Err(UffdError::NoEntry { done_bytes: 0 });
    }
    for (part, vma) in parts {
        if vma.watch == Watch::No {
            return Err(UffdError::NoEntry { done_bytes: 0 });
        }
        for page in part {
            match memory.pages.get_mut(&page) {
                Some(Pte::Page { protected, .. }) => *protected = on,
                Some(Pte::Marker) if !on => drop(memory.pages.remove(&page)),
                None if on => drop(memory.pages.insert(page, Pte::Marker)),
                _ => {}
            }
        }
    }
    Ok(())
}

fn check_move(memory: &Memory, to: u64, from: &Range<u64>) -> Result<(), UffdError> {
    let Some((source, vma)) = memory.vma(from.start) else {
        return Err(UffdError::NoEntry { done_bytes: 0 });
    };
    let is_staging = OWN.contains(&to);
    if from.end > source.end || !vma.writable || !is_staging {
        return Err(UffdError::Invalid { done_bytes: 0 });
    }
    Ok(())
}

fn move_page(
    memory: &mut Memory,
    to: u64,
    from: u64,
    holes: bool,
    pinned: Option<u64>,
) -> Result<(), UffdError> {
    let done_bytes = 0;
    if memory.pages.contains_key(&to) {
        return Err(UffdError::Exists { done_bytes });
    }
    match memory.pages.get(&from).copied() {
        None | Some(Pte::Marker) if holes => Ok(()),
        None | Some(Pte::Marker) => Err(UffdError::NoEntry { done_bytes }),
        Some(Pte::Guard) => Err(UffdError::Other {
            errno: 14,
            done_bytes,
        }),
        Some(Pte::Page {
            exclusive, zero, ..
        }) if !(exclusive || zero) || pinned == Some(from) => Err(UffdError::Busy { done_bytes }),
        Some(Pte::Page { tag, zero, .. }) => {
            memory.pages.remove(&from);
            memory.pages.insert(
                to,
                Pte::Page {
                    tag,
                    protected: false,
                    exclusive: true,
                    zero,
                },
            );
            Ok(())
        }
    }
}

/// The error of a waiter that cannot wait. It never occurs.
#[derive(Debug)]
pub struct NoWait;

impl From<NoWait> for std::io::Error {
    fn from(_: NoWait) -> std::io::Error {
        std::io::Error::from(std::io::ErrorKind::OutOfMemory)
    }
}

/// One reader's place in the lines of those that wait for userfaultfds.
#[derive(Debug)]
pub struct Waiter {
    watched: Mutex<Vec<(usize, u64)>>,
}

impl Waiter {
    pub fn new(_: &EventFd) -> std::io::Result<Waiter> {
        let watched = Mutex::default();
        Ok(Waiter { watched })
    }

    pub fn watch(&self, uffd: &Userfaultfd, key: u64) -> Result<(), NoWait> {
        let mut watched = self.watched.lock().expect("nobody panics with it");
        if !watched.contains(&(uffd.memory, key)) {
            watched.push((uffd.memory, key));
        }
        Ok(())
    }

    pub fn forget(&self, uffd: &Userfaultfd) {
        let mut watched = self.watched.lock().expect("nobody panics with it");
        watched.retain(|(memory, _)| *memory != uffd.memory);
    }

    pub fn wait(&self, timeout: Option<Duration>) -> std::io::Result<Ready> {
        // Others add spaces that they have forked while this one waits, so it checks again soon.
        let watched = self.watched.lock().expect("nobody panics with it").clone();
        let looked = watched.clone();
        let has_messages = |memory: &Memory| {
            !memory.gone && (!memory.events.is_empty() || memory.faults.iter().any(|f| !f.is_read))
        };
        let is_ready = actors::world_is(move |world| {
            world.is_over
                || looked
                    .iter()
                    .any(|(m, _)| has_messages(&world.memories[*m]))
        });
        let most = timeout.map_or(200, |timeout| timeout.as_micros().min(200));
        actors::wait_until_or(is_ready, u64::try_from(most).unwrap_or(200));
        let ready = world(|world| {
            if world.is_over {
                return Ready::Stop;
            }
            let first = watched
                .iter()
                .find(|(memory, _)| has_messages(&world.memories[*memory]));
            first.map_or(Ready::Nothing, |(_, key)| Ready::Messages(*key))
        });
        Ok(ready)
    }
}
