//! A program that becomes another one just when the filter is installed. If the filter stays with the new program and
//! its listener is lost, every call that it traps fails with ENOSYS, and the loader ends the program by SIGSEGV.

use vswap_e2e::compile::{GCC, compile};
use vswap_e2e::{Context, Job, MIB, Outcome};

const LIMIT_BYTES: u64 = 64 * MIB;
/// When the program becomes itself, in microseconds after its beginning. The filter comes at any of these moments. Of
/// 684 such runs 5 failed when nothing kept the two apart.
const MOMENTS_US: std::ops::Range<usize> = 100..3500;
const APART_US: usize = 30;

pub fn test(context: &Context) -> Outcome {
    let text = include_str!("../../inputs/replaces.c");
    let program = compile(context, GCC, text, "replaces", &["-O2"])?;
    let launcher = context.limited(LIMIT_BYTES)?;
    for moment in MOMENTS_US.step_by(APART_US) {
        let job = Job::new(&program).arg(moment.to_string());
        let ended = launcher
            .start(&job.vswap_options(["--debug-evict-every", "1ms"]))?
            .wait()?;
        ended.must_succeed()?;
    }
    Ok(())
}
