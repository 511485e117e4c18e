//! Which spaces the readers listen to, and the readers' places in the lines of those who wait for messages.
//!
//! The readers of a run are started when the first space needs them, one a CPU, and serve all spaces: a process costs
//! none of its own. One reader is enough for everything to go on, so a machine that has no thread or descriptor for
//! more gets by with fewer. A space is listened to from its arming or its fork until its end, and by then the epoll of
//! every reader has let go of it: a descriptor that is closed first would stay there. The list of spaces has the
//! innermost lock, which may be taken under that of the readers.

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
    /// Forked spaces that no reader could listen to yet.
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
    /// Listen to a space. If there are no readers, `start` starts the one of each of `cpus` at its place in the lines.
    ///
    /// # Errors
    /// No reader could be started, or none can listen to it: no thread, descriptor or memory is to be had.
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

    /// Listen to a space that was forked off one that is listened to. If no reader can just now, it is tried again:
    /// its process waits for its faults meanwhile.
    pub fn begin_forked(&self, space: &Arc<Space>) {
        let mut readers = self.readers.lock();
        if self.add(&readers, space).is_err() {
            readers.unheard.push(Arc::clone(space));
        }
    }

    /// Try again to listen to forked spaces that no reader could listen to.
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
        match refused {
            Some(error) if !heard => Err(error),
            _ => Ok(()),
        }
    }

    /// Have one reader woken for a space, unless that has ended.
    ///
    /// # Errors
    /// What epoll said.
    pub fn listen(&self, line: &Waiter, space: &Space) -> io::Result<()> {
        let done = line.watch(&space.uffd, space.id);
        // `end` has marked it before it has the lines let go: one of the two is last.
        if space.has_ended() {
            line.forget(&space.uffd);
        }
        done.map_err(io::Error::from)
    }

    /// The space has ended, and is marked so: nobody listens to it any more.
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
            // An eventfd that is full is signalled.
            let _ = stop.signal();
        }
    }

    /// A fork cannot be followed for want of a descriptor; said once.
    pub fn say_no_descriptor(&self, quiet: bool) {
        if !self.no_descriptor_said.swap(true, Ordering::Relaxed) && !quiet {
            eprintln!(
                "vswap: no descriptors are left to follow a process into a fork; it waits until there are some \
                 (vswap may have more with a higher `ulimit -Hn`)"
            );
        }
    }
}

impl Readers {
    /// Start one reader a CPU, as far as there are threads and descriptors.
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
