//! One measurement: the same work on a number of threads for a given time.
//!
//! Threads set up, meet at a barrier, and then do batch after batch until the time is over. A batch is timed as a
//! whole, so that the clock's own 20 ns are spread over its operations. Quantiles are those of batches. Throughput is
//! the number of all operations divided by the wall time until the last thread has ended. CPU time is the process's in
//! that time.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::engine_bench::Failure;
use crate::measure::{Latencies, ticks, ticks_per_us};

/// Operations per batch. With so many the clock's share falls below half a nanosecond, and a batch of the slowest
/// operation is still far shorter than a scheduler's time slice.
pub(crate) const BATCH: usize = 64;

/// Measures on a calibrated clock.
#[derive(Debug)]
pub(crate) struct Meter {
    ticks_per_ns: f64,
    time: Duration,
}

/// What was measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    pub(crate) ops: u64,
    pub(crate) wall_s: f64,
    pub(crate) cpu_s: f64,
    /// Median over all batches of the time per operation.
    pub(crate) p50_ns: f64,
    pub(crate) p99_ns: f64,
}

/// The result of threads that ran at the same time.
#[derive(Debug)]
pub(crate) struct Together<T> {
    /// The result of each thread.
    pub(crate) parts: Vec<T>,
    /// Wall time until the last one had ended.
    pub(crate) wall: Duration,
    /// CPU time of the process in that time.
    pub(crate) cpu_s: f64,
}

/// Each of `threads` threads makes its job with `make(thread)`, and then all of them begin at once.
pub(crate) fn together<Job, T: Send>(
    threads: usize,
    make: impl Fn(usize) -> Job + Sync,
) -> Result<Together<T>, Failure>
where
    Job: FnOnce() -> Result<T, Failure>,
{
    let ready = Barrier::new(threads + 1);
    let (ready, make) = (&ready, &make);
    std::thread::scope(|scope| {
        let work = move |thread| {
            let job = make(thread);
            ready.wait();
            job()
        };
        let handles: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(move || work(thread)))
            .collect();
        // Before the barrier opens: on few processors the workers run before this thread runs again.
        let (begun, cpu_before) = (Instant::now(), process_cpu_s());
        ready.wait();
        let parts: Vec<_> = handles.into_iter().map(|handle| handle.join()).collect();
        let (wall, cpu_s) = (begun.elapsed(), process_cpu_s() - cpu_before);
        let parts = parts
            .into_iter()
            .map(|part| part.map_err(|_| Failure::new("a thread panicked"))?);
        Ok(Together {
            parts: parts.collect::<Result<_, _>>()?,
            wall,
            cpu_s,
        })
    })
}

impl Meter {
    /// A meter whose measurements take `time` each.
    pub(crate) fn new(time: Duration) -> Meter {
        Meter {
            ticks_per_ns: ticks_per_us() / 1e3,
            time,
        }
    }

    /// Runs a step, made by `make(thread)`, on each of `threads` threads until the time is over. A step does [`BATCH`]
    /// operations.
    pub(crate) fn run<Step>(
        &self,
        threads: usize,
        make: impl Fn(usize) -> Result<Step, Failure> + Sync,
    ) -> Result<Cell, Failure>
    where
        Step: FnMut() -> Result<(), Failure>,
    {
        let done = together(threads, |thread| {
            let step = make(thread);
            || self.work(step?)
        })?;
        let mut latencies = Latencies::new();
        let mut batches = 0;
        for (count, of_one) in &done.parts {
            batches += count;
            latencies.merge(of_one);
        }
        Ok(self.cell(batches, done.wall, done.cpu_s, &latencies))
    }

    fn work(
        &self,
        mut step: impl FnMut() -> Result<(), Failure>,
    ) -> Result<(u64, Latencies), Failure> {
        let mut latencies = Latencies::new();
        let end = ticks().saturating_add(self.ticks_of(self.time));
        let mut batches = 0;
        while ticks() < end {
            latencies.time(&mut step)?;
            batches += 1;
        }
        Ok((batches, latencies))
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "ticks of a second fit 53 bits"
    )]
    fn ticks_of(&self, time: Duration) -> u64 {
        (time.as_secs_f64() * 1e9 * self.ticks_per_ns) as u64
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "counts and ticks of a second are far below 2^53"
    )]
    fn cell(&self, batches: u64, wall: Duration, cpu_s: f64, latencies: &Latencies) -> Cell {
        let ns =
            |quantile| latencies.quantile_ticks(quantile) as f64 / self.ticks_per_ns / BATCH as f64;
        Cell {
            ops: batches * BATCH as u64,
            wall_s: wall.as_secs_f64(),
            cpu_s,
            p50_ns: ns(0.5),
            p99_ns: ns(0.99),
        }
    }
}

/// CPU time of all threads of this process so far, including ended ones.
#[expect(
    clippy::cast_precision_loss,
    reason = "seconds and nanoseconds of a run fit 53 bits"
)]
fn process_cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The processor that this thread is on, as a hint to an allocator. Asked once a batch: a pager knows it no better.
pub(crate) fn cpu() -> usize {
    rustix::thread::sched_getcpu()
}

/// Processors of this machine.
pub(crate) fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn all_threads_work_until_the_time_is_over_and_are_counted() {
        let steps = AtomicU64::new(0);
        let meter = Meter::new(Duration::from_millis(20));
        let make = |_| {
            Ok(|| {
                steps.fetch_add(1, Ordering::Relaxed);
                Ok(())
            })
        };
        let cell = meter.run(3, make).unwrap();
        assert_eq!(cell.ops, steps.load(Ordering::Relaxed) * BATCH as u64);
        assert!(
            cell.wall_s >= 0.02 && cell.cpu_s > 0.0 && cell.p50_ns <= cell.p99_ns,
            "{cell:?}"
        );
    }

    #[test]
    fn an_error_of_a_thread_is_the_error_of_the_measurement() {
        let meter = Meter::new(Duration::from_millis(1));
        let bad_step = |thread| Ok(move || Err(Failure::new(format!("step {thread}"))));
        assert!(meter.run(2, bad_step).is_err());
        let bad_start = |_| Err::<fn() -> Result<(), Failure>, _>(Failure::new("start"));
        assert!(meter.run(2, bad_start).is_err());
    }
}
