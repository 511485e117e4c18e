//! A program that waits: next to nothing is left of it while it is parked, and it takes no time.

use std::fs;
use std::time::Duration;

use vswap_e2e::limit::mib;
use vswap_e2e::{Context, MIB, Outcome, ensure, procfs};

use crate::program::{Program, Size};

const LIMIT_BYTES: u64 = 512 * MIB;
const SIZE: Size = Size {
    mib: 256,
    threads: 0,
    children: 0,
};
/// What may be left of the program: stacks, and data of libraries.
const PROGRAM_BYTES_MAX: u64 = 6 * MIB;
/// What may be left in all.
const LEFT_BYTES_MAX: u64 = 24 * MIB;
/// How long it is watched, and clock ticks of 10 ms that vswap may take meanwhile.
const WATCHED: Duration = Duration::from_secs(2);
const TICKS_MAX: u64 = 10;

pub fn test(context: &Context) -> Outcome {
    let launcher = context.limited(LIMIT_BYTES)?;
    let place = context.place().display().to_string();
    let mut program = Program::start(context, &launcher, SIZE, &["--swap", &place])?;
    ensure!(
        program.must(&["wake"])?.contains("not parked"),
        "nothing was to be woken"
    );
    for round in 0..3 {
        let said = program.parks()?;
        let anon = program.anon_bytes();
        ensure!(
            anon <= PROGRAM_BYTES_MAX,
            "{} are left of the program: {said}",
            mib(anon)
        );
        let (left, pool) = (
            program.figure("total_bytes")?,
            program.figure("pool_bytes")?,
        );
        ensure!(
            left <= LEFT_BYTES_MAX && pool == 0,
            "{} are left, {} of them in the pool: {said}",
            mib(left),
            mib(pool)
        );
        ensure!(
            program.must(&["park"])?.contains("parked already"),
            "it was parked before"
        );
        takes_no_time(&program)?;
        program.wakes()?;
        // In the last round nothing is touched until all has come back by itself.
        if round == 2 {
            program.running.until("its memory to come back", || {
                Ok((program.anon_bytes() > SIZE.mib * MIB).then_some(()))
            })?;
        }
        program.does("check")?;
    }
    program.ends().map(drop)
}

fn takes_no_time(program: &Program<'_>) -> Outcome {
    let (pid, vswap) = (program.running.program_pid()?, program.running.pid());
    let before = (ticks(pid), ticks(vswap));
    std::thread::sleep(WATCHED);
    let after = (ticks(pid), ticks(vswap));
    ensure!(
        after.0 == before.0 && after.1 <= before.1 + TICKS_MAX,
        "{} took {} ticks, and vswap {}",
        procfs::describe(pid),
        after.0 - before.0,
        after.1 - before.1
    );
    Ok(())
}

/// CPU time of a process in ticks of its clock.
fn ticks(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let rest = text.rsplit(')').next().unwrap_or_default();
    let fields = rest.split_ascii_whitespace().skip(11).take(2);
    fields.filter_map(|field| field.parse::<u64>().ok()).sum()
}
