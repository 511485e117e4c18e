//! What goes to areas comes back right, with the pool and without it, and by the order of priorities.

use std::fs;
use std::path::Path;

use serde_json::Value;
use vswap_e2e::device::{LoopDevice, must};
use vswap_e2e::failure::During;
use vswap_e2e::{
    Context, Ended, Failure, Job, MIB, Outcome, ensure, require_program, workload_binary,
};

const LIMIT_BYTES: u64 = 96 * MIB;
/// More than the pool holds within the limit, given how well the content compresses.
const CONTENT: &str = "448M";
const AREA_BYTES: u64 = 512 * MIB;
/// The least number of pages that one backward read of the content finds in the swap cache. Half of the content is in
/// areas then, and comes in windows.
const BACKWARD_HITS_MIN: u64 = 10_000;
/// Random accesses of each phase. Each costs a request to a disk.
const RANDOM: &str = "10000";

/// A workload that fills, reads and writes in order and at random, and verifies every byte.
pub fn workload(size: &str) -> Outcome<Job> {
    let words = ["fill-read-write", size, "--threads", "2", "--count", RANDOM];
    Ok(Job::new(workload_binary()?).args(words))
}

/// Adds a `--swap` for each of these.
pub fn with_areas(job: Job, areas: &[String]) -> Job {
    let options = areas.iter().map(|area| format!("--swap={area}"));
    job.vswap_options(options)
}

/// A file made by vswap and a device made by util-linux, so that vswap uses what both have made.
fn file_and_device(context: &Context) -> Outcome<(String, LoopDevice)> {
    let file = context.place().join("swapfile").display().to_string();
    let size = format!("{}M", AREA_BYTES / MIB);
    let made = context.vswap(&["mkswap", &file, "--size", &size])?;
    ensure!(made.status.success(), "mkswap: {made:?}");
    let device = LoopDevice::new(context, "device.image", AREA_BYTES)?;
    let mkswap = require_program("mkswap", "apt package util-linux")?;
    must(&mkswap, &["--label", "spare"], device.path())?;
    Ok((file, device))
}

/// One area's figures from the summary. The area is found by the end of its name.
pub fn area<'a>(ended: &'a Ended, name: &str) -> Outcome<&'a Value> {
    let areas = ended.summary.as_ref().and_then(|s| s["areas"].as_array());
    let named = |area: &&Value| area["name"].as_str().is_some_and(|n| n.ends_with(name));
    areas
        .into_iter()
        .flatten()
        .find(named)
        .ok_or_else(|| Failure::wrong(format!("no area {name} in the summary")))
}

/// Bytes written to an area and read from it.
pub fn traffic(ended: &Ended, name: &str) -> Outcome<(u64, u64)> {
    let area = area(ended, name)?;
    let figure = |key: &str| area[key].as_u64().unwrap_or(0);
    Ok((figure("written_bytes"), figure("read_bytes")))
}

/// Checks that the file and the device took turns.
fn must_be_even(context: &Context, ended: &Ended, names: [&str; 2]) -> Outcome {
    let (first, second) = (traffic(ended, names[0])?, traffic(ended, names[1])?);
    context.say(format!(
        "written and read: {first:?} and {second:?} bytes; peak {} MiB of {}",
        ended.peak.total_bytes / MIB,
        LIMIT_BYTES / MIB
    ));
    let (most, least) = (first.0.max(second.0), first.0.min(second.0));
    ensure!(
        least > 16 * MIB,
        "an area was hardly used: {least} bytes written"
    );
    ensure!(
        most < 2 * least,
        "areas of equal priority took {most} and {least} bytes"
    );
    ensure!(first.1 > 0 && second.1 > 0, "nothing was read back");
    Ok(())
}

fn content_comes_back(context: &Context, pool: &str) -> Outcome {
    let (file, device) = file_and_device(context)?;
    let areas = [file, device.path().display().to_string()];
    let job = with_areas(workload(CONTENT)?, &areas).vswap_options(["--pool", pool]);
    let ended = context.limited(LIMIT_BYTES)?.run(&job)?;
    must_be_even(context, &ended, [&areas[0], &areas[1]])?;
    // Nobody holds the device any more, and its header is unchanged.
    let blkid = require_program("blkid", "apt package util-linux")?;
    let header = must(&blkid, &["-o", "export"], device.path())?;
    ensure!(
        header.contains("TYPE=swap") && header.contains("LABEL=spare"),
        "blkid says {header}"
    );
    device.detach()
}

pub fn pool_and_areas(context: &Context) -> Outcome {
    content_comes_back(context, "25%")
}

pub fn areas_without_a_pool(context: &Context) -> Outcome {
    content_comes_back(context, "off")
}

/// Nobody sees a private file. It grows, and is gone at the end.
pub fn private_file(context: &Context) -> Outcome {
    let place = context.place().join("private");
    fs::create_dir(&place).during(|| format!("make {}", place.display()))?;
    let job = with_areas(
        workload(CONTENT)?.args(["--backward"]),
        &[place.display().to_string()],
    );
    let launcher = context.limited(LIMIT_BYTES)?;
    let running = launcher.start(&job.vswap_options(["--pool", "off"]))?;
    running.until("the area to be used", || {
        let areas = list(context, running.pid())?;
        Ok(areas.contains("MiB").then_some(()))
    })?;
    ensure!(is_empty(&place)?, "the file of a private area can be seen");
    let ended = launcher.finish(running)?;
    let (written, read) = traffic(&ended, "private")?;
    ensure!(
        written > 64 * MIB && read > 64 * MIB,
        "{written} written, {read} read"
    );
    ensure!(is_empty(&place)?, "the file of a private area stayed");
    // A backward read finds in the swap cache what was read along.
    let figure = |key: &str| ended.summary.as_ref().and_then(|s| s[key].as_u64());
    let (along, hits) = (figure("pages_read_ahead"), figure("read_ahead_hits"));
    context.say(format!(
        "{along:?} pages were read ahead, {hits:?} were wanted"
    ));
    ensure!(
        hits.is_some_and(|hits| hits > BACKWARD_HITS_MIN),
        "{hits:?} hits of {along:?} pages that were read ahead"
    );
    Ok(())
}

fn is_empty(place: &Path) -> Outcome<bool> {
    let mut entries = fs::read_dir(place).during(|| format!("list {}", place.display()))?;
    Ok(entries.next().is_none())
}

/// The output of `vswap status --areas` for one run: a line for each of its areas.
pub fn list(context: &Context, run: u32) -> Outcome<String> {
    let output = context.vswap(&["status", "--areas"])?;
    let text = String::from_utf8_lossy(&output.stdout);
    let run = run.to_string();
    let of_run = |line: &&str| line.split_whitespace().last() == Some(&run);
    Ok(text.lines().filter(of_run).collect::<Vec<_>>().join("\n"))
}

/// The area with the higher priority is filled first, whatever the order on the command line.
pub fn priorities(context: &Context) -> Outcome {
    let places = ["low", "high"].map(|name| context.place().join(name));
    for place in &places {
        fs::create_dir(place).during(|| format!("make {}", place.display()))?;
    }
    let areas = [
        format!("{}:1G,prio=1", places[0].display()),
        format!("{}:64M,prio=7", places[1].display()),
    ];
    let job = with_areas(workload(CONTENT)?, &areas).vswap_options(["--pool", "off"]);
    let ended = context.limited(LIMIT_BYTES)?.run(&job)?;
    let (high, low) = (traffic(&ended, "high")?.0, traffic(&ended, "low")?.0);
    context.say(format!(
        "written: {high} bytes with priority 7, {low} with 1"
    ));
    ensure!(
        high >= 63 * MIB,
        "the area with the higher priority took only {high} bytes"
    );
    ensure!(
        low > 64 * MIB,
        "what did not fit there did not go to the other one: {low} bytes"
    );
    Ok(())
}
