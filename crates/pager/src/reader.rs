//! Readers: threads that take messages from a space's userfaultfd and act on them, one a CPU.
//!
//! A fault is served best on the CPU of the thread that waits for it, so each reader stays on its CPU, and a message
//! wakes one of them: the first in the line of those that wait. A reader that finds itself woken for threads of another
//! CPU steps back in the line. Messages are read one at a time under the space lock (rule P3): a layout event is
//! applied before anything else happens in the space.

use std::sync::Arc;
use std::time::{Duration, Instant};

use vswap_sys::pagemap::{Pagemap, Query, Region, category};
use vswap_sys::uffd::{Message, Messages, Waiter};
use vswap_sys::{cpu, task};

use crate::core::Core;
use crate::fault::{Fault, FaultServer, Outcome};
use crate::lock::MutexGuard;
use crate::rules::{self, Rule};
use crate::run::PAGE_BYTES;
use crate::space::{Space, State};
use crate::{fork, threads};

/// Pause before a fault is served again that the kernel put off (rule P6: never spin on EAGAIN). About what the
/// thread that raised the event needs to run.
const RETRY_PACE: Duration = Duration::from_micros(50);

/// Regions that one scan of a removed range may report before it is called again.
const SCAN_REGIONS: usize = 64;

/// Faults between two looks at where the faulting thread runs: a look costs as much as a fault or two.
const STEER_FAULTS: u32 = 32;

/// One reader.
struct Reader<'a> {
    core: &'a Arc<Core>,
    space: &'a Arc<Space>,
    server: FaultServer<'a>,
    messages: Messages,
    /// Faults that the kernel put off.
    again: Vec<Fault>,
    line: Waiter<'a>,
    cpu: usize,
    faults: u32,
    /// The thread whose fault was read last.
    tid: Option<u32>,
}

/// Run a reader until the space ends.
pub fn run(core: &Arc<Core>, space: &Arc<Space>, cpu: usize) {
    // Without its own CPU a reader is slower, not wrong.
    let _ = cpu::set_affinity(&[cpu]);
    threads::hurry();
    let line = Waiter::new(&space.uffd, &space.stop)
        .unwrap_or_else(|error| threads::give_up(&format!("cannot wait for faults: {error}")));
    let mut reader = Reader {
        core,
        space,
        server: FaultServer::new(core, space),
        messages: Messages::new(),
        again: Vec::new(),
        line,
        cpu,
        faults: 0,
        tid: None,
    };
    reader.run();
}

impl<'a> Reader<'a> {
    fn run(&mut self) {
        loop {
            let pace = if rules::holds(Rule::Pace) {
                RETRY_PACE
            } else {
                Duration::ZERO
            };
            let timeout = (!self.again.is_empty()).then_some(pace);
            match self.line.wait(timeout) {
                Ok(ready) if ready.signalled || ready.broken => return,
                Ok(_) | Err(_) => {}
            }
            if !rules::holds(Rule::ReadInOrder) {
                let _ = self.space.uffd.read(&mut self.messages, 1);
            }
            // Rule P3: messages are read with the lock, which a move holds too.
            let state = self.space.lock_thawed();
            let state = self.read_one(state);
            let mut state = self.serve_again(state);
            self.again.extend(state.take_ready());
            self.server.release(state);
            self.step_aside();
        }
    }

    /// Read one message and act on it.
    fn read_one(&mut self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        // An error here is a race with the end of the process; its end is noticed elsewhere.
        if self.messages.is_empty() && self.space.uffd.read(&mut self.messages, 1).unwrap_or(0) == 0
        {
            return state;
        }
        while let Some(message) = self.messages.next() {
            state = match message {
                Message::Fault {
                    address,
                    write,
                    wp,
                    tid,
                    ..
                } => {
                    self.tid = Some(tid);
                    let process = self.space.process.get();
                    let fault = Fault {
                        page: address / PAGE_BYTES,
                        write,
                        protected: wp,
                        urgent: process.is_some_and(|p| p.agent.tid.cast_unsigned() == tid),
                        ahead: false,
                        since: Instant::now(),
                    };
                    self.serve(state, fault)
                }
                Message::Fork { uffd } => fork::apply(self.core, self.space, state, uffd),
                other => {
                    apply(self.core, self.space, &mut state, &other);
                    state
                }
            };
        }
        state
    }

    fn serve(&mut self, state: MutexGuard<'a, State>, fault: Fault) -> MutexGuard<'a, State> {
        let (state, outcome) = self.server.serve(state, &fault);
        if outcome == Outcome::Again {
            self.core.stats.retries.add(1);
            self.again.push(fault);
        }
        state
    }

    fn serve_again(&mut self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        for fault in std::mem::take(&mut self.again) {
            state = self.serve(state, fault);
        }
        state
    }

    /// Now and then: if the thread that faulted last runs on another CPU, let that one's reader be woken first.
    fn step_aside(&mut self) {
        self.faults += u32::from(self.tid.is_some());
        if self.faults < STEER_FAULTS {
            self.tid = None;
            return;
        }
        self.faults = 0;
        let elsewhere = self
            .tid
            .take()
            .and_then(task::processor_of)
            .is_some_and(|cpu| cpu != self.cpu);
        if elsewhere && let Err(error) = self.line.step_back() {
            threads::give_up(&format!("a fault reader cannot wait any more: {error}"));
        }
    }
}

/// Apply a layout event other than a fork.
fn apply(core: &Core, space: &Space, state: &mut State, event: &Message) {
    let pages = |start: u64, end: u64| start / PAGE_BYTES..end.div_ceil(PAGE_BYTES);
    let put = &mut core.put_words();
    match *event {
        Message::Unmap { start, end } => state.layout.unmap(pages(start, end), put),
        Message::Remove { start, end } => {
            let range = pages(start, end);
            let present = present_pages(space, range.clone());
            state.layout.remove(range, present.into_iter(), put);
        }
        Message::Remap { from, to, bytes } => {
            state.layout.remap(
                from / PAGE_BYTES,
                to / PAGE_BYTES,
                bytes.div_ceil(PAGE_BYTES),
                put,
            );
        }
        Message::Fault { .. } | Message::Fork { .. } | Message::Unknown { .. } => {}
    }
}

/// Pages of a range that are in memory now. When that cannot be found out, all of them are taken to be.
pub fn present_pages(space: &Space, range: std::ops::Range<u64>) -> Vec<u64> {
    let Some(process) = space.process.get() else {
        return range.collect();
    };
    list_present(&process.pagemap, range.clone()).unwrap_or_else(|| range.collect())
}

fn list_present(pagemap: &Pagemap, range: std::ops::Range<u64>) -> Option<Vec<u64>> {
    // What the kernel migrates, or keeps in a swap of its own, is as good as in memory.
    let present = Query {
        any_of: category::PRESENT | category::SWAPPED,
        ..Query::default()
    };
    let mut regions = [Region::default(); SCAN_REGIONS];
    let mut pages = Vec::new();
    let (mut start, end) = (range.start * PAGE_BYTES, range.end * PAGE_BYTES);
    while start < end {
        let scan = pagemap.scan(start, end, &present, &mut regions).ok()?;
        let found = regions.iter().take(scan.regions);
        pages.extend(found.flat_map(|r| r.start / PAGE_BYTES..r.end / PAGE_BYTES));
        start = scan.walk_end.max(start + PAGE_BYTES);
    }
    Some(pages)
}

/// Start one reader a CPU.
pub fn start(core: &Arc<Core>, space: &Arc<Space>) {
    for &cpu in &core.cpus {
        let (core, space) = (Arc::clone(core), Arc::clone(space));
        let name = format!("fault-{}-{cpu}", space.id);
        threads::spawn(&name, move || run(&core, &space, cpu));
    }
}
