//! Private files that keep pages packed hold more than they have bytes.

use std::fs;

use vswap_e2e::failure::During;
use vswap_e2e::{Context, Job, MIB, Outcome, ensure, workload_binary};

use crate::used::{area, traffic, with_areas};

const LIMIT_BYTES: u64 = 48 * MIB;
const CONTENT: &str = "192M";
/// With the limit that is less than the content, and packed it is enough.
const AREA: &str = "96M";

/// A heap that does not fit into memory and area as it is, and does as it is packed. It is filled, read and written in
/// order and at random, and every byte verified.
pub fn more_than_its_size(context: &Context) -> Outcome {
    let place = context.place().join("packed");
    fs::create_dir(&place).during(|| format!("make {}", place.display()))?;
    let run = |option, seconds| {
        let words = ["fill-read-write", CONTENT, "--content", "heap"];
        let words = words
            .into_iter()
            .chain(["--threads", "2", "--count", "5000"]);
        let job = Job::new(workload_binary()?).args(words);
        let job = with_areas(job, &[format!("{}:{AREA}{option}", place.display())]);
        let job = job.vswap_options(["--pool", "4M", "--on-full", seconds]);
        context.limited(LIMIT_BYTES)?.run(&job)
    };
    let ended = run(",packed", "kill:30")?;
    ended.must_succeed()?;
    ended.must_hold_limit()?;
    let (written, read) = traffic(&ended, "packed")?;
    let size = area(&ended, "packed")?["size_bytes"].as_u64();
    context.say(format!(
        "{written} bytes written to {size:?}, {read} read: each page in full"
    ));
    ensure!(size == Some(96 * MIB), "its size is {size:?}");
    ensure!(written > 96 * MIB && read > 96 * MIB, "it was hardly used");
    let full = run("", "kill:3").err().map(|failure| failure.to_string());
    ensure!(
        full.as_ref()
            .is_some_and(|said| said.contains("because it was full")),
        "the area was enough as it is, or this was something else: {full:?}"
    );
    Ok(())
}
