//! Pages that are packed again, and pages that are packed densely on their way out, hold what was written.

use vswap_e2e::{Context, Job, MIB, Outcome, ensure, workload_binary};

use crate::used::with_areas;

/// Everything is moved out again and again, while the program verifies every byte.
pub fn cold_pages(context: &Context) -> Outcome {
    const LEAST: u64 = 200;
    let job = |codec| -> Outcome<Job> {
        let job = Job::new(workload_binary()?).args(["memhog", "64M", "--seconds", "5"]);
        let job = with_areas(job, &["none".to_owned()]);
        Ok(job.vswap_options(["--debug-evict-every", "3ms", "--codec", codec]))
    };
    for codec in ["auto", "lz4"] {
        let ended = context.limited(1024 * MIB)?.run(&job(codec)?)?;
        ended.must_succeed()?;
        let repacked = ended.figure("pages_repacked")?;
        context.say(format!("{codec}: {repacked} pages were packed again"));
        ensure!(
            (repacked > LEAST) == (codec == "auto"),
            "with {codec} {repacked} pages were packed again"
        );
    }
    Ok(())
}

/// A heap that lz4 cannot pack into the limit. There is no area, so without denser packing the run ends full.
pub fn what_lz4_cannot_hold(context: &Context) -> Outcome {
    const LIMIT_BYTES: u64 = 96 * MIB;
    let run = |codec, seconds| {
        let words = ["fill-read-write", "192M", "--content", "heap"];
        let job = with_areas(
            Job::new(workload_binary()?).args(words),
            &["none".to_owned()],
        );
        let job = job.vswap_options(["--on-full", seconds, "--codec", codec]);
        context.limited(LIMIT_BYTES)?.run(&job)
    };
    let ended = run("auto", "kill:30")?;
    ended.must_succeed()?;
    ended.must_hold_limit()?;
    let saved = ended.figure("repack_saved_bytes")?;
    context.say(format!("packing again saved {saved} bytes"));
    ensure!(saved > MIB, "packing again saved {saved} bytes");
    let full = run("lz4", "kill:3")
        .err()
        .map(|failure| failure.to_string());
    ensure!(
        full.as_ref()
            .is_some_and(|said| said.contains("because it was full")),
        "lz4 was enough, or this was something else: {full:?}"
    );
    Ok(())
}
