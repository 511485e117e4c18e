//! Arenas of the library inside of a run: they take a share of its limit, whatever RAM their programs asked for.

use std::thread;
use std::time::Duration;

use vswap_e2e::{Context, Job, MIB, Outcome, workload_binary};

use crate::ask::{figure, must_set};
use crate::ram::must_hold;

const LIMIT_BYTES: u64 = 192 * MIB;
const LOWER_BYTES: u64 = 144 * MIB;

/// Two programs whose arenas want 112 MiB each share 192 MiB, and 144 MiB later, with nowhere to swap to but the pool.
/// Both verify their bytes all the time.
pub fn shared(context: &Context) -> Outcome {
    let workload = workload_binary()?.display().to_string();
    let hog =
        |seed: u32| format!("'{workload}' memhog 96M --arena 112M --seconds 15 --seed {seed}");
    let script = format!("{} & {}; first=$?; wait $! && exit $first", hog(1), hog(2));
    let job = Job::new("/bin/sh")
        .args(["-c", &script])
        .vswap_options(["--swap", "none"]);
    let running = context.limited(LIMIT_BYTES)?.start(&job)?;
    running.until("both to have begun", || {
        Ok((figure(context, &running, "total_bytes")? > LIMIT_BYTES / 2).then_some(()))
    })?;
    thread::sleep(Duration::from_secs(2));
    must_hold(context, &running, LIMIT_BYTES)?;
    must_set(context, &running, &["--ram", "144M", "--wait", "12"])?;
    must_hold(context, &running, LOWER_BYTES)?;
    let ended = running.wait()?;
    ended.must_succeed()?;
    ended.must_leave_nothing()
}
