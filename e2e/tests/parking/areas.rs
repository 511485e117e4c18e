//! Parking without an area, with one that is given up meanwhile, and with a limit that changes.

use vswap_e2e::limit::mib;
use vswap_e2e::{Context, MIB, Outcome, ensure};

use crate::program::{Program, Size};

const LIMIT_BYTES: u64 = 256 * MIB;
const SIZE: Size = Size {
    mib: 96,
    threads: 1,
    children: 1,
};

/// Pages stay compressed in memory, which is said.
pub fn without(context: &Context) -> Outcome {
    let launcher = context.limited(LIMIT_BYTES)?;
    let mut program = Program::start(context, &launcher, SIZE, &["--swap", "none"])?;
    for _ in 0..2 {
        let said = program.parks()?;
        ensure!(said.contains("it has no swap area"), "it said {said}");
        let (pool, resident) = (
            program.figure("pool_bytes")?,
            program.figure("resident_bytes")?,
        );
        ensure!(
            pool > SIZE.mib / 2 * MIB && resident < 16 * MIB,
            "{} in the pool, {} resident: {said}",
            mib(pool),
            mib(resident)
        );
        program.wakes()?;
        program.does("check")?;
    }
    program.ends().map(drop)
}

/// Two areas, one of which is given up while the run is parked: its pages move to the other one.
pub fn one_leaves(context: &Context) -> Outcome {
    let launcher = context.limited(LIMIT_BYTES)?;
    let areas = ["one", "two"].map(|name| format!("{}:400M", context.place().join(name).display()));
    let options = ["--swap", &areas[0], "--swap", &areas[1]];
    let mut program = Program::start(context, &launcher, SIZE, &options)?;
    program.parks()?;
    let report = program.report()?;
    let name = report["areas"][0]["name"].as_str().unwrap_or_default();
    let used = |at: usize| report["areas"][at]["used_bytes"].as_u64();
    ensure!(
        used(0) > Some(0) && used(1) > Some(0),
        "areas: {}",
        report["areas"]
    );
    program.must(&["swapoff", name])?;
    program.is_in("parked")?;
    let (areas, pool) = (
        program.report()?["areas"].clone(),
        program.figure("pool_bytes")?,
    );
    ensure!(
        areas.as_array().is_some_and(|areas| areas.len() == 1) && pool == 0,
        "{} in the pool after swapoff, areas: {areas}",
        mib(pool)
    );
    program.wakes()?;
    program.does("check")?;
    program.parks()?;
    program.wakes()?;
    program.ends().map(drop)
}

/// A limit below what the program has in memory: it holds when the run goes on.
pub fn lower_limit(context: &Context) -> Outcome {
    const LOWER_BYTES: u64 = 96 * MIB;
    let launcher = context.limited(LIMIT_BYTES)?;
    let mut program = Program::start(context, &launcher, SIZE, &[])?;
    program.parks()?;
    program.must(&["set", "--ram", "96M"])?;
    program.is_in("parked")?;
    program.wakes()?;
    program.does("check")?;
    let total = program.figure("total_bytes")?;
    ensure!(
        total <= vswap_e2e::limit::allowed_bytes(LOWER_BYTES),
        "{} under a limit of {}",
        mib(total),
        mib(LOWER_BYTES)
    );
    program.ends().map(drop)
}
