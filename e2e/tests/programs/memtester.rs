//! memtester: its own patterns over memory that it is not allowed to lock (locked memory cannot be swapped).
//!
//! Most tests run beside compressible memory, because the random values of the first ones do not compress. For the
//! increment all of the needed memory is in memtester itself. The stuck address test always comes first. It leaves
//! every word different from the next, which compresses to half in lz4 and to an eighth in zstd. That decides the
//! codec.

use std::fs;
use std::path::Path;

use vswap_e2e::failure::During;
use vswap_e2e::{Context, Ended, Job, MIB, Outcome, ensure, require_program};

use crate::ballast::{ballast_is_right, beside_ballast};

const PACKAGE: &str = "apt package memtester";
const OWN_LIMIT_BYTES: u64 = 32 * MIB;
const OWN_SIZE: &str = "96M";
/// The bit of `MEMTESTER_TEST_MASK` for the sequential increment.
const INCREMENT: &str = "0x80";
const ALL_LIMIT_BYTES: u64 = 64 * MIB;
const ALL_BALLAST_MIB: u64 = 192;
const ALL_SIZE: &str = "16M";
/// All but bit spread, bit flip and the two walks, which repeat the solid bits many times.
const MOST_TESTS: &str = "0x187ff";

/// Without the right and the allowance to lock memory, memtester says so and goes on unlocked.
fn unlocked(job: Job, memtester: &Path) -> Outcome<Job> {
    require_program("prlimit", "apt package util-linux")?;
    Ok(job
        .args([
            "--bounding-set=-ipc_lock",
            "--inh-caps=-ipc_lock",
            "/usr/bin/prlimit",
            "--memlock=0:0",
        ])
        .arg(memtester))
}

pub fn increment_in_a_third(context: &Context) -> Outcome {
    let memtester = require_program("memtester", PACKAGE)?;
    let setpriv = require_program("setpriv", "apt package util-linux")?;
    context.compare(OWN_LIMIT_BYTES, |launcher| {
        let job = unlocked(Job::new(&setpriv), &memtester)?.args([OWN_SIZE, "1"]);
        let job = job
            .env("MEMTESTER_TEST_MASK", INCREMENT)
            .vswap_options(["--codec", "zstd"]);
        found_nothing(&launcher.run(&job)?)
    })
}

pub fn most_tests(context: &Context) -> Outcome {
    let memtester = require_program("memtester", PACKAGE)?;
    let setpriv = require_program("setpriv", "apt package util-linux")?;
    context.compare(ALL_LIMIT_BYTES, |launcher| {
        let job = beside_ballast(context, ALL_BALLAST_MIB, &setpriv)?;
        let job = unlocked(job, &memtester)?.args([ALL_SIZE, "1"]);
        let ended = launcher.run(&job.env("MEMTESTER_TEST_MASK", MOST_TESTS))?;
        ballast_is_right(&ended)?;
        found_nothing(&ended)
    })
}

fn found_nothing(ended: &Ended) -> Outcome {
    let said = fs::read(&ended.stdout).during(|| "read what memtester said".to_owned())?;
    let said = String::from_utf8_lossy(&said);
    let unlocked = said.contains("unlocked");
    ensure!(
        unlocked,
        "memtester may have locked its memory, which was to be prevented"
    );
    ensure!(said.contains("Done."), "memtester did not come to its end");
    ensure!(
        !said.contains("FAILURE"),
        "memtester found wrong content: {said}"
    );
    Ok(())
}
