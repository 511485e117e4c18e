//! Pages that the kernel has merged (KSM) leave once they are the process's own again.

use vswap_e2e::{Context, Job, MIB, Outcome, ensure, need, require_root};

use crate::live::directory;
use crate::used::with_areas;

/// Far more than the program takes: the kernel gets the time to merge what is in memory.
const LIMIT_BYTES: u64 = 1024 * MIB;

pub fn merged_pages(context: &Context) -> Outcome {
    require_root("to switch KSM on")?;
    let place = directory(context, "private")?;
    let words = "--megabytes 48 --seconds 8 --grace 60 ksm";
    let job = Job::new(need::victims_binary()?)
        .args(words.split(' '))
        .vswap_options(["--debug-evict-every", "100ms"]);
    // The victim fails if nothing of it was merged.
    let ended = context
        .limited(LIMIT_BYTES)?
        .run(&with_areas(job, std::slice::from_ref(&place)))?;
    ended.must_succeed()?;
    ensure!(ended.figure("pages_out")? > 10_000, "too little went out");
    Ok(())
}
