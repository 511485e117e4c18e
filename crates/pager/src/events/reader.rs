//! Readers: threads that take messages from the userfaultfds of a run and act on them. There is one for each CPU, and
//! each serves all spaces.
//!
//! A fault is best served on the CPU of the thread that waits for it. So each reader stays on its CPU, and a message
//! wakes one reader: the first in the line of those that wait for the space. A reader that is woken for threads of
//! another CPU steps back in the line. Messages are read one at a time under the space lock (rule P3): a layout event
//! is applied before anything else happens in the space.
//!
//! A reader must not wait for one space while others need it. A space lock may be taken for long: its mappings are
//! looked at, a fork is applied, or its process is stopped. Such a space is *put off*: the reader takes it out of its
//! own epoll and comes back to it a little later. `watch.rs` decides which reader is woken.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use vswap_sys::process::task;

use crate::base::kernel::clock;
use crate::base::kernel::uffd::{Message, Messages, ReadError, Ready, Waiter};
use crate::base::lock::MutexGuard;
use crate::base::page_run::PAGE_BYTES;
use crate::base::rules::{self, Rule};
use crate::base::threads;
use crate::events::listening::Listening;
use crate::events::{fork, layout_events};
use crate::fault::{FaultServer, Outcome};
use crate::run::buffers::Buffers;
use crate::space::fault::Fault;
use crate::space::giving::SharedGuard;
use crate::space::wait::Wait;
use crate::space::{Space, State, gain};

/// Pause before serving again a fault that the kernel refused (rule P6: never spin on EAGAIN). It is about as long as
/// the thread that raised the event needs to run.
const RETRY_PACE: Duration = Duration::from_micros(50);

/// How long a reader waits for a space before it puts the space off. Most moves are over by then, and a fault of
/// another space can wait as long.
const PATIENCE: Duration = Duration::from_millis(1);
/// Pause before the reader looks at such a space again, the first and the longest. A process may be stopped for long.
const AWAY: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(16));
/// Pause before a fork is looked at again that got no descriptor.
const DESCRIPTOR_PACE: Duration = Duration::from_millis(10);

/// Most messages that are read at once to get to an event.
const READ_ON_MAX: usize = 1024;

/// Faults between two checks of where the faulting thread runs. A check costs as much as a fault or two.
const STEER_FAULTS: u32 = 32;

/// One reader.
struct Reader<'a> {
    listening: &'a Arc<Listening>,
    line: &'a Waiter,
    cpu: usize,
    /// None only while a server has them.
    buffers: Option<Buffers>,
    put_off: Vec<PutOff>,
    faults: u32,
    /// Space and thread of the fault that was read last.
    last: Option<(u64, u32)>,
}

/// A space that the reader comes back to.
struct PutOff {
    space: Arc<Space>,
    /// Faults that the kernel refused.
    faults: Vec<Fault>,
    /// The space is not in the epoll.
    is_away: bool,
    pace: Duration,
    due: Instant,
}

/// Start the reader of a CPU at its place in the lines. It ends with the run.
///
/// # Errors
/// There is no thread.
pub fn start(listening: &Arc<Listening>, line: Arc<Waiter>, cpu: usize) -> io::Result<()> {
    let listening = Arc::clone(listening);
    threads::try_spawn(&format!("fault-{cpu}"), move || run(&listening, &line, cpu))
}

fn run(listening: &Arc<Listening>, line: &Waiter, cpu: usize) {
    threads::stay_on(cpu);
    threads::hurry();
    let mut reader = Reader {
        listening,
        line,
        cpu,
        buffers: None,
        put_off: Vec::new(),
        faults: 0,
        last: None,
    };
    reader.run();
}

impl Reader<'_> {
    fn run(&mut self) {
        loop {
            let due = self.put_off.iter().map(|put_off| put_off.due).min();
            let timeout = due.map(|due| due.saturating_duration_since(clock::now()));
            match self.line.wait(timeout) {
                Ok(Ready::Stop) => return,
                Ok(Ready::Messages(id)) => {
                    // A space that has just ended is not found any more.
                    if let Some(space) = self.listening.watch.space(id) {
                        self.visit(&space, PATIENCE);
                    }
                }
                Ok(Ready::Broken(id)) => {
                    if let Some(space) = self.listening.watch.space(id) {
                        self.repair(&space);
                    }
                }
                Ok(Ready::Nothing) => {}
                Err(_) => clock::sleep(RETRY_PACE),
            }
            self.visit_due();
            self.step_aside();
        }
    }

    /// The program has made its userfaultfd a blocking one, which cannot be polled. Make it what it was, and come back.
    /// Its faults must go on being served: threads of the pager that read its memory wait for them as well.
    fn repair(&mut self, space: &Arc<Space>) {
        if space.uffd.set_nonblocking(true).is_err() {
            return self.line.forget(&space.uffd);
        }
        self.turn_away(space, None);
    }

    /// Visit the spaces that are due.
    fn visit_due(&mut self) {
        if self.put_off.is_empty() {
            return;
        }
        let now = clock::now();
        let is_due = |put_off: &&PutOff| put_off.due <= now;
        let due: Vec<Arc<Space>> = self
            .put_off
            .iter()
            .filter(is_due)
            .map(|put_off| Arc::clone(&put_off.space))
            .collect();
        for space in due {
            self.visit(&space, Duration::ZERO);
        }
    }

    /// Read a message of a space and act on it. Then serve the space's refused faults again.
    fn visit(&mut self, space: &Arc<Space>, patience: Duration) {
        let mut messages = Messages::new();
        if !rules::holds(Rule::ReadInOrder) {
            let _ = space.uffd.read(&mut messages, 1);
        }
        // Rule P3: messages are read with the lock held, while nothing moves and nobody gives pages.
        let state = if messages.is_empty() {
            space.lock_soon(patience)
        } else {
            Some(space.lock_thawed())
        };
        let Some(mut state) = state else {
            return self.turn_away(space, None);
        };
        layout_events::try_decide(&self.listening.serving.references, space, &mut state);
        let again = self.come_back(space);
        let listening = self.listening;
        let buffers = self
            .buffers
            .take()
            .unwrap_or_else(|| Buffers::new(&listening.serving.engine, &listening.serving.stats));
        let mut visit = Visit {
            listening,
            space,
            server: FaultServer::with(&listening.serving, space, buffers),
            again: Vec::new(),
            tid: None,
        };
        let (state, read) = visit.read_one(state, &mut messages);
        let state = visit.serve_again(state, again);
        let mut state = visit.read_on(state);
        visit.again.extend(state.take_ready());
        visit.server.release(state);
        let Visit {
            server, again, tid, ..
        } = visit;
        self.buffers = Some(server.into_buffers());
        if let Some(tid) = tid {
            self.last = Some((space.id, tid));
            self.faults += 1;
        }
        if !again.is_empty() {
            self.serve_later(space, again);
        }
        if read.is_err() {
            listening.watch.say_no_descriptor(listening.serving.quiet);
            self.turn_away(space, Some(DESCRIPTOR_PACE));
        }
    }

    /// The space can be visited. Return its refused faults, and let its messages wake this reader again.
    fn come_back(&mut self, space: &Arc<Space>) -> Vec<Fault> {
        let at = self.put_off.iter().position(|one| one.space.id == space.id);
        let Some(put_off) = at.map(|at| self.put_off.swap_remove(at)) else {
            return Vec::new();
        };
        if put_off.is_away && self.listening.watch.listen(self.line, space).is_err() {
            // The kernel has no memory for it just now. Go on polling the space.
            self.turn_away(space, None);
        }
        put_off.faults
    }

    /// Serve faults once more, a little later.
    fn serve_later(&mut self, space: &Arc<Space>, faults: Vec<Fault>) {
        let pace = if rules::holds(Rule::Pace) {
            RETRY_PACE
        } else {
            Duration::ZERO
        };
        let due = clock::now() + pace;
        let put_off = self.put_off_of(space);
        put_off.faults.extend(faults);
        put_off.due = due;
    }

    /// Leave the space alone for a while: for `pace`, or longer each time.
    fn turn_away(&mut self, space: &Arc<Space>, pace: Option<Duration>) {
        self.line.forget(&space.uffd);
        let put_off = self.put_off_of(space);
        put_off.is_away = true;
        put_off.pace = pace.unwrap_or((put_off.pace * 2).clamp(AWAY.0, AWAY.1));
        put_off.due = clock::now() + put_off.pace;
        // Nobody in it will be served any more.
        if space.has_ended() {
            self.put_off.retain(|one| one.space.id != space.id);
        }
    }

    fn put_off_of(&mut self, space: &Arc<Space>) -> &mut PutOff {
        let at = self.put_off.iter().position(|one| one.space.id == space.id);
        let at = at.unwrap_or_else(|| {
            self.put_off.push(PutOff {
                space: Arc::clone(space),
                faults: Vec::new(),
                is_away: false,
                pace: Duration::ZERO,
                due: clock::now(),
            });
            self.put_off.len() - 1
        });
        &mut self.put_off[at]
    }

    /// Now and then: if the last faulting thread runs on another CPU, let the reader of that CPU be woken first.
    fn step_aside(&mut self) {
        if self.faults < STEER_FAULTS {
            return;
        }
        self.faults = 0;
        let Some((id, tid)) = self.last.take() else {
            return;
        };
        let elsewhere = task::processor_of(tid).is_some_and(|cpu| cpu != self.cpu);
        let is_away = |one: &PutOff| one.is_away && one.space.id == id;
        if !elsewhere || self.put_off.iter().any(is_away) {
            return;
        }
        if let Some(space) = self.listening.watch.space(id) {
            self.line.forget(&space.uffd);
            if self.listening.watch.listen(self.line, &space).is_err() {
                self.turn_away(&space, None);
            }
        }
    }
}

/// A reader at one space. It has the space lock.
struct Visit<'a> {
    listening: &'a Arc<Listening>,
    space: &'a Arc<Space>,
    server: FaultServer<'a>,
    /// Faults that the kernel refused.
    again: Vec<Fault>,
    /// The thread whose fault was read last.
    tid: Option<u32>,
}

/// What a message is about.
enum Heard {
    Fault(Fault),
    /// The layout has changed.
    Event(Message),
}

impl<'a> Visit<'a> {
    /// Read one message and act on it. The error says that there is no descriptor for a fork event, which stays unread.
    fn read_one(
        &mut self,
        state: MutexGuard<'a, State>,
        messages: &mut Messages,
    ) -> (SharedGuard<'a>, Result<(), ReadError>) {
        if messages.is_empty() {
            match self.space.uffd.read(messages, 1) {
                Ok(_) => {}
                Err(error) if error.is_for_want_of_descriptors() => {
                    return (state.into(), Err(error));
                }
                // A race with the end of the process. Others notice that end.
                Err(_) => return (state.into(), Ok(())),
            }
        }
        let state = match messages.next().map(|message| self.hear(message)) {
            Some(Heard::Fault(fault)) => self.serve(state.into(), fault),
            Some(Heard::Event(event)) => self.apply(state, event).into(),
            None => state.into(),
        };
        (state, Ok(()))
    }

    /// Where the kernel has refused a fault because of an event that is unread, read on until there was an event. The
    /// kernel hands out faults first, and a thread that faults in a system call with a signal pending raises its fault
    /// again and again. Were each of them served before the next message is read, some hundred such threads would hide
    /// the event for ever.
    fn read_on(&mut self, mut state: SharedGuard<'a>) -> SharedGuard<'a> {
        if self.again.is_empty() {
            return state;
        }
        for _ in 0..READ_ON_MAX {
            // Rule P3: while nobody gives pages.
            let alone = self.space.exclude(state);
            let mut messages = Messages::new();
            // What cannot be read is met again when the next message is read.
            let _ = self.space.uffd.read(&mut messages, 1);
            state = match messages.next().map(|message| self.hear(message)) {
                None => return alone.into(),
                Some(Heard::Event(event)) => return self.apply(alone, event).into(),
                // The kernel may send the event only when the agent has its page.
                Some(Heard::Fault(fault)) if fault.urgent => self.serve(alone.into(), fault),
                Some(Heard::Fault(fault)) => {
                    if !self.again.iter().any(|known| known.is_like(&fault)) {
                        self.again.push(fault);
                    }
                    alone.into()
                }
            };
        }
        state
    }

    fn hear(&mut self, message: Message) -> Heard {
        let Message::Fault {
            address,
            write,
            wp,
            tid,
            ..
        } = message
        else {
            return Heard::Event(message);
        };
        self.tid = Some(tid);
        let process = self.space.process.get();
        let urgent = process.is_some_and(|p| p.agent.tid().cast_unsigned() == tid);
        let since = clock::now();
        let waits = &self.listening.serving.pressure.waits;
        Heard::Fault(Fault {
            page: address / PAGE_BYTES,
            write,
            protected: wp,
            urgent,
            ahead: false,
            since,
            // The agent is no thread of the program's.
            wait: if urgent {
                Wait::nobody()
            } else {
                Wait::since(waits, since)
            },
        })
    }

    fn apply(&mut self, mut state: MutexGuard<'a, State>, event: Message) -> MutexGuard<'a, State> {
        let serving = &self.listening.serving;
        if let Message::Fork { uffd } = event {
            return fork::apply(self.listening, self.space, state, uffd);
        }
        layout_events::apply(&serving.references, self.space, &mut state, &event);
        serving.limit.has_more_room();
        state
    }

    fn serve(&mut self, state: SharedGuard<'a>, fault: Fault) -> SharedGuard<'a> {
        if fault.urgent && gain::fill(self.space, &state, fault.page) {
            return state;
        }
        let (state, outcome) = self.server.serve(state, &fault);
        if outcome == Outcome::Again {
            self.listening.serving.stats.retries.add(1);
            self.again.push(fault);
        }
        state
    }

    /// Serve refused faults, up to the first that is refused once more: all others would be too. It comes last then.
    fn serve_again(&mut self, mut state: SharedGuard<'a>, faults: Vec<Fault>) -> SharedGuard<'a> {
        let mut faults = faults.into_iter();
        let refused = self.again.len();
        while self.again.len() == refused
            && let Some(fault) = faults.next()
        {
            state = self.serve(state, fault);
        }
        let refused = std::mem::take(&mut self.again);
        self.again.extend(faults.chain(refused));
        state
    }
}
