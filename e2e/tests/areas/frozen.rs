//! Memory that the program may no longer write leaves like any other.

use vswap_e2e::{Context, Job, MIB, Outcome, ensure, need};

use crate::live::directory;
use crate::used::with_areas;

/// Less than half of the memory that is read-only at any time.
const LIMIT_BYTES: u64 = 80 * MIB;

/// If such memory stayed, the program would not come to its end, or the run would not hold its limit.
pub fn frozen_memory(context: &Context) -> Outcome {
    let place = directory(context, "private")?;
    let words = "--megabytes 384 --threads 1 --seconds 5 --grace 60 frozen";
    let job = Job::new(need::victims_binary()?).args(words.split(' '));
    let ended = context
        .limited(LIMIT_BYTES)?
        .run(&with_areas(job, std::slice::from_ref(&place)))?;
    ended.must_succeed()?;
    ended.must_hold_limit()?;
    ensure!(ended.figure("pages_out")? > 50_000, "too little went out");
    Ok(())
}
