//! Watches from outside what a run takes, every 20 ms, with nothing but /proc.
//!
//! The total is what a limit is about: the anonymous memory of every process of the run (`Pss_Anon`, so that pages
//! shared by fork count once) and everything that vswap itself has resident. A thread of its own; it reads only.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::procfs::{self, Tree};

/// The pause between two looks. The limit is promised at this grain.
const SAMPLE_EVERY: Duration = Duration::from_millis(20);

/// A look at several processes that takes longer than this is a sum of different moments, between which some give up
/// what others take: it proves nothing and is not judged. In this time a program takes some MiB.
const LOOK_MAX: Duration = Duration::from_millis(6);
/// At least one look in this many has to be judged, or the watch is worth nothing: about a hundred in a minute.
const JUDGED_PART: u64 = 25;

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
    /// Looks of these that took too long to be judged.
    pub blurred: u64,
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
    /// Begins to watch the process `root` and its descendants; with `root_is_vswap` the root is counted whole (`Rss`)
    /// and the descendants by their anonymous memory, else all by their anonymous memory.
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
    /// Were enough looks sharp enough to say anything?
    pub fn says_something(&self) -> bool {
        (self.samples - self.blurred) * JUDGED_PART >= self.samples
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
    let (mut samples, mut blurred) = (0, 0);
    let mut gap_max = Duration::ZERO;
    while !stop.load(Ordering::Relaxed) && procfs::stat(root).is_some() {
        let (look, took) = look(&mut tree, root, root_is_vswap);
        samples += 1;
        // Nothing moves between the processes of a native run.
        let judged = !root_is_vswap || look.processes == 1 || took <= LOOK_MAX;
        blurred += u64::from(!judged);
        gap_max = gap_max.max(last.elapsed());
        last = Instant::now();
        if judged && look.total_bytes > peak.total_bytes {
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
        gap_max,
        ..peak
    }
}

/// Puts the calling thread before all ordinary ones, so that a look is over quickly. Without the right to it, or
/// without `chrt`, looks take longer and fewer are judged.
fn run_first() {
    let own = rustix::thread::gettid().as_raw_nonzero().to_string();
    let _ = std::process::Command::new("chrt")
        .args(["--rr", "--pid", "1", &own])
        .stderr(std::process::Stdio::null())
        .status();
}

/// One look, and how long the figures took to read.
fn look(tree: &mut Tree, root: u32, root_is_vswap: bool) -> (Peak, Duration) {
    let processes = tree.descendants(root);
    let began = Instant::now();
    // The looks at two processes are not one moment: a page that goes out between them is counted twice when the
    // program is looked at first and not at all the other way round. Half of each order cancels the error out.
    let own_before = if root_is_vswap {
        procfs::rss_bytes(root)
    } else {
        0
    };
    let mut program_bytes: u64 = processes.iter().map(|&pid| procfs::anon_bytes(pid)).sum();
    let mut own_bytes = 0;
    if root_is_vswap {
        own_bytes = u64::midpoint(own_before, procfs::rss_bytes(root));
    } else {
        program_bytes += procfs::anon_bytes(root);
    }
    let peak = Peak {
        total_bytes: program_bytes + own_bytes,
        program_bytes,
        own_bytes,
        processes: processes.len() + usize::from(!root_is_vswap),
        ..Peak::default()
    };
    (peak, began.elapsed())
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
