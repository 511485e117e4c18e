//! What a run was like from its start to its end, for the page that `--report` makes of it.
//!
//! One thread looks at the run again and again and owns the record until the run is over. It takes no lock that
//! `vswap status` does not take. Everything that it keeps is bounded in number, however long the run lasts: lists that
//! are full keep every second item and go on at half the pace ([`thinned`]). The looks together take at most a small
//! part of one processor's time, however large the run is.

pub mod events;
pub mod maps;
pub mod processes;
pub mod sample;
pub mod thinned;

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Builder, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use vswap_pager::{MapQuery, MemoryMap, Status};
use vswap_sys::process::cpu;

use crate::output::warning;
use crate::record::events::Events;
use crate::record::maps::Maps;
use crate::record::processes::Processes;
use crate::record::sample::Sample;
use crate::record::thinned::Thinned;

/// Most samples that are kept: about as many as a plot has pixels to show.
pub const SAMPLES_MAX: usize = 512;
/// Pause between the first samples. Looks closer together than this would be one for the figures of pressure.
const SAMPLE_PACE: Duration = Duration::from_millis(100);
/// A look that cost so much CPU time is not made again before so many times as long: at most a hundredth of one
/// processor goes into looks at the figures, and another one into looks at memory.
const CPU_PARTS: u32 = 100;
/// The same for the time that it took. It is much longer where a processor is hard to get, and in the daemon, which
/// looks in a thread of its own.
const TIME_PARTS: u32 = 10;
/// Stack of the thread, as the pager's threads have it.
const STACK_BYTES: usize = 256 << 10;

/// What was seen.
#[derive(Debug)]
pub struct Record {
    /// Looks at the figures, in order.
    pub samples: Thinned<Sample>,
    /// What happened in between.
    pub events: Events,
    /// The largest processes' memory, block by block.
    pub maps: Maps,
    /// Processes that were seen.
    pub processes: Processes,
}

/// The thread that keeps the record. It ends with the run at the latest.
#[derive(Debug)]
pub struct Recording<'scope> {
    thread: ScopedJoinHandle<'scope, Record>,
    /// Dropped to end the thread.
    stop: Sender<()>,
}

impl Default for Record {
    fn default() -> Record {
        Record {
            samples: Thinned::new(SAMPLES_MAX, SAMPLE_PACE),
            events: Events::default(),
            maps: Maps::default(),
            processes: Processes::default(),
        }
    }
}

impl Record {
    /// Takes in a look at the figures.
    pub fn note(&mut self, status: &Status, seconds: f64) {
        self.events
            .note(status, seconds, self.samples.pace().as_secs_f64());
        self.processes.note(&status.processes);
        self.samples.push(Sample::of(status, seconds));
    }
}

impl<'scope> Recording<'scope> {
    /// Begins to look. `status` gives the figures, `map` the memory of a process. Without a thread there is no record,
    /// which is said: the program matters more.
    pub fn begin(
        scope: &'scope Scope<'scope, '_>,
        started: Instant,
        status: impl Fn() -> Option<Status> + Send + 'scope,
        map: impl Fn(MapQuery) -> Option<MemoryMap> + Send + 'scope,
    ) -> Option<Recording<'scope>> {
        let (stop, stopped) = channel();
        let looks = move || look_until(&stopped, started, status, map);
        let spawned = Builder::new()
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, looks);
        match spawned {
            Ok(thread) => Some(Recording { thread, stop }),
            Err(error) => {
                warning(&format!(
                    "the report will have no plots, because there is no thread for it: {error}"
                ));
                None
            }
        }
    }

    /// Ends the looks. Waits for the one that is under way.
    pub fn end(self) -> Record {
        drop(self.stop);
        // A thread that has panicked has ended the process.
        self.thread.join().unwrap_or_default()
    }
}

fn look_until(
    stopped: &Receiver<()>,
    started: Instant,
    status: impl Fn() -> Option<Status>,
    map: impl Fn(MapQuery) -> Option<MemoryMap>,
) -> Record {
    let mut record = Record::default();
    let mut maps_next = Instant::now();
    loop {
        let look = Cost::begin();
        let status = status();
        let next = look.next(record.samples.pace());
        if let Some(status) = status {
            let seconds = started.elapsed().as_secs_f64();
            record.note(&status, seconds);
            let look = Cost::begin();
            if look.began >= maps_next {
                // The first map is made as soon as there is anything in it.
                let pace = match record.maps.look(&status.processes, seconds, &map) {
                    true => record.maps.pace(),
                    false => record.samples.pace(),
                };
                maps_next = look.next(pace);
            }
        }
        match stopped.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return record,
        }
    }
}

/// What a look costs.
#[derive(Debug)]
struct Cost {
    began: Instant,
    cpu: Duration,
}

impl Cost {
    fn begin() -> Cost {
        Cost {
            began: Instant::now(),
            cpu: cpu::thread_time(),
        }
    }

    /// When the next look is due, if the one that began then is over.
    fn next(&self, pace: Duration) -> Instant {
        let cpu = cpu::thread_time().saturating_sub(self.cpu);
        self.began + pause(cpu, self.began.elapsed(), pace)
    }
}

/// From the beginning of a look that has cost so much to that of the next one.
fn pause(cpu: Duration, took: Duration, pace: Duration) -> Duration {
    pace.max(cpu * CPU_PARTS).max(took * TIME_PARTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_that_take_long_are_rare() {
        let ms = Duration::from_millis;
        assert_eq!(pause(ms(1), ms(1), ms(100)), ms(100));
        assert_eq!(pause(ms(40), ms(41), ms(100)), ms(4000));
        assert_eq!(pause(ms(1), ms(300), ms(100)), ms(3000));
    }

    #[test]
    fn a_run_that_ends_at_once_is_looked_at_once_at_most() {
        let record = std::thread::scope(|scope| {
            let status = || Some(Status::default());
            let recording = Recording::begin(scope, Instant::now(), status, |_| None);
            recording.map(Recording::end)
        });
        let record = record.expect("a thread");
        assert!(record.samples.items().len() <= 1);
        assert!(record.maps.looks().is_empty());
    }

    #[test]
    fn who_does_not_answer_leaves_no_sample() {
        let record = std::thread::scope(|scope| {
            Recording::begin(scope, Instant::now(), || None, |_| None).map(Recording::end)
        });
        assert!(record.expect("a thread").samples.items().is_empty());
    }
}
