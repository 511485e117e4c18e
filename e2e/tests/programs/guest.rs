//! A virtual machine whose memory vswap moves out and back while its guest uses it.

use vswap_e2e::compile::{GCC, compile};
use vswap_e2e::{Context, Failure, Job, MIB, Outcome, ensure};

/// Generous: eviction comes from the pager's option.
const LIMIT_BYTES: u64 = 1024 * MIB;
const NOT_POSSIBLE: i32 = 3;

pub fn test(context: &Context) -> Outcome {
    let source = include_str!("../../inputs/guest.c");
    let program = compile(context, GCC, source, "guest", &["-O2"])?;
    let native = context.native()?;
    let job = |seconds: &str| Job::new(&program).arg(seconds);
    let ended = native.start(&job("1"))?.wait()?;
    if ended.status.code() == Some(NOT_POSSIBLE) {
        return Err(Failure::Skip("no KVM, or no right to use it".to_owned()));
    }
    ended.must_succeed()?;
    let job = job("6").vswap_options(["--debug-evict-every", "5ms", "--swap", "none"]);
    let ended = context.limited(LIMIT_BYTES)?.run(&job)?;
    ensure!(ended.figure("pages_out")? > 500, "too little went out");
    Ok(())
}
