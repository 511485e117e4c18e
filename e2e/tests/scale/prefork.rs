//! A server of 24 processes that share 72 MiB since their forks grows to 144 MiB in 96. What they share has to leave
//! memory, which takes all of them. Each page of it is stored once, everybody finds it again, and the limit holds.

use vswap_e2e::limit::mib;
use vswap_e2e::need::workload_binary;
use vswap_e2e::{Context, Job, MIB, Outcome, ensure};

use crate::watch;

const LIMIT_BYTES: u64 = 96 * MIB;
const ARGUMENTS: [&str; 4] = ["prefork", "144M", "--children", "24"];
/// What the processes have in memory and in swap at the most: 144 MiB, what each has of its own, and what is brought
/// back while kin have it too.
const NEEDED_MAX_BYTES: u64 = 176 * MIB;

pub fn shares_grow(context: &Context) -> Outcome {
    let job = Job::new(workload_binary()?)
        .args(ARGUMENTS)
        .vswap_options(["--swap", "none"]);
    let (ended, held) = watch::run(context, &job, LIMIT_BYTES)?;
    ended.must_succeed()?;
    ended.must_leave_nothing()?;
    let needed = ended.figure("peak_needed_bytes")?;
    ensure!(
        needed < NEEDED_MAX_BYTES,
        "pages were stored several times: {} were needed for 144 MiB",
        mib(needed)
    );
    held.must_be(context)
}
