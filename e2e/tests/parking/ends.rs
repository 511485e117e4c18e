//! How a parked run comes to an end, or goes on although nobody has woken it.

use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use vswap_e2e::ended::nothing_left;
use vswap_e2e::failure::During;
use vswap_e2e::launch::signal_pid;
use vswap_e2e::{Context, MIB, Outcome, ensure, procfs};

use crate::program::{Program, Size};

const LIMIT_BYTES: u64 = 256 * MIB;
const SIZE: Size = Size {
    mib: 96,
    threads: 1,
    children: 1,
};

fn parked(context: &Context) -> Outcome<Program<'_>> {
    let program = Program::start(context, &context.limited(LIMIT_BYTES)?, SIZE, &[])?;
    program.parks()?;
    Ok(program)
}

/// Somebody who knows nothing of vswap sends SIGCONT to one of its processes.
pub fn continued(context: &Context) -> Outcome {
    let mut program = parked(context)?;
    signal_pid(program.running.program_pid()?, Signal::CONT)?;
    program.until_it_runs()?;
    program.does("check")?;
    program.parks()?;
    program.wakes()?;
    program.ends().map(drop)
}

pub fn program_killed(context: &Context) -> Outcome {
    let program = parked(context)?;
    for pid in program.processes() {
        signal_pid(pid, Signal::KILL)?;
    }
    let ended = program.running.wait()?;
    ended.must_be_ended_by(Signal::KILL)?;
    ended.must_leave_nothing()
}

/// The signal reaches a program that runs again.
pub fn told_to_end(context: &Context) -> Outcome {
    let program = parked(context)?;
    program.running.signal(Signal::TERM)?;
    let ended = program.running.wait()?;
    ended.must_be_ended_by(Signal::TERM)?;
    ended.must_leave_nothing()
}

/// No process of it lives on.
pub fn vswap_killed(context: &Context) -> Outcome {
    let program = parked(context)?;
    program.running.signal(Signal::KILL)?;
    let ended = program.running.wait()?;
    ended.must_be_ended_by(Signal::KILL)?;
    nothing_left("a parked run")
}

/// Whoever parks it goes away in the middle of it, or another command wakes it: the run goes on as before.
pub fn given_up(context: &Context) -> Outcome {
    let launcher = context.limited(LIMIT_BYTES)?;
    let size = Size { threads: 4, ..SIZE };
    let mut program = Program::start(context, &launcher, size, &[])?;
    let run = program.running.pid().to_string();
    for ms in [1, 5, 20, 80, 300] {
        let mut command = Command::new(context.require_vswap()?);
        command
            .args(["park", "--run", &run])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut parking = command.spawn().during(|| "start vswap park".to_owned())?;
        std::thread::sleep(Duration::from_millis(ms));
        if ms == 20 {
            program.must(&["wake"])?;
        } else {
            parking.kill().during(|| "kill vswap park".to_owned())?;
        }
        parking.wait().during(|| "wait for vswap park".to_owned())?;
        // It may have come too late.
        program.must(&["wake"])?;
        program.until_it_runs()?;
        let stopped = |pid: &u32| procfs::stat(*pid).is_some_and(|stat| stat.state == b'T');
        ensure!(
            !program.processes().iter().any(stopped),
            "a process is stopped, given up after {ms} ms"
        );
        program.does("check")?;
    }
    program.ends().map(drop)
}
