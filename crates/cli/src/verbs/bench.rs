//! `vswap bench`: calls the library of workloads and comparisons. The library runs this program as the vswap side.

use std::process::ExitCode;

use vswap_bench::compare::{self, Options};

use crate::failure::Failure;

/// Exit status when a run failed or found a wrong byte.
const RUN_FAILED: u8 = 1;

pub fn bench(options: &Options) -> Result<ExitCode, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::own(format!("cannot find the file of this program: {error}")))?;
    match compare::run(options, &program) {
        Ok(true) => Ok(ExitCode::SUCCESS),
        Ok(false) => Ok(ExitCode::from(RUN_FAILED)),
        Err(error) => Err(Failure::own(error)),
    }
}
