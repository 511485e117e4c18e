//! CPython: large dicts and lists, numpy, and forking processes, each of which checks its own sums.
//!
//! The scripts are under `inputs/`. They print only what must be the same in every run.

use std::fs;
use std::path::{Path, PathBuf};

use vswap_e2e::failure::During;
use vswap_e2e::need::require_file;
use vswap_e2e::{Context, Ended, Job, Launcher, MIB, Outcome, ensure, require_program};

const DICTS_LIMIT_BYTES: u64 = 76 * MIB;
const NUMPY_LIMIT_BYTES: u64 = 136 * MIB;
const FORK_LIMIT_BYTES: u64 = 208 * MIB;
/// What parent and child read fits once, compressed, but not twice.
const KIN_LIMIT_BYTES: u64 = 140 * MIB;
/// How many pages may be packed. Parent and child read 110,017 pages each. Measured: 2.1 times that if pages that both
/// move out at the same time are stored once, and 2.7 to 3.1 times if they are stored for both.
const KIN_PACKED_MOST: u64 = 110_017 * 12 / 5;
const PAGE_BYTES: u64 = 4096;
/// Ascending numbers compress to half their size in lz4, and to a sixth in zstd.
const DENSE: &str = "zstd";
const QUICK: &str = "lz4";

pub fn dicts_and_lists(context: &Context) -> Outcome {
    let text = include_str!("../../inputs/dicts.py");
    script(context, DICTS_LIMIT_BYTES, DENSE, text)
}

pub fn numpy(context: &Context) -> Outcome {
    let package = "apt package python3-numpy";
    require_file("/usr/lib/python3/dist-packages/numpy", package)?;
    let text = include_str!("../../inputs/arrays.py");
    script(context, NUMPY_LIMIT_BYTES, DENSE, text)
}

pub fn multiprocessing(context: &Context) -> Outcome {
    let text = include_str!("../../inputs/forks.py");
    script(context, FORK_LIMIT_BYTES, QUICK, text)
}

pub fn kin_read_what_they_share(context: &Context) -> Outcome {
    kin(context, "again", u64::MAX)
}

/// Both processes move out what was in memory at the fork. Each page of that must be stored only once.
pub fn kin_store_once(context: &Context) -> Outcome {
    kin(context, "once", KIN_PACKED_MOST)
}

fn kin(context: &Context, how: &str, packed_most: u64) -> Outcome {
    let text = include_str!("../../inputs/kin.py");
    let path = written(context, text)?;
    context.compare(KIN_LIMIT_BYTES, |launcher| {
        let (ended, said) = run(launcher, &path, &[how], QUICK)?;
        if ended.summary.is_some() {
            let packed = ended.figure("compressed_in_bytes")? / PAGE_BYTES;
            ensure!(
                packed <= packed_most,
                "{packed} pages were packed, more than {packed_most}: they are stored once for each process"
            );
        }
        Ok(said)
    })
}

fn script(context: &Context, limit_bytes: u64, codec: &str, text: &str) -> Outcome {
    let path = written(context, text)?;
    context.compare(limit_bytes, |launcher| {
        run(launcher, &path, &[], codec).map(|(_, said)| said)
    })
}

fn written(context: &Context, text: &str) -> Outcome<PathBuf> {
    let path = context.place().join("script.py");
    fs::write(&path, text).during(|| format!("write {}", path.display()))?;
    Ok(path)
}

/// Runs a script, which prints at its end that everything was right.
fn run(
    launcher: &Launcher,
    script: &Path,
    words: &[&str],
    codec: &str,
) -> Outcome<(Ended, String)> {
    let python = require_program("python3", "apt package python3")?;
    let job = Job::new(&python).arg(script).args(words);
    let job = job.env("PYTHONHASHSEED", "0");
    let ended = launcher.run(&job.vswap_options(["--codec", codec]))?;
    let said =
        fs::read_to_string(&ended.stdout).during(|| "read the script's output".to_owned())?;
    ensure!(
        said.ends_with("right\n"),
        "the script found wrong content: {said}"
    );
    Ok((ended, said))
}
