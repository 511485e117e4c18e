//! Processes and threads that use their memory all the time, and are parked in the middle of it.

use rustix::process::Signal;
use vswap_e2e::launch::signal_pid;
use vswap_e2e::limit::mib;
use vswap_e2e::{Context, MIB, Outcome, ensure, procfs};

use crate::program::{Program, Size};

const LIMIT_BYTES: u64 = 160 * MIB;
const SIZE: Size = Size {
    mib: 96,
    threads: 4,
    children: 3,
};
/// What may be left of one process: stacks, data of libraries, and what its threads touch until the last of them has
/// stopped, which takes longer where others want the processors too.
const PROCESS_BYTES_MAX: u64 = 20 * MIB;
const ROUNDS: usize = 4;

/// In memory that is larger than the limit, in a process with threads and in three children that have its memory and
/// change it.
pub fn test(context: &Context) -> Outcome {
    let launcher = context.limited(LIMIT_BYTES)?;
    let place = context.place().display().to_string();
    let mut program = Program::start(context, &launcher, SIZE, &["--swap", &place])?;
    for round in 0..ROUNDS {
        let said = program.parks()?;
        let processes = program.processes().len() as u64;
        ensure!(processes == 4, "there are {processes} processes");
        let anon = program.anon_bytes();
        ensure!(
            anon <= processes * PROCESS_BYTES_MAX,
            "{} are left of {processes} processes: {said}",
            mib(anon)
        );
        // Told while nobody hears.
        program.tell("check")?;
        program.wakes()?;
        if round % 2 == 1 {
            // Again in the middle of it, with everything on its way.
            program.parks()?;
            program.wakes()?;
        }
        program.hear("done check")?;
        program.does("grow")?;
    }
    program.ends().map(drop)
}

/// Who was stopped before keeps its memory, and stays stopped when the run is woken.
pub fn stopped_before(context: &Context) -> Outcome {
    let launcher = context.limited(LIMIT_BYTES)?;
    let size = Size {
        mib: 32,
        threads: 1,
        children: 1,
    };
    let program = Program::start(context, &launcher, size, &[])?;
    let main = program.running.program_pid()?;
    let mut others = program.processes();
    others.retain(|pid| *pid != main);
    let [child] = others[..] else {
        return Err(vswap_e2e::Failure::wrong(format!("children: {others:?}")));
    };
    let is_stopped = |pid| procfs::stat(pid).is_some_and(|stat| stat.state == b'T');
    signal_pid(child, Signal::STOP)?;
    program
        .running
        .until("the child to stop", || Ok(is_stopped(child).then_some(())))?;
    let said = program.parks()?;
    ensure!(
        said.contains(&format!("stay stopped afterwards: processes {child}")),
        "it said {said}"
    );
    let said = program.must(&["wake"])?;
    ensure!(
        is_stopped(child) && !is_stopped(main),
        "the child goes on, or its parent does not: {said}"
    );
    signal_pid(child, Signal::CONT)?;
    program.ends().map(drop)
}
