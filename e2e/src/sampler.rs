//! Measures a run's memory from outside, every 20 ms, using only /proc.
//!
//! The total is what a limit is about: the anonymous memory of every process of the run, and everything resident in
//! vswap itself. With several processes their `Pss_Anon` is used, so that pages shared by fork count once. The sampler
//! has its own thread and only reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::procfs::{self, Tree};

/// The pause between two looks. The limit is promised at this resolution.
const SAMPLE_EVERY: Duration = Duration::from_millis(20);

/// A look at several processes that takes longer than this adds up different moments. In between some processes may
/// give up memory that others take, so an excess that the look shows may never have existed. In this time a program
/// takes some MiB.
const LOOK_MAX: Duration = Duration::from_millis(6);
/// If blurred looks show an excess, at least one look in this many must be sharp, or the measurement is worth nothing.
/// That is about a hundred in a minute.
const SHARP_PART: u64 = 25;

/// The highest total, and its parts.
#[derive(Debug, Clone, Copy, Default)]
pub struct Peak {
    /// The total in bytes.
    pub total_bytes: u64,
    /// The processes' part.
    pub program_bytes: u64,
    /// vswap's own part; 0 in a native run.
    pub own_bytes: u64,
    /// Processes counted at that moment.
    pub processes: usize,
    /// Time from the start of the run to that moment.
    pub at: Duration,
    /// Number of all looks.
    pub samples: u64,
    /// Number of looks that took too long to show one moment.
    pub blurred: u64,
    /// The highest total of the blurred looks, in bytes.
    pub blurred_bytes: u64,
    /// The longest time between two looks.
    pub gap_max: Duration,
}

/// A running sampler.
#[derive(Debug)]
pub struct Sampler {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Peak>>,
}

impl Sampler {
    /// Begins to watch the process `root` and its descendants. With `root_is_vswap` all of the root's memory counts, as
    /// vswap's own, and the descendants' anonymous memory. Otherwise the anonymous memory of all processes counts.
    pub fn start(root: u32, root_is_vswap: bool) -> Sampler {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            look_in_time();
            watch(root, root_is_vswap, &stopped)
        });
        Sampler {
            stop,
            thread: Some(thread),
        }
    }

    /// Ends the measurement.
    pub fn finish(mut self) -> Peak {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().map(JoinHandle::join);
        thread.and_then(Result::ok).unwrap_or_default()
    }
}

/// Let the calling thread run before others, where the user may ask for that. Whoever reads `/proc` holds locks of the
/// program meanwhile, and vswap waits for these: without a processor in between that takes tenths of a second. Only for
/// a thread that starts no program: it would inherit the niceness.
fn look_in_time() {
    const NICE: i32 = -20;
    let _ = rustix::process::setpriority_process(None, NICE);
}

impl Peak {
    /// Is it certain that the run never took more than this? Only sharp looks can show that it did (`total_bytes`). A
    /// blurred look that shows no more than this is as good as a sharp one.
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
        // In a native run no memory moves between processes.
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

/// Gives the calling thread priority over all ordinary threads, so that a look is quick. Without the right to do so, or
/// without `chrt`, looks take longer and fewer are sharp.
fn run_first() {
    let own = rustix::thread::gettid().as_raw_nonzero().to_string();
    let _ = std::process::Command::new("chrt")
        .args(["--rr", "--pid", "1", &own])
        .stderr(std::process::Stdio::null())
        .status();
}

/// One look, and how long reading the figures took.
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
    // vswap and the program are not read at the same moment. A page that goes out in between is counted twice if the
    // program is read first, and not at all if vswap is read first. So vswap is read before and after the program, and
    // the mean of both cancels the error.
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

/// Anonymous memory of these processes. A single process shares with nobody, and its counter is quick to read.
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
