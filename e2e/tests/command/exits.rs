//! Programs whose threads end one by one with SYS_exit. The process ends with its last thread and that thread's status.
//! The agent's thread does not count.

use std::time::{Duration, Instant};

use vswap_e2e::compile::{GCC, compile};
use vswap_e2e::{Context, Job, MIB, Outcome, ensure};

const AMPLE_BYTES: u64 = 256 * MIB;
/// Without vswap they take a second at most. A program that waited for the agent's thread would never end.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

pub fn thread_by_thread(context: &Context) -> Outcome {
    let text = include_str!("../../inputs/exits.c");
    let program = compile(context, GCC, text, "exits", &["-pthread"])?;
    let pressed = ["--debug-evict-every", "5ms"];
    for form in ["alone", "child", "first", "last"] {
        let job = Job::new(&program).arg(form);
        let native = context.native()?.start(&job)?.wait()?;
        let status = native.status.code();
        ensure!(
            status.is_some_and(|status| (5..10).contains(&status)),
            "{form} ended with {:?} by itself",
            native.status
        );
        for options in [&[][..], &pressed[..]] {
            let launcher = context.limited(AMPLE_BYTES)?;
            let since = Instant::now();
            let job = Job::new(&program).arg(form).vswap_options(options);
            let ended = launcher.start(&job)?.wait()?;
            let took = since.elapsed();
            ensure!(
                ended.status.code() == status && took < ENDS_WITHIN,
                "{form} ended with {:?} in {took:?}, by itself with {status:?}",
                ended.status
            );
            ended.must_leave_nothing()?;
        }
    }
    Ok(())
}
