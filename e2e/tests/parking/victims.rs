//! Programs that use memory in every way, parked and woken in the middle of it. They check every byte.

use std::path::Path;
use std::time::Duration;

use vswap_e2e::{Context, Job, MIB, Outcome, Running, ensure, procfs};

const LIMIT_BYTES: u64 = 64 * MIB;
const VICTIMS: [&str; 10] = [
    "threads", "fork", "spawn", "mremap", "discard", "brk", "buffers", "signals", "endings",
    "chaos",
];
/// How long each of them works.
const SECONDS: &str = "6";
/// Pauses between two times that it is parked, and while it is.
const WORKS: Duration = Duration::from_millis(400);
const RESTS: Duration = Duration::from_millis(50);

pub fn test(context: &Context) -> Outcome {
    let victims = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release/vswap-victims");
    ensure!(
        victims.exists(),
        "no {}: build it with `cargo build --release --workspace`",
        victims.display()
    );
    for victim in VICTIMS {
        let launcher = context.limited(LIMIT_BYTES)?;
        let job = Job::new(&victims)
            .args([victim, "--seconds", SECONDS, "--megabytes", "48"])
            .vswap_options(["--debug-evict-every", "5ms"]);
        let running = launcher.start(&job)?;
        let times = park_again_and_again(context, &running)?;
        let ended = running.wait()?;
        ended.must_succeed()?;
        ended.must_leave_nothing()?;
        context.say(format!("{victim} was parked {times} times"));
        ensure!(times > 0, "{victim} was never parked");
    }
    Ok(())
}

/// Until it ends. Returns how often.
fn park_again_and_again(context: &Context, running: &Running) -> Outcome<u32> {
    let run = running.pid().to_string();
    let mut times = 0;
    loop {
        std::thread::sleep(WORKS);
        let parked = context.vswap(&["park", "--run", &run])?;
        std::thread::sleep(RESTS);
        let woken = context.vswap(&["wake", "--run", &run])?;
        if !procfs::is_alive(running.pid()) {
            return Ok(times);
        }
        // It may be ending just now.
        let is_over = || {
            running.program_pid().is_err() || procfs::living_descendants(running.pid()).len() < 2
        };
        ensure!(
            parked.status.success() && woken.status.success() || is_over(),
            "park: {parked:?}; wake: {woken:?}"
        );
        times += 1;
    }
}
