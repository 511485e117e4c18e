//! What vswap has given up once its program runs, and that the program has given up nothing.

use std::fs;

use rustix::process::Signal;
use vswap_e2e::failure::During;
use vswap_e2e::need::require_root;
use vswap_e2e::{Context, Job, MIB, Outcome, ensure, procfs};

const LIMIT_BYTES: u64 = 64 * MIB;
/// Lines of `/proc/PID/status` that tell it: capabilities, filters, and whether an exec can give rights.
const LINES: [&str; 6] = [
    "CapInh:",
    "CapPrm:",
    "CapEff:",
    "CapBnd:",
    "Seccomp_filters:",
    "NoNewPrivs:",
];
/// CAP_SYS_ADMIN, and CAP_SYS_PTRACE.
const ADMIN: u64 = 1 << 21;
const PTRACE: u64 = 1 << 19;

/// The values of `LINES` for a thread.
type Rights = [u64; LINES.len()];

fn rights(status: &str) -> Rights {
    LINES.map(|name| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let radix = if name.starts_with("Cap") { 16 } else { 10 };
        line.and_then(|value| u64::from_str_radix(value.trim(), radix).ok())
            .unwrap_or(u64::MAX)
    })
}

fn of_threads(pid: u32) -> Outcome<Vec<Rights>> {
    let directory = format!("/proc/{pid}/task");
    let threads = fs::read_dir(&directory).during(|| format!("read {directory}"))?;
    let status = |entry: fs::DirEntry| fs::read_to_string(entry.path().join("status"));
    Ok(threads
        .flatten()
        .filter_map(|entry| Some(rights(&status(entry).ok()?)))
        .collect())
}

/// All threads of vswap, and its guardian, have the filter and few capabilities. The program has all of its own.
pub fn all_threads(context: &Context) -> Outcome {
    require_root("it has capabilities that vswap gives up")?;
    let own = rights(&fs::read_to_string("/proc/self/status").during(|| "read status".to_owned())?);
    let job = Job::new("/bin/sleep").arg("60");
    let running = context.limited(LIMIT_BYTES)?.start(&job)?;
    let program = running.program_pid()?;
    let is_confined = |rights: &Rights| {
        let [inherited, permitted, effective, bounding, filters, no_new] = *rights;
        let sets = [permitted, effective, bounding];
        inherited == 0
            && sets.iter().all(|set| set & ADMIN == 0)
            && effective & PTRACE == own[2] & PTRACE
            && filters == own[4] + 2
            && no_new == 1
    };
    running.until("vswap to confine itself", || {
        let threads = of_threads(running.pid())?;
        Ok((threads.len() > 1 && threads.iter().all(is_confined)).then_some(()))
    })?;
    let children = procfs::living_descendants(running.pid());
    let guardian = children.into_iter().find(|pid| procfs::is_guardian(*pid));
    if let Some(guardian) = guardian {
        let found = of_threads(guardian)?;
        ensure!(found.iter().all(is_confined), "the guardian has {found:x?}");
    }
    let found = of_threads(program)?;
    let program = found.first().copied().unwrap_or_default();
    ensure!(
        program[..4] == own[..4] && program[5] == own[5],
        "the program has {program:x?}, and was to have {own:x?}"
    );
    running.signal(Signal::TERM)?;
    running.wait()?.must_be_ended_by(Signal::TERM)
}
