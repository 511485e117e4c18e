//! With a pool in front of an area, hot pages stay in memory and pool, and pages that have become cold go to the area.
//! Of several areas the fast one keeps the warm pages.

use std::fs;

use vswap_e2e::device::{LoopDevice, must};
use vswap_e2e::failure::During;
use vswap_e2e::{Context, Ended, Job, MIB, Outcome, ensure, require_program, workload_binary};

use crate::used::{traffic, with_areas};

const LIMIT_BYTES: u64 = 96 * MIB;
const PAGE_BYTES: u64 = 4096;
/// The pool must serve at least this share of the pages brought back, in percent. That includes reading everything at
/// the end, which the area serves. Measured: 51 to 57. It was 24 when the pool kept the pages that had come first, and
/// without a pool it is nothing.
const POOL_SHARE_LEAST: u64 = 40;

/// Three sets of hot pages take turns. Each is larger than memory, and smaller than memory and the tier behind it
/// together.
fn moving_hot_set(size: &str, hot_percent: &str) -> Outcome<Job> {
    let words = ["zipf", size, "--count", "600000", "--exponent", "0.01"];
    let sets = ["--hot-percent", hot_percent, "--hot-sets", "3"];
    Ok(Job::new(workload_binary()?).args(words).args(sets))
}

fn figure(ended: &Ended, name: &str) -> u64 {
    let summary = ended.summary.as_ref();
    summary.and_then(|s| s[name].as_u64()).unwrap_or(0)
}

/// Some pages are zeros, some go to the pool as text and from there to an area. They come back from all of these.
pub fn every_backing(context: &Context) -> Outcome {
    const MANY: u64 = 10_000;
    let python = require_program("python3", "apt package python3")?;
    let [script, place] = ["backings.py", "area"].map(|name| context.place().join(name));
    fs::write(&script, include_str!("../../inputs/backings.py"))
        .during(|| format!("write {}", script.display()))?;
    fs::create_dir(&place).during(|| format!("make {}", place.display()))?;
    let job = Job::new(python).arg(&script).args(["160"]);
    let job = with_areas(job, &[place.display().to_string()]);
    let ended = context.limited(LIMIT_BYTES)?.run(&job)?;
    let figure = |name: &str| ended.figure(name);
    let through = [
        ("zeros", figure("pages_out_zero")?),
        ("the pool", figure("compressed_in_bytes")? / PAGE_BYTES),
        ("the pool to the area", figure("pages_written_back")?),
        ("the area and back", figure("pages_in_areas")?),
        (
            "zeros, frames or the pool and back",
            figure("pages_in")? - figure("pages_in_areas")?,
        ),
    ];
    for (what, pages) in through {
        context.say(format!("{pages} pages through {what}"));
        ensure!(pages > MANY, "only {pages} pages went through {what}");
    }
    Ok(())
}

pub fn cold_pages_go_first(context: &Context) -> Outcome {
    let place = context.place().join("cold");
    fs::create_dir(&place).during(|| format!("make {}", place.display()))?;
    let job = with_areas(
        moving_hot_set("256M", "30")?,
        &[place.display().to_string()],
    );
    let job = job.vswap_options(["--pool", "25%"]);
    let ended = context.limited(LIMIT_BYTES)?.run(&job)?;
    let (written, _) = traffic(&ended, "cold")?;
    let written = written / PAGE_BYTES;
    let [pages_in, from_area, early, back, failures, hits] = [
        "pages_in",
        "pages_in_areas",
        "pages_in_areas_early",
        "pages_written_back",
        "write_back_failures",
        "pool_limit_hits",
    ]
    .map(|name| figure(&ended, name));
    let from_pool = pages_in.saturating_sub(from_area);
    context.say(format!(
        "of {pages_in} pages brought back {from_pool} came from pool or frames and {from_area} from the area, {early} \
         of them early; {written} pages written, {back} of them back from the pool; the pool refused {hits}"
    ));
    ensure!(
        from_pool * 100 >= pages_in * POOL_SHARE_LEAST,
        "the pool served {from_pool} of {pages_in} pages: hot ones were on the area"
    );
    // Pages that do not go through the pool have just been evicted.
    let straight = written.saturating_sub(back);
    ensure!(
        back > 10_000 && straight * 10 < written,
        "{straight} of {written} pages went to the area without having been in the pool"
    );
    ensure!(failures == 0, "{failures} pages could not be written back");
    Ok(())
}

const TIERS_LIMIT_BYTES: u64 = 64 * MIB;
/// The highest area must serve at least this share of the pages read from areas, in percent. Measured: 47 to 61. If
/// nothing went down, it would keep what came first and serve its part of all pages: 21 to 25.
const HIGHEST_SHARE_LEAST: u64 = 35;

/// Areas in RAM, in a file and on a device, without a pool.
pub fn tiers(context: &Context) -> Outcome {
    // A private area, gone with the run.
    let ram = "/dev/shm/vswap-e2e-tier";
    let file = context.place().join("tier").display().to_string();
    let device = LoopDevice::new(context, "tier.image", 512 * MIB)?;
    let mkswap = require_program("mkswap", "apt package util-linux")?;
    must(&mkswap, &["--label", "slow"], device.path())?;
    let areas = [
        format!("{ram}:112M,prio=10"),
        format!("{file}:112M,prio=5"),
        device.path().display().to_string(),
    ];
    let job = with_areas(moving_hot_set("512M", "16")?, &areas).vswap_options(["--pool", "off"]);
    let ended = context.limited(TIERS_LIMIT_BYTES)?.run(&job)?;
    let names = [ram, &file, &areas[2]];
    let read = names.map(|name| traffic(&ended, name).map(|(_, read)| read / PAGE_BYTES));
    let [highest, middle, lowest] = read;
    let (highest, rest) = (highest?, middle? + lowest?);
    let demoted = figure(&ended, "pages_demoted");
    context.say(format!(
        "{highest} pages read from the highest tier, {rest} from those below; {demoted} pages went down"
    ));
    ensure!(
        highest * 100 >= (highest + rest) * HIGHEST_SHARE_LEAST,
        "the highest tier served {highest} pages and those below {rest}: warm ones were there"
    );
    ensure!(demoted > 10_000, "{demoted} pages went down");
    let failures = figure(&ended, "write_back_failures");
    ensure!(failures == 0, "{failures} pages could not be moved");
    Ok(())
}
