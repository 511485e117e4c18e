//! What many processes take together. They cannot be measured one by one within a moment. So a control group counts
//! their anonymous memory, including vswap's own.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use vswap_e2e::group::Group;
use vswap_e2e::limit::{allowed_bytes, mib};
use vswap_e2e::{Context, Ended, Failure, Job, Outcome};

use crate::group;

const SAMPLE_EVERY: Duration = Duration::from_millis(10);
/// The longest time for which memory may exceed the limit and its tolerance.
const OVER_MAX: Duration = Duration::from_millis(100);

/// Runs a job in a control group of its own, to its end.
pub fn run(context: &Context, job: &Job, limit_bytes: u64) -> Outcome<(Ended, Held)> {
    let group = Group::make("memory")?;
    let launcher = group::launcher(context, limit_bytes, &group.enter())?;
    let running = launcher.start(job)?;
    let watch = Watch::start(group.file("memory.stat"), limit_bytes);
    let ended = running.wait()?;
    Ok((ended, watch.finish()))
}

/// Reads a group's anonymous memory again and again.
struct Watch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Held>,
}

/// How a limit was held.
#[derive(Default)]
pub struct Held {
    limit_bytes: u64,
    peak_bytes: u64,
    /// The longest time above what is allowed.
    over: Duration,
}

impl Watch {
    fn start(stat: PathBuf, limit_bytes: u64) -> Watch {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut held = Held {
                limit_bytes,
                ..Held::default()
            };
            let mut since = None;
            while !stopped.load(Ordering::Relaxed) {
                let bytes = anonymous_bytes(&fs::read_to_string(&stat).unwrap_or_default());
                held.peak_bytes = held.peak_bytes.max(bytes);
                if bytes > allowed_bytes(limit_bytes) {
                    let since: &mut Instant = since.get_or_insert_with(Instant::now);
                    held.over = held.over.max(since.elapsed());
                } else {
                    since = None;
                }
                thread::sleep(SAMPLE_EVERY);
            }
            held
        });
        Watch { stop, thread }
    }

    fn finish(self) -> Held {
        self.stop.store(true, Ordering::Relaxed);
        let nobody_looked = Held {
            over: Duration::MAX,
            ..Held::default()
        };
        self.thread.join().unwrap_or(nobody_looked)
    }
}

impl Held {
    /// It was held, but for moments.
    pub fn must_be(&self, context: &Context) -> Outcome {
        let said = format!(
            "peak {} of {}, over what is allowed for {:?} at the longest",
            mib(self.peak_bytes),
            mib(self.limit_bytes),
            self.over
        );
        context.say(said.clone());
        match self.over > OVER_MAX {
            true => Err(Failure::Limit(said)),
            false => Ok(()),
        }
    }
}

fn anonymous_bytes(stat: &str) -> u64 {
    let mut lines = stat.lines().filter_map(|line| line.split_once(' '));
    let rss = lines.find(|(name, _)| *name == "total_rss");
    rss.and_then(|(_, bytes)| bytes.parse().ok()).unwrap_or(0)
}
