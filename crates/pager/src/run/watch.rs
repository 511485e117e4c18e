//! Which spaces the readers listen to, and the readers' places in the lines of those that wait for messages.
//!
//! The readers of a run start when the first space needs them, one for each CPU. They serve all spaces, so a process
//! costs no reader. One reader is enough for everything to go on. So a machine that lacks threads or descriptors gets
//! by with fewer.
//!
//! A space is listened to from its arming or its fork until its end. Every reader's epoll has to let go of the
//! userfaultfd before it is closed; otherwise it would stay in the epoll. The lock of the list of spaces is innermost
//! and may be taken under that of the readers.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use vswap_sys::eventfd::EventFd;

use crate::base::kernel::uffd::Waiter;
use crate::base::lock::{Mutex, Row};
use crate::space::Space;

/// The readers of a run and what they listen to.
#[derive(Debug)]
pub struct Watch {
    spaces: Mutex<HashMap<u64, Arc<Space>>>,
    readers: Mutex<Readers>,
    no_descriptor_said: AtomicBool,
}

#[derive(Debug, Default)]
struct Readers {
    lines: Vec<Arc<Waiter>>,
    stop: Option<EventFd>,
    /// Forked spaces that no reader can listen to yet.
    unheard: Vec<Arc<Space>>,
}

impl Default for Watch {
    fn default() -> Watch {
        Watch {
            spaces: Mutex::new(Row::Innermost, "the watched spaces", HashMap::new()),
            readers: Mutex::new(Row::Readers, "the readers", Readers::default()),
            no_descriptor_said: AtomicBool::new(false),
        }
    }
}

impl Watch {
    /// Listen to a space. If there are no readers, `start` starts one for each of `cpus` at its place in the lines.
    ///
    /// # Errors
    /// No reader could be started or can listen to the space: a thread, descriptor or memory is missing.
    pub fn begin(
        &self,
        space: &Arc<Space>,
        cpus: &[usize],
        start: impl Fn(Arc<Waiter>, usize) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut readers = self.readers.lock();
        if readers.lines.is_empty() {
            readers.start(cpus, start)?;
        }
        self.add(&readers, space)
    }

    /// Listen to a space that was forked off a space that is listened to. If no reader can at this moment, `retry`
    /// tries again. The process waits for its faults meanwhile.
    pub fn begin_forked(&self, space: &Arc<Space>) {
        let mut readers = self.readers.lock();
        if self.add(&readers, space).is_err() {
            readers.unheard.push(Arc::clone(space));
        }
    }

    /// Try again to listen to the forked spaces that no reader could listen to.
    pub fn retry(&self) {
        let mut readers = self.readers.lock();
        let unheard = std::mem::take(&mut readers.unheard);
        let still = unheard
            .into_iter()
            .filter(|space| !space.has_ended() && self.add(&readers, space).is_err());
        let still = still.collect();
        readers.unheard = still;
    }

    fn add(&self, readers: &Readers, space: &Arc<Space>) -> io::Result<()> {
        self.spaces.lock().insert(space.id, Arc::clone(space));
        let mut refused = None;
        let mut heard = false;
        for line in &readers.lines {
            match self.listen(line, space) {
                Ok(()) => heard = true,
                Err(error) => refused = Some(error),
            }
        }
        // As in `listen`: whoever comes last leaves nothing behind. A process may end, or be let go of, while its
        // evictor is about to have it listened to.
        if space.has_ended() {
            self.spaces.lock().remove(&space.id);
        }
        match refused {
            Some(error) if !heard => Err(error),
            _ => Ok(()),
        }
    }

    /// Let this line's reader be woken for a space, unless the space has ended.
    ///
    /// # Errors
    /// What epoll said.
    pub fn listen(&self, line: &Waiter, space: &Space) -> io::Result<()> {
        let done = line.watch(&space.uffd, space.id);
        // `end` marks the space before it removes it from the lines. So one of the two removes it last.
        if space.has_ended() {
            line.forget(&space.uffd);
        }
        done.map_err(io::Error::from)
    }

    /// The space has ended and is marked so. Stop listening to it.
    pub fn end(&self, space: &Space) {
        debug_assert!(space.has_ended());
        self.spaces.lock().remove(&space.id);
        for line in &self.readers.lock().lines {
            line.forget(&space.uffd);
        }
    }

    /// A space that is listened to.
    pub fn space(&self, id: u64) -> Option<Arc<Space>> {
        self.spaces.lock().get(&id).cloned()
    }

    /// End the readers.
    pub fn stop(&self) {
        if let Some(stop) = &self.readers.lock().stop {
            // A full eventfd is signalled already.
            let _ = stop.signal();
        }
    }

    /// A fork cannot be followed, because no descriptor is left. Said once.
    pub fn say_no_descriptor(&self, quiet: bool) {
        if !self.no_descriptor_said.swap(true, Ordering::Relaxed) && !quiet {
            tracing::warn!(
                "no descriptors are left to follow a process into a fork; it waits until there are some \
                 (vswap may have more with a higher `ulimit -Hn`)"
            );
        }
    }
}

impl Readers {
    /// Start one reader for each CPU, as far as there are threads and descriptors.
    fn start(
        &mut self,
        cpus: &[usize],
        start: impl Fn(Arc<Waiter>, usize) -> io::Result<()>,
    ) -> io::Result<()> {
        let stop = match self.stop.take() {
            Some(stop) => stop,
            None => EventFd::new()?,
        };
        let mut refused = None;
        for &cpu in cpus {
            match start_one(&stop, cpu, &start) {
                Ok(line) => self.lines.push(line),
                Err(error) => refused = Some(error),
            }
        }
        self.stop = Some(stop);
        match refused {
            Some(error) if self.lines.is_empty() => Err(error),
            _ => Ok(()),
        }
    }
}

fn start_one(
    stop: &EventFd,
    cpu: usize,
    start: impl Fn(Arc<Waiter>, usize) -> io::Result<()>,
) -> io::Result<Arc<Waiter>> {
    let line = Arc::new(Waiter::new(stop)?);
    start(Arc::clone(&line), cpu)?;
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulator::bare_space as space;

    #[test]
    fn processes_cost_no_readers() {
        let watch = Watch::default();
        let started = std::cell::RefCell::new(Vec::new());
        let start = |_, cpu| {
            started.borrow_mut().push(cpu);
            Ok(())
        };
        for id in 1..100 {
            watch.begin(&space(id), &[2, 3, 5], start).expect("readers");
            watch.begin_forked(&space(1000 + id));
        }
        assert_eq!(*started.borrow(), [2, 3, 5]);
        assert!(watch.space(1).is_some() && watch.space(1099).is_some());
    }

    #[test]
    fn nobody_keeps_a_space_that_ends_while_it_is_about_to_be_listened_to() {
        let watch = Watch::default();
        let space = space(7);
        let begin = || {
            watch.begin(&space, &[0], |_, _| Ok(())).expect("a reader");
            watch.begin_forked(&space);
        };
        begin();
        assert!(watch.space(7).is_some());
        space.mailbox.ended.store(true, Ordering::Release);
        watch.end(&space);
        assert_eq!(Arc::strong_count(&space), 1);
        begin();
        assert!(watch.space(7).is_none());
        assert_eq!(Arc::strong_count(&space), 1);
    }
}
