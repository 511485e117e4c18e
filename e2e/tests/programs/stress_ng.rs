//! `stress-ng --vm 2 --verify`: two workers write, change and check its patterns while they map and unmap their memory
//! again and again.
//!
//! Some methods of `--vm-method all` fill their memory with random numbers, which no codec compresses. Without an area
//! on disk they must stay in memory. So in that test most of the needed memory is compressible ballast beside the
//! workers. In the other test the workers need all of it, and the random methods are left out.

use vswap_e2e::failure::During;
use vswap_e2e::{Context, MIB, Outcome, ensure, require_program};

use crate::ballast::{ballast_is_right, beside_ballast};

const PACKAGE: &str = "apt package stress-ng";
const ALL_LIMIT_BYTES: u64 = 112 * MIB;
const ALL_BALLAST_MIB: u64 = 320;
const ALL: &str = "--vm 2 --vm-bytes 64M --vm-method all --verify -t 12 --oomable";
const OWN_LIMIT_BYTES: u64 = 80 * MIB;
const OWN: &str = "--vm 2 --vm-bytes 256M --verify -t 4 --oomable --vm-method";
/// The workers map with MAP_POPULATE. Before vswap has armed, that is one system call that fills all of the memory and
/// that nobody can interrupt.
const OWN_BALLAST_MIB: u64 = 72;
/// Methods whose content compresses, each with another order of access.
const METHODS: [&str; 4] = ["checkerboard", "modulo-x", "write64", "inc-nybble"];

pub fn all_methods(context: &Context) -> Outcome {
    let stress = require_program("stress-ng", PACKAGE)?;
    context.compare(ALL_LIMIT_BYTES, |launcher| {
        let job = beside_ballast(context, ALL_BALLAST_MIB, &stress)?.args(ALL.split(' '));
        ballast_is_right(&launcher.run(&job)?)
    })
}

pub fn in_a_third(context: &Context) -> Outcome {
    let stress = require_program("stress-ng", PACKAGE)?;
    context.compare(OWN_LIMIT_BYTES, |launcher| {
        for method in METHODS {
            let job = beside_ballast(context, OWN_BALLAST_MIB, &stress)?;
            let ended = launcher.run(&job.args(OWN.split(' ')).arg(method))?;
            let said = std::fs::read_to_string(&ended.stderr)
                .during(|| "read stress-ng's report".to_owned())?;
            let report = said.clone() + &std::fs::read_to_string(&ended.stdout).unwrap_or_default();
            ensure!(
                report.contains("successful run completed"),
                "stress-ng {method}: {report}"
            );
            ensure!(
                !report.contains("fail:"),
                "stress-ng {method} found wrong content: {report}"
            );
        }
        Ok(())
    })
}
