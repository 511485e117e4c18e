//! CPython: large dicts and lists, numpy, and processes that fork, each checking its own sums.
//!
//! The scripts are under `inputs/`. They print only what must be the same in every run.

use std::fs;

use vswap_e2e::failure::During;
use vswap_e2e::need::require_file;
use vswap_e2e::{Context, Job, MIB, Outcome, ensure, require_program};

const DICTS_LIMIT_BYTES: u64 = 76 * MIB;
const NUMPY_LIMIT_BYTES: u64 = 136 * MIB;
const FORK_LIMIT_BYTES: u64 = 208 * MIB;
/// What parent and child read fits once, compressed, and not twice.
const KIN_LIMIT_BYTES: u64 = 140 * MIB;
/// Numbers that count up are half their size in lz4 and a sixth in zstd.
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
    let text = include_str!("../../inputs/kin.py");
    script(context, KIN_LIMIT_BYTES, QUICK, text)
}

fn script(context: &Context, limit_bytes: u64, codec: &str, text: &str) -> Outcome {
    let python = require_program("python3", "apt package python3")?;
    let path = context.place().join("script.py");
    fs::write(&path, text).during(|| format!("write {}", path.display()))?;
    context.compare(limit_bytes, |launcher| {
        let job = Job::new(&python).arg(&path).env("PYTHONHASHSEED", "0");
        let ended = launcher.run(&job.vswap_options(["--codec", codec]))?;
        let said =
            fs::read_to_string(&ended.stdout).during(|| "read the script's output".to_owned())?;
        ensure!(
            said.ends_with("right\n"),
            "the script found wrong content: {said}"
        );
        Ok(said)
    })
}
