//! `vswap detach`: lets go of a program. The run that has it does the work; this asks, and waits until it is so.

use std::io;
use std::process::ExitCode;

use vswap_sys::process::PidFd;

use crate::args::DetachArgs;
use crate::control::{self, Detach, Request};
use crate::failure::Failure;
use crate::output::figures::PAGE_BYTES;
use crate::output::progress::shown;
use crate::run_dir::{self, Kind};

/// Has a run let go of a process.
pub fn detach(args: &DetachArgs) -> Result<ExitCode, Failure> {
    let asked = Detach {
        pid: args.pid,
        force: args.force,
    };
    let runs = run_dir::living();
    for run in runs.iter().filter(|one| one.kind == Kind::Run) {
        // Opened before it is asked, so that it names the same process afterwards. It may just have ended.
        let Ok(process) = PidFd::open(run.pid) else {
            continue;
        };
        let left = || {
            Some(
                control::ask(&run.path, &Request::Status).ok()?["swapped_pages"].as_u64()?
                    * PAGE_BYTES,
            )
        };
        let answer = shown("bringing back", left, || {
            control::ask(&run.path, &Request::Detach(asked))
        });
        let answer = match answer {
            Ok(answer) if answer == false => continue,
            Ok(answer) => answer,
            // It does not listen yet, or no more: it has no process to let go of.
            Err(error) if nobody_listens(&error) => continue,
            Err(error) => return Err(Failure::of(error)),
        };
        // The run goes on, or it ends as soon as it has let go of all its processes.
        if answer != true {
            while !process.exited(None).map_err(Failure::of)? {}
        }
        return Ok(ExitCode::SUCCESS);
    }
    Err(Failure::own(format!(
        "process {} is in none of your runs: `vswap status` lists them",
        args.pid
    )))
}

fn nobody_listens(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound
    )
}
