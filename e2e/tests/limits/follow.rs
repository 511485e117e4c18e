//! `--ram MIN..MAX`: the limit follows the machine's pressure, which is a file of the test's own here.

use std::cell::Cell;
use std::fs;
use std::path::PathBuf;

use vswap_e2e::failure::During;
use vswap_e2e::{Context, MIB, Outcome, ensure, procfs};

use crate::ask::{figure, hog};

const LEAST_BYTES: u64 = 96 * MIB;
const MOST_BYTES: u64 = 384 * MIB;
/// Microseconds that somebody waits for memory between two looks of the test: all of the time and more.
const STALL_US: u64 = 1_000_000;

/// The kernel's file, as far as it is read.
struct Pressure {
    path: PathBuf,
    total_us: Cell<u64>,
}

impl Pressure {
    fn add(&self, us: u64) -> Outcome {
        self.total_us.set(self.total_us.get() + us);
        let text = format!(
            "some avg10=0.00 avg60=0.00 avg300=0.00 total={}\n",
            self.total_us.get()
        );
        let fresh = self.path.with_extension("fresh");
        fs::write(&fresh, text).during(|| format!("write {}", fresh.display()))?;
        fs::rename(&fresh, &self.path).during(|| format!("rename {}", fresh.display()))
    }
}

pub fn pressure(context: &Context) -> Outcome {
    let pressure = Pressure {
        path: context.place().join("pressure"),
        total_us: Cell::new(0),
    };
    pressure.add(0)?;
    let (place, file) = (
        context.place().display().to_string(),
        pressure.path.display().to_string(),
    );
    // The last --ram would count, and there may be one: the range is set while the program runs.
    let options = ["--swap", &place, "--debug-pressure", &file];
    let running = context
        .limited(MOST_BYTES)?
        .start(&hog("300M", "45")?.vswap_options(options))?;
    let program = running.program_pid()?;
    running.until("the program to have its memory", || {
        Ok((procfs::anon_bytes(program) > 290 * MIB).then_some(()))
    })?;
    crate::ask::must_set(context, &running, &["--ram", "96M..384M"])?;
    ensure!(
        figure(context, &running, "limit_bytes")? == MOST_BYTES,
        "it has changed without pressure"
    );
    running.until("the limit to be the least", || {
        pressure.add(STALL_US)?;
        Ok((figure(context, &running, "limit_bytes")? == LEAST_BYTES).then_some(()))
    })?;
    ensure!(
        procfs::anon_bytes(program) < LEAST_BYTES,
        "the program has more"
    );
    running.until("the limit to grow again", || {
        Ok((figure(context, &running, "limit_bytes")? >= LEAST_BYTES + 32 * MIB).then_some(()))
    })?;
    let ended = running.wait()?;
    ended.must_succeed()?;
    ended.must_leave_nothing()
}
