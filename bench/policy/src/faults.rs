//! A model of the faults of one process on more processors than there are at hand.
//!
//! Each processor has a thread of the program and a reader. The thread faults again and again; its reader takes the
//! message, brings the page, and gives it. What a reader does alone, beside others, and without the space lock is what
//! `crates/pager/src/space/giving.rs` says. The times of these parts are given and constant, so the model shows what
//! the lock costs and nothing else: no memory bus, no lock of the kernel, no thread that sleeps for a lock instead of
//! spinning.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Simulated faults for each row. More change nothing.
const FAULTS: u64 = 100_000;

/// Times are in microseconds.
#[derive(clap::Args)]
pub struct Args {
    /// How many threads fault at the same time.
    #[arg(long, value_name = "THREADS", value_delimiter = ',', default_values_t = [1, 2, 4, 8, 16, 32])]
    threads: Vec<usize>,
    /// From the end of a fault to the next one of the same thread, with the ways there and back.
    #[arg(long, value_name = "US")]
    between: f64,
    /// Reading a message, and the look at the page word.
    #[arg(long, value_name = "US")]
    read: f64,
    /// Decompressing the page, without the lock.
    #[arg(long, value_name = "US")]
    fetch: f64,
    /// The call that gives the page.
    #[arg(long, value_name = "US")]
    give: f64,
    /// Writing its word.
    #[arg(long, value_name = "US")]
    word: f64,
}

/// A part of serving a fault.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    /// Without the lock.
    Free(f64),
    /// With the lock, while nobody gives.
    Alone(f64),
    /// With the lock.
    Locked(f64),
    /// Without the lock, and nobody may be alone.
    Give(f64),
}

impl Part {
    fn nanoseconds(self) -> u64 {
        let (Part::Free(us) | Part::Alone(us) | Part::Locked(us) | Part::Give(us)) = self;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        // a short time, and not negative
        let nanoseconds = (us.max(0.0) * 1000.0) as u64;
        nanoseconds
    }
}

/// Prints a row for each number of threads.
pub fn run(args: &Args) -> Result<(), String> {
    if args.threads.contains(&0) {
        return Err("--threads wants numbers from 1 on".to_owned());
    }
    // The pages were given with the lock held until there were those who give.
    let held = [
        Part::Free(args.between),
        Part::Alone(args.read),
        Part::Free(args.fetch),
        Part::Alone(args.give + args.word),
    ];
    let shared = [
        Part::Free(args.between),
        Part::Alone(args.read),
        Part::Free(args.fetch),
        Part::Give(args.give),
        Part::Locked(args.word),
    ];
    println!("| threads | faults a ms, lock held | lock shared | |\n|---:|---:|---:|---:|");
    for &threads in &args.threads {
        let (before, after) = (per_ms(&held, threads), per_ms(&shared, threads));
        println!(
            "| {threads} | {before:.0} | {after:.0} | {:.2} |",
            after / before
        );
    }
    Ok(())
}

/// Faults that are served in a millisecond.
fn per_ms(parts: &[Part], threads: usize) -> f64 {
    let mut model = Model {
        parts,
        at: vec![0; threads],
        now: 0,
        is_held: false,
        giving: 0,
        waiting: Vec::new(),
        ends: BinaryHeap::new(),
    };
    (0..threads).for_each(|thread| model.begin(thread));
    let mut served = 0;
    while served < FAULTS {
        let Some(Reverse((time, thread))) = model.ends.pop() else {
            break;
        };
        model.now = time;
        served += u64::from(model.end(thread));
    }
    served as f64 / (model.now as f64 / 1e6)
}

struct Model<'a> {
    parts: &'a [Part],
    /// Which part each thread's fault has come to.
    at: Vec<usize>,
    /// In nanoseconds.
    now: u64,
    is_held: bool,
    giving: u32,
    /// Who waits for the lock, first come first.
    waiting: Vec<usize>,
    /// When a part ends, and whose it is.
    ends: BinaryHeap<Reverse<(u64, usize)>>,
}

impl Model<'_> {
    fn part(&self, thread: usize) -> Part {
        self.parts[self.at[thread]]
    }

    fn may_begin(&self, part: Part) -> bool {
        match part {
            Part::Free(_) => true,
            Part::Alone(_) => !self.is_held && self.giving == 0,
            // To count itself a giver needs the lock for a moment.
            Part::Locked(_) | Part::Give(_) => !self.is_held,
        }
    }

    fn begin(&mut self, thread: usize) {
        let part = self.part(thread);
        if !self.may_begin(part) {
            self.waiting.push(thread);
            return;
        }
        match part {
            Part::Free(_) => {}
            Part::Alone(_) | Part::Locked(_) => self.is_held = true,
            Part::Give(_) => self.giving += 1,
        }
        self.ends
            .push(Reverse((self.now + part.nanoseconds(), thread)));
    }

    /// The thread's part ends. Returns whether its fault does.
    fn end(&mut self, thread: usize) -> bool {
        match self.part(thread) {
            Part::Free(_) => {}
            Part::Alone(_) | Part::Locked(_) => self.is_held = false,
            Part::Give(_) => self.giving -= 1,
        }
        self.at[thread] = (self.at[thread] + 1) % self.parts.len();
        let is_served = self.at[thread] == 0;
        self.begin(thread);
        for next in std::mem::take(&mut self.waiting) {
            self.begin(next);
        }
        is_served
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_never_waits() {
        let parts = [Part::Free(3.0), Part::Alone(1.0), Part::Give(1.0)];
        assert!((per_ms(&parts, 1) - 200.0).abs() < 0.1);
    }

    #[test]
    fn what_is_done_alone_bounds_the_rate_and_what_is_given_does_not() {
        let alone = [Part::Free(1.0), Part::Alone(1.0), Part::Alone(1.0)];
        assert!((per_ms(&alone, 16) - 500.0).abs() < 5.0);
        let given = [Part::Free(1.0), Part::Give(2.0)];
        assert!(per_ms(&given, 16) > 16.0 * 330.0);
    }

    #[test]
    fn nobody_is_alone_while_somebody_gives() {
        // Of two threads one always waits for what the other does. Given without that, the rate is twice as high.
        let parts = [Part::Alone(1.0), Part::Give(1.0)];
        assert!((per_ms(&parts, 2) - 500.0).abs() < 5.0);
        let beside = [Part::Free(1.0), Part::Give(1.0)];
        assert!((per_ms(&beside, 2) - 1000.0).abs() < 5.0);
    }
}
