//! Threads that allocate while one forks.
//!
//! The C library takes the locks of malloc before it forks, and the holders of these locks may be waiting for a page.
//! This must not stop anybody, even at a limit that is tighter than `--megabytes`. The content is so regular that it
//! always fits.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::content::{PAGE_BYTES, Random};
use crate::run::{Child, Clock, Options};
use crate::wrong::{Checked, Wrong};

/// Largest allocation. For more than 128 KiB malloc maps memory of its own and holds no lock over it.
const BYTES_MAX: usize = 40_000;
/// Pause between two forks, in which a full memory puts other threads off.
const PAUSE: Duration = Duration::from_millis(2);
/// How many allocations the forking thread replaces between two forks, and a child during its life.
const TURNS: usize = 4;

/// Allocations of one thread. Every page of an allocation holds the allocation's number.
struct Heap {
    pieces: Vec<Vec<u8>>,
    random: Random,
}

impl Heap {
    fn new(bytes: usize, random: Random) -> Self {
        let pieces = vec![Vec::new(); (bytes / (BYTES_MAX / 2)).max(1)];
        Self { pieces, random }
    }

    /// Checks one piece, frees it, and puts another in its place.
    fn replace(&mut self) -> Checked {
        let index = self.random.index(self.pieces.len());
        self.check(index)?;
        let mark = mark(index);
        // Freed before the next one is requested: malloc may return the same place again.
        self.pieces[index] = Vec::new();
        let mut piece = vec![0; 1 + self.random.index(BYTES_MAX)];
        piece
            .iter_mut()
            .step_by(PAGE_BYTES)
            .for_each(|byte| *byte = mark);
        self.pieces[index] = piece;
        Ok(())
    }

    fn check(&self, index: usize) -> Checked {
        let marks = self.pieces[index].iter().step_by(PAGE_BYTES);
        match marks.copied().find(|byte| *byte != mark(index)) {
            None => Ok(()),
            Some(found) => Err(Wrong::Result {
                what: "mark in allocated memory",
                expected: mark(index).into(),
                found: found.into(),
            }),
        }
    }

    fn check_all(&self) -> Checked {
        (0..self.pieces.len()).try_for_each(|index| self.check(index))
    }
}

/// A byte that is never 0.
fn mark(index: usize) -> u8 {
    u8::try_from(index % 255).unwrap_or(0) + 1
}

pub(crate) fn run(options: &Options) -> Checked {
    let clock = options.clock();
    let workers = options.threads.saturating_sub(1);
    let bytes = options.pages() * PAGE_BYTES / (workers + 1);
    let mut own = Heap::new(bytes, options.random(0, 22));
    let stop = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let handles: Vec<_> = (1..=workers)
            .map(|worker| {
                let mut heap = Heap::new(bytes, options.random(worker, 22));
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        heap.replace()?;
                    }
                    heap.check_all()
                })
            })
            .collect();
        let forked = fork_beside(&mut own, clock);
        stop.store(true, Ordering::Relaxed);
        handles
            .into_iter()
            .fold(forked, |result, handle| match handle.join() {
                Ok(ended) => result.and(ended),
                Err(panic) => std::panic::resume_unwind(panic),
            })
    })
}

/// Forks again and again. Parent and child both go on allocating.
fn fork_beside(heap: &mut Heap, clock: Clock) -> Checked {
    while clock.running() {
        (0..TURNS).try_for_each(|_| heap.replace())?;
        let child = Child::fork(|| (0..TURNS).try_for_each(|_| heap.replace()))?;
        child.wait()?;
        std::thread::sleep(PAUSE);
    }
    heap.check_all()
}
