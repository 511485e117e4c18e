//! Hundreds of processes that sleep. A run has no thread for any of them, and a few descriptors for each.
//! `VSWAP_SLEEPERS=2000` tries more, and prints the figures of docs/benchmarks.md.

use std::fs;
use std::time::{Duration, Instant};

use vswap_e2e::failure::During;
use vswap_e2e::{Context, Job, MIB, Outcome, ensure, require_program};

const LIMIT_BYTES: u64 = 4096 * MIB;
const SLEEPERS: u64 = 400;
/// Threads of a run in which nothing is short, and with two processors: the others are for the processors.
const THREADS_MAX: u64 = 24;
/// Descriptors of a process: eight, and none of those of a run.
const DESCRIPTORS_EACH: (u64, u64) = (7, 9);
const SETTLE: Duration = Duration::from_secs(4);
const WATCHED: Duration = Duration::from_secs(5);

const SCRIPT: &str = "import os, sys, time
began = time.time()
children = [os.posix_spawn('/bin/sleep', ['sleep', '1000'], os.environ) for _ in range(int(sys.argv[1]))]
print('started in', round(time.time() - began, 2), 's', flush=True)
time.sleep(10)
for child in children:
    os.kill(child, 9)
    os.waitpid(child, 0)
";

pub fn many(context: &Context) -> Outcome {
    let python = require_program("python3", "apt package python3")?;
    let asked = std::env::var("VSWAP_SLEEPERS").ok();
    let sleepers = asked.and_then(|text| text.parse().ok()).unwrap_or(SLEEPERS);
    let job = Job::new(python)
        .args(["-c", SCRIPT])
        .arg(sleepers.to_string());
    let running = context.limited(LIMIT_BYTES)?.start(&job)?;
    let started = || fs::read_to_string(running.stdout()).unwrap_or_default();
    running.until("all to be started", || {
        Ok(started().ends_with("s\n").then_some(()))
    })?;
    std::thread::sleep(SETTLE);
    let before = Costs::of(running.pid())?;
    let since = Instant::now();
    std::thread::sleep(WATCHED);
    let costs = Costs::of(running.pid())?;
    let share = (costs.cpu - before.cpu).as_secs_f64() / since.elapsed().as_secs_f64();
    context.say(format!(
        "{sleepers} sleepers {}: {} descriptors, {} threads, {} KiB, {:.0} % of a processor",
        started().trim_end(),
        costs.descriptors,
        costs.threads,
        costs.resident_kib,
        share * 100.0
    ));
    let (least, most) = DESCRIPTORS_EACH;
    let expected = sleepers * least..sleepers * most + 100;
    ensure!(
        expected.contains(&costs.descriptors),
        "{} descriptors are not those of {sleepers} managed processes",
        costs.descriptors
    );
    ensure!(
        costs.threads <= THREADS_MAX,
        "{} threads for processes that sleep",
        costs.threads
    );
    let ended = running.wait()?;
    ended.must_succeed()?;
    ended.must_leave_nothing()
}

/// What vswap has taken so far.
struct Costs {
    cpu: Duration,
    threads: u64,
    descriptors: u64,
    resident_kib: u64,
}

impl Costs {
    fn of(pid: u32) -> Outcome<Costs> {
        let of = |name: &str| format!("/proc/{pid}/{name}");
        let status =
            fs::read_to_string(of("status")).during(|| "read vswap's status".to_owned())?;
        let figure = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let words = line.unwrap_or_default().split_ascii_whitespace();
            words.flat_map(str::parse).next().unwrap_or(0)
        };
        let stat = fs::read_to_string(of("stat")).during(|| "read vswap's stat".to_owned())?;
        // Fields 14 and 15, counted behind the name, are in hundredths of a second.
        let behind = stat.rsplit_once(')').map_or("", |(_, behind)| behind);
        let fields = behind.split_ascii_whitespace().skip(11).take(2);
        let ticks: u64 = fields.flat_map(str::parse::<u64>).sum();
        let descriptors =
            fs::read_dir(of("fd")).during(|| "list vswap's descriptors".to_owned())?;
        Ok(Costs {
            cpu: Duration::from_millis(ticks * 10),
            threads: figure("Threads:"),
            descriptors: descriptors.count() as u64,
            resident_kib: figure("VmRSS:"),
        })
    }
}
