//! A process is stopped, together with its agent, in the middle of forks and of moving pages out. Nobody waits for it.

use std::fs;

use vswap_e2e::failure::During;
use vswap_e2e::{Context, Job, MIB, Outcome, ensure, require_program};

const LIMIT_BYTES: u64 = 512 * MIB;
/// How often it is stopped, and for how many seconds.
const STOPS: [&str; 2] = ["8", "4"];
/// The longest time for a fork of another process, in milliseconds: less than a stop, but long even on a busy machine.
const FORK_MS_MAX: u64 = 3000;

pub fn others_fork(context: &Context) -> Outcome {
    let python = require_program("python3", "apt package python3")?;
    let script = context.place().join("stopped.py");
    let text = include_str!("../../inputs/stopped.py");
    fs::write(&script, text).during(|| format!("write {}", script.display()))?;
    let launcher = context.limited(LIMIT_BYTES)?;
    let job = Job::new(python)
        .arg(script)
        .args(STOPS)
        .vswap_options(["--debug-evict-every", "1ms"]);
    let ended = launcher.run(&job)?;
    let said = fs::read_to_string(&ended.stdout).during(|| "read the output".to_owned())?;
    context.say(said.trim());
    let slowest = said.split(' ').nth(3).and_then(|word| word.parse().ok());
    let slowest: u64 = slowest.unwrap_or(u64::MAX);
    ensure!(
        slowest <= FORK_MS_MAX,
        "a fork waited for a stopped process: {said}"
    );
    Ok(())
}
