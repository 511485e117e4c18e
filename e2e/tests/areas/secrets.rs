//! What programs had in memory cannot be read from areas, nor from a core dump of vswap.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use vswap_e2e::device::{LoopDevice, must};
use vswap_e2e::failure::During;
use vswap_e2e::{Context, Job, MIB, Outcome, ensure, require_program};

use crate::used::{area, with_areas};

const LIMIT_BYTES: u64 = 48 * MIB;
/// What the program has: far more than fits.
const CONTENT_MIB: u64 = 96;
const AREA_MIB: u64 = 128;
/// The least number of pages that a plain area must be found to have.
const PAGES_MIN: usize = 4096;
/// So much of a mapping is looked at: of the reservation for the pool only the beginning is in use.
const MAPPING_BYTES_MAX: u64 = 256 * MIB;
/// Bytes of memory or of an area that are looked at together.
const LOOK_BYTES: usize = 1 << 20;
/// The contexts of zstd, two for each thread, keep what they made of the last page. Measured: 16 marks.
const ZSTD_MARKS_MAX: usize = 100;
/// At least so much of vswap's memory must be in a run, and out of dumps.
const HIDDEN_MIN_BYTES: u64 = 8 * MIB;

/// What `inputs/secrets.py` writes to each page.
fn mark() -> [u8; 32] {
    std::array::from_fn(|at| u8::try_from((7 + 37 * at) % 251).unwrap_or(0))
}

/// The program, which keeps its content until `file` exists, if one is given.
fn program(file: Option<&Path>) -> Outcome<Job> {
    let python = require_program("python3", "apt package python3")?;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/inputs/secrets.py");
    let job = Job::new(python).args([script.to_owned(), CONTENT_MIB.to_string()]);
    Ok(match file {
        Some(file) => job.arg(file),
        None => job,
    })
}

/// How often the mark is in a range of a file.
fn marks(file: &File, mut at: u64, end: u64) -> usize {
    let mark = mark();
    let mut bytes = vec![0; LOOK_BYTES + mark.len() - 1];
    let mut found = 0;
    while at < end {
        let most = usize::try_from(end - at).map_or(bytes.len(), |left| left.min(bytes.len()));
        let read = file.read_at(&mut bytes[..most], at).unwrap_or(0);
        if read == 0 {
            break;
        }
        let windows = bytes[..read].windows(mark.len());
        found += windows.filter(|window| *window == mark).count();
        // The next look begins where a mark could lie across the border.
        at += read.min(LOOK_BYTES) as u64;
    }
    found
}

fn marks_in(path: &Path) -> Outcome<usize> {
    let file = File::open(path).during(|| format!("open {}", path.display()))?;
    Ok(marks(&file, 0, AREA_MIB * MIB))
}

/// Runs the program on new areas that vswap and util-linux have made, and looks at them afterwards.
fn areas_after_a_run(context: &Context, options: &[&str]) -> Outcome<[usize; 2]> {
    let file = context
        .place()
        .join(format!("swapfile{}", options.concat()));
    let size = format!("{AREA_MIB}M");
    let path = file.display().to_string();
    let words = ["mkswap", &path, "--size", &size, "--label", "kept"];
    let made = context.vswap(&words)?;
    ensure!(made.status.success(), "mkswap: {made:?}");
    let device = LoopDevice::new(context, "device.image", AREA_MIB * MIB)?;
    let mkswap = require_program("mkswap", "apt package util-linux")?;
    must(&mkswap, &["--label", "kept"], device.path())?;
    let areas = [path, device.path().display().to_string()];
    let job = with_areas(program(None)?, &areas)
        .vswap_options(["--pool", "off"])
        .vswap_options(options.iter().copied());
    let ended = context.limited(LIMIT_BYTES)?.run(&job)?;
    let blkid = require_program("blkid", "apt package util-linux")?;
    for name in &areas {
        let is_encrypted = area(&ended, name)?["encrypted"].as_bool();
        ensure!(
            is_encrypted == Some(options.is_empty()),
            "{name} is encrypted: {is_encrypted:?}"
        );
        let header = must(&blkid, &["-p", "-o", "export"], Path::new(name))?;
        ensure!(
            header.contains("TYPE=swap") && header.contains("LABEL=kept"),
            "blkid says {header}"
        );
    }
    let found = [marks_in(&file)?, marks_in(device.path())?];
    context.say(format!("{options:?}: pages found in areas: {found:?}"));
    device.detach()?;
    Ok(found)
}

pub fn areas_are_encrypted(context: &Context) -> Outcome {
    let found = areas_after_a_run(context, &["--no-encrypt"])?;
    ensure!(
        found.iter().all(|&pages| pages >= PAGES_MIN),
        "the test finds only {found:?} pages in plain areas"
    );
    let found = areas_after_a_run(context, &[])?;
    ensure!(
        found == [0, 0],
        "pages can be read from encrypted areas: {found:?}"
    );
    Ok(())
}

/// A mapping of a process, as a core dump sees it.
struct Mapped {
    start: u64,
    end: u64,
    resident_bytes: u64,
    is_dumped: bool,
}

fn mappings(pid: u32) -> Outcome<Vec<Mapped>> {
    let path = format!("/proc/{pid}/smaps");
    let text = fs::read_to_string(&path).during(|| format!("read {path}"))?;
    let mut found: Vec<Mapped> = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let range = words.first().and_then(|word| word.split_once('-'));
        let ends = range.and_then(|(start, end)| {
            let number = |digits| u64::from_str_radix(digits, 16).ok();
            Some((number(start)?, number(end)?))
        });
        match (ends, found.last_mut(), words.as_slice()) {
            (Some((start, end)), ..) => found.push(Mapped {
                start,
                end,
                resident_bytes: 0,
                is_dumped: true,
            }),
            (None, Some(last), ["Rss:", kib, ..]) => {
                last.resident_bytes = kib.parse().unwrap_or(0) * 1024;
            }
            (None, Some(last), ["VmFlags:", flags @ ..]) => {
                last.is_dumped = !flags.contains(&"dd");
            }
            _ => {}
        }
    }
    Ok(found)
}

/// Marks in vswap's memory: in what no core dump would have, and in the rest.
struct Found {
    hidden: usize,
    in_dumps: usize,
    hidden_bytes: u64,
}

fn look(pid: u32) -> Outcome<Found> {
    let memory = format!("/proc/{pid}/mem");
    let memory = File::open(&memory).during(|| format!("open {memory}"))?;
    let mut found = Found {
        hidden: 0,
        in_dumps: 0,
        hidden_bytes: 0,
    };
    for one in mappings(pid)? {
        let end = one.end.min(one.start.saturating_add(MAPPING_BYTES_MAX));
        let marks = marks(&memory, one.start, end);
        if one.is_dumped {
            found.in_dumps += marks;
        } else {
            found.hidden += marks;
            found.hidden_bytes += one.resident_bytes;
        }
    }
    Ok(found)
}

/// Looks at all memory of vswap that a core dump would have, while the pool is full, the areas are in use, and the
/// program has been read back and moved out again.
fn nothing_in_dumps(context: &Context, codec: &str, most: usize) -> Outcome {
    let go = context.place().join(format!("go-{codec}"));
    let spill = context.place().display().to_string();
    let options = ["--codec", codec, "--pool", "50%", "--swap", &spill];
    let launcher = context.limited(LIMIT_BYTES)?;
    let running = launcher.start(&program(Some(&go))?.vswap_options(options))?;
    let status = |what: &str| -> Outcome<u64> {
        let output = context.vswap(&["status", "--json"])?;
        let all: Vec<serde_json::Value> =
            serde_json::from_slice(&output.stdout).unwrap_or_default();
        let own = all.iter().find(|run| run["pid"] == running.pid());
        Ok(own.and_then(|run| run[what].as_u64()).unwrap_or(0))
    };
    running.until("the content to be out", || {
        let out = status("swapped_pages")? * 4096;
        let said = fs::read_to_string(running.stdout()).unwrap_or_default();
        Ok((out > CONTENT_MIB / 2 * MIB && said.contains("filled")).then_some(()))
    })?;
    // Content comes and goes, so one look may find most of it in the area.
    let Found {
        hidden,
        in_dumps,
        hidden_bytes,
    } = running.until("content to be in the pool", || {
        let found = look(running.pid())?;
        let is_there = found.hidden >= PAGES_MIN / 2 && found.hidden_bytes >= HIDDEN_MIN_BYTES;
        Ok(is_there.then_some(found))
    })?;
    context.say(format!(
        "{codec}: {hidden} marks in {} MiB that are in no dump, {in_dumps} in the rest",
        hidden_bytes / MIB
    ));
    ensure!(
        in_dumps <= most,
        "a core dump of vswap would have {in_dumps} pages of the program"
    );
    fs::write(&go, "").during(|| format!("write {}", go.display()))?;
    launcher.finish(running)?;
    Ok(())
}

pub fn pool_is_in_no_core_dump(context: &Context) -> Outcome {
    nothing_in_dumps(context, "lz4", 0)?;
    nothing_in_dumps(context, "zstd", ZSTD_MARKS_MAX)
}
