//! Sixty children of 150 MiB in 80 MiB: each keeps and changes its own copy, and together they hold the limit.
//!
//! So many processes cannot be measured one by one within a moment. So a control group counts their anonymous memory,
//! including vswap's own.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use vswap_e2e::failure::During;
use vswap_e2e::group::Group;
use vswap_e2e::limit::{allowed_bytes, mib};
use vswap_e2e::{Context, Failure, Job, MIB, Outcome, ensure, require_program};

use crate::group;

const LIMIT_BYTES: u64 = 80 * MIB;
const CHILDREN: u32 = 60;
/// MiB, number of children, pages that each checks, pages that each writes, seconds that each lives.
const ARGUMENTS: [&str; 5] = ["150", "60", "16", "4", "4"];
const SAMPLE_EVERY: Duration = Duration::from_millis(10);
/// The longest time for which memory may exceed the limit and its tolerance.
const OVER_MAX: Duration = Duration::from_millis(100);

pub fn sixty_children(context: &Context) -> Outcome {
    let python = require_program("python3", "apt package python3")?;
    let script = context.place().join("children.py");
    let text = include_str!("../../inputs/children.py");
    fs::write(&script, text).during(|| format!("write {}", script.display()))?;
    let swap = context.place().join("swap");
    fs::create_dir(&swap).during(|| format!("make {}", swap.display()))?;
    let job = Job::new(python)
        .arg(script)
        .args(ARGUMENTS)
        .vswap_options(["--swap".to_owned(), format!("{}:2G", swap.display())]);
    let group = Group::make("memory")?;
    let launcher = group::launcher(context, LIMIT_BYTES, &group.enter())?;
    let running = launcher.start(&job)?;
    let watch = Watch::start(group.file("memory.stat"));
    let ended = running.wait()?;
    let (over, peak_bytes) = watch.finish();
    ended.must_succeed()?;
    ended.must_leave_nothing()?;
    let said = fs::read_to_string(&ended.stdout).during(|| "read the output".to_owned())?;
    ensure!(
        said.ends_with("parent right, 0 children failed\n"),
        "the program said {said}"
    );
    let pages_out = ended.figure("pages_out")?;
    ensure!(pages_out > 20_000, "only {pages_out} pages were moved out");
    let said = format!(
        "peak {} of {} with {CHILDREN} children, over what is allowed for {over:?} at the longest",
        mib(peak_bytes),
        mib(LIMIT_BYTES),
    );
    context.say(said.clone());
    if over > OVER_MAX {
        return Err(Failure::Limit(said));
    }
    Ok(())
}

/// Reads the group's anonymous memory again and again.
struct Watch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<(Duration, u64)>,
}

impl Watch {
    fn start(stat: PathBuf) -> Watch {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let (mut peak, mut longest, mut since) = (0, Duration::ZERO, None);
            while !stopped.load(Ordering::Relaxed) {
                let bytes = anonymous_bytes(&fs::read_to_string(&stat).unwrap_or_default());
                peak = peak.max(bytes);
                if bytes > allowed_bytes(LIMIT_BYTES) {
                    let since: &mut Instant = since.get_or_insert_with(Instant::now);
                    longest = longest.max(since.elapsed());
                } else {
                    since = None;
                }
                thread::sleep(SAMPLE_EVERY);
            }
            (longest, peak)
        });
        Watch { stop, thread }
    }

    /// The longest time above the allowed total, and the peak.
    fn finish(self) -> (Duration, u64) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or((Duration::MAX, 0))
    }
}

fn anonymous_bytes(stat: &str) -> u64 {
    let mut lines = stat.lines().filter_map(|line| line.split_once(' '));
    let rss = lines.find(|(name, _)| *name == "total_rss");
    rss.and_then(|(_, bytes)| bytes.parse().ok()).unwrap_or(0)
}
