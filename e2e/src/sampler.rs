//! Watches from outside what a run takes, every 20 ms, with nothing but /proc.
//!
//! The total is what a limit is about: the anonymous memory of every process of the run (where there are several by
//! `Pss_Anon`, so that pages shared by fork count once) and everything that vswap itself has resident. A thread of its
//! own; it reads only.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::procfs::{self, Tree};

/// The pause between two looks. The limit is promised at this grain.
const SAMPLE_EVERY: Duration = Duration::from_millis(20);

/// A look at several processes that takes longer than this is a sum of different moments, between which some give up
/// what others take: what it shows too much may never have been there. In this time a program takes some MiB.
const LOOK_MAX: Duration = Duration::from_millis(6);
/// At least one look in this many has to be sharp where those that are not show too much, or the watch is worth
/// nothing: about a hundred in a minute.
const SHARP_PART: u64 = 25;

/// The highest total seen, and what it was made of.
#[derive(Debug, Clone, Copy, Default)]
pub struct Peak {
    /// All of it, bytes.
    pub total_bytes: u64,
    /// The processes' part.
    pub program_bytes: u64,
    /// vswap's own part; 0 in a native run.
    pub own_bytes: u64,
    /// Processes counted at that moment.
    pub processes: usize,
    /// Time from the start of the run to that moment.
    pub at: Duration,
    /// Looks taken in all.
    pub samples: u64,
    /// Looks of these that took too long to be of one moment.
    pub blurred: u64,
    /// The highest total that one of those saw, bytes.
    pub blurred_bytes: u64,
    /// The longest time between two looks.
    pub gap_max: Duration,
}

/// A sampler at work.
#[derive(Debug)]
pub struct Sampler {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Peak>>,
}

impl Sampler {
    /// Begins to watch the process `root` and its descendants; with `root_is_vswap` the root is counted whole, as
    /// vswap's own, and the descendants by their anonymous memory, else all by their anonymous memory.
    pub fn start(root: u32, root_is_vswap: bool) -> Sampler {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || watch(root, root_is_vswap, &stopped));
        Sampler {
            stop,
            thread: Some(thread),
        }
    }

    /// Ends the watch.
    pub fn finish(mut self) -> Peak {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().map(JoinHandle::join);
        thread.and_then(Result::ok).unwrap_or_default()
    }
}

impl Peak {
    /// Can it be said that the run never took more than this? Only sharp looks tell that it did (`total_bytes`); one
    /// that is blurred and shows no more than this is as good as a sharp one.
    pub fn can_tell(&self, allowed_bytes: u64) -> bool {
        self.blurred_bytes <= allowed_bytes
            || (self.samples - self.blurred) * SHARP_PART >= self.samples
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn watch(root: u32, root_is_vswap: bool, stop: &AtomicBool) -> Peak {
    run_first();
    let began = Instant::now();
    let mut tree = Tree::default();
    let mut peak = Peak::default();
    let mut last = began;
    let (mut samples, mut blurred, mut blurred_bytes) = (0, 0, 0);
    let mut gap_max = Duration::ZERO;
    while !stop.load(Ordering::Relaxed) && procfs::stat(root).is_some() {
        let (look, took) = look(&mut tree, root, root_is_vswap);
        samples += 1;
        // Nothing moves between the processes of a native run.
        let sharp = !root_is_vswap || took <= LOOK_MAX;
        if !sharp {
            blurred += 1;
            blurred_bytes = blurred_bytes.max(look.total_bytes);
        }
        gap_max = gap_max.max(last.elapsed());
        last = Instant::now();
        if sharp && look.total_bytes > peak.total_bytes {
            peak = Peak {
                at: began.elapsed(),
                ..look
            };
        }
        thread::sleep(SAMPLE_EVERY.saturating_sub(last.elapsed()));
    }
    Peak {
        samples,
        blurred,
        blurred_bytes,
        gap_max,
        ..peak
    }
}

/// Puts the calling thread before all ordinary ones, so that a look is over quickly. Without the right to it, or
/// without `chrt`, looks take longer and fewer are sharp.
fn run_first() {
    let own = rustix::thread::gettid().as_raw_nonzero().to_string();
    let _ = std::process::Command::new("chrt")
        .args(["--rr", "--pid", "1", &own])
        .stderr(std::process::Stdio::null())
        .status();
}

/// One look, and how long the figures took to read.
fn look(tree: &mut Tree, root: u32, root_is_vswap: bool) -> (Peak, Duration) {
    let (guardians, mut program): (Vec<u32>, Vec<u32>) = tree
        .descendants(root)
        .into_iter()
        .partition(|&pid| root_is_vswap && procfs::is_guardian(pid));
    if !root_is_vswap {
        program.push(root);
    }
    let own = || {
        let guardians = guardians.iter().map(|&pid| procfs::anon_share_bytes(pid));
        if root_is_vswap {
            procfs::rss_bytes(root) + guardians.sum::<u64>()
        } else {
            0
        }
    };
    let began = Instant::now();
    // The looks at two processes are not one moment: a page that goes out between them is counted twice when the
    // program is looked at first and not at all the other way round. Half of each order cancels the error out.
    let own_before = own();
    let program_bytes = program_bytes(&program);
    let own_bytes = u64::midpoint(own_before, own());
    let peak = Peak {
        total_bytes: program_bytes + own_bytes,
        program_bytes,
        own_bytes,
        processes: program.len(),
        ..Peak::default()
    };
    (peak, began.elapsed())
}

/// Anonymous memory of these processes. One alone shares with nobody, and its counter is read in no time.
fn program_bytes(processes: &[u32]) -> u64 {
    match processes {
        [one] => procfs::anon_bytes(*one),
        several => several
            .iter()
            .map(|&pid| procfs::anon_share_bytes(pid))
            .sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sees_what_a_process_takes() {
        let script = "b = bytearray(64 << 20); b[::4096] = b'x' * len(b[::4096]); import time; time.sleep(0.3)";
        let mut child = std::process::Command::new("/usr/bin/python3")
            .args(["-c", script])
            .spawn()
            .expect("python3 starts");
        let sampler = Sampler::start(child.id(), false);
        assert!(child.wait().expect("python3 ends").success());
        let peak = sampler.finish();
        assert!(
            peak.total_bytes > 64 << 20,
            "saw only {} bytes",
            peak.total_bytes
        );
        assert!(
            peak.total_bytes < 160 << 20,
            "saw {} bytes",
            peak.total_bytes
        );
        assert!(peak.samples > 3);
    }
}
